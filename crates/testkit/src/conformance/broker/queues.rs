//! What a queue keeps, and for how long.

use mainstay_message::Queue;

use super::BrokerFixture;
use super::bench::{Bench, acknowledge, message};

/// A durable queue keeps messages for a connection of the same name.
///
/// # Panics
/// It does not.
pub async fn a_durable_queue_keeps_messages_while_nobody_is_there(fixture: &dyn BrokerFixture) {
    let sender = Bench::up(fixture, "sender").await;
    let away = Bench::up(fixture, "away").await;
    drop(away.durable("kept/request", "kept").await.next());
    away.close().await;
    for n in 0..50 {
        sender.publish(message("kept/request", n.to_string())).await;
    }
    let back = Bench::up(fixture, "away").await;
    let mut inbox = back.durable("kept/request", "kept").await;
    for n in 0..50 {
        assert_eq!(inbox.take().await.body, n.to_string());
    }
    inbox.assert_silent().await;
    back.close().await;
    sender.close().await;
}

/// A message that was not acknowledged comes again to the next connection, one that was does not.
///
/// # Panics
/// It does not, or it does.
pub async fn what_was_not_acknowledged_comes_again(fixture: &dyn BrokerFixture) {
    let sender = Bench::up(fixture, "sender").await;
    let first = Bench::up(fixture, "receiver").await;
    let mut inbox = first.durable("again/request", "again").await;
    for body in ["held", "done", "dropped"] {
        sender.publish(message("again/request", body)).await;
    }
    let held = inbox.next().await;
    assert_eq!(held.body, "held");
    assert_eq!(inbox.take().await.body, "done");
    drop(inbox.next().await);
    first.close().await;
    let second = Bench::up(fixture, "receiver").await;
    let mut inbox = second.durable("again/request", "again").await;
    for body in ["held", "dropped"] {
        let again = inbox.take().await;
        assert_eq!(again.body, body);
        assert!(again.redelivered, "{body}");
    }
    // Too late: it does nothing.
    drop(held);
    inbox.assert_silent().await;
    second.close().await;
    let third = Bench::up(fixture, "receiver").await;
    third
        .durable("again/request", "again")
        .await
        .assert_silent()
        .await;
    third.close().await;
    sender.close().await;
}

/// A later message may be acknowledged before an earlier one.
///
/// # Panics
/// It may not.
pub async fn acknowledgements_may_come_in_any_order(fixture: &dyn BrokerFixture) {
    let sender = Bench::up(fixture, "sender").await;
    let first = Bench::up(fixture, "receiver").await;
    let mut inbox = first.durable("any/request", "any").await;
    let mut taken = Vec::new();
    for n in 0..15 {
        sender.publish(message("any/request", n.to_string())).await;
        taken.push(inbox.next().await);
    }
    // The first stays unacknowledged while others come and go.
    for delivery in taken[1..].iter_mut().rev() {
        acknowledge(delivery);
    }
    for n in 15..60 {
        sender.publish(message("any/request", n.to_string())).await;
        assert_eq!(inbox.take().await.body, n.to_string());
    }
    first.close().await;
    let second = Bench::up(fixture, "receiver").await;
    let mut inbox = second.durable("any/request", "any").await;
    assert_eq!(inbox.take().await.body, "0");
    inbox.assert_silent().await;
    second.close().await;
    sender.close().await;
}

/// A receiver that is slower than the sender, with little room for what waits, gets every message.
///
/// # Panics
/// It does not.
pub async fn a_small_backlog_loses_nothing(fixture: &dyn BrokerFixture) {
    const COUNT: usize = 600;
    let sender = Bench::up(fixture, "sender").await;
    let receiver = Bench::up(fixture, "receiver").await;
    let mut inbox = receiver.subscribe("slow/request", Queue::Durable("slow".into()), 1);
    inbox.await_active().await;
    let all = (0..COUNT).map(|n| sender.publish(message("slow/request", n.to_string())));
    futures_util::future::join_all(all).await;
    for n in 0..COUNT {
        assert_eq!(inbox.take().await.body, n.to_string());
    }
    inbox.assert_silent().await;
    receiver.close().await;
    sender.close().await;
}

/// Deliveries that are dropped end their subscription, and the connection goes on.
///
/// # Panics
/// It does not.
pub async fn dropped_deliveries_end_the_subscription(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "dropper").await;
    let inbox = bench.transient("dropped/events").await;
    drop(inbox);
    crate::until("nobody takes the messages any more", async || {
        let mut probe = message("dropped/events", "there?");
        probe.mandatory = true;
        bench.0.publish(probe).await.is_err() || !fixture.tells_of_nobody()
    })
    .await;
    let mut other = bench.durable("other/request", "other").await;
    bench.publish(message("other/request", "well")).await;
    assert_eq!(other.take().await.body, "well");
    bench.close().await;
}
