//! Jobs: acknowledged, watched, driven again, ended.

use std::time::Duration;

use mainstay_message::envelope::{JSON, RequestHead, reply_headers};
use mainstay_message::{Broker, Topic};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::actors::{Does, STEP, VERSION, event, request};
use crate::world::{World, policy, settings};

async fn results(world: &World, count: usize) -> Vec<(String, u64)> {
    let mut results = Vec::new();
    for _ in 0..count {
        let event = world.client.event().await.json();
        results.push((
            event["worker"].as_str().unwrap().to_owned(),
            event["index"].as_u64().unwrap(),
        ));
    }
    results
}

fn all_of(worker: &str, count: u64) -> Vec<(String, u64)> {
    (1..=count)
        .map(|index| (worker.to_owned(), index))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_job_is_acknowledged_and_its_results_relayed_in_order() {
    let world = World::new(Does::gives(200), Does::Echo).await;
    let reply = world.call("job", json!({"id": 7})).await;
    assert_eq!(reply.json(), json!({"accepted": true}));
    assert_eq!(world.service.status().jobs_open, 1);
    assert_eq!(
        world.service.job("7").unwrap().target.as_deref(),
        Some("worker-a")
    );
    assert_eq!(results(&world, 200).await, all_of("worker-a", 200));
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.service.status().jobs_open, 0);
    assert_eq!(world.hub.unacknowledged(), 0);
    assert_eq!(
        (world.count("jobs_accepted"), world.count("jobs_finished")),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn results_before_the_acknowledgement_do_not_hold_it_up() {
    let world = World::new(Does::Early { results: 100 }, Does::Echo).await;
    let reply = world.call("job", json!({"id": 7})).await;
    assert_eq!(reply.json(), json!({"accepted": true}));
    assert_eq!(results(&world, 100).await, all_of("worker-a", 100));
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.service.status().jobs_open, 0);
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_stalls_is_driven_again_and_its_old_target_is_not_heard_any_more() {
    let world = World::new(Does::stalls(100), Does::gives(200)).await;
    world.call("job", json!({"id": "j"})).await;
    assert_eq!(results(&world, 100).await, all_of("worker-a", 100));
    let stalled = Instant::now();
    assert_eq!(results(&world, 1).await, all_of("worker-b", 1));
    let waited = stalled.elapsed();
    assert!(
        (Duration::from_secs(60)..Duration::from_secs(62)).contains(&waited),
        "{waited:?}"
    );
    // The old one goes on after all.
    for index in 101..=200 {
        let late = json!({"id": "j", "index": index, "status": "running", "worker": "worker-a"});
        event(&world.a.connection, &world.a.identity, &late).await;
    }
    let done = json!({"id": "j", "index": 200, "status": "done", "worker": "worker-a"});
    event(&world.a.connection, &world.a.identity, &done).await;
    let rest: Vec<_> = all_of("worker-b", 200).split_off(1);
    assert_eq!(results(&world, 199).await, rest);
    event(&world.a.connection, &world.a.identity, &done).await;
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.count("results_late"), 102);
    assert_eq!(
        (world.count("jobs_redriven"), world.count("jobs_finished")),
        (1, 1)
    );
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_nobody_finishes_ends_in_an_event() {
    let world = World::new(Does::stalls(1), Does::Nothing).await;
    world.call("job", json!({"id": "j"})).await;
    assert_eq!(results(&world, 1).await, all_of("worker-a", 1));
    let failed = world.client.event().await;
    assert_eq!(failed.headers.get("event_name"), Some("job_failed"));
    assert_eq!(failed.headers.get("capability_name"), Some("Compute"));
    let body = failed.json();
    assert_eq!(
        (&body["job_id"], &body["outcome_unknown"]),
        (&json!("j"), &json!(false))
    );
    assert_eq!(body["targets"], json!(["worker-a"]));
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.service.status().jobs_open, 0);
    assert_eq!(world.count("jobs_failed"), 1);
    let told = world.service.failed_jobs();
    assert_eq!((told.len(), told[0].job_key.as_deref()), (1, Some("j")));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_must_not_run_twice_is_not_driven_again() {
    let world = World::new(Does::stalls(0), Does::Echo).await;
    world.call("job_write", json!({"id": "j"})).await;
    let failed = world.client.event().await.json();
    assert_eq!(failed["outcome_unknown"], json!(true));
    assert_eq!((world.a.runs(), world.b.runs()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn results_that_come_before_the_acknowledgement_wait_for_it() {
    let world = World::new(Does::Early { results: 5 }, Does::Echo).await;
    world.send("job", json!({"id": "j"})).await;
    let reply = world.client.reply().await;
    assert_eq!(reply.json(), json!({"accepted": true}));
    assert_eq!(results(&world, 5).await, all_of("worker-a", 5));
    let published = world
        .hub
        .published("org/fac/sys/-/compute/events/Compute/result");
    assert_eq!(published.len(), 5);
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.service.status().jobs_open, 0);
}

#[tokio::test(start_paused = true)]
async fn results_as_requests_that_come_before_the_acknowledgement_wait_for_it() {
    let world = World::new(Does::EarlyRequests { results: 3 }, Does::Echo).await;
    let reply = world.call("job", json!({"id": "j"})).await;
    assert_eq!(reply.json(), json!({"accepted": true}));
    assert!(world.client.hears_nothing_more().await);
    let relayed = world.hub.published(world.client.requests().as_str());
    let told = relayed.iter().map(|message| {
        let body: Value = serde_json::from_slice(&message.body).unwrap();
        let source = message.headers.get("source").unwrap().to_owned();
        (source, body["index"].as_u64().unwrap())
    });
    let front = world.front.as_str();
    let expected = (1..=3).map(|index| (front.to_owned(), index));
    assert_eq!(told.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    assert_eq!(world.service.status().jobs_open, 0);
    assert_eq!(world.count("jobs_finished"), 1);
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn many_jobs_at_once_keep_their_results_apart() {
    let world = World::new(Does::gives(3), Does::Echo).await;
    for id in 0..300 {
        world.send("job", json!({"id": id})).await;
    }
    for _ in 0..300 {
        assert!(!world.client.reply().await.has_error);
    }
    let mut seen = std::collections::HashMap::<u64, Vec<u64>>::new();
    for _ in 0..900 {
        let event: Value = world.client.event().await.json();
        let id = event["id"].as_u64().unwrap();
        seen.entry(id)
            .or_default()
            .push(event["index"].as_u64().unwrap());
    }
    assert_eq!(seen.len(), 300);
    assert!(seen.values().all(|indices| *indices == [1, 2, 3]));
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.count("jobs_finished"), 300);
}

#[tokio::test(start_paused = true)]
async fn an_event_of_no_job_is_relayed() {
    let world = World::new(Does::Echo, Does::Echo).await;
    event(
        &world.b.connection,
        &world.b.identity,
        &json!({"temperature": 7}),
    )
    .await;
    let relayed = world.client.event().await;
    assert_eq!(relayed.json(), json!({"temperature": 7}));
    assert_eq!(relayed.headers.get("source"), Some("org.fac.sys.-.compute"));
    assert_eq!(relayed.headers.get("capability_name"), Some("Compute"));
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_target_that_is_removed_go_to_the_next_one() {
    let world = World::new(Does::stalls(1), Does::gives(2)).await;
    world.call("job", json!({"id": "j"})).await;
    assert_eq!(results(&world, 1).await, all_of("worker-a", 1));
    world.service.remove_target("worker-a").unwrap();
    let began = Instant::now();
    assert_eq!(results(&world, 2).await, all_of("worker-b", 2));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(world.client.hears_nothing_more().await);
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_room_on_the_next_target_rather_than_fail() {
    let mut settings = settings();
    for target in &mut settings.targets {
        target.max_in_flight = Some(1);
        target.policy = policy(1, mainstay_message::Spread::ActiveStandby, Some(1));
    }
    let world = World::of(
        settings,
        Does::stalls(0),
        Does::Job {
            results: 3,
            step: Duration::from_secs(18),
        },
    )
    .await;
    world.call("job", json!({"id": "stalls"})).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    world.call("job", json!({"id": "other"})).await;
    // The first one is overdue while the second one keeps the standby busy for a minute more.
    let mut ended = Vec::new();
    while ended.len() < 2 {
        let event = world.client.event().await.json();
        if event["status"] == "done" {
            ended.push(event["id"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(ended, ["other", "stalls"]);
    assert_eq!(world.count("jobs_failed"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_broker_gives_again_is_relayed_once() {
    let world = World::new(Does::gives(3), Does::Echo).await;
    world.call("job", json!({"id": "j"})).await;
    assert_eq!(results(&world, 1).await, all_of("worker-a", 1));
    // Confirmations are lost: the results stay unacknowledged and unconfirmed, and the broker gives them again.
    world.connection.lose_confirmations(true);
    tokio::time::sleep(STEP * 3).await;
    world.connection.cut();
    world.connection.lose_confirmations(false);
    world.connection.mend();
    tokio::time::sleep(STEP * 10).await;
    let published = world
        .hub
        .published("org/fac/sys/-/compute/events/Compute/result");
    let mut ids: Vec<_> = published
        .iter()
        .map(|it| it.headers.get("message_id").unwrap().to_owned())
        .collect();
    ids.dedup();
    let unique: std::collections::HashSet<_> = ids.iter().cloned().collect();
    assert_eq!(unique.len(), 3, "each under one id: {ids:?}");
    assert!(world.count("messages_repeated") >= 1);
    assert_eq!(world.count("jobs_finished"), 1);
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_waits_for_its_acknowledgement_and_comes_again_is_relayed_once() {
    let world = World::new(Does::Nothing, Does::Echo).await;
    world.send("job", json!({"id": "j"})).await;
    tokio::time::sleep(STEP).await;
    let result = |index: u32, status: &str| json!({"id": "j", "index": index, "status": status, "worker": "worker-a"});
    let first = result(1, "running");
    event(&world.a.connection, &world.a.identity, &first).await;
    tokio::time::sleep(STEP).await;
    assert_eq!(world.hub.unacknowledged(), 1, "it waits");
    world.connection.cut();
    world.connection.mend();
    tokio::time::sleep(STEP).await;
    accept(&world).await;
    let last = result(2, "done");
    event(&world.a.connection, &world.a.identity, &last).await;
    assert_eq!(results(&world, 2).await, all_of("worker-a", 2));
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.count("events_relayed"), 2);
    assert_eq!(world.hub.unacknowledged(), 0);
}

/// Accepts the one job that was forwarded to the first worker, in its place.
async fn accept(world: &World) {
    let forwarded = world.hub.published("org/fac/sys/-/worker-a/request");
    let is_job =
        |it: &&mainstay_message::Publication| it.headers.get("operation_id") == Some("Work.job");
    let call = forwarded.iter().find(is_job).unwrap();
    let head = RequestHead::read(&call.headers).unwrap();
    let topic = Topic::parse(&format!("{}/response", head.source.replace('.', "/"))).unwrap();
    let mut reply = mainstay_message::Publication::new(topic, r#"{"accepted":true}"#);
    reply.content_type = Some(JSON.into());
    reply.headers = reply_headers(&head, VERSION, false);
    world.a.connection.publish(reply).await.unwrap();
    assert!(!world.client.reply().await.has_error);
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_target_that_the_broker_gives_again_is_relayed_once() {
    let world = World::new(Does::stalls(0), Does::Echo).await;
    world.call("job", json!({"id": "j"})).await;
    tokio::time::sleep(STEP).await;
    world.connection.lose_confirmations(true);
    let body = json!({"id": "j", "index": 1, "status": "running"});
    let proxy = "org.fac.sys.-.compute-proxy";
    request(&world.a.connection, &world.a.identity, proxy, &body).await;
    tokio::time::sleep(STEP).await;
    world.connection.cut();
    world.connection.lose_confirmations(false);
    world.connection.mend();
    tokio::time::sleep(STEP * 10).await;
    let relayed = world.hub.published(world.client.requests().as_str());
    let ids: std::collections::HashSet<_> = relayed
        .iter()
        .map(|it| it.headers.get("message_id").unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 1, "each time under one id");
    assert_eq!(world.count("messages_repeated"), 1);
    assert_eq!(world.count("requests_relayed"), 1);
    assert_eq!(world.count("events_relayed"), 0);
    assert_eq!(world.hub.unacknowledged(), 0);
}
