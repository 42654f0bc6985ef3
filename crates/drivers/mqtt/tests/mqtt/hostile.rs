//! Brokers that are none.

use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_message::{Broker, Link};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::world::{PATIENCE, await_link, message, open, settings};

const WELCOME: &[u8] = &[0x20, 3, 0, 0, 0];

/// Reads one packet; its first byte.
async fn packet(stream: &mut TcpStream) -> std::io::Result<u8> {
    let first = stream.read_u8().await?;
    let mut length = 0;
    for shift in [0, 7, 14, 21] {
        let byte = stream.read_u8().await?;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let mut content = vec![0; length];
    stream.read_exact(&mut content).await?;
    Ok(first)
}

/// What a broker says to each client that comes, before it says nothing more.
async fn say(listener: &TcpListener, words: &[u8], then_close: bool) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        // Whoever leaves early has heard enough.
        if packet(&mut stream).await.is_err() || stream.write_all(words).await.is_err() {
            continue;
        }
        if !then_close {
            while stream.read_u8().await.is_ok() {}
        }
    }
}

#[tokio::test]
async fn garbage_silence_and_half_packets_lead_to_another_connection() {
    let welcome_and = |rest: &[u8]| [WELCOME, rest].concat();
    let announced = [0x30, 0xff, 0xff, 0xff, 0x7f];
    let cases: Vec<(&str, Vec<u8>, bool)> = vec![
        ("silence", vec![], false),
        ("a closed door", vec![], true),
        (
            "another protocol",
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            true,
        ),
        (
            "garbage",
            (0..=255).rev().cycle().take(5000).collect(),
            false,
        ),
        ("half a welcome", WELCOME[..3].to_vec(), true),
        ("half a welcome and silence", WELCOME[..3].to_vec(), false),
        (
            "an endless length",
            vec![0x20, 0xff, 0xff, 0xff, 0xff],
            false,
        ),
        ("a packet before the welcome", vec![0xd0, 0], false),
        ("a refusal", vec![0x20, 3, 0, 0x87, 0], true),
        ("a welcome, then silence", WELCOME.to_vec(), false),
        ("a welcome, then nothing", WELCOME.to_vec(), true),
        ("a welcome, then garbage", welcome_and(&[0xff; 100]), false),
        ("two welcomes", welcome_and(WELCOME), false),
        ("more than is taken", welcome_and(&announced), false),
        (
            "half a message",
            welcome_and(&[0x30, 100, 0, 1, b'a']),
            true,
        ),
        (
            "a topic beyond its packet",
            welcome_and(&[0x30, 4, 0xff, 0xff, 0, 0]),
            false,
        ),
        (
            "acknowledgements of nothing",
            welcome_and(&[0x40, 2, 0, 1, 0x50, 2, 0, 1, 0x70, 2, 0, 1, 0xff]),
            false,
        ),
        ("a goodbye", welcome_and(&[0xe0, 1, 0x8b]), true),
    ];
    for (what, words, then_close) in cases {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tasks = Tasks::new();
        let mut settings = settings(listener.local_addr().unwrap().port(), "victim");
        settings.answer_timeout = Duration::from_millis(200);
        settings.keep_alive = Duration::from_secs(1);
        settings.reconnect_max = Duration::from_millis(50);
        settings.packet_max = 100_000;
        let client = open(settings, &tasks);
        let published = async {
            // Whatever it comes to, it comes to an end or is left.
            for _ in 0..3 {
                let published = client.publish(message("a", "b"));
                let _ = timeout(Duration::from_millis(50), published).await;
            }
        };
        let downs = async {
            for _ in 0..3 {
                let mut link = client.link();
                let down = await_link(&client, |link| {
                    matches!(
                        link,
                        Link::Down {
                            reason: Some(_),
                            ..
                        }
                    )
                });
                println!("{what}: {:?}", down.await);
                link.mark_unchanged();
                timeout(PATIENCE, link.changed()).await.unwrap().unwrap();
            }
        };
        tokio::select! {
            () = say(&listener, &words, then_close) => {}
            _ = async { tokio::join!(published, downs) } => {}
        }
        timeout(PATIENCE, client.close()).await.unwrap();
        assert!(tasks.idle(PATIENCE).await, "{what}");
    }
}

#[tokio::test]
async fn more_messages_than_allowed_end_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tasks = Tasks::new();
    let mut settings = settings(listener.local_addr().unwrap().port(), "victim");
    settings.receive_max = 5;
    let client = open(settings, &tasks);
    let flood = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        packet(&mut stream).await.unwrap();
        stream.write_all(WELCOME).await.unwrap();
        // Twice as many are borne.
        for id in 1..=11 {
            stream
                .write_all(&[0x34, 6, 0, 1, b'a', 0, id, 0])
                .await
                .unwrap();
        }
        // DISCONNECT with the reason.
        assert_eq!(packet(&mut stream).await.unwrap(), 0xe0);
    };
    timeout(PATIENCE, flood).await.unwrap();
    let down = await_link(&client, |link| matches!(link, Link::Down { .. })).await;
    assert!(format!("{down:?}").contains("receive maximum"), "{down:?}");
    client.close().await;
}

#[tokio::test]
async fn a_message_that_comes_in_small_pieces_is_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tasks = Tasks::new();
    let client = open(
        settings(listener.local_addr().unwrap().port(), "patient"),
        &tasks,
    );
    let mut inbox = client.subscribe(mainstay_message::Subscription {
        filter: mainstay_message::TopicFilter::parse("a").unwrap(),
        queue: mainstay_message::Queue::Transient,
        backlog_max: 10,
    });
    let drip = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        packet(&mut stream).await.unwrap();
        let words = [
            WELCOME,
            &[0x30, 9, 0, 1, b'a', 0, b'w', b'h', b'o', b'l', b'e'],
        ]
        .concat();
        for byte in words {
            stream.write_all(&[byte]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        stream
    };
    let (_stream, got) = tokio::join!(drip, timeout(PATIENCE, inbox.deliveries.next()));
    assert_eq!(got.unwrap().unwrap().body, "whole");
    client.close().await;
}

#[tokio::test]
async fn a_session_that_another_client_took_is_told_and_not_taken_back_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tasks = Tasks::new();
    let mut settings = settings(listener.local_addr().unwrap().port(), "twin");
    settings.reconnect_max = Duration::from_millis(700);
    let client = open(settings, &tasks);
    let thrown_out = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        packet(&mut stream).await.unwrap();
        stream.write_all(WELCOME).await.unwrap();
        await_link(&client, Link::is_up).await;
        stream.write_all(&[0xe0, 2, 0x8e, 0]).await.unwrap();
        let begun = tokio::time::Instant::now();
        listener.accept().await.unwrap();
        begun.elapsed()
    };
    let down = await_link(&client, |link| {
        matches!(link, Link::Down { refused: true, .. })
    });
    let (waited, down) = tokio::join!(timeout(PATIENCE, thrown_out), down);
    assert!(waited.unwrap() >= Duration::from_millis(700));
    assert!(
        format!("{down:?}").contains("session taken over"),
        "{down:?}"
    );
    client.close().await;
}
