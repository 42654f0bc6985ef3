//! Keys that are made over HTTP: kept, listed, revoked at once; those of the files are none of its business.

use mainstay_config::{Input, LoadOptions};
use serde_json::{Value, json};

use super::keys::{key, make_table, send, start};
use super::rig::Rig;

/// The keys of a running server, by id with their origin.
async fn listed(rig: &Rig, key: &str) -> Vec<(String, String)> {
    let told = send(rig, key, "GET", "/v1/admin/keys", &json!({}))
        .await
        .good();
    let keys = told["keys"].as_array().unwrap().clone();
    let text = |key: &Value, name: &str| key[name].as_str().unwrap().to_owned();
    keys.iter()
        .map(|key| (text(key, "id"), text(key, "origin")))
        .collect()
}

async fn make(rig: &Rig, by: &str, body: Value) -> String {
    let made = send(rig, by, "POST", "/v1/admin/keys", &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_made_over_http_works_at_once_over_a_restart_and_until_it_is_revoked() {
    let boss = key("boss", "role = \"admin\"");
    let rig = start(&[&boss]).await;
    let folder = rig.folder.clone();
    make_table(&rig, &boss.key).await;
    let body = json!({"id": "ci", "role": "write", "sources": ["s"], "rate": 100_000});
    let ci = make(&rig, &boss.key, body.clone()).await;
    assert!(ci.starts_with("ms_") && ci.len() == 67, "{ci}");
    let insert = json!({"sql": "INSERT INTO t (name) VALUES ('a')"});
    let path = "/v1/sources/s/execute";
    send(&rig, &ci, "POST", path, &insert).await.good();
    let other = send(&rig, &ci, "POST", "/v1/sources/other/execute", &insert).await;
    other.bad(403, "not_allowed");
    send(&rig, &ci, "GET", "/v1/admin/keys", &json!({}))
        .await
        .bad(403, "not_allowed");
    let own = |id: &str, origin: &str| (id.to_owned(), origin.to_owned());
    assert_eq!(
        listed(&rig, &boss.key).await,
        [own("boss", "file"), own("ci", "api")]
    );
    send(&rig, &boss.key, "POST", "/v1/admin/keys", &body)
        .await
        .bad(409, "conflict");

    // Only its hash is kept, for this user alone.
    let file = folder.path().join("data/keys.json");
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(
        kept.contains("\"ci\"") && !kept.contains(&ci[3..]),
        "{kept}"
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    rig.end().await;

    let options = LoadOptions {
        files: vec![Input::File(folder.path().join("mainstay.toml"))],
        ..LoadOptions::default()
    };
    let rig = Rig::from_options(folder, options).await.unwrap();
    send(&rig, &ci, "POST", path, &insert).await.good();
    let begun = send(&rig, &ci, "POST", "/v1/sources/s/transactions", &json!({}))
        .await
        .good();
    let revoked = send(&rig, &boss.key, "DELETE", "/v1/admin/keys/ci", &json!({}))
        .await
        .good();
    assert_eq!(revoked, json!({"revoked": "ci"}));
    send(&rig, &ci, "POST", path, &insert)
        .await
        .bad(401, "not_authenticated");
    send(&rig, &boss.key, "DELETE", "/v1/admin/keys/ci", &json!({}))
        .await
        .bad(404, "unknown_key");
    // Another key of the same name finds nothing of it.
    let next = make(&rig, &boss.key, body).await;
    let commit = format!(
        "/v1/sources/s/transactions/{}/commit",
        begun["transaction"].as_str().unwrap()
    );
    send(&rig, &next, "POST", &commit, &json!({}))
        .await
        .bad(404, "unknown_transaction");
    send(&rig, &next, "POST", path, &insert).await.good();
    rig.end().await;
}

#[tokio::test]
async fn a_key_of_the_file_is_changed_in_the_file() {
    let boss = key("boss", "role = \"admin\"");
    let ci = key("ci", "role = \"write\"");
    let rig = start(&[&boss, &ci]).await;
    for id in ["boss", "ci"] {
        let path = format!("/v1/admin/keys/{id}");
        let revoked = send(&rig, &boss.key, "DELETE", &path, &json!({})).await;
        let problem = revoked.bad(409, "conflict");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("stands in the configuration"),
            "{problem}"
        );
        assert!(
            problem["hint"].as_str().unwrap().contains("reload"),
            "{problem}"
        );
        let body = json!({"id": id, "role": "read"});
        send(&rig, &boss.key, "POST", "/v1/admin/keys", &body)
            .await
            .bad(409, "conflict");
    }
    send(&rig, &ci.key, "GET", "/v1/sources", &json!({}))
        .await
        .good();
    assert!(!rig.folder.path().join("data/keys.json").exists());
    rig.end().await;
}

#[tokio::test]
async fn the_first_key_closes_the_doors_and_the_last_one_opens_them() {
    let rig = start(&[]).await;
    let ask = async |method: &str, path: &str, body: Value| {
        rig.client.send(method, path, &[], body.to_string()).await
    };
    for body in [
        json!({"id": "a", "role": "write"}),
        json!({"id": "a", "role": "admin", "sources": ["s"]}),
    ] {
        let refused = ask("POST", "/v1/admin/keys", body)
            .await
            .bad(409, "conflict");
        assert!(
            refused["hint"]
                .as_str()
                .unwrap()
                .contains("admin for all sources"),
            "{refused}"
        );
    }
    let made = ask(
        "POST",
        "/v1/admin/keys",
        json!({"id": "boss", "role": "admin"}),
    )
    .await
    .good();
    let boss = made["key"].as_str().unwrap().to_owned();
    ask("GET", "/v1/sources", json!({}))
        .await
        .bad(401, "not_authenticated");
    assert_eq!(
        ask("GET", "/readyz", json!({})).await.good().get("sources"),
        None
    );
    let reader = make(&rig, &boss, json!({"id": "reader", "role": "read"})).await;
    send(&rig, &reader, "GET", "/v1/sources", &json!({}))
        .await
        .good();
    let last = send(&rig, &boss, "DELETE", "/v1/admin/keys/boss", &json!({})).await;
    last.bad(409, "conflict");
    send(&rig, &boss, "DELETE", "/v1/admin/keys/reader", &json!({}))
        .await
        .good();
    send(&rig, &boss, "DELETE", "/v1/admin/keys/boss", &json!({}))
        .await
        .good();
    ask("GET", "/v1/sources", json!({})).await.good();
    rig.end().await;
}

#[tokio::test]
async fn keys_that_make_no_sense_are_not_made() {
    let (one, boss) = (
        key("one", "role = \"admin\"\nsources = [\"s\"]"),
        key("boss", "role = \"admin\""),
    );
    let rig = start(&[&one, &boss]).await;
    for body in [
        json!({"id": "", "role": "read"}),
        json!({"id": "a b", "role": "read"}),
        json!({"id": "a\u{0}", "role": "read"}),
        json!({"id": "x".repeat(65), "role": "read"}),
        json!({"id": "a", "role": "king"}),
        json!({"id": "a"}),
        json!({"id": "a", "role": "read", "sources": []}),
        json!({"id": "a", "role": "read", "sources": ["a b"]}),
        json!({"id": "a", "role": "read", "rate": 0}),
        json!({"id": "a", "role": "read", "rate": 1_000_001}),
        json!({"id": "a", "role": "read", "key": "mine"}),
    ] {
        let reply = send(&rig, &boss.key, "POST", "/v1/admin/keys", &body).await;
        reply.bad(400, "bad_request");
    }
    let body = json!({"id": "a", "role": "read"});
    for (method, path) in [
        ("GET", "/v1/admin/keys"),
        ("POST", "/v1/admin/keys"),
        ("DELETE", "/v1/admin/keys/boss"),
    ] {
        let reply = send(&rig, &one.key, method, path, &body).await;
        reply.bad(403, "not_allowed");
    }
    assert_eq!(listed(&rig, &boss.key).await.len(), 2);
    rig.end().await;
}
