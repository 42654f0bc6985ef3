//! What comes in: malformed, misdirected, repeated, too much.

use std::time::Duration;

use mainstay_message::envelope::{JSON, Lifecycle};
use mainstay_message::{Broker, Persistence, Publication};
use serde_json::{Value, json};

use crate::actors::{Does, Worker};
use crate::world::{World, settings, target};

#[tokio::test(start_paused = true)]
async fn malformed_and_misdirected_requests_are_dropped_and_counted() {
    let world = World::new(Does::Echo, Does::Echo).await;
    let good = world.client.headers(&world.front, "Compute.run");
    for name in [
        "message_id",
        "campaign_id",
        "request_id",
        "source",
        "created_at",
        "sdk_version",
        "operation_id",
    ] {
        let mut headers = good.clone();
        headers.remove(name);
        world
            .client
            .send_raw(&world.front, JSON, headers.clone(), "1")
            .await;
        headers.push(name, "nonsense: ?");
        if name != "operation_id" {
            world
                .client
                .send_raw(&world.front, JSON, headers, "1")
                .await;
        }
    }
    let mut flood = good.clone();
    flood.push("x", "x".repeat(200 << 10));
    world.client.send_raw(&world.front, JSON, flood, "1").await;
    world
        .client
        .send_raw(&world.front, "", good.clone(), "1")
        .await;
    let mut flood = good.clone();
    (0..1000).for_each(|number| flood.push(format!("x-{number}"), ""));
    world.client.send_raw(&world.front, JSON, flood, "1").await;
    let mut other = good.clone();
    other.set("destination", "org.fac.sys.-.other");
    world.client.send_raw(&world.front, JSON, other, "1").await;
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.count("requests_malformed"), 16);
    assert_eq!(world.count("requests_misdirected"), 1);
    assert_eq!(world.count("requests"), 0);
    assert_eq!(world.hub.unacknowledged(), 0);
    assert_eq!(world.a.runs(), 0);
    // And it goes on.
    assert!(!world.call("run", json!(1)).await.has_error);
}

#[tokio::test(start_paused = true)]
async fn unknown_operations_are_answered_with_the_texts_of_the_sdk() {
    let world = World::new(Does::Echo, Does::Echo).await;
    for operation in [
        "Compute.nothing",
        "Other.run",
        "run",
        "Compute.run.more",
        "",
    ] {
        let reply = world.client.call(&world.front, operation, &json!(1)).await;
        let text = format!("Tried to call non-existent operation {operation}");
        assert_eq!((reply.has_error, reply.text), (true, text));
    }
    let mut headers = world.client.headers(&world.front, "Compute.nothing");
    headers.set("sdk_version", "0.8.0");
    world
        .client
        .send_raw(&world.front, JSON, headers, "1")
        .await;
    let text = "SDK version incompatibility. Service version: 0.9.6 . Sender version: 0.8.0";
    assert_eq!(world.client.reply().await.text, text);
    assert_eq!(world.a.runs() + world.b.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn broken_json_reaches_the_target_whose_answer_counts() {
    let world = World::new(
        Does::Error("Bad arguments to application:\nno JSON"),
        Does::Echo,
    )
    .await;
    let headers = world.client.headers(&world.front, "Compute.job");
    world
        .client
        .send_raw(&world.front, JSON, headers, "{\"id\": ")
        .await;
    assert_eq!(
        world.client.reply().await.text,
        "Bad arguments to application:\nno JSON"
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_request_twice_is_run_and_answered_once() {
    let world = World::new(Does::Late(Duration::from_secs(1)), Does::Echo).await;
    let headers = world.client.headers(&world.front, "Compute.run");
    for _ in 0..3 {
        world
            .client
            .send_raw(&world.front, JSON, headers.clone(), "1")
            .await;
    }
    assert!(!world.client.reply().await.has_error);
    world
        .client
        .send_raw(&world.front, JSON, headers, "1")
        .await;
    assert!(world.client.hears_nothing_more().await);
    assert_eq!(world.a.runs(), 1);
    assert_eq!(world.count("requests_repeated"), 3);
    assert_eq!(world.hub.unacknowledged(), 0);
}

#[tokio::test(start_paused = true)]
async fn too_many_or_too_large_requests_are_refused_with_an_answer() {
    let mut settings = settings();
    settings.limits.requests_max = 2;
    settings.limits.body_max = 1000;
    let world = World::of(settings, Does::Late(Duration::from_secs(1)), Does::Echo).await;
    let large = world.call("run", json!("x".repeat(2000))).await;
    assert!(
        large.has_error && large.text.contains("2002 bytes"),
        "{}",
        large.text
    );
    for n in 0..3 {
        world.send("run", json!(n)).await;
    }
    let refused = world.client.reply().await;
    assert!(
        refused.has_error && refused.text.contains("Too many requests"),
        "{}",
        refused.text
    );
    assert!(!world.client.reply().await.has_error);
    assert!(!world.client.reply().await.has_error);
    assert_eq!(
        (
            world.count("requests_shed"),
            world.count("requests_too_large")
        ),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn requests_that_no_broker_keeps_are_taken_in_while_no_answer_is_confirmed() {
    const REQUESTS: u64 = 3000;
    let world = World::new(Does::Echo, Does::Echo).await;
    world.connection.lose_confirmations(true);
    for _ in 0..REQUESTS {
        let mut message = Publication::new(world.front.requests(), "1");
        message.content_type = Some(JSON.into());
        message.headers = world.client.headers(&world.front, "Compute.nothing");
        message.persistence = Persistence::Transient;
        world.client.connection.publish(message).await.unwrap();
    }
    // A confirmation may come behind them, on the connection that they would hold up.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.count("requests"), REQUESTS);
    world.connection.lose_confirmations(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.count("replies"), REQUESTS);
    assert_eq!(world.count("requests_unanswered"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_proxy_answers_for_its_own_status() {
    let world = World::new(Does::Echo, Does::Echo).await;
    let reply = world
        .client
        .call(
            &world.front,
            "intersect_sdk.system_capability",
            &Value::Null,
        )
        .await;
    assert!(!reply.has_error);
    let status = reply.json();
    for name in [
        "uptime",
        "logical_cpus",
        "physical_cpus",
        "cpu_percentages",
        "memory_total",
        "disk_total",
    ] {
        assert!(status.get(name).is_some(), "{name}");
    }
    assert_eq!(world.a.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_sees_the_life_of_the_service_under_the_fronted_name() {
    let world = World::new(Does::Echo, Does::Echo).await;
    let topic = world.front.lifecycle();
    assert!(
        world.hub.published(topic.as_str()).is_empty(),
        "nobody has said what it is"
    );
    world.a.announce(Lifecycle::Startup).await;
    tokio::time::sleep(Duration::from_secs(301)).await;
    world.service.stop(Duration::from_secs(1)).await;
    let told = world.hub.published(topic.as_str());
    let kinds: Vec<_> = told
        .iter()
        .map(|it| it.headers.get("lifecycle_type").unwrap())
        .collect();
    assert_eq!(kinds, ["LCT_STARTUP", "LCT_POLLING", "LCT_SHUTDOWN"]);
    let body: Value = serde_json::from_slice(&told[0].body).unwrap();
    assert_eq!(body["schema"]["info"]["title"], "org.fac.sys.-.compute");
    assert!(body["schema"]["capabilities"]["Compute"]["endpoints"]["run"].is_object());
    assert!(body["schema"]["capabilities"]["Work"].is_null());
    assert_eq!(body["status"], json!({"Compute": "fine"}));
    for message in &told {
        assert_eq!(message.headers.get("source"), Some("org.fac.sys.-.compute"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_announces_itself_is_taken_if_it_answers() {
    let mut settings = settings();
    settings.targets.clear();
    settings
        .operations
        .retain(|function, _| &**function == "job");
    settings.targets.push(target("worker-z", "standby"));
    let map = settings.targets[0].operation_map.clone();
    settings.targets[0].operation_map = map
        .into_iter()
        .filter(|(function, _)| &**function == "run" || &**function == "job")
        .collect();
    settings.capability_name = "Work".into();
    settings.discover = vec![mainstay_message::Discovery {
        pattern: "org.fac.sys.-.worker-*".into(),
        group: "primary".into(),
        weight: 1.0,
        broker: None,
        max_in_flight: None,
        policy: crate::world::policy(1, mainstay_message::Spread::ActiveStandby, None),
    }];
    let world = World::of(settings, Does::Echo, Does::Nothing).await;
    world.a.announce(Lifecycle::Startup).await;
    world.b.announce(Lifecycle::Startup).await;
    let stranger = Worker::start(&world.hub, "stranger", Does::Echo);
    stranger.announce(Lifecycle::Startup).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let names: Vec<_> = world
        .service
        .status()
        .targets
        .iter()
        .map(|it| it.destination.clone())
        .collect();
    assert_eq!(
        names,
        ["org.fac.sys.-.worker-a", "org.fac.sys.-.worker-z"],
        "b does not answer"
    );
    // It listens a little after it has said that it is there.
    world.b.announce(Lifecycle::Startup).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.b.does(Does::Echo);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(world.service.target("org.fac.sys.-.worker-b").is_some());
    let reply = world.client.call(&world.front, "Work.run", &json!(1)).await;
    assert_eq!(reply.json(), json!(["worker-a", 1]));
    world.a.announce(Lifecycle::Shutdown).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(
        world
            .service
            .target("org.fac.sys.-.worker-a")
            .unwrap()
            .draining
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_that_announced_itself_says_counts_until_it_is_removed() {
    let mut settings = settings();
    settings.capability_name = "Work".into();
    settings.operations.clear();
    settings.targets = vec![target("worker-z", "standby")];
    settings.targets[0].operation_map = [("run".into(), "Work.run".into())].into();
    settings.discover = vec![mainstay_message::Discovery {
        pattern: "org.fac.sys.-.worker-*".into(),
        group: "primary".into(),
        weight: 1.0,
        broker: None,
        max_in_flight: None,
        policy: crate::world::policy(1, mainstay_message::Spread::ActiveStandby, None),
    }];
    let world = World::of(settings, Does::Echo, Does::Nothing).await;
    world.a.announce(Lifecycle::Startup).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.a.announce_as(Lifecycle::Polling, "slow").await;
    let told = |world: &World| {
        let published = world.hub.published("org/fac/sys/-/compute/lifecycle");
        let last: serde_json::Value =
            serde_json::from_slice(&published.last().unwrap().body).unwrap();
        last["status"]["Work"].clone()
    };
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(told(&world), json!("slow"), "its later word counts");
    world
        .service
        .remove_target("org.fac.sys.-.worker-a")
        .unwrap();
    let z = Worker::start(&world.hub, "worker-z", Does::Echo);
    z.announce_as(Lifecycle::Startup, "fresh").await;
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(told(&world), json!("fresh"), "another one is heard now");
}

#[tokio::test(start_paused = true)]
async fn targets_come_and_go_while_it_runs() {
    let world = World::new(Does::Echo, Does::Echo).await;
    let c = Worker::start(&world.hub, "worker-c", Does::Echo);
    world
        .service
        .add_target(target("worker-c", "primary"))
        .unwrap();
    assert!(
        world
            .service
            .add_target(target("worker-c", "primary"))
            .is_err()
    );
    world.service.drain_target("worker-a").unwrap();
    assert_eq!(
        world.call("run", json!(1)).await.json(),
        json!(["worker-c", 1])
    );
    world.service.undrain_target("worker-a").unwrap();
    assert_eq!(
        world.call("run", json!(2)).await.json(),
        json!(["worker-a", 2])
    );
    world.service.remove_target("worker-a").unwrap();
    assert_eq!(
        world.call("run", json!(3)).await.json(),
        json!(["worker-c", 3])
    );
    assert!(world.service.remove_target("worker-a").is_err());
    assert_eq!(c.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reply_of_somebody_else_is_not_taken_for_the_targets() {
    let world = World::new(Does::Nothing, Does::Echo).await;
    let id = world.send("run", json!(1)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let forwarded = world.hub.published("org/fac/sys/-/worker-a/request");
    let call = forwarded
        .iter()
        .find(|it| it.headers.get("operation_id") == Some("Work.run"))
        .unwrap();
    let mut lie = Publication::new(
        mainstay_message::Topic::parse("org/fac/sys/-/compute-proxy/response").unwrap(),
        "\"lie\"",
    );
    lie.content_type = Some(JSON.into());
    lie.headers = call.headers.clone();
    lie.headers.set("source", "org.fac.sys.-.liar");
    lie.headers
        .set("destination", "org.fac.sys.-.compute-proxy");
    world.client.connection.publish(lie).await.unwrap();
    let reply = world.client.reply().await;
    assert_eq!(
        (reply.request_id.clone(), reply.json()),
        (id, json!(["worker-b", 1]))
    );
    assert_eq!(world.count("replies_foreign"), 1);
}
