//! Transactions by id: what they see, how they end, who may use them.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::{Client, Reply};
use super::rig::{Rig, eventually};

const SLOW: &str = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 4000000) \
                    SELECT count(*) FROM c";

async fn begin(client: &Client, body: Value) -> String {
    let begun = client.verb("transactions", body).await.good();
    assert!(begun["endpoint"].is_string() && begun["idle_max_ms"].is_number());
    begun["transaction"].as_str().unwrap().to_owned()
}

async fn within(client: &Client, id: &str, what: &str, body: Value) -> Reply {
    client
        .post(&format!("/v1/sources/s/transactions/{id}/{what}"), body)
        .await
}

#[tokio::test]
async fn what_a_transaction_writes_is_seen_after_its_commit_only() {
    let rig = Rig::start().await;
    let client = &rig.client;
    let id = begin(client, json!({})).await;
    let insert = json!({"sql": "INSERT INTO t (name) VALUES (?1)", "params": ["a"]});
    let inserted = within(client, &id, "execute", insert).await.good();
    assert_eq!(inserted["affected"], 1);
    let own = within(client, &id, "query", json!({"sql": "SELECT name FROM t"}))
        .await
        .good();
    assert_eq!(own["rows"], json!([["a"]]));
    assert_eq!(rig.count().await, 0);
    within(client, &id, "commit", json!({})).await.good();
    assert_eq!(rig.count().await, 1);
    within(client, &id, "commit", json!({}))
        .await
        .bad(404, "unknown_transaction");
    rig.end().await;
}

#[tokio::test]
async fn savepoints_are_set_gone_back_to_and_released() {
    let rig = Rig::start().await;
    let client = &rig.client;
    let id = begin(client, json!({"isolation": "serializable"})).await;
    let insert = |name: &str| json!({"sql": "INSERT INTO t (name) VALUES (?1)", "params": [name]});
    within(client, &id, "execute", insert("a")).await.good();
    within(client, &id, "savepoint", json!({"name": "p"}))
        .await
        .good();
    within(client, &id, "execute", insert("b")).await.good();
    within(
        client,
        &id,
        "savepoint",
        json!({"name": "p", "operation": "rollback"}),
    )
    .await
    .good();
    within(
        client,
        &id,
        "savepoint",
        json!({"name": "p", "operation": "release"}),
    )
    .await
    .good();
    // A statement that fails takes nothing else with it in SQLite.
    within(client, &id, "execute", insert("a"))
        .await
        .bad(409, "constraint");
    within(client, &id, "commit", json!({})).await.good();
    assert_eq!(rig.count().await, 1);
    rig.end().await;
}

#[tokio::test]
async fn a_rolled_back_transaction_leaves_nothing() {
    let rig = Rig::start().await;
    let client = &rig.client;
    let id = begin(client, json!({})).await;
    within(
        client,
        &id,
        "execute",
        json!({"sql": "INSERT INTO t (name) VALUES ('a')"}),
    )
    .await
    .good();
    within(client, &id, "rollback", json!({})).await.good();
    assert_eq!(rig.count().await, 0);
    within(client, &id, "query", json!({"sql": "SELECT 1"}))
        .await
        .bad(404, "unknown_transaction");
    rig.end().await;
}

#[tokio::test]
async fn a_transaction_is_used_by_one_request_at_a_time() {
    let rig = Rig::start().await;
    let client = &rig.client;
    let id = begin(client, json!({"read_only": true})).await;
    let slow = within(client, &id, "query", json!({"sql": SLOW}));
    let other = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        within(client, &id, "query", json!({"sql": "SELECT 1"})).await
    };
    let (slow, other) = tokio::join!(slow, other);
    other.bad(409, "conflict");
    slow.good();
    within(client, &id, "commit", json!({})).await.good();
    rig.end().await;
}

#[tokio::test]
async fn an_idle_transaction_ends_by_itself_and_frees_its_connection() {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let source = super::rig::source(folder.path());
    let source = source.replacen(
        "[sources.s]\n",
        "[sources.s]\ntransaction_idle = \"200ms\"\n",
        1,
    );
    let text = format!("{}{source}", super::rig::head(folder.path()));
    let rig = Rig::from(folder, text).await.unwrap();
    rig.make_table().await;
    let client = &rig.client;
    let id = begin(client, json!({})).await;
    eventually("the transaction ends", async || {
        let metrics = client.get("/v1/sources/s/metrics").await.good();
        metrics["transactions_open"] == 0 && metrics["endpoints"][1]["pool"]["active"] == 0
    })
    .await;
    within(client, &id, "commit", json!({}))
        .await
        .bad(404, "unknown_transaction");
    rig.end().await;
}

#[tokio::test]
async fn foreign_and_made_up_ids_open_nothing() {
    let rig = Rig::start().await;
    let client = &rig.client;
    for id in [
        "1",
        "00000000-0000-4000-8000-000000000000",
        "%00",
        "..",
        "a%2Fb",
    ] {
        let reply = within(client, id, "query", json!({"sql": "SELECT 1"})).await;
        assert!(reply.status.is_client_error(), "{id}: {reply:?}");
    }
    rig.end().await;
}

#[tokio::test]
async fn the_number_of_open_transactions_is_bounded() {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let source = super::rig::source(folder.path());
    let source = source.replacen("[sources.s]\n", "[sources.s]\ntransactions_max = 2\n", 1);
    let rig = Rig::from(
        folder.clone(),
        format!("{}{source}", super::rig::head(folder.path())),
    )
    .await
    .unwrap();
    rig.make_table().await;
    let client = &rig.client;
    let read = json!({"read_only": true});
    let first = begin(client, read.clone()).await;
    begin(client, read.clone()).await;
    client
        .verb("transactions", read.clone())
        .await
        .bad(503, "queue_full");
    within(client, &first, "rollback", json!({})).await.good();
    begin(client, read).await;
    rig.end().await;
}
