//! How a connection ends, comes back and says so.

use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_message::{Link, PublishErrorKind};
use tokio::time::timeout;

use super::BrokerFixture;
use super::bench::{Bench, PATIENCE, message};

/// A refused login is told, with the broker's reason, and tried again.
///
/// # Panics
/// It is not.
pub async fn a_refused_login_says_so_and_is_tried_again(fixture: &dyn BrokerFixture) {
    let bench = Bench(fixture.open_unwelcome());
    let tried = |link: &Link| matches!(link, Link::Down { attempts, refused: true, reason: Some(_) } if *attempts >= 2);
    bench.await_link("refused twice", tried).await;
    let published = timeout(PATIENCE, bench.0.publish(message("a", "b"))).await;
    let problem = published.unwrap().unwrap_err();
    assert_eq!(problem.sent, Sent::No);
    assert!(
        matches!(
            problem.kind,
            PublishErrorKind::NotConnected { reason: Some(_) }
        ),
        "{problem}"
    );
    bench.close().await;
}

/// After a restart of the broker the connection is up again, its number one higher, its subscriptions
/// active; in between publications are refused at once.
///
/// # Panics
/// It is not.
pub async fn a_connection_comes_back_with_its_subscriptions(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "back").await;
    let mut durable = bench.durable("back/request", "back").await;
    let mut transient = bench.transient("back/lifecycle").await;
    for round in 1..=2 {
        let up = bench.await_up().await;
        assert!(
            matches!(up, Link::Up { number, .. } if number == round),
            "{up:?}"
        );
        fixture.stop().await;
        let down = bench.await_down().await;
        assert!(
            matches!(
                down,
                Link::Down {
                    reason: Some(_),
                    refused: false,
                    ..
                }
            ),
            "{down:?}"
        );
        let published = timeout(PATIENCE, bench.0.publish(message("back/request", "no"))).await;
        let problem = published.unwrap().unwrap_err();
        assert_eq!(problem.sent, Sent::No, "{problem}");
        fixture.start().await;
        bench.await_up().await;
        durable.await_active().await;
        transient.await_active().await;
        for n in 0..10 {
            bench.publish(message("back/request", n.to_string())).await;
            let mut came = durable.take().await;
            while came.redelivered && came.body != n.to_string() {
                // Its acknowledgement was lost with the connection.
                came = durable.take().await;
            }
            assert_eq!(came.body, n.to_string());
            bench
                .publish(message("back/lifecycle", n.to_string()))
                .await;
            assert_eq!(transient.next().await.body, n.to_string());
        }
    }
    bench.close().await;
}

/// A broker that answers nothing any more is left; when it goes on, so does everything else.
///
/// # Panics
/// It is not.
pub async fn a_broker_that_falls_silent_is_left_and_found_again(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "silent").await;
    let mut inbox = bench.durable("silent/request", "silent").await;
    fixture.freeze();
    let held = timeout(
        Duration::from_millis(300),
        bench.0.publish(message("silent/request", "held")),
    );
    assert!(held.await.is_err(), "nobody confirms it");
    bench.await_down().await;
    fixture.thaw();
    bench.await_up().await;
    inbox.await_active().await;
    bench.publish(message("silent/request", "after")).await;
    // Whether the first arrived nobody knows.
    let mut got = inbox.take().await.body;
    if got == "held" {
        got = inbox.take().await.body;
    }
    assert_eq!(got, "after");
    bench.close().await;
}

/// Publications whose callers leave neither stop others nor come twice.
///
/// # Panics
/// They do.
pub async fn a_dropped_publication_hurts_nobody(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "dropped").await;
    let mut inbox = bench.durable("dropped/request", "dropped").await;
    for n in 0..100 {
        let mut left = std::pin::pin!(bench.0.publish(message("dropped/request", "left")));
        let polled = futures_util::poll!(&mut left);
        assert!(polled.is_pending() || n > 0);
    }
    bench.publish(message("dropped/request", "last")).await;
    let mut left = 0;
    while inbox.take().await.body != "last" {
        left += 1;
    }
    assert!(left <= 100, "{left}");
    inbox.assert_silent().await;
    bench.close().await;
}

/// After a close nothing runs, publications are refused, deliveries end.
///
/// # Panics
/// It does.
pub async fn a_closed_connection_leaves_nothing(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "closed").await;
    let mut inbox = bench.durable("closed/request", "closed").await;
    bench.publish(message("closed/request", "one")).await;
    let kept = inbox.next().await;
    timeout(PATIENCE, bench.0.close()).await.unwrap();
    assert_eq!(*bench.0.link().borrow(), Link::Closed);
    inbox.assert_ended().await;
    let published = timeout(PATIENCE, bench.0.publish(message("closed/request", "two"))).await;
    let problem = published.unwrap().unwrap_err();
    assert_eq!(problem.sent, Sent::No);
    assert_eq!(problem.kind, PublishErrorKind::Closed);
    assert!(fixture.tasks().idle(PATIENCE).await, "nothing runs");
    kept.acknowledgement.unwrap().acknowledge();
    timeout(PATIENCE, bench.0.close()).await.unwrap();
    // One that is dropped without a close ends as well.
    let dropped = Bench::up(fixture, "dropped").await;
    drop(dropped);
    assert!(fixture.tasks().idle(PATIENCE).await, "nothing runs");
}
