//! What a kill of the proxy leaves, and what the next one makes of it.

use std::time::Duration;

use serde_json::json;

use crate::actors::{Does, STEP};
use crate::world::{World, settings};

#[tokio::test(start_paused = true)]
async fn open_jobs_end_by_their_results_after_a_restart() {
    let mut world = World::new(Does::gives(20), Does::Echo).await;
    for id in 0..50 {
        world.send("job", json!({"id": id})).await;
    }
    for _ in 0..50 {
        assert!(!world.client.reply().await.has_error);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.restart().await;
    assert_eq!(world.service.jobs(100).len(), 50);
    let mut results = std::collections::HashMap::<u64, Vec<u64>>::new();
    for _ in 0..50 * 20 {
        let event = world.client.event().await.json();
        results
            .entry(event["id"].as_u64().unwrap())
            .or_default()
            .push(event["index"].as_u64().unwrap());
    }
    let all: Vec<u64> = (1..=20).collect();
    assert!(
        results.values().all(|indices| *indices == all),
        "{results:?}"
    );
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.service.status().jobs_open, 0);
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_target_died_meanwhile_is_driven_again_after_a_restart() {
    let mut world = World::new(Does::stalls(0), Does::gives(2)).await;
    world.call("job", json!({"id": "j"})).await;
    // Its reply is confirmed: it must not come again.
    tokio::time::sleep(STEP).await;
    world.a.kill();
    world.restart().await;
    let event = world.client.event().await.json();
    assert_eq!(
        (&event["worker"], &event["index"]),
        (&json!("worker-b"), &json!(1))
    );
    world.client.event().await;
    assert!(world.client.hears_nothing_more().await);
}

#[tokio::test(start_paused = true)]
async fn a_plain_request_under_way_is_driven_again_and_answered_once() {
    let mut world = World::new(Does::Late(Duration::from_secs(2)), Does::Echo).await;
    let id = world.send("run", json!(1)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.restart().await;
    let reply = world.client.reply().await;
    assert_eq!((reply.request_id, reply.has_error), (id, false));
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_gets_its_own_reply_or_an_unknown_outcome_and_runs_once() {
    let mut world = World::new(Does::Late(Duration::from_secs(2)), Does::Echo).await;
    let id = world.send("write", json!(1)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.restart().await;
    let reply = world.client.reply().await;
    assert_eq!(
        (reply.request_id.clone(), reply.json()),
        (id, json!(["worker-a", 1]))
    );
    world.a.does(Does::Nothing);
    world.send("write", json!(2)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.restart().await;
    let reply = world.client.reply().await;
    assert!(reply.text.contains("outcome_unknown"), "{}", reply.text);
    assert!(world.client.hears_nothing_more().await);
    assert_eq!((world.a.runs(), world.b.runs()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_was_not_confirmed_is_published_again_and_counted() {
    let mut world = World::new(Does::Late(Duration::from_secs(1)), Does::Echo).await;
    let id = world.send("run", json!(1)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.connection.lose_confirmations(true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    let published = world.client.reply().await;
    world.restart().await;
    let again = world.client.reply().await;
    assert_eq!((&published.request_id, &again.request_id), (&id, &id));
    assert_eq!(
        published.headers.get("message_id"),
        again.headers.get("message_id")
    );
    assert!(world.count("replies_again") == 1);
    assert_eq!(world.a.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_accepted_write_whose_target_is_gone_from_the_file_is_not_run_twice() {
    let mut world = World::new(Does::stalls(0), Does::gives(1)).await;
    world.call("job_write", json!({"id": "w"})).await;
    world.call("job", json!({"id": "j"})).await;
    tokio::time::sleep(STEP).await;
    world
        .settings
        .targets
        .retain(|target| &*target.name != "worker-a");
    world.restart().await;
    let mut told = [world.client.event().await, world.client.event().await];
    told.sort_by_key(|event| {
        event.text.contains("job_failed") || event.headers.get("event_name") == Some("job_failed")
    });
    assert_eq!(
        told[0].json()["worker"],
        "worker-b",
        "the other one may run again"
    );
    let failed = told[1].json();
    assert_eq!(
        (&failed["job_id"], &failed["outcome_unknown"]),
        (&json!("w"), &json!(true))
    );
    assert!(world.client.hears_nothing_more().await);
    assert_eq!((world.a.runs(), world.b.runs()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_reply_to_a_write_is_judged_after_a_restart_as_before_it() {
    let mut settings = settings();
    let write = settings.operations.get_mut("write").unwrap();
    write.acknowledged = Some(mainstay_message::Expression::parse(r#"/0 == "nobody""#).unwrap());
    let mut world = World::of(settings, Does::Late(STEP * 2), Does::Late(STEP * 2)).await;
    let before = world.call("write", json!(1)).await;
    world.send("write", json!(1)).await;
    tokio::time::sleep(STEP / 2).await;
    world.restart().await;
    let after = world.client.reply().await;
    for reply in [before, after] {
        assert!(reply.has_error);
        assert!(reply.text.contains("outcome_unknown"), "{}", reply.text);
    }
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.a.runs() + world.b.runs(), 2);
    assert_eq!(world.hub.unacknowledged(), 0);
}
