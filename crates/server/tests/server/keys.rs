//! Keys: who may do what, and that nobody else may.

use std::sync::Arc;
use std::time::Duration;

use mainstay_config::{Input, LoadOptions};
use mainstay_server::{StartError, new_key};
use serde_json::{Value, json};

use http_body_util::{BodyExt, Full};
use hyper::Request;

use super::client::Reply;
use super::contract::Contract;
use super::openapi::operations;
use super::rig::{Rig, head, source};

/// A key with its table in a configuration.
pub(super) struct Key {
    pub(super) key: String,
    table: String,
}

pub(super) fn key(id: &str, rest: &str) -> Key {
    let (key, hash) = new_key().unwrap();
    let table = format!("[server.keys.{id}]\nsha256 = \"{hash}\"\n{rest}\n");
    Key { key, table }
}

pub(super) async fn send(rig: &Rig, key: &str, method: &str, path: &str, body: &Value) -> Reply {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    rig.client
        .send(method, path, &headers, body.to_string())
        .await
}

pub(super) async fn start(keys: &[&Key]) -> Rig {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let tables: String = keys.iter().map(|key| key.table.as_str()).collect();
    let other = source(folder.path()).replace("sources.s", "sources.other");
    let text = format!(
        "{}{tables}{}{other}",
        head(folder.path()),
        source(folder.path())
    );
    // In a file, so that it can be read again.
    let path = folder.path().join("mainstay.toml");
    std::fs::write(&path, text).unwrap();
    let options = LoadOptions {
        files: vec![Input::File(path)],
        ..LoadOptions::default()
    };
    Rig::from_options(folder, options).await.unwrap()
}

pub(super) async fn make_table(rig: &Rig, key: &str) {
    let table = json!({"sql": "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)"});
    send(rig, key, "POST", "/v1/sources/s/execute", &table)
        .await
        .good();
}

#[tokio::test]
async fn every_route_asks_for_its_role() {
    let (read, write, admin) = (
        key("reader", "role = \"read\""),
        key("writer", "role = \"write\""),
        key("boss", "role = \"admin\""),
    );
    let rig = start(&[&read, &write, &admin]).await;
    make_table(&rig, &admin.key).await;
    // What the least role is: 0 nobody needs a key, 1 read, 2 write, 3 admin.
    let table = [
        ("GET", "/healthz", 0),
        ("GET", "/readyz", 0),
        ("GET", "/openapi.json", 0),
        ("GET", "/v1/events?source=none", 1),
        ("POST", "/v1/sources/s/transactions", 1),
        ("GET", "/metrics", 1),
        ("GET", "/v1/sources", 1),
        ("GET", "/v1/sources/s", 1),
        ("HEAD", "/v1/sources/s", 1),
        ("POST", "/v1/explain", 1),
        ("POST", "/v1/sources/s/query", 1),
        ("POST", "/v1/sources/s/scalar", 1),
        ("POST", "/v1/sources/s/find", 1),
        ("POST", "/v1/sources/s/execute", 2),
        ("POST", "/v1/sources/s/insert", 2),
        ("POST", "/v1/sources/s/insert_many", 2),
        ("POST", "/v1/sources/s/update", 2),
        ("POST", "/v1/sources/s/update_many", 2),
        ("POST", "/v1/sources/s/delete", 2),
        ("POST", "/v1/sources/s/script", 2),
        ("POST", "/v1/sources/s/create_entity", 2),
        ("POST", "/v1/sources/s/drop_entity", 2),
        ("GET", "/v1/sources/s/entities", 1),
        ("GET", "/v1/sources/s/entities/t", 1),
        ("GET", "/v1/sources/s/entities/t/children", 1),
        ("GET", "/v1/sources/s/entities/t/foreign_keys", 1),
        ("GET", "/v1/sources/s/entities/t/ddl", 1),
        ("POST", "/v1/sources/s/transactions/x/query", 1),
        ("POST", "/v1/sources/s/transactions/x/execute", 2),
        ("POST", "/v1/sources/s/transactions/x/savepoint", 1),
        ("POST", "/v1/sources/s/transactions/x/commit", 1),
        ("POST", "/v1/sources/s/transactions/x/rollback", 1),
        ("GET", "/v1/sources/s/slo", 1),
        ("GET", "/v1/sources/s/metrics", 1),
        ("GET", "/v1/sources/s/audit", 1),
        ("GET", "/v1/sources/s/watchdog", 1),
        ("GET", "/v1/sources/s/endpoints", 1),
        ("GET", "/v1/sources/s/endpoints/reader", 1),
        ("POST", "/v1/sources/s/endpoints", 3),
        ("PATCH", "/v1/sources/s/endpoints/reader", 3),
        ("DELETE", "/v1/sources/s/endpoints/nothing", 3),
        ("POST", "/v1/sources/s/endpoints/nothing/drain", 3),
        ("POST", "/v1/sources/s/endpoints/nothing/undrain", 3),
        ("POST", "/v1/sources/s/endpoints/nothing/isolate", 3),
        ("POST", "/v1/sources/s/endpoints/nothing/release", 3),
        ("DELETE", "/v1/sources/s/overrides", 3),
        ("GET", "/v1/services", 1),
        ("GET", "/v1/services/c", 1),
        ("GET", "/v1/services/c/targets", 1),
        ("POST", "/v1/services/c/targets", 3),
        ("GET", "/v1/services/c/targets/t", 1),
        ("PATCH", "/v1/services/c/targets/t", 3),
        ("DELETE", "/v1/services/c/targets/t", 3),
        ("POST", "/v1/services/c/targets/t/drain", 3),
        ("POST", "/v1/services/c/targets/t/undrain", 3),
        ("GET", "/v1/services/c/jobs", 1),
        ("GET", "/v1/services/c/jobs/j", 1),
        ("GET", "/v1/services/c/audit", 1),
        ("GET", "/v1/admin/policy", 3),
        ("PUT", "/v1/admin/policy?dry_run=true", 3),
        ("PATCH", "/v1/admin/policy?dry_run=true", 3),
        ("GET", "/v1/admin/keys", 3),
        ("POST", "/v1/admin/keys", 3),
        ("DELETE", "/v1/admin/keys/nobody", 3),
        ("GET", "/v1/admin/overrides", 3),
        ("DELETE", "/v1/admin/overrides", 3),
        ("POST", "/v1/admin/reload?dry_run=true", 3),
        ("POST", "/v1/admin/pause", 3),
        ("POST", "/v1/admin/resume", 3),
        ("GET", "/v1/nothing", 3),
    ];
    let mut wrong = Vec::new();
    for (method, path, least) in table {
        let keys = [
            ("none", ""),
            ("read", &read.key),
            ("write", &write.key),
            ("admin", &admin.key),
        ];
        for (role, (name, key)) in keys.into_iter().enumerate() {
            let headers = [("x-api-key", key)];
            let headers = if role == 0 { &[][..] } else { &headers[..] };
            // A reader begins what only reads.
            let body = match path.ends_with("/transactions") {
                true => r#"{"read_only": true}"#,
                false => "{}",
            };
            let reply = rig.client.send(method, path, headers, body).await;
            let refused = [401, 403].contains(&reply.status.as_u16());
            let expected = if role == 0 { 401 } else { 403 };
            let is_right = match role >= least {
                true => !refused,
                false => reply.status == expected,
            };
            if !is_right {
                wrong.push(format!("{method} {path} as {name}: {reply:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The document names the same roles, and no route is missing above.
    let contract = Contract::new();
    let roles = [None, Some("read"), Some("write"), Some("admin")];
    for (method, path, least) in table {
        if let Some(operation) = contract.operation(method, path) {
            assert_eq!(
                operation["x-role"].as_str(),
                roles[least],
                "{method} {path}"
            );
        }
    }
    for (method, path, operation) in operations(contract.document()) {
        let is_it =
            |row: &(&str, &str, usize)| contract.operation(row.0, row.1) == Some(&operation);
        assert!(
            table.iter().any(is_it),
            "{method} {path} is not in the table"
        );
    }
    rig.end().await;
}

#[tokio::test]
async fn wrong_and_missing_keys_are_told_how_to_send_one() {
    let boss = key("boss", "role = \"admin\"");
    let rig = start(&[&boss]).await;
    for key in [
        "",
        "x",
        &boss.key[..60],
        &format!("{}0", boss.key),
        &"k".repeat(4000),
    ] {
        let reply = send(&rig, key, "GET", "/v1/sources", &json!({})).await;
        assert_eq!(
            reply.headers["www-authenticate"],
            "Bearer realm=\"mainstay\""
        );
        reply.bad(401, "not_authenticated");
    }
    // With a key neither the host nor the origin matters: no page has it.
    let bearer = format!("Bearer {}", boss.key);
    let headers = [
        ("authorization", bearer.as_str()),
        ("origin", "https://page.example"),
    ];
    let reply = rig.client.send("GET", "/v1/sources", &headers, "").await;
    reply.good();
    rig.end().await;
}

#[tokio::test]
async fn a_key_reaches_its_own_sources_alone() {
    let (one, boss) = (
        key("one", "role = \"admin\"\nsources = [\"s\"]"),
        key("boss", "role = \"admin\""),
    );
    let rig = start(&[&one, &boss]).await;
    let select = json!({"sql": "SELECT 1"});
    let explain = json!({"source": "other", "sql": "SELECT 1"});
    send(&rig, &one.key, "POST", "/v1/sources/s/query", &select)
        .await
        .good();
    let mut foreign = vec![
        ("POST", "/v1/sources/other/query", &select),
        ("POST", "/v1/sources/%6fther/query", &select),
        ("POST", "/v1/sources/nothing/query", &select),
        ("POST", "/v1/explain", &explain),
    ];
    let none = json!({});
    for path in [
        "/v1/sources/other",
        "/v1/sources/other/audit",
        "/v1/events",
        "/v1/events?source=other",
        "/metrics",
        "/v1/admin/overrides",
        "/v1/admin/policy",
        "/v1/admin/policy?source=other",
    ] {
        foreign.push(("GET", path, &none));
    }
    for path in [
        "/v1/admin/pause",
        "/v1/admin/pause?source=other",
        "/v1/admin/reload",
    ] {
        foreign.push(("POST", path, &none));
    }
    for (method, path, body) in foreign {
        let reply = send(&rig, &one.key, method, path, body).await;
        assert!(
            reply.is_problem(403, "not_allowed"),
            "{method} {path}: {reply:?}"
        );
    }
    let names = |listed: Value| -> Vec<String> {
        let listed = listed["sources"].as_array().unwrap().clone();
        listed
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let own = send(&rig, &one.key, "GET", "/v1/sources", &none)
        .await
        .good();
    assert_eq!(names(own), ["s"]);
    let all = send(&rig, &boss.key, "GET", "/v1/sources", &none)
        .await
        .good();
    assert_eq!(names(all), ["other", "s"]);
    send(&rig, &one.key, "POST", "/v1/admin/pause?source=s", &none)
        .await
        .good();
    rig.end().await;
}

#[tokio::test]
async fn a_reader_changes_nothing_whatever_it_declares() {
    let (read, boss) = (
        key("reader", "role = \"read\""),
        key("boss", "role = \"admin\""),
    );
    let rig = start(&[&read, &boss]).await;
    make_table(&rig, &boss.key).await;
    let insert = "INSERT INTO t (name) VALUES ('x') RETURNING id";
    for safety in [None, Some("read"), Some("idempotent_write"), Some("write")] {
        let mut body = json!({"sql": insert});
        if let Some(safety) = safety {
            body["options"] = json!({"safety": safety});
        }
        for verb in ["query", "scalar"] {
            let path = format!("/v1/sources/s/{verb}");
            let reply = send(&rig, &read.key, "POST", &path, &body).await;
            reply.bad(403, "not_allowed");
        }
    }
    // What looks unknown only in its functions is no read for that.
    for sql in [
        "DELETE FROM t WHERE id = nobody_knows(1)",
        "INSERT INTO t (name) VALUES (nobody_knows(1))",
    ] {
        let body = json!({"sql": sql});
        let reply = send(&rig, &read.key, "POST", "/v1/sources/s/query", &body).await;
        reply.bad(403, "not_allowed");
    }
    let path = "/v1/sources/s/transactions";
    send(&rig, &read.key, "POST", path, &json!({}))
        .await
        .bad(403, "not_allowed");
    let begun = send(&rig, &read.key, "POST", path, &json!({"read_only": true}))
        .await
        .good();
    let path = format!("{path}/{}/query", begun["transaction"].as_str().unwrap());
    let reply = send(&rig, &read.key, "POST", &path, &json!({"sql": insert})).await;
    reply.bad(403, "not_allowed");
    let count = json!({"sql": "SELECT count(*) FROM t"});
    let counted = send(&rig, &read.key, "POST", &path, &count).await.good();
    assert_eq!(counted["rows"], json!([[0]]));
    rig.end().await;
}

#[tokio::test]
async fn the_transaction_of_another_key_is_unknown() {
    let (one, two) = (
        key("one", "role = \"admin\""),
        key("two", "role = \"admin\""),
    );
    let rig = start(&[&one, &two]).await;
    let path = "/v1/sources/s/transactions";
    let begun = send(&rig, &one.key, "POST", path, &json!({})).await.good();
    let path = format!("{path}/{}", begun["transaction"].as_str().unwrap());
    for (verb, body) in [
        ("query", json!({"sql": "SELECT 1"})),
        ("execute", json!({"sql": "SELECT 1"})),
        ("savepoint", json!({"name": "p"})),
        ("commit", json!({})),
        ("rollback", json!({})),
    ] {
        let reply = send(&rig, &two.key, "POST", &format!("{path}/{verb}"), &body).await;
        reply.bad(404, "unknown_transaction");
    }
    let commit = format!("{path}/commit");
    send(&rig, &one.key, "POST", &commit, &json!({}))
        .await
        .good();
    rig.end().await;
}

#[tokio::test]
async fn a_key_that_is_taken_out_of_the_file_ends_with_the_reload() {
    let (gone, boss) = (
        key("gone", "role = \"write\""),
        key("boss", "role = \"admin\""),
    );
    let rig = start(&[&gone, &boss]).await;
    send(
        &rig,
        &gone.key,
        "POST",
        "/v1/sources/s/transactions",
        &json!({}),
    )
    .await
    .good();
    let path = rig.folder.path().join("mainstay.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(&gone.table, "")).unwrap();
    send(&rig, &gone.key, "GET", "/v1/sources", &json!({}))
        .await
        .good();
    send(&rig, &boss.key, "POST", "/v1/admin/reload", &json!({}))
        .await
        .good();
    let reply = send(&rig, &gone.key, "GET", "/v1/sources", &json!({})).await;
    reply.bad(401, "not_authenticated");
    let metrics = "/v1/sources/s/metrics";
    let shown = send(&rig, &boss.key, "GET", metrics, &json!({}))
        .await
        .good();
    assert_eq!(shown["transactions_open"], 0, "{shown}");
    rig.end().await;
}

#[tokio::test]
async fn a_key_over_its_rate_is_told_when_to_come_back() {
    let slow = key("slow", "role = \"read\"\nrate = 2");
    let fast = key("fast", "role = \"read\"");
    let rig = start(&[&slow, &fast]).await;
    let mut refused = None;
    for _ in 0..200 {
        let reply = send(&rig, &slow.key, "GET", "/v1/sources", &json!({})).await;
        if reply.status == 429 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("a refusal");
    assert_eq!(refused.headers["retry-after"], "1");
    refused.bad(429, "rate_limited");
    send(&rig, &fast.key, "GET", "/v1/sources", &json!({}))
        .await
        .good();
    rig.end().await;
}

#[tokio::test]
async fn other_machines_are_listened_to_with_keys_only() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let open = format!("{}{}", head(folder.path()), source(folder.path()));
    let open = open.replace("127.0.0.1:0", "0.0.0.0:0");
    let refused = Rig::from(folder.clone(), open.clone()).await.err().unwrap();
    let StartError::Configuration(problems) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        problems[0].to_string().contains("mainstay key new"),
        "{problems:?}"
    );
    let boss = key("boss", "role = \"admin\"");
    let keyed = open.replace("[sources.s]", &format!("{}[sources.s]", boss.table));
    let rig = Rig::from(folder, keyed).await.unwrap();
    rig.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_private_server_is_open_to_the_holder_of_its_own_key_alone() {
    let of_file = key("boss", "role = \"admin\"");
    for tables in [
        "",
        of_file.table.as_str(),
        "[server.tls]\ncert = \"none\"\nkey = \"none\"\n",
    ] {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let text = format!("{}{tables}{}", head(folder.path()), source(folder.path()));
        let (rig, own) = Rig::private(folder, text).await.unwrap();
        let sql = json!({"sql": "CREATE TABLE t (a INTEGER)"});
        let query = "/v1/sources/s/query";
        for other in [of_file.key.as_str(), "ms_", "x"] {
            let refused = send(&rig, other, "POST", query, &sql).await;
            refused.bad(401, "not_authenticated");
        }
        let bare = rig.client.send("POST", query, &[], sql.to_string()).await;
        bare.bad(401, "not_authenticated");
        send(&rig, &own, "POST", query, &sql).await.good();
        // What would bring the keys of the file back.
        let reload = send(&rig, &own, "POST", "/v1/admin/reload", &json!({})).await;
        reload.bad(403, "not_allowed");
        rig.end().await;
    }
}

#[tokio::test]
async fn probes_need_no_key_from_anywhere_and_learn_no_names() {
    let rig = start(&[&key("boss", "role = \"admin\"")]).await;
    for path in ["/healthz", "/readyz"] {
        let request = Request::get(path)
            .header("host", "mainstay.example:7717")
            .body(Full::from(String::new()))
            .unwrap();
        let response = rig.client.open(request).await;
        assert_eq!(response.status(), 200, "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let told: Value = serde_json::from_slice(&body).unwrap();
        assert!(told["status"].is_string(), "{told}");
        assert_eq!(told.get("sources"), None, "{told}");
    }
    rig.end().await;
}
