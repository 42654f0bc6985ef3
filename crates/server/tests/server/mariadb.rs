//! A real MariaDB behind the surface: exact values, an outage and its end.

use std::sync::Arc;

use mainstay_testkit::mariadb::{MariadbOptions, MariadbServer};
use serde_json::json;

use super::rig::{Rig, eventually, head};

#[tokio::test]
async fn values_of_mariadb_come_back_as_they_were_written_and_an_outage_passes() {
    let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
    server.create_user("app", "se,cret").await.unwrap();
    server
        .sql(
            "CREATE TABLE things (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, price decimal(38, 4), \
             at timestamp(6) NULL, took time(6), data json, raw blob, state enum('new', 'old'))",
        )
        .await
        .unwrap();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let password = folder.path().join("password");
    std::fs::write(&password, "se,cret").unwrap();
    let text = format!(
        "{}[sources.s]\npassword = \"file:{}\"\noptions = {{ max_statement_time = \"30\" }}\n\
         idempotency_table = \"mainstay_keys\"\n\
         [sources.s.endpoints.a]\nurl = \"mariadb://app@127.0.0.1:{}/test?ssl-mode=DISABLED\"\n\
         [sources.s.policy.health]\ninterval = \"200ms\"\n[sources.s.policy.retry]\ndeadline = \"2s\"\n",
        head(folder.path()),
        password.display(),
        server.port(),
    );
    let mut options = super::rig::options(text);
    options.secrets = Arc::new(mainstay_config::ProcessSecrets);
    let rig = Rig::from_options(folder, options).await.unwrap();
    let client = &rig.client;
    eventually("the server says that it is primary", async || {
        client.get("/v1/sources/s").await.good()["primary"] == "a"
    })
    .await;

    // What an explanation says of a key is what a call with it says.
    for (sql, code) in [
        ("CREATE TABLE x (id int)", json!("idempotency_unavailable")),
        ("DELETE FROM things", json!(null)),
    ] {
        let explained = client
            .post(
                "/v1/explain",
                json!({"source": "s", "sql": sql, "options": {"idempotency_key": "k"}}),
            )
            .await
            .good();
        assert_eq!(explained["refused"]["code"], code, "{sql}");
    }
    client
        .verb(
            "execute",
            json!({"sql": "CREATE TABLE x (id int)", "options": {"idempotency_key": "k"}}),
        )
        .await
        .bad(400, "idempotency_unavailable");

    let values = json!({
        "id": {"type": "u64", "value": "18446744073709551615"},
        "price": {"type": "decimal", "value": "-9999999999999999999999999999999999.1234"},
        "at": {"type": "timestamptz", "value": "2026-11-29T23:15:00.000001Z"},
        "took": {"type": "time", "value": "-838:59:59.000001"},
        "data": {"a": [1, null]},
        "raw": {"type": "bytes", "value": "AP8="},
        "state": "old",
    });
    client
        .verb("insert", json!({"entity": "things", "values": values}))
        .await
        .good();
    let found = client
        .verb("find", json!({"entity": "things"}))
        .await
        .good();
    let columns = found["columns"].as_array().unwrap();
    let types: Vec<_> = columns.iter().map(|c| c["type"].clone()).collect();
    let expected = [
        "u64",
        "decimal",
        "timestamptz",
        "time",
        "json",
        "bytes",
        "text",
    ];
    assert_eq!(types, expected);
    let row = json!([
        "18446744073709551615",
        "-9999999999999999999999999999999999.1234",
        "2026-11-29T23:15:00.000001Z",
        "-838:59:59.000001",
        "{\"a\":[1,null]}",
        "AP8=",
        "old"
    ]);
    assert_eq!(found["rows"][0], row);

    let wrong = client
        .verb("query", json!({"sql": "SELEC 1"}))
        .await
        .bad(400, "bad_statement");
    assert_eq!(wrong["back_end_code"], "1064");
    client
        .verb("query", json!({"sql": "SELECT * FROM nothing"}))
        .await
        .bad(404, "unknown_entity");
    client
        .verb("execute", json!({"sql": "INSERT INTO things (took) VALUES (?)", "params": [{"type": "time", "value": "839:00:00"}]}))
        .await
        .bad(400, "bad_value");
    client
        .verb("execute", json!({"sql": "DROP TABLE mysql.user"}))
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
        let insert = json!({"sql": "INSERT IGNORE INTO things (id) VALUES (2)"});
        client.verb("execute", insert).await.status.is_success()
    })
    .await;
    rig.end().await;
}
