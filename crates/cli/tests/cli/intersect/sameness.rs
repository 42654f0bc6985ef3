//! A caller sees through the proxy what it would see without it.

use mainstay_testkit::python::{PythonEnvironment, PythonProgram};
use mainstay_testkit::s3::S3Server;
use serde_json::Value;

use super::world::{FRONT, Kind, PRIMARY, START, World};

async fn recorded(world: &World, to: &str) -> Value {
    let comparison = world
        .programs
        .comparison(to)
        .argument("--guarded")
        .start()
        .unwrap();
    let code = comparison.ended(START).await.unwrap();
    let output = comparison.lines().unwrap().join("\n");
    assert_eq!(code, 0, "{output}");
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}"))
}

async fn worker(world: &World) -> PythonProgram {
    let worker = world
        .programs
        .worker(PRIMARY)
        .arguments(["--forbid", "guarded"])
        .start()
        .unwrap();
    worker.named("started", START).await.unwrap();
    worker
}

/// Each case that differs, from both runs.
fn differences(direct: &Value, proxied: &Value) -> Vec<String> {
    let (direct, proxied) = (
        direct["cases"].as_array().unwrap(),
        proxied["cases"].as_array().unwrap(),
    );
    assert_eq!(direct.len(), proxied.len());
    let pairs = direct
        .iter()
        .zip(proxied)
        .filter(|(direct, proxied)| direct != proxied);
    pairs
        .map(|(direct, proxied)| format!("direct:  {direct}\nproxied: {proxied}"))
        .collect()
}

async fn callers_see_no_difference(kind: Kind) {
    let mut world = World::new(kind).await;
    let environment = PythonEnvironment::find().await.unwrap();
    let store = S3Server::start(&environment).await.unwrap();
    world.programs = world.programs.clone().store(store.port());
    let _worker = worker(&world).await;
    let direct = recorded(&world, PRIMARY).await;
    let more = format!(
        "[services.compute.retry]\ncount = 0\n[services.compute.object_stores.main]\nurl = \"http://127.0.0.1:{}\"\n\
         user = \"mainstay\"\npassword = \"mainstay\"\n",
        store.port()
    );
    let _server = world.serve(&world.configuration(&more)).await;
    let proxied = recorded(&world, FRONT).await;
    let different = differences(&direct, &proxied);
    assert!(
        different.is_empty(),
        "{} cases differ:\n{}",
        different.len(),
        different.join("\n\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_on_mqtt_sees_through_the_proxy_what_the_service_answers() {
    callers_see_no_difference(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_on_amqp_sees_through_the_proxy_what_the_service_answers() {
    callers_see_no_difference(Kind::Amqp).await;
}
