//! What a message keeps on its way, and whom it reaches.

use std::time::Duration;

use bytes::Bytes;
use mainstay_message::{Headers, Persistence, PublishErrorKind};
use tokio::time::timeout;

use super::BrokerFixture;
use super::bench::{Bench, PATIENCE, message, pairs};

/// Content type, headers and body.
type Content<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)], &'a [u8]);

/// Topic, content type, headers and body, of any content, come back as they went.
///
/// # Panics
/// They do not.
pub async fn a_message_comes_back_the_same(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "same").await;
    let mut inbox = bench.durable("same/request", "same").await;
    let long = "x".repeat(2000);
    let all: Vec<u8> = (0..=255).collect();
    let contents: [Content<'_>; 5] = [
        (None, &[], b""),
        (Some("application/json"), &[("message_id", "1")], b"{}"),
        (
            Some("application/octet-stream"),
            &[
                ("z", "first"),
                ("a", "second"),
                ("empty", ""),
                ("long", &long),
            ],
            &all,
        ),
        (
            Some("text/plain; charset=utf-8"),
            &[("ünï", "日本語 \u{1f600}"), ("space d", " \" \\ ")],
            "ü".as_bytes(),
        ),
        (None, &[("has_error", "false")], &[0]),
    ];
    for (content_type, headers, body) in contents {
        let mut sent = message("same/request", Bytes::copy_from_slice(body));
        sent.content_type = content_type.map(Into::into);
        sent.headers = headers.iter().copied().collect::<Headers>();
        bench.publish(sent.clone()).await;
        let got = inbox.take().await;
        assert_eq!(got.topic, sent.topic);
        assert_eq!(got.content_type, sent.content_type);
        assert_eq!(pairs(&got.headers), pairs(&sent.headers));
        assert_eq!(got.body, sent.body);
        assert!(!got.redelivered);
    }
    bench.close().await;
}

/// A body of 10 MB goes and comes whole, and small messages after it.
///
/// # Panics
/// It does not.
pub async fn large_bodies_go_and_come(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "large").await;
    let mut inbox = bench.durable("large/request", "large").await;
    let large: Bytes = (0..10_000_000_u32)
        .map(|n| (n * 7 + n / 251) as u8)
        .collect();
    for _ in 0..2 {
        bench.publish(message("large/request", large.clone())).await;
        bench.publish(message("large/request", "small")).await;
        assert!(inbox.take().await.body == large, "10 MB came back the same");
        assert_eq!(inbox.take().await.body, "small");
    }
    bench.close().await;
}

/// Many publications at once leave in the order of their calls and come in it.
///
/// # Panics
/// They do not.
pub async fn messages_come_in_the_order_of_their_calls(fixture: &dyn BrokerFixture) {
    const COUNT: u32 = 500;
    let bench = Bench::up(fixture, "order").await;
    let mut inbox = bench.durable("order/request", "order").await;
    let all = (0..COUNT).map(|n| bench.publish(message("order/request", n.to_string())));
    let (_, ()) = tokio::join!(futures_util::future::join_all(all), async {
        for n in 0..COUNT {
            assert_eq!(inbox.take().await.body, n.to_string());
        }
    });
    bench.close().await;
}

/// `*` stands for one level and `#` for any number.
///
/// # Panics
/// They do not.
pub async fn wildcards_stand_for_levels(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "wild").await;
    let mut one = bench.durable("wild/*/response", "wild-one").await;
    let mut many = bench.durable("wild/events/#", "wild-many").await;
    for topic in [
        "wild/a/response",
        "wild/a/b/response",
        "wild/events/Job/done",
    ] {
        bench.publish(message(topic, topic.to_owned())).await;
    }
    assert_eq!(one.take().await.topic.as_str(), "wild/a/response");
    assert_eq!(many.take().await.topic.as_str(), "wild/events/Job/done");
    one.assert_silent().await;
    many.assert_silent().await;
    bench.close().await;
}

/// A message that no queue takes is confirmed, or an error where that was asked for and the broker tells.
///
/// # Panics
/// It is not.
pub async fn a_message_that_nobody_takes_is_told_where_that_is_asked(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "nobody").await;
    let mut lonely = message("nobody/request", "there?");
    bench.publish(lonely.clone()).await;
    lonely.mandatory = true;
    let told = timeout(PATIENCE, bench.0.publish(lonely)).await.unwrap();
    match fixture.tells_of_nobody() {
        true => assert!(matches!(
            told.unwrap_err().kind,
            PublishErrorKind::Unroutable { .. }
        )),
        false => told.unwrap(),
    }
    bench.publish(message("nobody/request", "still well")).await;
    bench.close().await;
}

/// Transient messages reach a transient subscription, which has nothing to acknowledge.
///
/// # Panics
/// They do not.
pub async fn a_transient_message_reaches_who_listens(fixture: &dyn BrokerFixture) {
    let bench = Bench::up(fixture, "transient").await;
    let mut inbox = bench.transient("transient/lifecycle").await;
    for n in 0..20 {
        let mut sent = message("transient/lifecycle", n.to_string());
        sent.persistence = Persistence::Transient;
        bench.publish(sent).await;
        let got = inbox.next().await;
        assert_eq!(got.body, n.to_string());
        assert!(got.acknowledgement.is_none());
    }
    bench.close().await;
}

/// A message whose time is over is not given to who comes later.
///
/// # Panics
/// It is.
pub async fn what_expired_never_comes(fixture: &dyn BrokerFixture) {
    let away = Bench::up(fixture, "away").await;
    away.durable("expiry/request", "expiry").await;
    away.close().await;
    let bench = Bench::up(fixture, "sender").await;
    for (body, expiry) in [
        ("short", Some(Duration::from_millis(900))),
        ("long", Some(Duration::from_secs(3600))),
        ("none", None),
    ] {
        let mut sent = message("expiry/request", body);
        sent.expiry = expiry;
        bench.publish(sent).await;
    }
    // Brokers count in whole seconds.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let back = Bench::up(fixture, "away").await;
    let mut inbox = back.durable("expiry/request", "expiry").await;
    assert_eq!(inbox.take().await.body, "long");
    assert_eq!(inbox.take().await.body, "none");
    inbox.assert_silent().await;
    back.close().await;
    bench.close().await;
}
