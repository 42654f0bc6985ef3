//! How much the broker gives before it is acknowledged, and what it says of it.

use std::time::Duration;

use mainstay_message::{Broker, Headers};
use mainstay_testkit::rabbitmq::{INTERSECT_EXCHANGE, QueueState};
use mainstay_testkit::until;
use tokio::time::{sleep, timeout};

use super::fixture::{Fixture, acknowledge, await_active, durable, message, next};

#[tokio::test]
async fn the_broker_gives_no_more_than_the_prefetch_before_it_is_acknowledged() {
    let fixture = Fixture::start().await;
    let broker = fixture.connect(mainstay_amqp::AmqpSettings {
        prefetch: 5,
        ..fixture.settings()
    });
    let mut inbox = durable(&broker, "a/b", "window", 100);
    await_active(&inbox).await;
    for number in 0..20 {
        broker
            .publish(message("a/b", number.to_string()))
            .await
            .unwrap();
    }
    let waiting = async |count| {
        until("the queue holds the rest", async || {
            let state = fixture.server.queue("window").await.unwrap();
            state
                == Some(QueueState {
                    messages: count,
                    consumers: 1,
                })
        })
        .await;
    };
    waiting(15).await;
    let held: Vec<_> = [
        next(&mut inbox).await,
        next(&mut inbox).await,
        next(&mut inbox).await,
    ]
    .into();
    sleep(Duration::from_millis(200)).await;
    waiting(15).await;
    held.into_iter().for_each(acknowledge);
    waiting(12).await;
    for number in 3..20 {
        let delivery = next(&mut inbox).await;
        assert_eq!(delivery.body, number.to_string());
        acknowledge(delivery);
    }
    waiting(0).await;
    broker.close().await;
    assert_eq!(
        fixture.server.queue("window").await.unwrap(),
        Some(QueueState {
            messages: 0,
            consumers: 0
        })
    );
}

#[tokio::test]
async fn headers_of_every_type_come_as_text_and_what_is_none_is_counted() {
    let fixture = Fixture::start().await;
    let broker = fixture.up().await;
    let mut inbox = durable(&broker, "a/b", "typed", 4);
    await_active(&inbox).await;
    let mut table = Vec::new();
    for (name, value) in [
        ("text", &b"S\0\0\0\x02hi"[..]),
        ("yes", b"t\x01"),
        ("number", b"I\0\0\0\x07"),
        ("nothing", b"V"),
        ("list", b"A\0\0\0\0"),
    ] {
        table.push(name.len() as u8);
        table.extend(name.as_bytes());
        table.extend(value);
    }
    // Headers alone: no content type, no delivery mode.
    let mut header = vec![0x20, 0x00];
    header.extend((table.len() as u32).to_be_bytes());
    header.extend(table);
    let mut session = fixture.server.session().await.unwrap();
    session
        .publish(INTERSECT_EXCHANGE, "a.b", &header, b"body")
        .await
        .unwrap();
    session
        .publish(INTERSECT_EXCHANGE, "a.b", &[0, 0], b"")
        .await
        .unwrap();
    let delivery = next(&mut inbox).await;
    let expected = Headers::from_iter([("text", "hi"), ("yes", "true"), ("number", "7")]);
    let mut came: Vec<_> = delivery.headers.iter().collect();
    came.sort_unstable();
    let mut wanted: Vec<_> = expected.iter().collect();
    wanted.sort_unstable();
    assert_eq!(came, wanted);
    assert_eq!(delivery.content_type, None);
    assert_eq!(broker.oddities().headers_ignored, 2);
    let bare = next(&mut inbox).await;
    assert!(bare.headers.is_empty() && bare.body.is_empty());
}

#[tokio::test]
async fn a_publication_whose_caller_left_before_it_was_written_is_not_sent() {
    let fixture = Fixture::start().await;
    let broker = fixture.up().await;
    let inbox = durable(&broker, "a/b", "left", 4);
    await_active(&inbox).await;
    drop(broker.publish(message("a/b", "left")));
    let mut next = inbox;
    broker.publish(message("a/b", "stayed")).await.unwrap();
    let delivery = timeout(Duration::from_secs(10), next.deliveries.next())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(delivery.body, "stayed");
}
