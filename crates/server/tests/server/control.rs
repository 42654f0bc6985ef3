//! Endpoints and policies changed while running, and what survives a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::rig::{Rig, file, head, options, source};

fn endpoint<'a>(source: &'a Value, id: &str) -> &'a Value {
    let members = source["members"].as_array().unwrap();
    members
        .iter()
        .find(|member| member["endpoint"] == id)
        .unwrap_or_else(|| panic!("no {id}: {source}"))
}

#[tokio::test]
async fn endpoints_are_added_weighed_drained_isolated_and_removed() {
    let rig = Rig::start().await;
    let client = &rig.client;
    let path = "/v1/sources/s/endpoints";
    let added = client
        .post(path, json!({"id": "extra", "role": "replica", "weight": 2}))
        .await;
    assert_eq!(added.status, 201, "{added:?}");
    assert_eq!(added.json()["weight"], 2.0);
    client
        .post(path, json!({"id": "extra"}))
        .await
        .bad(409, "conflict");
    client
        .post(path, json!({"id": "odd", "colour": 1}))
        .await
        .bad(422, "policy_refused");
    assert_eq!(
        client.get(path).await.good()["endpoints"]
            .as_array()
            .unwrap()
            .len(),
        3
    );

    let patch = async |body: Value| {
        client
            .send("PATCH", &format!("{path}/extra"), &[], body.to_string())
            .await
    };
    assert_eq!(patch(json!({"weight": 5})).await.good()["weight"], 5.0);
    for wrong in [0.0, -1.0, 1e-300, 1e300] {
        let refused = patch(json!({"weight": wrong})).await.bad(400, "bad_value");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains("from 0.001 to 1000000"), "{detail}");
    }
    patch(json!({"role": "king"})).await.bad(400, "bad_request");
    assert_eq!(
        patch(json!({"role": "primary"})).await.good()["role"],
        "primary"
    );
    let source = client.get("/v1/sources/s").await.good();
    assert_eq!(
        (&source["primary"], &endpoint(&source, "writer")["role"]),
        (&json!("extra"), &json!("replica"))
    );
    rig.insert(&["by the new primary"]).await;

    let act = async |what: &str| {
        client
            .post(&format!("{path}/reader/{what}"), json!({}))
            .await
            .good()
    };
    assert_eq!(act("drain").await["draining"], true);
    assert_eq!(act("undrain").await["draining"], false);
    assert_eq!(act("isolate").await["circuit"], "isolated");
    assert_eq!(act("release").await["circuit"], "half_open");

    client
        .send("DELETE", &format!("{path}/extra"), &[], "")
        .await
        .good();
    let gone = client
        .send("DELETE", &format!("{path}/writer"), &[], "")
        .await
        .good();
    assert!(gone["note"].is_string(), "{gone}");
    client
        .send("DELETE", &format!("{path}/reader"), &[], "")
        .await
        .bad(409, "conflict");
    client.post("/v1/admin/reload", json!({})).await.good();
    assert_eq!(
        client.get(path).await.good()["endpoints"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    rig.end().await;
}

#[tokio::test]
async fn a_policy_is_checked_applied_kept_over_a_restart_and_taken_back() {
    let rig = Rig::start().await;
    let folder = rig.folder.clone();
    let client = &rig.client;
    let path = "/v1/admin/policy?source=s";
    let put = async |client: &super::client::Client, query: &str, body: Value| {
        client
            .send("PUT", &format!("{path}{query}"), &[], body.to_string())
            .await
    };
    let failures = async |client: &super::client::Client| {
        let shown = client.get(path).await.good();
        let lines = shown["settings"].as_array().unwrap().clone();
        lines
            .into_iter()
            .find(|line| line["path"] == "policy.circuit.failures")
            .unwrap()
    };
    assert_eq!(failures(client).await["value"], "5");
    let dry = put(client, "&dry_run=true", json!({"circuit": {"failures": 3}}))
        .await
        .good();
    assert_eq!(dry["applied"], false);
    assert_eq!(dry["changes"][0]["after"], "3");
    assert_eq!(failures(client).await["value"], "5");
    let refused = put(
        client,
        "",
        json!({"circuit": {"failuers": 3, "open_for": "0s"}}),
    )
    .await;
    let refused = refused.bad(422, "policy_refused");
    assert!(
        refused["problems"].as_array().unwrap().len() >= 2,
        "{refused}"
    );
    put(client, "", json!({"circuit": {"failures": 3}}))
        .await
        .good();
    assert_eq!(failures(client).await["value"], "3");
    let weight = json!({"weight": 4}).to_string();
    client
        .send("PATCH", "/v1/sources/s/endpoints/reader", &[], weight)
        .await
        .good();
    rig.end().await;

    let text = format!("{}{}", head(folder.path()), source(folder.path()));
    let again = Rig::from(folder.clone(), text.clone()).await.unwrap();
    let kept = failures(&again.client).await;
    assert_eq!(kept["value"], "3");
    assert!(
        kept["origin"].as_str().unwrap().ends_with("runtime.toml"),
        "{kept}"
    );
    let shown = again.client.get("/v1/sources/s").await.good();
    assert_eq!(endpoint(&shown, "reader")["weight"], 4.0);
    let merged = json!({"retry": {"attempts_max": 2}}).to_string();
    again.client.send("PATCH", path, &[], merged).await.good();
    assert_eq!(failures(&again.client).await["value"], "3");
    again
        .client
        .send("DELETE", "/v1/sources/s/overrides", &[], "")
        .await
        .good();
    assert_eq!(failures(&again.client).await["value"], "5");
    let shown = again.client.get("/v1/sources/s").await.good();
    assert_eq!(endpoint(&shown, "reader")["weight"], 1.0);
    assert!(!folder.path().join("data/runtime.toml").exists());
    again.end().await;
}

#[tokio::test]
async fn a_paused_source_refuses_calls_until_it_is_resumed() {
    let rig = Rig::start().await;
    let client = &rig.client;
    client
        .post("/v1/admin/pause?source=s", json!({}))
        .await
        .good();
    let refused = client
        .verb("query", json!({"sql": "SELECT 1"}))
        .await
        .bad(503, "paused");
    assert_eq!(refused["sent"], "no");
    client.post("/v1/admin/resume", json!({})).await.good();
    client
        .verb("query", json!({"sql": "SELECT 1"}))
        .await
        .good();
    client
        .post("/v1/admin/pause?source=none", json!({}))
        .await
        .bad(404, "unknown_source");
    rig.end().await;
}

#[tokio::test]
async fn a_reload_takes_a_good_file_over_and_keeps_the_old_instead_of_a_bad_one() {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let path = folder.path().join("mainstay.toml");
    let base = format!("{}{}", head(folder.path()), source(folder.path()));
    std::fs::write(&path, &base).unwrap();
    let mut options = super::rig::options(String::new());
    options.files = vec![path.clone().into()];
    let running = mainstay_server::Server::start(options).await.unwrap();
    let client = super::client::Client::new(running.address());
    client
        .verb("execute", json!({"sql": "CREATE TABLE t (id INTEGER)"}))
        .await
        .good();

    std::fs::write(
        &path,
        base.replace("[sources.s]", "[sources.s]\nflavour = 1"),
    )
    .unwrap();
    client
        .post("/v1/admin/reload", json!({}))
        .await
        .bad(422, "policy_refused");
    client
        .verb("query", json!({"sql": "SELECT 1"}))
        .await
        .good();
    std::fs::write(&path, base.replace(":0\"", ":1\"")).unwrap();
    client
        .post("/v1/admin/reload", json!({}))
        .await
        .bad(409, "conflict");

    let other = format!(
        "{base}[sources.two]\ndriver = \"sqlite\"\npath = {:?}\n[sources.two.endpoints.a]\n",
        file(folder.path()).display().to_string()
    );
    std::fs::write(&path, other).unwrap();
    let done = client.post("/v1/admin/reload", json!({})).await.good();
    assert_eq!(
        (&done["applied"], &done["sources_added"]),
        (&json!(true), &json!(["two"]))
    );
    client
        .post("/v1/sources/two/query", json!({"sql": "SELECT 1"}))
        .await
        .good();
    std::fs::write(&path, &base).unwrap();
    client.post("/v1/admin/reload", json!({})).await.good();
    client
        .get("/v1/sources/two")
        .await
        .bad(404, "unknown_source");
    assert_eq!(running.shutdown(Duration::from_secs(10)).await.left, 0);
}

#[tokio::test]
async fn a_password_that_comes_at_run_time_is_shown_to_nobody() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let text = format!(
        "{}[sources.s]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\nport = 1\n\
         database = \"d\"\nuser = \"u\"\ntls = \"off\"\n[sources.s.endpoints.a]\n",
        head(folder.path()),
    );
    let rig = Rig::from_options(Arc::clone(&folder), options(text))
        .await
        .unwrap();
    for endpoint in [
        json!({"id": "b", "url": "postgres://app:PLANTED@127.0.0.1:1/d"}),
        json!({"id": "c", "host": "127.0.0.1", "password": "PLANTED"}),
    ] {
        rig.client
            .post("/v1/sources/s/endpoints", endpoint)
            .await
            .good();
    }
    for path in [
        "/v1/admin/overrides",
        "/v1/sources/s",
        "/v1/sources/s/endpoints",
        "/v1/admin/policy",
    ] {
        let shown = rig.client.get(path).await;
        assert!(shown.status.is_success(), "{shown:?}");
        assert!(!shown.text.contains("PLANTED"), "{path}: {}", shown.text);
    }
    use std::os::unix::fs::PermissionsExt;
    let kept = find(folder.path(), "runtime.toml").unwrap();
    assert!(std::fs::read_to_string(&kept).unwrap().contains("PLANTED"));
    let mode = std::fs::metadata(&kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    rig.stop(Duration::from_secs(20)).await;
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(folder).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => find(&path, name),
            false => (path.file_name().unwrap() == name).then_some(path),
        }
    })
}
