//! Jobs whose target stops in the middle of its results.

use mainstay_testkit::python::PythonProgram;
use serde_json::{Value, json};

use crate::program::Server;

use super::world::{FRONT, Kind, PRIMARY, STANDBY, World, send, told};

const JOBS: &str = r#"
[services.compute.timeouts]
result_timeout = "3s"
ack_timeout = "3s"
[services.compute.operations.run_compute_job]
safety = "idempotent_write"
kind = "job"
job_key = "/job_id"
last_result = '/status == "done"'
"#;

fn job(name: &str, total: u32) -> Value {
    json!({"job_id": name, "total": total, "rate": 100.0})
}

/// What callers hear of jobs.
fn is_event(line: &Value) -> bool {
    line["event"] == "event"
}

/// Each result that a client has heard: whose and which.
async fn heard(client: &PythonProgram, count: usize) -> Vec<(String, String, u64)> {
    let lines = told(client, count, |it| {
        is_event(it) && it["name"] == "job_result"
    });
    let results = lines.await.into_iter().map(|line| {
        assert_eq!(line["source"], FRONT);
        let result = &line["payload"];
        let text = |name: &str| result[name].as_str().unwrap().to_owned();
        (
            text("job_id"),
            text("worker"),
            result["index"].as_u64().unwrap(),
        )
    });
    results.collect()
}

fn run(job: &str, worker: &str, count: u64) -> impl Iterator<Item = (String, String, u64)> {
    (0..count).map(move |index| (job.to_owned(), worker.to_owned(), index))
}

/// All that a worker has to say of a job of 200 has left it.
async fn has_sent_all(worker: &PythonProgram) {
    told(worker, 200, |it| it["event"] == "result").await;
}

/// Jobs that were driven again, have finished, have failed.
fn ended(world: &World, server: &Server) -> [u64; 3] {
    ["jobs_redriven", "jobs_finished", "jobs_failed"].map(|name| world.count(server, name))
}

async fn is_driven_again(kind: Kind) {
    let world = World::new(kind).await;
    let (primary, _standby) = tokio::join!(world.worker(PRIMARY), world.worker(STANDBY));
    let server = world.serve(&world.configuration(JOBS)).await;
    let client = world.client().await;
    world.inject("primary", "stall 100");
    send(&client, "run_compute_job", job("one", 200));
    told(&client, 1, |it| it["payload"]["worker"] == "standby").await;
    // The old target goes on while the new one streams.
    world.inject("primary", "none");
    has_sent_all(&primary).await;
    heard(&client, 300).await;
    world
        .until(&server, "late results dropped", |it| {
            it["counts"]["results_late"] == 100
        })
        .await;
    // Whatever was on its way comes before this.
    send(&client, "run_compute_job", job("two", 1));
    let heard = heard(&client, 301).await;
    let expected = run("one", "primary", 100)
        .chain(run("one", "standby", 200))
        .chain(run("two", "primary", 1));
    assert_eq!(heard, expected.collect::<Vec<_>>());
    assert_eq!(told(&client, 2, |it| it["event"] == "reply").await.len(), 2);
    assert_eq!(ended(&world, &server), [1, 2, 0]);
}

async fn ends_as_failed(kind: Kind) {
    let world = World::new(kind).await;
    let (primary, standby) = tokio::join!(world.worker(PRIMARY), world.worker(STANDBY));
    let server = world.serve(&world.configuration(JOBS)).await;
    let client = world.client().await;
    world.inject("primary", "stall 100");
    world.inject("standby", "stall 50");
    send(&client, "run_compute_job", job("one", 200));
    let failed = |it: &Value| is_event(it) && it["name"] == "job_failed";
    let failed = &told(&client, 1, failed).await[0];
    assert_eq!(failed["source"], FRONT);
    assert_eq!(failed["capability"], "Compute");
    assert_eq!(failed["payload"]["job_id"], "one");
    assert_eq!(failed["payload"]["targets"], json!(["primary", "standby"]));
    assert_eq!(failed["payload"]["outcome_unknown"], false);
    world.inject("primary", "none");
    world.inject("standby", "none");
    tokio::join!(has_sent_all(&primary), has_sent_all(&standby));
    world
        .until(&server, "late results dropped", |it| {
            it["counts"]["results_late"] == 250
        })
        .await;
    send(&client, "run_compute_job", job("two", 1));
    let heard = heard(&client, 151).await;
    let expected = run("one", "primary", 100)
        .chain(run("one", "standby", 50))
        .chain(run("two", "primary", 1));
    assert_eq!(heard, expected.collect::<Vec<_>>());
    assert_eq!(told(&client, 2, |it| it["event"] == "reply").await.len(), 2);
    assert_eq!(ended(&world, &server), [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_stalls_on_mqtt_is_driven_again_and_its_old_results_are_not_heard() {
    is_driven_again(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_stalls_on_amqp_is_driven_again_and_its_old_results_are_not_heard() {
    is_driven_again(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_target_finishes_on_mqtt_is_told_as_failed() {
    ends_as_failed(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_no_target_finishes_on_amqp_is_told_as_failed() {
    ends_as_failed(Kind::Amqp).await;
}
