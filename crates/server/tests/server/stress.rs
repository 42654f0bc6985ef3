//! SQLite under stress: slow statements and a full disk harm themselves and nothing else.

use mainstay_testkit::until;
use serde_json::{Value, json};

use super::rig::Rig;

const ENDLESS: &str =
    "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";

async fn members(rig: &Rig) -> Vec<Value> {
    let source = rig.client.get("/v1/sources/s").await.good();
    source["members"].as_array().unwrap().clone()
}

/// Waits until nothing that was cut holds the file's one lock for writing.
async fn cleaned_up(rig: &Rig) {
    until("every connection is back", async || {
        let metrics = rig.client.get("/v1/sources/s/metrics").await.good();
        let endpoints = metrics["endpoints"].as_array().unwrap();
        endpoints.iter().all(|one| one["pool"]["active"] == 0)
    })
    .await;
}

#[tokio::test]
async fn slow_statements_are_tried_once_and_open_no_circuit_of_the_file_that_all_share() {
    let policy = "[sources.s.policy.retry]\nattempt_timeout = \"100ms\"\n";
    let rig = Rig::with("", policy).await;
    let client = &rig.client;
    for number in 0..12 {
        let slow = client.verb("query", json!({"sql": ENDLESS})).await;
        let problem = slow.bad(504, "deadline_exceeded");
        assert_eq!(
            problem["attempts"].as_array().unwrap().len(),
            1,
            "{problem}"
        );
        assert_eq!(problem["blame"], "caller", "{number}: {problem}");
    }
    let write = format!("INSERT INTO t (name) {ENDLESS}");
    for _ in 0..6 {
        let problem = client.verb("execute", json!({"sql": write})).await.json();
        assert_eq!(
            problem["attempts"].as_array().unwrap().len(),
            1,
            "{problem}"
        );
        assert_eq!(problem["blame"], "caller", "{problem}");
        // Without a processor to run on, the proof may come too late.
        let (code, sent) = (problem["code"].as_str(), problem["sent"].as_str());
        let is_proven = (code, sent) == (Some("deadline_exceeded"), Some("yes_unprocessed"));
        let is_unknown = (code, sent) == (Some("outcome_unknown"), Some("maybe"));
        assert!(is_proven || is_unknown, "{problem}");
    }
    for _ in 0..6 {
        cleaned_up(&rig).await;
        let begun = client.verb("transactions", json!({})).await.good();
        let path = format!("transactions/{}", begun["transaction"].as_str().unwrap());
        let query = format!("{path}/query");
        let slow = client.verb(&query, json!({"sql": ENDLESS})).await.json();
        assert_eq!(slow["blame"], "caller", "{slow}");
        // Whether it could go on or was ended by its slow statement.
        client.verb(&format!("{path}/rollback"), json!({})).await;
    }
    cleaned_up(&rig).await;
    for member in members(&rig).await {
        assert_eq!(member["circuit"], "closed", "{member}");
    }
    rig.insert(&["goes on"]).await;
    assert_eq!(rig.count().await, 1);
    rig.end().await;
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_leaves_reads_alone() {
    let full = "[sources.s.endpoints.writer.options]\n\"pragma.max_page_count\" = 8\n\
                [sources.s.policy.retry]\nattempts_max = 1\n[sources.s.policy.health]\nenabled = false\n";
    let rig = Rig::with("", full).await;
    rig.insert(&["kept"]).await;
    let much = json!({"sql": "INSERT INTO t (name) VALUES (hex(zeroblob(50000)))"});
    for _ in 0..12 {
        let refused = rig.client.verb("execute", much.clone()).await;
        let problem = refused.bad(502, "attempts_failed");
        assert_eq!(problem["back_end_code"], "SQLITE_FULL", "{problem}");
        assert_eq!(problem["sent"], "yes_unprocessed", "{problem}");
    }
    for member in members(&rig).await {
        assert_eq!(member["circuit"], "closed", "{member}");
    }
    // From the endpoint that writes as well.
    assert_eq!(rig.count().await, 1);
    rig.end().await;
}

#[tokio::test]
async fn attempts_of_an_answer_and_of_its_audit_entry_are_the_same() {
    let rig = Rig::start().await;
    let client = &rig.client;
    client
        .verb("execute", json!({"sql": "CREATE VIEW v AS SELECT 1 AS a"}))
        .await
        .good();
    let mut answers = vec![
        client
            .verb("script", json!({"sql": "SELECT 1; SELECT a FROM v"}))
            .await
            .good(),
        client
            .verb("script", json!({"sql": "SELECT 1; DELETE FROM t"}))
            .await
            .good(),
        client
            .verb("query", json!({"sql": "SELECT 1"}))
            .await
            .good(),
    ];
    let begun = client.verb("transactions", json!({})).await.good();
    let path = format!(
        "/v1/sources/s/transactions/{}",
        begun["transaction"].as_str().unwrap()
    );
    let inside = json!({"sql": "INSERT INTO t (name) VALUES ('a')"});
    answers.push(client.post(&format!("{path}/execute"), inside).await.good());
    let committed = client
        .post(&format!("{path}/commit"), json!({}))
        .await
        .good();
    assert_eq!(
        committed["meta"]["policy_version"],
        answers[0]["meta"]["policy_version"]
    );
    assert_ne!(committed["meta"]["policy_version"], 0, "{committed}");
    answers.push(committed);
    assert_eq!(
        answers[0]["meta"]["attempts"], 1,
        "a script of reads is one: {}",
        answers[0]
    );
    let audit = client.get("/v1/sources/s/audit?limit=100").await.good();
    let entries = audit["entries"].as_array().unwrap();
    for answer in &answers {
        let meta = &answer["meta"];
        let of_call = |entry: &&Value| {
            entry["correlation_id"] == meta["correlation_id"] && entry["operation"] != "begin"
        };
        let audited: Vec<usize> = entries
            .iter()
            .filter(of_call)
            .map(|entry| entry["attempts"].as_array().unwrap().len())
            .collect();
        let each = meta["attempts"].as_u64().unwrap() as usize;
        assert!(!audited.is_empty(), "{meta}: {audit}");
        assert!(
            audited.iter().all(|count| *count == each),
            "{meta}: {audited:?}"
        );
    }
    rig.end().await;
}

#[tokio::test]
async fn hints_name_the_way_out_over_http() {
    let rig = Rig::start().await;
    let client = &rig.client;
    for (verb, sql) in [
        ("query", "BEGIN"),
        ("execute", "COMMIT"),
        ("execute", "BEGIN; SELECT 1"),
        ("scalar", "SAVEPOINT a"),
        ("script", "SELECT 1; BEGIN"),
    ] {
        let problem = client.verb(verb, json!({"sql": sql})).await;
        let problem = problem.bad(400, "bad_statement");
        let hint = problem["hint"].as_str().unwrap();
        assert!(
            hint.contains("POST /v1/sources/s/transactions"),
            "{verb}: {hint}"
        );
    }
    let table = [
        (json!({"cache": true}), 400, "bad_request", "\"off\""),
        (
            json!({"cache": "use"}),
            501,
            "not_available",
            "leave it out",
        ),
        (json!({"ttl": 5}), 400, "bad_request", "500ms"),
        (json!({"deadline": 500}), 400, "bad_request", "500ms"),
        (json!({"session": 7}), 400, "bad_request", "256 bytes"),
        (json!({"read_from": ["any"]}), 400, "bad_request", "replica"),
        (
            json!({"safety": {}}),
            400,
            "bad_request",
            "idempotent_write",
        ),
    ];
    for (options, status, code, expected) in table {
        let body = json!({"sql": "SELECT 1", "options": options});
        let problem = client.verb("query", body).await.bad(status, code);
        let hint = problem["hint"].as_str().unwrap();
        assert!(hint.contains(expected), "{options}: {problem}");
    }
    for endpoint in ["writer", "reader"] {
        let path = format!("/v1/sources/s/endpoints/{endpoint}/isolate");
        client.post(&path, json!({})).await.good();
    }
    let problem = client.verb("query", json!({"sql": "SELECT 1"})).await;
    let problem = problem.bad(503, "circuit_open");
    let hint = problem["hint"].as_str().unwrap();
    assert!(hint.contains("/release"), "{problem}");
    rig.end().await;
}
