//! Something that is no broker, or a broken one.

use std::time::Duration;

use mainstay_amqp::AmqpBroker;
use mainstay_engine::tasks::Tasks;
use mainstay_message::{Broker, Link};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::fixture::{await_link, settings};

const START: &[u8] =
    b"\x01\0\0\0\0\0\x1c\0\x0a\0\x0a\0\x09\0\0\0\0\0\0\0\x05PLAIN\0\0\0\x05en_US\xce";
const TUNE: &[u8] = b"\x01\0\0\0\0\0\x0c\0\x0a\0\x1e\x07\xff\0\x02\0\0\0\x01\xce";
const OPEN_OK: &[u8] = b"\x01\0\0\0\0\0\x05\0\x0a\0\x29\0\xce";
const CHANNEL_OPEN_OK: &[u8] = b"\x01\0\x01\0\0\0\x08\0\x14\0\x0b\0\0\0\0\xce";
const DECLARE_OK: &[u8] = b"\x01\0\x01\0\0\0\x04\0\x28\0\x0b\xce";
const SELECT_OK: &[u8] = b"\x01\0\x01\0\0\0\x04\0\x55\0\x0b\xce";

/// Takes connections one after another, says these bytes on each, and keeps it open until the client goes.
async fn speak(listener: &TcpListener, bytes: &[u8], hangs_up: bool) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let _ = stream.write_all(bytes).await;
    if !hangs_up {
        drain(&mut stream).await;
    }
}

async fn drain(stream: &mut TcpStream) {
    let mut taken = [0; 4096];
    while matches!(stream.read(&mut taken).await, Ok(count) if count > 0) {}
}

#[tokio::test]
async fn whatever_a_broken_broker_says_leads_to_another_connection() {
    let handshake = [START, TUNE, OPEN_OK, CHANNEL_OPEN_OK, DECLARE_OK, SELECT_OK].concat();
    let after = |bytes: &[u8]| [&handshake, bytes].concat();
    for (what, bytes, hangs_up, words) in [
        (
            "another protocol",
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            false,
            "unknown kind",
        ),
        (
            "another version",
            b"AMQP\x00\x01\x00\x00".to_vec(),
            true,
            "AMQP 1.0.0",
        ),
        ("nothing", vec![], true, "closed the connection"),
        (
            "half a frame",
            START[..20].to_vec(),
            true,
            "closed the connection",
        ),
        (
            "silence at login",
            START.to_vec(),
            false,
            "did not answer the login",
        ),
        (
            "a frame of 4 GB",
            b"\x01\0\0\xff\xff\xff\xff".to_vec(),
            false,
            "were agreed",
        ),
        (
            "a frame without end",
            [&START[..START.len() - 1], &[0]].concat(),
            false,
            "without its end",
        ),
        (
            "silence after login",
            handshake.clone(),
            false,
            "said nothing for",
        ),
        (
            "garbage after login",
            after(&[0x55; 64]),
            false,
            "unknown kind",
        ),
        (
            "a message on no channel",
            after(b"\x02\0\x09\0\0\0\x0e\0\x3c\0\0\0\0\0\0\0\0\0\0\0\0\xce"),
            false,
            "not open",
        ),
        (
            "a confirmation of nothing",
            after(b"\x01\0\x01\0\0\0\x0d\0\x3c\0\x50\0\0\0\0\0\0\0\x09\0\xce"),
            false,
            "never published",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = settings(listener.local_addr().unwrap().port(), "user", "secret");
        settings.connect_timeout = Duration::from_secs(1);
        let tasks = Tasks::new();
        let broker = AmqpBroker::connect(settings, &tasks);
        let spoken = async {
            for _ in 0..2 {
                speak(&listener, &bytes, hangs_up).await;
            }
        };
        let told = async {
            let down = |link: &Link| {
                matches!(
                    link,
                    Link::Down {
                        reason: Some(_),
                        ..
                    }
                )
            };
            match await_link(&broker, what, down).await {
                Link::Down {
                    reason: Some(reason),
                    ..
                } => reason,
                link => panic!("{what}: {link:?}"),
            }
        };
        let (spoken, reason) = tokio::join!(timeout(Duration::from_secs(20), spoken), told);
        assert!(spoken.is_ok(), "{what}: it did not come again");
        assert!(reason.contains(words), "{what}: {reason}");
        timeout(Duration::from_secs(5), broker.close())
            .await
            .unwrap();
        assert!(
            tasks.idle(Duration::from_secs(5)).await,
            "{what}: something still runs"
        );
    }
}
