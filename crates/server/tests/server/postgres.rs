//! A real PostgreSQL behind the surface: exact values, an outage and its end.

use std::sync::Arc;

use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use serde_json::json;

use super::rig::{Rig, eventually, head};

#[tokio::test]
async fn values_of_postgresql_come_back_as_they_were_written_and_an_outage_passes() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    server.create_user("app", "se,cret").await.unwrap();
    server.sql("CREATE TABLE things (id bigint PRIMARY KEY, price numeric, at timestamptz, data jsonb, raw bytea)").await.unwrap();
    server.sql("GRANT ALL ON things TO app").await.unwrap();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let password = folder.path().join("password");
    std::fs::write(&password, "se,cret").unwrap();
    let text = format!(
        "{}[sources.s]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\nport = {}\ndatabase = \"postgres\"\n\
         user = \"app\"\ntls = \"off\"\npassword = \"file:{}\"\n[sources.s.endpoints.a]\n\
         [sources.s.policy.health]\ninterval = \"200ms\"\n[sources.s.policy.retry]\ndeadline = \"2s\"\n",
        head(folder.path()),
        server.port(),
        password.display(),
    );
    let mut options = super::rig::options(text);
    options.secrets = Arc::new(mainstay_config::ProcessSecrets);
    let rig = Rig::from_options(folder, options).await.unwrap();
    let client = &rig.client;
    eventually("the server says that it is primary", async || {
        client.get("/v1/sources/s").await.good()["primary"] == "a"
    })
    .await;

    let values = json!({
        "id": {"type": "i64", "value": "9007199254740993"},
        "price": {"type": "decimal", "value": "12.3400"},
        "at": {"type": "timestamptz", "value": "2026-11-29T23:15:00.000001Z"},
        "data": {"a": [1, null]},
        "raw": {"type": "bytes", "value": "AP8="},
    });
    client
        .verb("insert", json!({"entity": "things", "values": values}))
        .await
        .good();
    let found = client
        .verb("find", json!({"entity": "things"}))
        .await
        .good();
    let types: Vec<_> = found["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["type"].clone())
        .collect();
    assert_eq!(types, ["i64", "decimal", "timestamptz", "json", "bytes"]);
    let row = json!([
        "9007199254740993",
        "12.3400",
        "2026-11-29T23:15:00.000001Z",
        "{\"a\": [1, null]}",
        "AP8="
    ]);
    assert_eq!(found["rows"][0], row);

    let wrong = client
        .verb("query", json!({"sql": "SELEC 1"}))
        .await
        .bad(400, "bad_statement");
    assert_eq!(wrong["back_end_code"], "42601");
    client
        .verb("query", json!({"sql": "SELECT * FROM nothing"}))
        .await
        .bad(404, "unknown_entity");
    client
        .verb("query", json!({"sql": "SELECT $1::int", "params": ["x"]}))
        .await
        .bad(400, "bad_value");
    client
        .verb("execute", json!({"sql": "DROP TABLE pg_class"}))
        .await
        .bad(403, "not_allowed");
    let begun = client.verb("transactions", json!({})).await.good();
    let lost = begun["transaction"].as_str().unwrap().to_owned();

    server.kill9().await.unwrap();
    let read = client.verb("query", json!({"sql": "SELECT 1"})).await;
    assert!([502, 503, 504].contains(&read.status.as_u16()), "{read:?}");
    let path = format!("/v1/sources/s/transactions/{lost}/query");
    let gone = client.post(&path, json!({"sql": "SELECT 1"})).await;
    assert_eq!(gone.status, 409, "{gone:?}");
    server.start_again().await.unwrap();
    eventually("writes are taken again", async || {
        let insert = json!({"sql": "INSERT INTO things (id) VALUES (2) ON CONFLICT DO NOTHING"});
        client.verb("execute", insert).await.status.is_success()
    })
    .await;
    rig.end().await;
}
