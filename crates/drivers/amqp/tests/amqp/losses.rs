//! A broker that is killed, stopped or alarmed under traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_message::{Broker, Link, PublishErrorKind};
use mainstay_testkit::rabbitmq::RabbitmqOptions;
use mainstay_testkit::until;
use tokio::time::timeout;

use super::fixture::{
    Fixture, PATIENCE, acknowledge, await_active, await_link, durable, message, next,
};

#[tokio::test]
async fn every_confirmed_message_arrives_although_the_broker_is_killed_twice_under_traffic() {
    let fixture = Fixture::start().await;
    let (sender, receiver) = (fixture.up().await, fixture.up().await);
    let mut inbox = durable(&receiver, "load/request", "load", 16);
    await_active(&inbox).await;
    let (mut confirmed, mut maybe, mut refused) = (Vec::new(), 0, 0);
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let publishing = async {
        let mut number = 0;
        for round in 0..3 {
            let mut ids = 0;
            while ids < 1500 {
                let batch: Vec<String> = (0..50)
                    .map(|offset| (number + offset).to_string())
                    .collect();
                number += 50;
                let sent = batch.iter().map(|id| async {
                    let mut publication = message("load/request", "body");
                    publication.headers.push("message_id", id.as_str());
                    (id.clone(), sender.publish(publication).await)
                });
                // While a batch is under way.
                let killing = async {
                    if ids == 750 && round < 2 {
                        tokio::task::yield_now().await;
                        fixture.server.kill9().await.unwrap();
                    }
                };
                let (outcomes, ()) = tokio::join!(futures_util::future::join_all(sent), killing);
                for (id, outcome) in outcomes {
                    match outcome {
                        Ok(()) => confirmed.push(id),
                        Err(error) if error.sent == Sent::No => refused += 1,
                        Err(error) => {
                            assert_eq!(error.sent, Sent::Maybe, "{error}");
                            maybe += 1;
                        }
                    }
                }
                ids += 50;
                if !sender.link().borrow().is_up() {
                    break;
                }
            }
            if round < 2 {
                fixture.server.start_again().await.unwrap();
                await_link(&sender, "up", Link::is_up).await;
            }
        }
    };
    let receiving = async {
        let silent = Duration::from_secs(20);
        while let Ok(Some(delivery)) = timeout(silent, inbox.deliveries.next()).await {
            let id = delivery.headers.get("message_id").unwrap().to_owned();
            let is_last = id == "end";
            *seen.entry(id).or_default() += 1;
            acknowledge(delivery);
            if is_last {
                return;
            }
        }
    };
    let ending = async {
        publishing.await;
        let mut end = message("load/request", "body");
        end.headers.push("message_id", "end");
        await_link(&receiver, "up", Link::is_up).await;
        sender.publish(end).await.unwrap();
    };
    tokio::join!(ending, receiving);
    let lost: Vec<&String> = confirmed
        .iter()
        .filter(|id| !seen.contains_key(*id))
        .collect();
    let twice: u32 = seen.values().map(|count| count - 1).sum();
    println!(
        "{} confirmed, {maybe} unknown, {refused} not sent, {twice} came twice",
        confirmed.len()
    );
    assert!(lost.is_empty(), "confirmed and lost: {lost:?}");
    assert!(confirmed.len() >= 2900, "{}", confirmed.len());
}

#[tokio::test]
async fn a_publication_under_way_when_the_broker_dies_says_that_it_may_have_arrived() {
    let fixture = Fixture::start().await;
    let broker = fixture.up().await;
    fixture.server.sigstop().unwrap();
    let publishing = broker.publish(message("a/b", "body"));
    let killing = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        fixture.server.kill9().await.unwrap();
    };
    let (outcome, ()) = tokio::join!(timeout(PATIENCE, publishing), killing);
    let error = outcome.unwrap().unwrap_err();
    assert_eq!(error.sent, Sent::Maybe);
    assert!(
        matches!(error.kind, PublishErrorKind::Lost { .. }),
        "{error}"
    );
    let refused = |link: &Link| matches!(link, Link::Down { attempts, reason: Some(reason), refused: false } if *attempts > 0 && reason.contains("refused"));
    await_link(&broker, "refused by the network", refused).await;
}

#[tokio::test]
async fn messages_that_were_not_acknowledged_come_again_after_the_brokers_death() {
    let fixture = Fixture::start().await;
    let broker = fixture.up().await;
    let mut inbox = durable(&broker, "a/b", "kept", 4);
    await_active(&inbox).await;
    for body in ["one", "two", "three"] {
        broker.publish(message("a/b", body)).await.unwrap();
    }
    let (first, second) = (next(&mut inbox).await, next(&mut inbox).await);
    acknowledge(second);
    // So that the acknowledgement has gone out and was taken.
    broker.publish(message("other", "flush")).await.unwrap();
    fixture.server.kill9().await.unwrap();
    await_link(&broker, "down", |link| !link.is_up()).await;
    fixture.server.start_again().await.unwrap();
    acknowledge(first);
    await_link(&broker, "up", Link::is_up).await;
    let mut bodies = Vec::new();
    while bodies.len() < 3 {
        let delivery = next(&mut inbox).await;
        bodies.push(String::from_utf8(delivery.body.to_vec()).unwrap());
        acknowledge(delivery);
    }
    // "three" stood in the inbox already, from the first connection.
    bodies.sort();
    assert!(
        bodies.contains(&"one".to_owned()) && bodies.contains(&"three".to_owned()),
        "{bodies:?}"
    );
}

#[tokio::test]
async fn an_alarm_of_the_broker_is_told_and_holds_publications_back() {
    let options = RabbitmqOptions::new().setting("vm_memory_high_watermark.absolute", "1MB");
    let fixture = Fixture::with(options).await;
    let broker = fixture.up().await;
    // It is told with the first publication after the alarm, which the broker raises when it looks next.
    until("the alarm is told", async || {
        let publishing = broker.publish(message("a/b", "body"));
        let _ = timeout(Duration::from_millis(100), publishing).await;
        matches!(&*broker.link().borrow(), Link::Up { blocked: Some(reason), .. } if reason.contains("memory"))
    })
    .await;
    let second = timeout(
        Duration::from_millis(300),
        broker.publish(message("a/b", "body")),
    );
    assert!(second.await.is_err(), "it waits");
    let third = broker.publish(message("a/b", "body"));
    let (third, ()) = tokio::join!(timeout(PATIENCE, third), broker.close());
    let error = third.unwrap().unwrap_err();
    assert_eq!(
        (error.sent, error.kind),
        (Sent::No, PublishErrorKind::Closed)
    );
}
