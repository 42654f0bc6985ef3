//! Brokers that die in the middle of traffic.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_message::Broker;
use mainstay_testkit::mosquitto::MosquittoOptions;
use tokio::time::{Instant, timeout};

use super::world::{PATIENCE, World, await_up, durable, message, publish, take};

/// A killed broker goes on from what it had written: it writes after each round of its loop, so that what
/// began this long before its end may be undone. That is the broker's, and counted apart.
const UNWRITTEN: Duration = Duration::from_millis(500);

#[tokio::test]
async fn every_confirmed_message_comes_once_over_kills_of_the_broker() {
    let options = MosquittoOptions::new().saves_each_change().max_queued(0);
    let world = World::new(options).await;
    let (sender, receiver) = (world.up("sender").await, world.up("receiver").await);
    let mut inbox = durable(&receiver, "a/b").await;
    let begun = Instant::now();
    let confirmed: Mutex<HashMap<String, Instant>> = Mutex::default();
    let unknown = Mutex::new(0);
    let mut kills = Vec::new();
    let send = async {
        for n in 0.. {
            if begun.elapsed() > Duration::from_secs(6) {
                break;
            }
            let (text, called) = (n.to_string(), Instant::now());
            match timeout(PATIENCE, sender.publish(message("a/b", text.clone())))
                .await
                .unwrap()
            {
                Ok(()) => drop(confirmed.lock().unwrap().insert(text, called)),
                Err(error) if error.sent == Sent::No => drop(await_up(&sender).await),
                Err(_) => *unknown.lock().unwrap() += 1,
            }
        }
    };
    let kill = async {
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            kills.push(Instant::now());
            world.broker.kill9().await.unwrap();
            world.broker.start_again().await.unwrap();
        }
    };
    let mut came: HashMap<String, Vec<Instant>> = HashMap::new();
    let receive = async {
        loop {
            let got = String::from_utf8(take(&mut inbox).await.body.to_vec()).unwrap();
            if got == "end" {
                break;
            }
            came.entry(got).or_default().push(Instant::now());
        }
    };
    let send_and_end = async {
        tokio::join!(send, kill);
        await_up(&sender).await;
        await_up(&receiver).await;
        publish(&sender, message("a/b", "end")).await;
    };
    tokio::join!(send_and_end, receive);
    let near_a_kill = |at: &Instant| {
        kills
            .iter()
            .any(|kill| *at <= *kill + UNWRITTEN / 10 && *at + UNWRITTEN >= *kill)
    };
    let confirmed = confirmed.into_inner().unwrap();
    let lost: Vec<_> = confirmed
        .iter()
        .filter(|(text, _)| !came.contains_key(*text))
        .collect();
    let twice: Vec<_> = came.iter().filter(|(_, times)| times.len() > 1).collect();
    println!(
        "{} confirmed, {} came, {} unknown; by the broker's forgetting {} lost and {} twice",
        confirmed.len(),
        came.len(),
        unknown.into_inner().unwrap(),
        lost.len(),
        twice.len(),
    );
    assert!(confirmed.len() > 100);
    for (text, at) in lost {
        assert!(near_a_kill(at), "{text} was confirmed and is lost");
    }
    for (text, times) in twice {
        assert!(near_a_kill(&times[0]), "{text} came at {times:?}");
    }
    sender.close().await;
    receiver.close().await;
}

#[tokio::test]
async fn a_publication_under_way_is_finished_after_a_restart_and_comes_once() {
    let world = World::new(MosquittoOptions::new()).await;
    let (sender, receiver) = (world.up("sender").await, world.up("receiver").await);
    let mut inbox = durable(&receiver, "a/b").await;
    for round in 0..5 {
        let all: Vec<_> = (0..20)
            .map(|n| sender.publish(message("a/b", format!("{round}-{n}"))))
            .collect();
        let publish = futures_util::future::join_all(all);
        let restart = async {
            // At some moment of what goes on.
            tokio::time::sleep(Duration::from_micros(300 * round)).await;
            world.broker.stop().await.unwrap();
            world.broker.start_again().await.unwrap();
        };
        let (published, ()) = tokio::join!(timeout(PATIENCE, publish), restart);
        let mut expected: Vec<String> = Vec::new();
        for (n, published) in published.unwrap().into_iter().enumerate() {
            match published {
                Ok(()) => expected.push(format!("{round}-{n}")),
                Err(error) => assert_eq!(error.sent, Sent::No, "{error}"),
            }
        }
        let mut got = Vec::new();
        for _ in &expected {
            got.push(String::from_utf8(take(&mut inbox).await.body.to_vec()).unwrap());
        }
        assert_eq!(got, expected);
        super::world::assert_silent(&mut inbox).await;
        await_up(&sender).await;
        await_up(&receiver).await;
    }
    sender.close().await;
    receiver.close().await;
}

#[tokio::test]
async fn a_lost_session_is_told_to_who_waits() {
    // Nothing is kept: the broker comes back with no session.
    let world = World::new(MosquittoOptions::new().setting("persistence", false)).await;
    let sender = world.up("sender").await;
    world.broker.sigstop().unwrap();
    let published = sender.publish(message("a/b", "?"));
    let kill = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.broker.kill9().await.unwrap();
        world.broker.start_again().await.unwrap();
    };
    let (published, ()) = tokio::join!(timeout(PATIENCE, published), kill);
    assert_eq!(published.unwrap().unwrap_err().sent, Sent::Maybe);
    publish(&sender, message("a/b", "well")).await;
    sender.close().await;
}
