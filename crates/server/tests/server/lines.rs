//! Answers as lines: their shape, and that a reader can always tell whether all of them came.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use mainstay_testkit::fault::{Cut, FaultProxy};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use serde_json::{Value, json};

use super::rig::{Rig, eventually, head, options};

const LINES: &[(&str, &str)] = &[("accept", "application/x-ndjson")];
/// Rows that the server makes while they are read; far more than any buffer holds.
const MANY: &str = "SELECT generate_series(1, 2000000) AS n, repeat('x', 100) AS pad";
/// Far longer than any stream of a test takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn lines(text: &str) -> Vec<Value> {
    assert!(text.ends_with('\n'), "the last line is cut: {text}");
    let parse = |line: &str| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

#[tokio::test]
async fn rows_come_as_lines_between_a_header_and_an_end() {
    let rig = Rig::start().await;
    rig.insert(&["a", "b\n\"c\""]).await;
    let client = &rig.client;
    let ask = async |verb: &str, body: Value| {
        let path = format!("/v1/sources/s/{verb}");
        let reply = client.send("POST", &path, LINES, body.to_string()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.headers["content-type"], "application/x-ndjson");
        lines(&reply.text)
    };
    let begun = client.verb("transactions", json!({})).await.good();
    let id = begun["transaction"].as_str().unwrap();
    let select = json!({"sql": "SELECT id, name FROM t ORDER BY id"});
    for (verb, body) in [
        ("query", select.clone()),
        ("find", json!({"entity": "t", "order": [{"field": "id"}]})),
        (&*format!("transactions/{id}/query"), select),
    ] {
        let told = ask(verb, body).await;
        assert_eq!(told.len(), 4, "{verb}: {told:?}");
        assert_eq!(told[0]["columns"][0], json!({"name": "id", "type": "i64"}));
        assert_eq!((&told[1][0], &told[1][1]), (&json!(1), &json!("a")));
        assert_eq!(told[2][1], "b\n\"c\"");
        let done = &told[3]["done"];
        assert_eq!(done["rows"], 2, "{verb}: {done}");
        assert!(done["elapsed_ms"].is_number(), "{verb}: {done}");
        assert_eq!(done["correlation_id"].as_str().unwrap().len(), 32);
    }
    let path = format!("/v1/sources/s/transactions/{id}/rollback");
    client.post(&path, json!({})).await.good();
    let none = ask("query", json!({"sql": "SELECT id FROM t WHERE id < 0"})).await;
    assert_eq!((none.len(), &none[1]["done"]["rows"]), (2, &json!(0)));
    let insert = "INSERT INTO t (name) VALUES ('c') RETURNING name";
    let written = ask("query", json!({"sql": insert})).await;
    assert_eq!(
        (&written[1], &written[2]["done"]["rows"]),
        (&json!(["c"]), &json!(1))
    );
    assert_eq!(rig.count().await, 3);
    rig.end().await;
}

#[tokio::test]
async fn what_fails_before_the_first_row_is_a_problem_document() {
    let rig = Rig::start().await;
    let ask = async |verb: &str, body: Value| {
        let path = format!("/v1/sources/s/{verb}");
        rig.client
            .send("POST", &path, LINES, body.to_string())
            .await
    };
    let wrong = ask("query", json!({"sql": "SELEC 1"})).await;
    wrong.bad(400, "bad_statement");
    let page = ask("find", json!({"entity": "t", "page": {"size": 5}})).await;
    page.bad(400, "bad_request");
    let unknown = ask("find", json!({"entity": "u"})).await;
    unknown.bad(404, "unknown_entity");
    assert_eq!(rig.count().await, 0);
    rig.end().await;
}

#[tokio::test]
async fn an_answer_too_large_for_a_document_names_lines_and_comes_as_lines() {
    let rig = Rig::with("answer_max = \"2KiB\"\n", "").await;
    let numbers = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 30000) SELECT x FROM c";
    for sql in [
        numbers,
        "SELECT hex(zeroblob(1500))",
        "SELECT hex(zeroblob(50000))",
    ] {
        let refused = rig.client.verb("query", json!({"sql": sql})).await;
        let problem = refused.bad(413, "answer_too_large");
        let hint = problem["hint"].as_str().unwrap();
        assert!(hint.contains("application/x-ndjson"), "{hint}");
    }
    let body = json!({"sql": numbers}).to_string();
    let whole = rig
        .client
        .send("POST", "/v1/sources/s/query", LINES, body)
        .await;
    let told = lines(&whole.text);
    assert_eq!(told.len(), 30_002);
    assert_eq!(told[30_000], json!([30_000]));
    assert_eq!(told[30_001]["done"]["rows"], 30_000);
    rig.end().await;
}

/// A real server, a network before it that can fail, and Mainstay.
struct Line {
    server: PostgresServer,
    network: FaultProxy,
    rig: Rig,
}

impl Line {
    async fn start(server_keys: &str) -> Line {
        let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
        let network = FaultProxy::start_raw(server.port()).unwrap();
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let text = format!(
            "{}{server_keys}[sources.s]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\nport = {}\n\
             database = \"postgres\"\nuser = \"postgres\"\ntls = \"off\"\n[sources.s.endpoints.a]\n\
             [sources.s.policy.health]\ninterval = \"200ms\"\n",
            head(folder.path()),
            network.port(),
        );
        let rig = Rig::from_options(folder, options(text)).await.unwrap();
        eventually("the server says that it is primary", async || {
            rig.client.get("/v1/sources/s").await.good()["primary"] == "a"
        })
        .await;
        Line {
            server,
            network,
            rig,
        }
    }

    /// A stream whose first rows are there.
    async fn begin(&self) -> Reading {
        self.begin_within("60s").await
    }

    async fn begin_within(&self, deadline: &str) -> Reading {
        let body = json!({"sql": MANY, "options": {"deadline": deadline}}).to_string();
        let request = Request::post("/v1/sources/s/query")
            .header("host", "localhost")
            .header("accept", "application/x-ndjson");
        let request = request.body(Full::from(body)).unwrap();
        let opened = tokio::time::timeout(PATIENCE, self.rig.client.open(request));
        let response = opened.await.expect("an answer in time");
        assert_eq!(response.status(), 200);
        let mut reading = Reading {
            response,
            last: Vec::new(),
        };
        assert!(reading.next().await.unwrap());
        reading
    }

    /// Waits until nothing of the stream is left here.
    async fn lease_is_back(&self) {
        eventually("the lease is back", async || {
            let shown = self.rig.client.get("/v1/sources/s/metrics").await.good();
            let endpoint = &shown["endpoints"][0];
            endpoint["pool"]["active"] == 0 && endpoint["in_flight"] == 0
        })
        .await;
    }

    /// Waits until nothing of the stream is left, here and at the server.
    async fn comes_back(&self) {
        self.lease_is_back().await;
        eventually("the server has stopped", async || {
            let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%generate_series%' AND pid <> pg_backend_pid()";
            self.server.value(running).await.is_ok_and(|count| count == "0")
        })
        .await;
    }

    async fn end(self) {
        self.rig.end().await;
    }
}

/// The rest of a stream.
struct Reading {
    response: Response<Incoming>,
    /// The end of what has come.
    last: Vec<u8>,
}

impl Reading {
    /// Reads on; `false`: the body is complete.
    async fn next(&mut self) -> Result<bool, hyper::Error> {
        let frame = tokio::time::timeout(PATIENCE, self.response.body_mut().frame());
        let Some(frame) = frame.await.expect("a frame in time") else {
            return Ok(false);
        };
        self.last.extend_from_slice(frame?.data_ref().unwrap());
        let cut = self.last.len().saturating_sub(1 << 20);
        self.last.drain(..cut);
        Ok(true)
    }

    /// Reads to the end: the last line if it is whole. `None`: it was cut.
    async fn end(mut self) -> Option<Value> {
        while self.next().await.ok()? {}
        let text = String::from_utf8(self.last).unwrap();
        let line = text.strip_suffix('\n')?.lines().next_back()?;
        serde_json::from_str(line).ok()
    }
}

#[tokio::test]
async fn a_statement_cancelled_in_the_middle_of_its_stream_is_told_in_the_last_line() {
    let line = Line::start("").await;
    for how in ["pg_cancel_backend", "pg_terminate_backend"] {
        let reading = line.begin().await;
        let stop = format!(
            "SELECT {how}(pid) FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND pid <> pg_backend_pid()"
        );
        line.server.sql(&stop).await.unwrap();
        let told = reading.end().await.expect("a last line");
        let problem = &told["problem"];
        assert!(problem["code"].is_string(), "{how}: {told}");
        assert!(problem["hint"].is_string(), "{how}: {told}");
        assert_eq!(problem["endpoint"], "a", "{how}: {told}");
        line.comes_back().await;
    }
    line.end().await;
}

#[tokio::test]
async fn a_network_cut_or_a_server_killed_in_the_middle_of_a_stream_is_told_in_the_last_line() {
    let line = Line::start("").await;
    for form in [Cut::Rst, Cut::Fin] {
        let reading = line.begin().await;
        line.network.cut_all(form);
        let told = reading.end().await.expect("a last line");
        assert!(told["problem"]["code"].is_string(), "{told}");
        line.lease_is_back().await;
    }
    let reading = line.begin().await;
    line.server.kill9().await.unwrap();
    let told = reading.end().await.expect("a last line");
    assert!(told["problem"]["code"].is_string(), "{told}");
    line.server.start_again().await.unwrap();
    line.lease_is_back().await;
    line.end().await;
}

#[tokio::test]
async fn a_stream_that_stands_still_is_ended_and_told() {
    let line = Line::start("stream_idle = \"500ms\"\n").await;
    let reading = line.begin().await;
    line.network.black_hole(true);
    let told = reading.end().await.expect("a last line");
    assert_eq!(told["problem"]["code"], "deadline_exceeded", "{told}");
    line.network.black_hole(false);
    line.comes_back().await;
    line.end().await;
}

#[tokio::test]
async fn a_client_that_leaves_gives_everything_back() {
    let line = Line::start("").await;
    for frames in [0, 3, 40] {
        let mut reading = line.begin().await;
        for _ in 0..frames {
            reading.next().await.unwrap();
        }
        drop(reading);
        line.comes_back().await;
    }
    line.end().await;
}

#[tokio::test]
async fn a_slow_reader_outlives_the_deadline_of_the_call_in_bounded_memory() {
    let line = Line::start("").await;
    let mut reading = line.begin_within("5s").await;
    tokio::time::sleep(Duration::from_millis(5500)).await;
    for _ in 0..100 {
        assert!(reading.next().await.unwrap());
    }
    let text = String::from_utf8_lossy(&reading.last).into_owned();
    assert!(!text.contains("problem"), "{}", &text[text.len() - 300..]);
    drop(reading);
    line.comes_back().await;
    line.end().await;
}

#[tokio::test]
async fn a_stream_that_the_end_of_the_program_cuts_has_no_last_line() {
    let line = Line::start("").await;
    let reading = line.begin().await;
    let ended = line.rig.stop(Duration::from_millis(200)).await;
    assert_eq!((ended.left, ended.requests), (0, 1), "{ended:?}");
    let told = reading.end().await;
    assert!(
        told.as_ref().is_none_or(|told| told.get("done").is_none()),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_write_runs_to_its_end_whatever_its_reader_does_and_whatever_was_declared() {
    let line = Line::start("").await;
    line.server.sql("CREATE TABLE kept (n int)").await.unwrap();
    let insert = "INSERT INTO kept SELECT generate_series(1, 200000) RETURNING n";
    for (number, declared) in ["write", "idempotent_write"].into_iter().enumerate() {
        let body = json!({"sql": insert, "options": {"safety": declared}}).to_string();
        let request = Request::post("/v1/sources/s/query")
            .header("host", "localhost")
            .header("accept", "application/x-ndjson")
            .body(Full::from(body))
            .unwrap();
        let response = line.rig.client.open(request).await;
        assert_eq!(response.status(), 200, "{declared}");
        drop(response);
        let rows = (number + 1) * 200_000;
        eventually("all rows are there", async || {
            let count = line
                .server
                .value("SELECT count(*) FROM kept")
                .await
                .unwrap();
            count == rows.to_string()
        })
        .await;
    }
    line.end().await;
}

#[tokio::test]
async fn a_read_that_turns_out_to_write_runs_once_and_is_answered_as_lines_too() {
    let line = Line::start("").await;
    let made = "CREATE TABLE noted (n int); \
                CREATE FUNCTION note() RETURNS int LANGUAGE sql AS \
                'INSERT INTO noted VALUES (1) RETURNING n'; \
                CREATE VIEW notes AS SELECT note() AS n";
    line.server.sql(made).await.unwrap();
    for count in 1..=2 {
        let body = json!({"sql": "SELECT n FROM notes"}).to_string();
        let path = "/v1/sources/s/query";
        let reply = line.rig.client.send("POST", path, LINES, body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        let told = lines(&reply.text);
        assert_eq!(told[1], json!([1]), "{told:?}");
        assert_eq!(told[2]["done"]["rows"], 1, "{told:?}");
        let noted = line
            .server
            .value("SELECT count(*) FROM noted")
            .await
            .unwrap();
        assert_eq!(noted, count.to_string());
    }
    line.rig.end().await;
}
