//! Users who may not do everything.

use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_message::{
    Broker, Link, PublishErrorKind, Queue, Subscription, SubscriptionState, TopicFilter,
};
use mainstay_testkit::rabbitmq::{INTERSECT_EXCHANGE, RabbitmqOptions};
use tokio::time::timeout;

use super::fixture::{
    Fixture, PATIENCE, await_active, await_link, await_state, durable, message, next, settings,
};

#[tokio::test]
async fn a_user_who_may_declare_nothing_uses_what_is_there_and_is_told_what_is_not() {
    let options = RabbitmqOptions::new().user("service", "secret", ["^$", ".*", ".*"]);
    let fixture = Fixture::with(options).await;
    let port = fixture.server.port();
    let broker = fixture.connect(settings(port, "service", "secret"));
    let missing = |link: &Link| matches!(link, Link::Down { refused: true, reason: Some(reason), .. } if reason.contains("404") && reason.contains(INTERSECT_EXCHANGE));
    await_link(&broker, "without an exchange", missing).await;
    fixture.server.declare_exchange().await.unwrap();
    await_link(&broker, "up", Link::is_up).await;

    let mut inbox = durable(&broker, "a/request", "made", 4);
    let refused = |state: &SubscriptionState| matches!(state, SubscriptionState::Refused(_));
    let state = await_state(&inbox, refused).await;
    assert!(
        matches!(&state, SubscriptionState::Refused(reason) if reason.contains("404")),
        "{state:?}"
    );
    let mut session = fixture.server.session().await.unwrap();
    session
        .bind("made", INTERSECT_EXCHANGE, "a.request")
        .await
        .unwrap();
    await_active(&inbox).await;
    broker.publish(message("a/request", "body")).await.unwrap();
    assert_eq!(next(&mut inbox).await.body, "body");
}

#[tokio::test]
async fn a_user_who_may_not_publish_is_told_so_and_still_receives() {
    let options = RabbitmqOptions::new().user("reader", "secret", [".*", "^made$", ".*"]);
    let fixture = Fixture::with(options).await;
    let broker = fixture.connect(settings(fixture.server.port(), "reader", "secret"));
    await_link(&broker, "up", Link::is_up).await;
    let mut inbox = durable(&broker, "a/request", "made", 4);
    await_active(&inbox).await;
    for _ in 0..2 {
        let published = timeout(PATIENCE, broker.publish(message("a/request", "body"))).await;
        let error = published.unwrap().unwrap_err();
        assert_eq!(error.sent, Sent::YesUnprocessed);
        assert!(
            matches!(&error.kind, PublishErrorKind::Refused { reason } if reason.contains("403")),
            "{error}"
        );
    }
    let other = fixture.up().await;
    other
        .publish(message("a/request", "for you"))
        .await
        .unwrap();
    assert_eq!(next(&mut inbox).await.body, "for you");
    assert!(matches!(
        *broker.link().borrow(),
        Link::Up { number: 1, .. }
    ));
}

#[tokio::test]
async fn the_link_says_why_there_is_no_connection() {
    let fixture = Fixture::start().await;
    let port = fixture.server.port();
    let mut wrong_vhost = fixture.settings();
    wrong_vhost.vhost = "nowhere".into();
    let mut unknown_host = fixture.settings();
    unknown_host.host = "no.such.host.invalid".into();
    for (settings, refused, words) in [
        (settings(port, "guest", "wrong"), true, "ACCESS_REFUSED"),
        (wrong_vhost, true, "nowhere"),
        (unknown_host, false, "no.such.host.invalid"),
        (settings(1, "guest", "guest"), false, "Connection refused"),
    ] {
        let broker = fixture.connect(settings);
        let link = await_link(&broker, "down with a reason", |link| {
            matches!(
                link,
                Link::Down {
                    reason: Some(_),
                    ..
                }
            )
        });
        let Link::Down {
            reason: Some(reason),
            refused: told,
            ..
        } = link.await
        else {
            panic!("it is up")
        };
        assert!(reason.contains(words), "{reason}");
        assert_eq!(told, refused, "{reason}");
    }
}

#[tokio::test]
async fn a_queue_of_our_own_is_taken_also_where_it_was_made_without_its_time() {
    let fixture = Fixture::start().await;
    for (queue, was_there) in [("new", false), ("old", true)] {
        let broker = fixture.up().await;
        if was_there {
            await_active(&durable(&broker, "a/b", queue, 1)).await;
        }
        let own = Queue::Own {
            name: queue.into(),
            unused_for: Duration::from_secs(60),
        };
        let mut registration = broker.subscribe(Subscription {
            filter: TopicFilter::parse("a/b").unwrap(),
            queue: own,
            backlog_max: 1,
        });
        await_active(&registration).await;
        broker.publish(message("a/b", queue)).await.unwrap();
        let delivery = next(&mut registration).await;
        assert_eq!(&delivery.body[..], queue.as_bytes());
        broker.close().await;
    }
}
