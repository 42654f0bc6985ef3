//! Plain operations: forwarding, retries, failover, and what a caller sees.

use std::time::Duration;

use mainstay_message::Spread;
use serde_json::json;
use tokio::time::Instant;

use crate::actors::Does;
use crate::world::{World, policy, settings};

const EXPLICIT: &str = "Service domain logic threw explicit exception:\nno sample";

#[tokio::test(start_paused = true)]
async fn a_call_is_answered_under_the_fronted_name() {
    let world = World::new(Does::Echo, Does::Echo).await;
    let reply = world.call("run", json!({"n": 1})).await;
    assert!(!reply.has_error);
    assert_eq!(reply.json(), json!(["worker-a", {"n": 1}]));
    assert_eq!(reply.headers.get("source"), Some("org.fac.sys.-.compute"));
    assert_eq!(reply.headers.get("operation_id"), Some("Compute.run"));
    let names: Vec<_> = reply
        .headers
        .iter()
        .map(|(name, _)| name.to_owned())
        .collect();
    let sdk = [
        "message_id",
        "campaign_id",
        "request_id",
        "source",
        "destination",
        "created_at",
        "sdk_version",
        "operation_id",
        "data_handler",
        "has_error",
    ];
    assert_eq!(names, sdk);
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.hub.unacknowledged(), 0);
    let forwarded = &world.hub.published("org/fac/sys/-/worker-a/request");
    let call = forwarded
        .iter()
        .find(|it| it.headers.get("operation_id") == Some("Work.run"))
        .unwrap();
    assert_eq!(
        call.headers.get("source"),
        Some("org.fac.sys.-.compute-proxy")
    );
    assert!(call.expiry.is_some_and(|it| it <= Duration::from_secs(5)));
}

#[tokio::test(start_paused = true)]
async fn the_audit_entry_of_a_request_is_found_by_the_callers_request_id() {
    let world = World::new(Does::Error(EXPLICIT), Does::Echo).await;
    world.service.source().keep_recent_audit();
    let reply = world.call("run", json!(1)).await;
    let id = mainstay_engine::CorrelationId::parse(&reply.request_id).unwrap();
    let entries = world
        .service
        .source()
        .recent_audit()
        .last(10, |entry| entry.correlation_id == id);
    assert_eq!(entries.len(), 1);
    assert!(entries[0].succeeded);
    let endpoints: Vec<_> = entries[0]
        .attempts
        .iter()
        .map(|it| it.endpoint.to_string())
        .collect();
    assert_eq!(endpoints, ["worker-a", "worker-a", "worker-b"]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_take_long_do_not_hold_up_the_replies_of_targets() {
    let world = World::new(Does::Late(Duration::from_secs(1)), Does::Echo).await;
    for number in 0..100 {
        world.send("run", json!(number)).await;
    }
    for _ in 0..100 {
        assert!(!world.client.reply().await.has_error);
    }
    assert_eq!((world.a.runs(), world.b.runs()), (100, 0));
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_error_is_retried_there_and_then_elsewhere_and_the_target_set_aside() {
    let world = World::new(Does::Error(EXPLICIT), Does::Echo).await;
    let began = Instant::now();
    let reply = world.call("run", json!(1)).await;
    assert_eq!(reply.json(), json!(["worker-b", 1]));
    assert_eq!((world.a.runs(), world.b.runs()), (2, 1));
    assert!(
        began.elapsed() >= Duration::from_millis(500),
        "the wait between the tries"
    );
    let reply = world.call("run", json!(2)).await;
    assert_eq!(reply.json(), json!(["worker-b", 2]));
    assert_eq!(world.a.runs(), 2, "set aside");
    // The next health check takes it back.
    world.a.does(Does::Echo);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(
        world.call("run", json!(3)).await.json(),
        json!(["worker-a", 3])
    );
}

#[tokio::test(start_paused = true)]
async fn the_callers_own_mistake_goes_back_to_it_and_nowhere_else() {
    for text in [
        "Bad arguments to application:\n1 validation error",
        "Tried to call non-existent operation Work.run",
        "SDK version incompatibility. Service version: 0.9.6 . Sender version: 0.8.0",
    ] {
        let world = World::new(Does::Error(text), Does::Echo).await;
        let reply = world.call("run", json!(1)).await;
        assert!(reply.has_error);
        assert_eq!(reply.text, text.replace("Work.run", "Compute.run"));
        assert_eq!((world.a.runs(), world.b.runs()), (1, 0));
        assert_eq!(world.count("targets_set_aside"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn silence_fails_over_in_the_time_that_the_settings_say() {
    let world = World::new(Does::Nothing, Does::Echo).await;
    let began = Instant::now();
    assert_eq!(
        world.call("run", json!(1)).await.json(),
        json!(["worker-b", 1])
    );
    // Two tries of 5 s with half a second between them.
    let elapsed = began.elapsed();
    let bound = Duration::from_millis(10_500)..Duration::from_millis(10_600);
    assert!(bound.contains(&elapsed), "{elapsed:?}");
    let began = Instant::now();
    world.call("run", json!(2)).await;
    assert!(
        began.elapsed() < Duration::from_millis(100),
        "at once, since it is set aside"
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_target_without_a_queue_is_left_at_once() {
    let mut settings = settings();
    settings
        .targets
        .push(crate::world::target("worker-c", "primary"));
    settings.targets.remove(1);
    let world = World::of(settings, Does::Echo, Does::Echo).await;
    let began = Instant::now();
    assert_eq!(
        world.call("run", json!(1)).await.json(),
        json!(["worker-b", 1])
    );
    assert!(
        began.elapsed() < Duration::from_millis(100),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn with_no_target_left_the_caller_gets_an_error_and_one_only() {
    let world = World::new(Does::Nothing, Does::Nothing).await;
    let reply = world.call("run", json!(1)).await;
    assert!(reply.has_error);
    assert!(
        reply.text.starts_with(
            "Service domain logic threw explicit exception:
unavailable: "
        ),
        "what they did is not known: {}",
        reply.text
    );
    assert!(
        reply.text.contains("worker-a") && reply.text.contains("worker-b"),
        "{}",
        reply.text
    );
    assert!(world.client.hears_nothing_more().await);
    let world = World::new(Does::Error(EXPLICIT), Does::Error(EXPLICIT)).await;
    assert_eq!(
        world.call("run", json!(1)).await.text,
        EXPLICIT,
        "as the service itself would answer"
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_reply_is_dropped() {
    let world = World::new(Does::Late(Duration::from_secs(7)), Does::Echo).await;
    let reply = world.call("run", json!(1)).await;
    assert_eq!(reply.json(), json!(["worker-b", 1]));
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.count("replies_late"), 2);
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_never_run_twice() {
    let world = World::new(Does::Nothing, Does::Echo).await;
    let reply = world.call("write", json!(1)).await;
    assert!(reply.has_error);
    assert!(reply.text.contains("outcome_unknown"), "{}", reply.text);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.a.runs(), world.b.runs()), (1, 0));
    // What proves that it did not run moves on.
    let text = "Function 'Work.write' is currently not available for use.";
    let world = World::new(Does::Error(text), Does::Echo).await;
    assert_eq!(
        world.call("write", json!(1)).await.json(),
        json!(["worker-b", 1])
    );
    // And what does not, goes back as it is.
    let world = World::new(Does::Error(EXPLICIT), Does::Echo).await;
    assert_eq!(world.call("write", json!(1)).await.text, EXPLICIT);
    assert_eq!((world.a.runs(), world.b.runs()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_busy_target_is_passed_over_and_not_set_aside() {
    let mut settings = settings();
    for target in &mut settings.targets {
        target.max_in_flight = Some(1);
        target.policy = policy(1, Spread::ActiveStandby, Some(1));
    }
    settings.timeouts.ack_timeout = Duration::from_secs(120);
    settings.timeouts.result_timeout = Duration::from_secs(120);
    let world = World::of(settings, Does::Late(Duration::from_secs(75)), Does::Echo).await;
    let slow = world.send("run", json!("slow")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let quick = world.call("run", json!("quick")).await;
    assert_eq!(quick.json(), json!(["worker-b", "quick"]));
    let reply = world.client.reply().await;
    assert_eq!(
        (&reply.request_id, reply.json()),
        (&slow, json!(["worker-a", "slow"]))
    );
    assert_eq!(world.count("targets_set_aside"), 0);
    assert_eq!(world.a.runs(), 1);
}

#[tokio::test(start_paused = true)]
async fn missed_checks_alone_never_fail_a_busy_target_over() {
    let mut settings = settings();
    settings.timeouts.ack_timeout = Duration::from_secs(200);
    settings.timeouts.result_timeout = Duration::from_secs(200);
    settings.timeouts.heartbeat_interval = Duration::from_secs(5);
    let world = World::of(settings, Does::Echo, Does::Echo).await;
    // It answers neither checks nor anything else while it works.
    world.a.does(Does::Nothing);
    world.send("run", json!("silent")).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(world.count("checks_missed") >= 3);
    assert_eq!(world.count("targets_set_aside"), 0);
    let status = world.service.target("worker-a").unwrap();
    assert_eq!((status.state, status.aside), ("unresponsive", false));
    // Without work the same silence does.
    let world = World::of(settings_with_short_checks(), Does::Nothing, Does::Echo).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let status = world.service.target("worker-a").unwrap();
    assert_eq!((status.state, status.aside), ("dead", true));
    assert_eq!(
        world.call("run", json!(1)).await.json(),
        json!(["worker-b", 1])
    );
    assert_eq!(world.a.runs(), 0, "failed over without a try");
}

fn settings_with_short_checks() -> mainstay_message::ServiceSettings {
    let mut settings = settings();
    settings.timeouts.heartbeat_interval = Duration::from_secs(5);
    settings.timeouts.ack_timeout = Duration::from_secs(2);
    settings
}

#[tokio::test(start_paused = true)]
async fn strategies_spread_over_all_targets() {
    for (spread, weights, expected) in [
        (Spread::RoundRobin, [1.0, 1.0], [50, 50]),
        (Spread::Weighted, [3.0, 1.0], [75, 25]),
        (Spread::ActiveStandby, [1.0, 1.0], [100, 0]),
    ] {
        let mut settings = settings();
        settings.spread = spread;
        settings.policy = policy(1, spread, None);
        for target in &mut settings.targets {
            let place = usize::from(&*target.name == "worker-b");
            target.weight = weights[place];
        }
        let world = World::of(settings, Does::Echo, Does::Echo).await;
        for n in 0..100 {
            world.call("run", json!(n)).await;
        }
        assert_eq!([world.a.runs(), world.b.runs()], expected, "{spread:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_loses_no_reply_and_doubles_none() {
    let world = World::new(Does::Late(Duration::from_secs(1)), Does::Echo).await;
    let id = world.send("run", json!(1)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.connection.cut();
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.connection.mend();
    let reply = world.client.reply().await;
    assert_eq!((reply.request_id, reply.has_error), (id, false));
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(
        world.count("targets_set_aside"),
        0,
        "the connection was at fault"
    );
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_confirmation_of_a_forwarded_request_does_not_repeat_it() {
    let world = World::new(Does::Echo, Does::Echo).await;
    world.connection.lose_confirmations(true);
    let id = world.send("write", json!(1)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.connection.lose_confirmations(false);
    let reply = world.client.reply().await;
    assert_eq!((reply.request_id, reply.has_error), (id, false));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.a.runs(), world.b.runs()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_never_left_is_no_unknown_outcome() {
    let world = World::new(Does::Echo, Does::Echo).await;
    let id = world.send("write", json!(1)).await;
    // Taken in, and nothing can leave any more.
    tokio::task::yield_now().await;
    world.connection.cut();
    tokio::time::sleep(Duration::from_secs(30)).await;
    world.connection.mend();
    let reply = world.client.reply().await;
    assert_eq!(reply.request_id, id);
    let ran = world.a.runs() + world.b.runs();
    assert!(ran <= 1);
    if ran == 0 {
        assert!(!reply.text.contains("outcome_unknown"), "{}", reply.text);
    }
}
