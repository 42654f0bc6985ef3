//! Code of the library's user decides what the settings cannot.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mainstay_engine::{Category, Sent};
use mainstay_message::refusal::Meaning;
use mainstay_message::{Body, Hooks, JobFailure, JobResult};
use serde_json::json;

use crate::actors::{Does, event};
use crate::world::{World, settings};

/// A workflow whose messages no setting describes.
#[derive(Debug, Default)]
struct Workflow {
    failures: Mutex<Vec<JobFailure>>,
}

impl Hooks for Workflow {
    fn acknowledges(&self, function: &str, reply: &Body) -> Option<bool> {
        (function == "run").then(|| reply.json()[0] != "worker-a")
    }

    fn result(&self, function: &str, body: &Body) -> Option<JobResult> {
        let key = body.json()["of"].as_str()?;
        (function == "job").then(|| JobResult {
            key: Some(key.into()),
            last: body.json()["left"] == 0,
        })
    }

    fn meaning(&self, _: &str, text: &str) -> Option<Meaning> {
        text.starts_with("warming up").then_some(Meaning {
            category: Category::Endpoint,
            sent: Sent::YesUnprocessed,
        })
    }

    fn rewrite(&self, _: &str, target: &str, body: &Bytes) -> Option<Bytes> {
        let told: serde_json::Value = serde_json::from_slice(body).ok()?;
        told.get("for")?;
        Some(json!({"for": target}).to_string().into())
    }

    fn job_failed(&self, failure: &JobFailure) {
        self.failures.lock().unwrap().push(failure.clone());
    }
}

async fn world(a: Does, b: Does) -> (World, Arc<Workflow>) {
    let workflow = Arc::new(Workflow::default());
    let hooks = Arc::clone(&workflow) as Arc<dyn Hooks>;
    (World::hooked(settings(), hooks, a, b).await, workflow)
}

#[tokio::test(start_paused = true)]
async fn a_hook_says_which_reply_acknowledges() {
    let (world, _) = world(Does::Echo, Does::Echo).await;
    let reply = world.call("run", json!(1)).await;
    assert_eq!(reply.json(), json!(["worker-b", 1]));
    // Of what it says nothing the settings decide.
    let reply = world.call("write", json!(2)).await;
    assert!(!reply.has_error);
}

#[tokio::test(start_paused = true)]
async fn a_hook_finds_the_job_of_a_result_and_its_end() {
    let (world, _) = world(Does::stalls(0), Does::Echo).await;
    world.call("job", json!({"id": "j"})).await;
    for left in [1, 0] {
        let body = json!({"of": "j", "left": left});
        event(&world.a.connection, &world.a.identity, &body).await;
        assert_eq!(world.client.event().await.json(), body);
    }
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.count("jobs_finished"), 1);
    assert_eq!(world.service.status().jobs_open, 0);
}

#[tokio::test(start_paused = true)]
async fn a_hook_says_what_an_error_means() {
    let (world, _) = world(Does::Error("warming up"), Does::Echo).await;
    // Nothing ran: even what must not run twice goes on to the next one.
    let reply = world.call("write", json!(1)).await;
    assert_eq!(reply.json(), json!(["worker-b", 1]));
    assert_eq!(world.a.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hook_rewrites_what_each_target_gets() {
    let (world, _) = world(Does::Echo, Does::Echo).await;
    let reply = world.call("run", json!({"for": "anybody"})).await;
    assert_eq!(reply.json(), json!(["worker-b", {"for": "worker-b"}]));
    let reply = world.call("run", json!({"to": "anybody"})).await;
    assert_eq!(reply.json(), json!(["worker-b", {"to": "anybody"}]));
}

#[tokio::test(start_paused = true)]
async fn a_hook_hears_of_a_job_that_nobody_finishes() {
    let (world, workflow) = world(Does::stalls(0), Does::Nothing).await;
    world.call("job", json!({"id": "j"})).await;
    let told = world.client.event().await;
    assert_eq!(told.headers.get("event_name"), Some("job_failed"));
    let failures = workflow.failures.lock().unwrap();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].key.as_deref(), Some("j"));
    assert_eq!(failures[0].operation, "Compute.job");
    assert!(!failures[0].outcome_unknown);
}
