//! What MQTT alone can say in a message.

use mainstay_message::{Broker, Headers, Queue, Subscription, TopicFilter};
use mainstay_testkit::mosquitto::MosquittoOptions;
use mainstay_testkit::until;

use super::world::{World, durable, message, publish, take};

#[tokio::test]
async fn headers_keep_their_order_and_stand_more_than_once() {
    let world = World::new(MosquittoOptions::new()).await;
    let client = world.up("headers").await;
    let mut inbox = durable(&client, "a/b").await;
    let pairs = [
        ("b", "1"),
        ("a", "2"),
        ("b", "1"),
        ("", "no name"),
        ("no value", ""),
        ("b", "3"),
    ];
    let mut sent = message("a/b", "");
    sent.content_type = Some("".into());
    sent.headers = pairs.into_iter().collect::<Headers>();
    publish(&client, sent).await;
    let got = take(&mut inbox).await;
    assert_eq!(got.headers.iter().collect::<Vec<_>>(), pairs);
    assert_eq!(got.content_type.as_deref(), Some(""), "there, and empty");
    assert!(got.body.is_empty());
    client.close().await;
}

#[tokio::test]
async fn of_a_flood_of_headers_one_more_comes_than_a_message_may_have() {
    let world = World::new(MosquittoOptions::new()).await;
    let client = world.up("flood").await;
    let mut inbox = durable(&client, "a/b").await;
    let mut flood = message("a/b", "flood");
    flood.headers = (0..2000).map(|n| (format!("h{n}"), "x")).collect();
    publish(&client, flood).await;
    let got = take(&mut inbox).await;
    assert_eq!(got.headers.len(), Headers::COUNT_MAX + 1);
    client.close().await;
}

#[tokio::test]
async fn dropped_deliveries_are_unsubscribed_at_the_broker() {
    let options = MosquittoOptions::new().setting("log_type", "all");
    let world = World::new(options).await;
    let client = world.up("leaver").await;
    drop(client.subscribe(Subscription {
        filter: TopicFilter::parse("dropped/events").unwrap(),
        queue: Queue::Transient,
        backlog_max: 1,
    }));
    until("the broker is told", async || {
        world.broker.log_tail().contains("UNSUBSCRIBE")
    })
    .await;
    client.close().await;
}
