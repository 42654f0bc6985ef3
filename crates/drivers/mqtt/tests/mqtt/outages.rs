//! Brokers that die in the middle of traffic.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_message::Broker;
use mainstay_testkit::mosquitto::MosquittoOptions;
use mainstay_testkit::until;
use tokio::time::timeout;

use super::world::{PATIENCE, World, await_up, durable, message, publish, take};

/// A killed broker goes on from what it had written, which it does after each round of its loop: what was
/// under way then, and a round before, may be undone. That is the broker's, and counted apart.
const UNWRITTEN: usize = 16;
const SENDERS: usize = 4;
const KILLS: usize = 3;
/// Messages confirmed between two kills.
const BETWEEN: usize = 100;

/// What is known about one run.
#[derive(Default)]
struct Record {
    /// Messages called for, confirmed, of unknown fate.
    called: usize,
    confirmed: HashSet<usize>,
    unknown: usize,
    /// How many had been called for at each kill.
    kills: Vec<usize>,
    came: Vec<usize>,
}

impl Record {
    fn is_near_a_kill(&self, number: usize) -> bool {
        let near = |kill: &usize| number < *kill && number + UNWRITTEN >= *kill;
        self.kills.iter().any(near)
    }
}

#[tokio::test]
async fn every_confirmed_message_comes_once_over_kills_of_the_broker() {
    let options = MosquittoOptions::new().saves_each_change().max_queued(0);
    let world = World::new(options).await;
    let (sender, receiver) = (world.up("sender").await, world.up("receiver").await);
    let mut inbox = durable(&receiver, "a/b").await;
    let record = Mutex::new(Record::default());
    let is_over = || record.lock().unwrap().kills.len() == KILLS;
    let send = async || {
        while !is_over() {
            let number = record.lock().unwrap().called;
            record.lock().unwrap().called += 1;
            let published = sender.publish(message("a/b", number.to_string()));
            match timeout(PATIENCE, published).await.unwrap() {
                Ok(()) => drop(record.lock().unwrap().confirmed.insert(number)),
                Err(error) if error.sent == Sent::No => drop(await_up(&sender).await),
                Err(_) => record.lock().unwrap().unknown += 1,
            }
        }
    };
    let kill = async {
        for round in 1..=KILLS {
            until("enough was confirmed", async || {
                record.lock().unwrap().confirmed.len() >= round * BETWEEN
            })
            .await;
            world.broker.kill9().await.unwrap();
            {
                let mut record = record.lock().unwrap();
                let called = record.called;
                record.kills.push(called);
            }
            world.broker.start_again().await.unwrap();
        }
    };
    let receive = async {
        loop {
            let got = take(&mut inbox).await.body;
            match std::str::from_utf8(&got).unwrap().parse() {
                Ok(number) => record.lock().unwrap().came.push(number),
                Err(_) => break,
            }
        }
    };
    let send_and_end = async {
        let all = futures_util::future::join_all((0..SENDERS).map(|_| send()));
        tokio::join!(all, kill);
        await_up(&sender).await;
        await_up(&receiver).await;
        publish(&sender, message("a/b", "end")).await;
    };
    tokio::join!(send_and_end, receive);
    judge(&record.into_inner().unwrap());
    sender.close().await;
    receiver.close().await;
}

/// What was confirmed came once, but for what a killed broker forgot.
fn judge(record: &Record) {
    let mut times: HashMap<usize, usize> = HashMap::new();
    for number in &record.came {
        *times.entry(*number).or_default() += 1;
    }
    let lost = record
        .confirmed
        .iter()
        .filter(|number| !times.contains_key(number));
    let lost: Vec<_> = lost.copied().collect();
    let twice = times.iter().filter(|(_, times)| **times > 1);
    let twice: Vec<_> = twice.map(|(number, _)| *number).collect();
    println!(
        "{} confirmed, {} came, {} unknown; by the broker's forgetting lost {lost:?}, twice {twice:?}; killed at {:?}",
        record.confirmed.len(),
        times.len(),
        record.unknown,
        record.kills,
    );
    assert!(record.confirmed.len() >= KILLS * BETWEEN);
    for number in lost.into_iter().chain(twice) {
        assert!(record.is_near_a_kill(number), "{number}");
    }
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
