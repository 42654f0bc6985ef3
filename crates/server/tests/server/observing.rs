//! What can be seen from outside: health, numbers, audit, events, explanations.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use mainstay_engine::event::EventKind;
use serde_json::json;

use super::rig::Rig;

#[tokio::test]
async fn a_source_is_seen_from_every_side() {
    let rig = Rig::start().await;
    let client = &rig.client;
    rig.insert(&["a"]).await;
    client
        .verb("query", json!({"sql": "SELEC 1"}))
        .await
        .bad(400, "bad_statement");

    assert_eq!(client.get("/healthz").await.good()["status"], "ok");
    assert!(client.get("/readyz").await.good()["sources"]["s"].is_string());
    let list = client.get("/v1/sources").await.good();
    assert_eq!(list["sources"][0]["name"], "s");
    assert_eq!(list["sources"][0]["primary"], "writer");
    let watchdog = client.get("/v1/sources/s/watchdog").await.good();
    assert_eq!(
        (&watchdog["promotion"], &watchdog["primary"]),
        (&json!("route"), &json!("writer"))
    );
    let slo = client.get("/v1/sources/s/slo").await.good();
    assert_eq!(slo["endpoints"].as_array().unwrap().len(), 2);
    assert!(slo["calls"]["succeeded"].as_u64().unwrap() >= 2, "{slo}");
    let failed = client
        .get("/v1/sources/s/audit?failed=true&limit=5")
        .await
        .good();
    assert_eq!(failed["entries"].as_array().unwrap().len(), 1, "{failed}");

    let reply = client.get("/metrics").await;
    assert!(
        reply.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/plain")
    );
    for series in [
        "mainstay_calls_total{source=\"s\",outcome=\"failed\"} 1\n",
        "mainstay_endpoint_primary{source=\"s\",endpoint=\"writer\"} 1\n",
        "mainstay_http_answers_total{class=\"4xx\"} 1\n",
    ] {
        assert!(reply.text.contains(series), "no {series} in {}", reply.text);
    }
    rig.end().await;
}

#[tokio::test]
async fn events_arrive_while_they_happen() {
    let rig = Rig::start().await;
    let request = Request::get("/v1/events")
        .header("host", "localhost")
        .body(Full::default())
        .unwrap();
    let mut body = rig.client.open(request).await.into_body();
    let mut text = String::new();
    let mut read = async |part: &str| read_until(&mut body, &mut text, part).await;
    read(": listening\n\n").await;
    rig.client
        .post("/v1/sources/s/endpoints/reader/isolate", json!({}))
        .await
        .good();
    read("event: circuit\n").await;
    read("\"to\":\"isolated\"").await;
    rig.client.post("/v1/admin/pause", json!({})).await.good();
    read("event: paused\n").await;
    // The stream ends with the server.
    let (ended, ()) = tokio::join!(rig.stop(Duration::from_secs(20)), async {
        while let Some(frame) = body.frame().await {
            frame.unwrap();
        }
    });
    assert_eq!(ended.left, 0);
}

/// Reads frames of a stream until the text has a part.
async fn read_until(body: &mut hyper::body::Incoming, text: &mut String, part: &str) {
    let reading = async {
        while !text.contains(part) {
            let frame = body.frame().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, reading).await.expect(part);
}

#[tokio::test]
async fn a_slow_reader_of_events_is_told_how_many_it_lost() {
    let rig = Rig::start().await;
    let request = Request::get("/v1/events?source=s")
        .header("host", "localhost")
        .body(Full::default())
        .unwrap();
    let mut body = rig.client.open(request).await.into_body();
    let mut text = String::new();
    read_until(&mut body, &mut text, ": listening\n\n").await;
    // Nothing else runs on this thread meanwhile, so the reader is slow for sure.
    let served = rig.running().sources().get("s").cloned().unwrap();
    let source = served.proxy().source();
    for _ in 0..5_000 {
        source.publish(EventKind::Resumed);
    }
    source.publish(EventKind::Paused);
    read_until(&mut body, &mut text, "event: paused\n").await;
    let (_, lost) = text.split_once("event: lost\ndata: ").unwrap();
    let lost = lost.lines().next().unwrap();
    let lost: serde_json::Value = serde_json::from_str(lost).unwrap();
    assert_eq!(lost["source"], "s");
    let arrived = text.matches("event: resumed\n").count() as u64;
    assert_eq!(lost["lost"].as_u64().unwrap() + arrived, 5_000, "{lost}");
    assert!(arrived < 5_000 && text.matches("event: lost\n").count() == 1);
    drop(body);
    rig.end().await;
}

#[tokio::test]
async fn the_end_of_each_call_is_an_event_for_those_who_ask() {
    let rig = Rig::start().await;
    let request = Request::get("/v1/events?calls=true")
        .header("host", "localhost")
        .body(Full::default())
        .unwrap();
    let mut body = rig.client.open(request).await.into_body();
    let mut text = String::new();
    read_until(&mut body, &mut text, ": listening\n\n").await;
    let wrong = json!({"sql": "SELECT missing FROM t"});
    rig.client
        .verb("query", wrong)
        .await
        .bad(400, "bad_statement");
    read_until(&mut body, &mut text, "\"outcome\":\"failure\"").await;
    for part in ["event: call_ended\n", "\"operation\":\"query\""] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    drop(body);
    rig.end().await;
}

#[tokio::test]
async fn an_explanation_runs_nothing() {
    let rig = Rig::start().await;
    let client = &rig.client;
    let explain = async |sql: &str| {
        client
            .post("/v1/explain", json!({"source": "s", "sql": sql}))
            .await
            .good()
    };
    let write = explain("INSERT INTO t (name) VALUES ('never')").await;
    assert_eq!(
        (&write["statement"]["safety"], &write["needs"]),
        (&json!("write"), &json!("primary"))
    );
    assert_eq!(write["candidates"][0]["endpoint"], "writer");
    assert_eq!(write["candidates"][1]["fits"], false);
    let read = explain("SELECT * FROM t").await;
    assert_eq!(
        (&read["statement"]["kind"], &read["needs"]),
        (&json!("select"), &json!("read"))
    );
    assert_eq!(read["statement"]["reads"], json!(["t"]));
    assert!(read["policy"]["settings"].as_array().unwrap().len() > 20);
    assert_eq!(explain("BEGIN").await["refused"]["code"], "bad_statement");
    client
        .post("/v1/explain", json!({"source": "x", "sql": "SELECT 1"}))
        .await
        .bad(404, "unknown_source");
    assert_eq!(rig.count().await, 0);
    rig.end().await;
}

#[tokio::test]
async fn calls_are_audited_in_a_file_where_the_policy_says_so() {
    let rig = Rig::with("", "[sources.s.policy.audit]\nsink = \"file\"\n").await;
    rig.insert(&["a"]).await;
    let folder = rig.folder.clone();
    rig.end().await;
    let files = std::fs::read_dir(folder.path().join("data/audit")).unwrap();
    let lines: String = files
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let operations: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|entry| entry["operation"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(operations, ["execute", "describe", "insert_many"]);
}
