//! Clients that are slow, and more of them than there is room for.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rig::{Rig, eventually};

#[tokio::test]
async fn slow_clients_are_cut_and_too_many_are_told() {
    let limits = "header_timeout = \"300ms\"\nrequest_timeout = \"300ms\"\nconnections_max = 2\n";
    let rig = Rig::with(limits, "").await;
    let address = rig.client.address();
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET /healthz HT").await.unwrap();
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest).await;
    assert!(
        !String::from_utf8_lossy(&rest).contains("200"),
        "a head without an end was answered"
    );

    let mut body = TcpStream::connect(address).await.unwrap();
    let head =
        "POST /v1/sources/s/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{";
    body.write_all(head.as_bytes()).await.unwrap();
    let mut told = String::new();
    let _ = body.read_to_string(&mut told).await;
    assert!(
        told.contains(" 408 ") && told.contains("request_timeout"),
        "{told}"
    );

    // Two that are at work; idle ones would make room.
    let endless =
        "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";
    let slow = json!({"sql": endless}).to_string();
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /v1/sources/s/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{slow}",
            slow.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        busy.push(stream);
    }
    let in_flight = || {
        let sources = rig.running().sources();
        sources.iter().map(|served| served.in_flight()).sum::<u32>()
    };
    eventually("both are at work", async || in_flight() == 2).await;
    let mut third = TcpStream::connect(address).await.unwrap();
    let mut told = String::new();
    third.read_to_string(&mut told).await.unwrap();
    assert!(
        told.contains(" 503 ") && told.contains("queue_full"),
        "{told}"
    );
    drop(busy);
    eventually("both are gone", async || in_flight() == 0).await;
    rig.end().await;
}
