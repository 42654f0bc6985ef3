//! Message services over HTTP, with a broker that is not there: what is shown, changed and kept.

use serde_json::{Value, json};

use super::rig::{Rig, head, options};

/// A service in front of two targets. Nobody listens at the broker's port.
pub(super) fn service() -> String {
    let target = |name: &str| {
        format!(
            "[services.compute.targets.{name}]\ngroup = \"primary\"\ndestination = \"org.fac.sys.sub.{name}\"\n\
             operation_map = {{ run = \"Compute.run\" }}\n"
        )
    };
    format!(
        "[services.compute]\nidentity = \"org.fac.sys.sub.compute\"\ncapability_name = \"Compute\"\n\
         strategy_group_order = [\"primary\"]\n\
         [services.compute.operations.run]\nsafety = \"read\"\n\
         [services.compute.brokers.main]\nprotocol = \"mqtt5\"\nhost = \"127.0.0.1\"\nport = 1\n{}{}",
        target("one"),
        target("two")
    )
}

async fn get(rig: &Rig, path: &str) -> Value {
    rig.client.send("GET", path, &[], "").await.good()
}

#[tokio::test]
async fn a_service_whose_broker_is_down_starts_and_says_so() {
    let rig = Rig::with("", &service()).await;
    let list = get(&rig, "/v1/services").await;
    assert_eq!(list["services"][0]["name"], "compute");
    assert_eq!(list["services"][0]["connected"], false);
    let status = get(&rig, "/v1/services/compute").await;
    assert_eq!(status["caller"], "org.fac.sys.sub.compute-proxy");
    assert_eq!(status["brokers"][0]["state"], "down");
    let names: Vec<_> = status["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].clone())
        .collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(
        get(&rig, "/v1/services/compute/jobs").await["jobs"],
        json!([])
    );
    for (path, code) in [
        ("/v1/services/nothing", "unknown_service"),
        ("/v1/services/compute/targets/three", "unknown_target"),
        ("/v1/services/compute/jobs/none", "unknown_job"),
    ] {
        let reply = rig.client.send("GET", path, &[], "").await;
        assert!(reply.is_problem(404, code), "{path}: {reply:?}");
    }
    let metrics = rig.client.send("GET", "/metrics", &[], "").await;
    for line in [
        "mainstay_message_broker_up{source=\"compute\",broker=\"main\"} 0",
        "mainstay_message_jobs_open{source=\"compute\"} 0",
        "mainstay_message_total{source=\"compute\",kind=\"requests\"} 0",
    ] {
        assert!(metrics.text.contains(line), "{line}");
    }
    rig.end().await;
}

#[tokio::test]
async fn targets_are_added_weighed_drained_and_removed_and_what_was_added_is_kept() {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let text = format!("{}{}", head(folder.path()), service());
    let rig = Rig::from(std::sync::Arc::clone(&folder), text.clone())
        .await
        .unwrap();
    let path = "/v1/services/compute/targets";
    let three = json!({
        "name": "three", "group": "primary", "destination": "org.fac.sys.sub.three",
        "operation_map": {"run": "Compute.run"}, "weight": 2,
    });
    let added = rig.client.send("POST", path, &[], three.to_string()).await;
    assert_eq!(added.status, 201, "{added:?}");
    let again = rig.client.send("POST", path, &[], three.to_string()).await;
    assert!(again.is_problem(409, "conflict"), "{again:?}");
    let wrong =
        json!({"name": "four", "group": "nobody", "destination": "Org.fac", "operation_map": {}});
    let refused = rig.client.send("POST", path, &[], wrong.to_string()).await;
    assert!(refused.is_problem(422, "policy_refused"), "{refused:?}");
    let weighed = rig
        .client
        .send("PATCH", &format!("{path}/three"), &[], r#"{"weight": 5}"#)
        .await
        .good();
    assert_eq!(weighed["weight"], 5.0);
    let light = rig
        .client
        .send("PATCH", &format!("{path}/three"), &[], r#"{"weight": 0}"#)
        .await;
    assert!(light.is_problem(422, "policy_refused"), "{light:?}");
    let drained = rig
        .client
        .send("POST", &format!("{path}/one/drain"), &[], "")
        .await
        .good();
    assert_eq!(drained["draining"], true);
    let back = rig
        .client
        .send("POST", &format!("{path}/one/undrain"), &[], "")
        .await
        .good();
    assert_eq!(back["draining"], false);
    let removed = rig
        .client
        .send("DELETE", &format!("{path}/two"), &[], "")
        .await
        .good();
    assert!(
        removed["note"].as_str().unwrap().contains("comes back"),
        "{removed}"
    );
    rig.end().await;
    let rig = Rig::from(folder, text).await.unwrap();
    let names: Vec<_> = get(&rig, path).await["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].clone())
        .collect();
    assert_eq!(names, ["one", "two", "three"]);
    let removed = rig
        .client
        .send("DELETE", &format!("{path}/three"), &[], "")
        .await
        .good();
    assert_eq!(removed["note"], Value::Null);
    rig.end().await;
}

#[tokio::test]
async fn what_needs_a_restart_is_refused_by_name_and_targets_of_the_file_follow_a_reload() {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let file = folder.path().join("mainstay.toml");
    let write =
        |text: &str| std::fs::write(&file, format!("{}{text}", head(folder.path()))).unwrap();
    write(&service());
    let mut given = options(String::new());
    given.files = vec![mainstay_config::Input::File(file.clone())];
    let rig = Rig::from_options(std::sync::Arc::clone(&folder), given)
        .await
        .unwrap();
    write(&service().replace("two", "other"));
    rig.client
        .send("POST", "/v1/admin/reload", &[], "")
        .await
        .good();
    let targets = get(&rig, "/v1/services/compute/targets").await;
    let names: Vec<_> = targets["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].clone())
        .collect();
    assert_eq!(names, ["one", "other"]);
    write(&service().replace("org.fac.sys.sub.compute", "org.fac.sys.sub.another"));
    let refused = rig.client.send("POST", "/v1/admin/reload", &[], "").await;
    assert!(refused.is_problem(409, "conflict"), "{refused:?}");
    assert!(refused.text.contains("services.compute"), "{refused:?}");
    rig.end().await;
}
