//! Private mosquitto brokers: started, killed, stopped, saved.

use std::time::Duration;

use mainstay_testkit::mosquitto::{Mosquitto, MosquittoOptions, PASSWORD, USER};
use mainstay_testkit::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// A connection of a client with a session, and the CONNACK: its fourth byte says whether the session
/// was there, the fifth why the client was refused (in MQTT 5; 0 is welcome).
async fn greet(broker: &Mosquitto, id: &str, password: &str) -> (TcpStream, Vec<u8>) {
    let mut rest = vec![0, 4, b'M', b'Q', b'T', b'T', 5, 0b1100_0000, 0, 60];
    // The session expires after an hour.
    rest.extend([5, 0x11, 0, 0, 0x0e, 0x10]);
    for text in [id, USER, password] {
        rest.extend([0, u8::try_from(text.len()).unwrap()]);
        rest.extend(text.as_bytes());
    }
    let mut packet = vec![0x10, u8::try_from(rest.len()).unwrap()];
    packet.extend(rest);
    let mut stream = TcpStream::connect(("127.0.0.1", broker.port()))
        .await
        .unwrap();
    stream.write_all(&packet).await.unwrap();
    let mut head = [0; 2];
    stream.read_exact(&mut head).await.unwrap();
    let mut answer = vec![0; usize::from(head[1])];
    stream.read_exact(&mut answer).await.unwrap();
    (stream, answer)
}

#[tokio::test]
async fn a_broker_starts_soon_and_knows_its_user_only() {
    let begun = Instant::now();
    let broker = Mosquitto::start(MosquittoOptions::new().user("second", "word"))
        .await
        .unwrap();
    println!("a start took {:?}", begun.elapsed());
    let (_held, welcome) = greet(&broker, "a", PASSWORD).await;
    assert_eq!(welcome[..2], [0, 0], "{}", broker.log_tail());
    let (_held, refused) = greet(&broker, "a", "wrong").await;
    assert_eq!(refused[1], 0x87, "not authorized");
    until("the log names the client", async || {
        broker.log_tail().contains("not authorised")
    })
    .await;
}

#[tokio::test]
async fn a_session_outlives_a_stop_and_a_kill_once_it_is_saved() {
    let broker = Mosquitto::start(MosquittoOptions::new()).await.unwrap();
    let port = broker.port();
    drop(greet(&broker, "kept", PASSWORD).await);
    broker.stop().await.unwrap();
    assert!(broker.pid().is_none() && broker.stop().await.is_err());
    broker.start_again().await.unwrap();
    assert!(broker.start_again().await.is_err(), "it runs already");
    assert_eq!(broker.port(), port);
    assert_eq!(greet(&broker, "kept", PASSWORD).await.1[0], 1);

    drop(greet(&broker, "saved", PASSWORD).await);
    broker.save().await.unwrap();
    drop(greet(&broker, "late", PASSWORD).await);
    broker.kill9().await.unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
    broker.start_again().await.unwrap();
    for (id, present) in [("kept", 1), ("saved", 1), ("late", 0)] {
        assert_eq!(greet(&broker, id, PASSWORD).await.1[0], present, "{id}");
    }
}

#[tokio::test]
async fn a_broker_that_saves_each_change_forgets_nothing_in_a_kill() {
    let options = MosquittoOptions::new().saves_each_change();
    let broker = Mosquitto::start(options).await.unwrap();
    for round in 0..3 {
        let id = format!("client-{round}");
        let (mut stream, _) = greet(&broker, &id, PASSWORD).await;
        // A subscription is a change: SUBSCRIBE to `a` with identifier 1.
        let subscribe = [0x82, 7, 0, 1, 0, 0, 1, b'a', 2];
        stream.write_all(&subscribe).await.unwrap();
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[0], 0x90);
        // What it has answered it writes before it waits for the next packet.
        stream.write_all(&[0xc0, 0]).await.unwrap();
        stream.read_exact(&mut answer[..2]).await.unwrap();
        broker.kill9().await.unwrap();
        broker.start_again().await.unwrap();
        assert_eq!(greet(&broker, &id, PASSWORD).await.1[0], 1);
    }
}

#[tokio::test]
async fn a_stopped_broker_answers_nothing_until_it_goes_on() {
    let broker = Mosquitto::start(MosquittoOptions::new()).await.unwrap();
    broker.sigstop().unwrap();
    let mut asked = std::pin::pin!(greet(&broker, "a", PASSWORD));
    assert!(
        timeout(Duration::from_millis(300), &mut asked)
            .await
            .is_err()
    );
    broker.sigcont().unwrap();
    assert_eq!(asked.await.1[..2], [0, 0]);
}

#[tokio::test]
async fn limits_are_announced_and_can_be_changed_for_the_next_start() {
    let options = MosquittoOptions::new()
        .max_packet_size(4096)
        .max_inflight(3)
        .max_queued(10)
        .max_qos(1);
    let broker = Mosquitto::start(options).await.unwrap();
    let (_held, welcome) = greet(&broker, "a", PASSWORD).await;
    let has = |wanted: &[u8]| welcome.windows(wanted.len()).any(|found| found == wanted);
    assert!(has(&[0x27, 0, 0, 0x10, 0]), "packet size: {welcome:?}");
    assert!(has(&[0x21, 0, 3]), "receive maximum: {welcome:?}");
    assert!(has(&[0x24, 1]), "quality of service: {welcome:?}");
    broker.set("max_inflight_messages", 9).unwrap();
    broker.stop().await.unwrap();
    broker.start_again().await.unwrap();
    let (_held, welcome) = greet(&broker, "a", PASSWORD).await;
    assert!(
        welcome.windows(3).any(|found| found == [0x21, 0, 9]),
        "{welcome:?}"
    );
}

#[tokio::test]
async fn a_broker_that_cannot_start_says_why() {
    let options = MosquittoOptions::new().setting("max_apples", 7);
    let problem = Mosquitto::start(options).await.unwrap_err();
    assert!(format!("{problem:#}").contains("max_apples"), "{problem:#}");
}

#[tokio::test]
async fn a_dropped_broker_leaves_no_process_and_no_folder() {
    let broker = Mosquitto::start(MosquittoOptions::new()).await.unwrap();
    let (folder, pid) = (broker.folder().to_owned(), broker.pid().unwrap());
    assert!(folder.join("data").is_dir());
    drop(broker);
    assert!(!folder.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}
