//! What comes before there is a request, and beside it: heads that are none, encodings, halves of
//! connections.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rig::{Rig, eventually};

/// Far longer than any exchange here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends bytes, closes the sending side where told to, and reads to the end.
async fn exchange(rig: &Rig, bytes: &[u8], half_close: bool) -> String {
    let talk = async {
        let mut stream = TcpStream::connect(rig.client.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        if half_close {
            stream.shutdown().await.unwrap();
        }
        let mut told = Vec::new();
        stream.read_to_end(&mut told).await.unwrap();
        String::from_utf8(told).unwrap()
    };
    let shown: String = String::from_utf8_lossy(bytes).chars().take(50).collect();
    let told = tokio::time::timeout(PATIENCE, talk).await;
    told.unwrap_or_else(|_| panic!("no end after {shown:?}"))
}

/// The last answer of an exchange: its status and its body.
fn last(told: &str) -> (u16, Value) {
    let start = told.rfind("\r\n\r\nHTTP/1.1 ").map_or(0, |at| at + 4);
    let answer = &told[start..];
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("x-correlation-id: "), "{told}");
    let status = head[9..12].parse().unwrap();
    (
        status,
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{told}")),
    )
}

#[tokio::test]
async fn heads_that_are_none_are_answered_by_a_problem_document() {
    let rig = Rig::with("header_timeout = \"500ms\"\n", "").await;
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(300_000));
    let address = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(300_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(70));
    let table: [(&[u8], bool, u16, &str); 10] = [
        (b"rubbish\r\n\r\n", false, 400, "bad_request"),
        (
            b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
            false,
            400,
            "bad_request",
        ),
        (b"GET / HTTP/9.9\r\n\r\n", false, 400, "bad_request"),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            false,
            400,
            "bad_request",
        ),
        (
            b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
            false,
            400,
            "bad_request",
        ),
        (long.as_bytes(), false, 431, "head_too_large"),
        (address.as_bytes(), false, 431, "head_too_large"),
        (many.as_bytes(), false, 431, "head_too_large"),
        (b"GET / HTTP/1.1\r\nhost: a", false, 408, "request_timeout"),
        (b"GET / HTTP/1.1\r\nhost: a", true, 400, "bad_request"),
    ];
    for (bytes, half_close, status, code) in table {
        let told = exchange(&rig, bytes, half_close).await;
        let (got, problem) = last(&told);
        let shown: String = String::from_utf8_lossy(bytes).chars().take(50).collect();
        assert_eq!(
            (got, &problem["code"]),
            (status, &json!(code)),
            "{shown:?}: {told}"
        );
        for member in ["type", "title", "detail", "sent", "correlation_id", "hint"] {
            assert!(problem[member].is_string(), "{member}: {told}");
        }
        assert!(
            told.contains("content-type: application/problem+json"),
            "{told}"
        );
    }
    rig.end().await;
}

#[tokio::test]
async fn control_characters_in_headers_are_refused_wherever_they_stand() {
    let rig = Rig::start().await;
    let lines: [&[u8]; 9] = [
        b"x-session: a\x01b",
        b"x-session: a\x00b",
        b"x-session: a\x7fb",
        b"x-session: a\rb",
        b"x-session: a\tb",
        b"idempotency-key: \x1b[31m",
        b"x-correlation-id: \x08",
        b"authorization: Bearer \x00",
        b"x-ses\x01sion: a",
    ];
    for line in lines {
        let body = br#"{"sql": "SELECT 1"}"#;
        let mut request = b"POST /v1/sources/s/query HTTP/1.1\r\nhost: localhost\r\n".to_vec();
        request.extend_from_slice(line);
        request.extend_from_slice(b"\r\nconnection: close\r\ncontent-length: 19\r\n\r\n");
        request.extend_from_slice(body);
        let told = exchange(&rig, &request, false).await;
        let (status, problem) = last(&told);
        let shown = String::from_utf8_lossy(line);
        assert_eq!(
            (status, &problem["code"]),
            (400, &json!("bad_request")),
            "{shown:?}: {told}"
        );
        let said = format!("{} {}", problem["detail"], problem["hint"]);
        assert!(said.contains("control character"), "{shown:?}: {said}");
    }
    rig.end().await;
}

#[tokio::test]
async fn a_trace_goes_on_in_answers_problems_and_the_audit_trail_and_a_broken_one_begins_anew() {
    let rig = Rig::start().await;
    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let good = format!("00-{ID}-00f067aa0ba902b7-01");
    let path = "/v1/sources/s/query";
    let headers = [("traceparent", good.as_str()), ("tracestate", "a=1")];
    let body = json!({"sql": "SELECT 1"}).to_string();
    let reply = rig.client.send("POST", path, &headers, body).await;
    let parent = reply.headers["traceparent"].to_str().unwrap().to_owned();
    assert!(
        parent.starts_with(&good[..36]) && parent.ends_with("-01"),
        "{parent}"
    );
    assert_ne!(parent, good, "a span of its own");
    assert_eq!(reply.headers["tracestate"], "a=1");
    assert_eq!(reply.headers["x-correlation-id"], ID);
    assert_eq!(reply.good()["meta"]["correlation_id"], ID);
    let wrong = rig.client.send("POST", path, &headers, "{").await;
    assert_eq!(wrong.headers["traceparent"].len(), 55);
    assert_eq!(wrong.bad(400, "bad_request")["correlation_id"], ID);
    let audited = format!("/v1/sources/s/audit?correlation_id={ID}");
    let audited = rig.client.get(&audited).await.good();
    assert_eq!(audited["entries"][0]["correlation_id"], ID, "{audited}");

    for broken in [
        good.to_uppercase(),
        format!("{good}-more"),
        good.replace(ID, &"0".repeat(32)),
    ] {
        let headers = [("traceparent", broken.as_str()), ("tracestate", "a=1")];
        let reply = rig.client.send("GET", "/healthz", &headers, "").await;
        let parent = reply.headers["traceparent"].to_str().unwrap();
        let id = reply.headers["x-correlation-id"].to_str().unwrap();
        assert_eq!(&parent[3..35], id, "{broken}");
        assert_ne!(id.to_lowercase(), ID, "{broken}");
        assert!(!reply.headers.contains_key("tracestate"), "{broken}");
    }
    rig.end().await;
}

#[tokio::test]
async fn encoded_bodies_and_keys_given_twice_are_refused() {
    let rig = Rig::start().await;
    let path = "/v1/sources/s/query";
    for (name, value) in [("content-encoding", "gzip"), ("content-encoding", "zstd")] {
        let reply = rig
            .client
            .send("POST", path, &[(name, value)], "\x1f\u{8b}")
            .await;
        reply.bad(415, "unsupported_encoding");
    }
    let bodies = [
        (
            "insert",
            r#"{"entity": "t", "values": {"name": "a", "name": "b"}}"#,
        ),
        (
            "insert_many",
            r#"{"entity": "t", "rows": [{"name": "a", "name": "b"}]}"#,
        ),
        (
            "update",
            r#"{"entity": "t", "filters": [{"field": "id", "value": 1}], "set": {"name": "a", "name": "b"}}"#,
        ),
        (
            "query",
            r#"{"sql": "SELECT ?1", "params": [{"name": 1, "name": 2}]}"#,
        ),
        ("endpoints", r#"{"id": "x", "name": 1, "name": 2}"#),
    ];
    for (verb, body) in bodies {
        let path = format!("/v1/sources/s/{verb}");
        let reply = rig.client.send("POST", &path, &[], body).await;
        let problem = reply.bad(400, "bad_request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("the key \"name\" twice"),
            "{verb}: {detail}"
        );
    }
    let policy = r#"{"name": "a", "name": "b"}"#;
    let reply = rig
        .client
        .send("PUT", "/v1/admin/policy", &[], policy)
        .await;
    reply.bad(400, "bad_request");
    assert_eq!(rig.count().await, 0);
    rig.end().await;
}

/// A request whose statement takes some seconds, unless it is cancelled.
fn slow_request() -> String {
    let body = json!({"sql": SLOW}).to_string();
    format!(
        "POST /v1/sources/s/query HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

const SLOW: &str = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000000) SELECT count(*) FROM c";

#[tokio::test]
async fn a_client_that_closes_its_sending_side_gets_its_answer_at_once_or_later() {
    let rig = Rig::start().await;
    let quick = exchange(
        &rig,
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
        true,
    )
    .await;
    assert!(quick.starts_with("HTTP/1.1 200"), "{quick}");
    let old = exchange(&rig, b"GET /healthz HTTP/1.0\r\n\r\n", true).await;
    assert!(old.contains(" 200 OK"), "{old}");
    let told = exchange(&rig, slow_request().as_bytes(), true).await;
    assert!(told.contains(" 200 OK"), "{told}");
    assert!(told.contains("[[3000000]]"), "{told}");
    // More than fits the buffers of a connection.
    let body = json!({"sql": "SELECT hex(zeroblob(3000000))"}).to_string();
    let large = format!(
        "POST /v1/sources/s/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let told = exchange(&rig, large.as_bytes(), true).await;
    assert!(told.len() > 6_000_000, "{}", told.len());
    let half =
        b"POST /v1/sources/s/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{";
    let (status, problem) = last(&exchange(&rig, half, true).await);
    assert_eq!((status, &problem["code"]), (400, &json!("bad_request")));
    rig.end().await;
}

#[tokio::test]
async fn a_client_that_is_gone_still_has_its_statement_cancelled() {
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        leave(version).await;
    }
}

async fn leave(version: &str) {
    let rig = Rig::start().await;
    let endless = SLOW.replace("3000000", "3000000000000");
    let body = json!({"sql": endless}).to_string();
    let request = format!(
        "POST /v1/sources/s/query {version}\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(rig.client.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let in_flight = async || {
        let source = rig.client.get("/v1/sources/s").await.good();
        let members = source["members"].as_array().unwrap().clone();
        members
            .iter()
            .filter_map(|member| member["in_flight"].as_u64())
            .sum::<u64>()
    };
    eventually("it runs", async || in_flight().await == 1).await;
    drop(stream);
    eventually("it is cancelled", async || in_flight().await == 0).await;
    rig.end().await;
}
