//! Many requests under seeded faults: whatever happens, each gets one reply, no write runs twice, and every
//! job ends.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::json;

use crate::actors::Does;
use crate::world::World;

const REQUESTS: u32 = 120;

/// Histories of each kind; `scripts/test --long` plays more.
fn seeds() -> u64 {
    if std::env::var_os("MAINSTAY_LONG").is_some() {
        400
    } else {
        10
    }
}

fn behaviour(rng: &mut fastrand::Rng) -> Does {
    match rng.u32(0..8) {
        0..=2 => Does::Echo,
        3 => Does::Nothing,
        4 => Does::Error("Service domain logic threw exception."),
        5 => Does::Error("Function 'Work.run' is currently not available for use."),
        6 => Does::Late(Duration::from_millis(rng.u64(1..9_000))),
        _ => Does::Early {
            results: rng.u32(1..4),
        },
    }
}

fn job_behaviour(rng: &mut fastrand::Rng) -> Does {
    let step = Duration::from_millis(rng.u64(1..20_000));
    match rng.u32(0..5) {
        0..=2 => Does::Job {
            results: rng.u32(1..5),
            step,
        },
        3 => Does::Stalls {
            after: rng.u32(0..3),
            step,
        },
        _ => behaviour(rng),
    }
}

/// What was asked for and what came of it.
#[derive(Default)]
struct Ledger {
    sent: HashSet<String>,
    replies: HashMap<String, u32>,
    jobs_ended: u64,
}

async fn collect(world: &World, ledger: &mut Ledger) {
    while let Some(reply) = world.client.reply_if_any().await {
        *ledger.replies.entry(reply.request_id).or_default() += 1;
    }
    while let Some(event) = world.client.event_if_any().await {
        let body = event.json();
        let failed = event.headers.get("event_name") == Some("job_failed");
        ledger.jobs_ended += u64::from(failed || body["status"] == json!("done"));
    }
}

async fn disturb(world: &mut World, rng: &mut fastrand::Rng, restarts: bool) {
    match rng.u32(0..12) {
        0 => world.a.does(job_behaviour(rng)),
        1 => world.b.does(job_behaviour(rng)),
        2 => world.connection.cut(),
        3..=5 => world.connection.mend(),
        6 => world.connection.lose_confirmations(true),
        7 | 8 => world.connection.lose_confirmations(false),
        9 if restarts => world.restart().await,
        _ => {}
    }
}

/// Plays one history. Gives what was counted at its end, over all runs of the proxy.
async fn play(seed: u64, restarts: bool) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut world = World::new(job_behaviour(&mut rng), job_behaviour(&mut rng)).await;
    let mut ledger = Ledger::default();
    let mut writes = 0;
    for n in 0..REQUESTS {
        let function = ["run", "write", "job", "job_write"][rng.usize(0..4)];
        writes += u32::from(function.ends_with("write"));
        let id = world.send(function, json!({"id": n})).await;
        ledger.sent.insert(id);
        disturb(&mut world, &mut rng, restarts).await;
        tokio::time::sleep(Duration::from_millis(rng.u64(0..3_000))).await;
        collect(&world, &mut ledger).await;
    }
    world.connection.mend();
    world.connection.lose_confirmations(false);
    // Longer than any retry and any two result timeouts.
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        collect(&world, &mut ledger).await;
    }
    let unanswered: Vec<_> = ledger
        .sent
        .iter()
        .filter(|id| !ledger.replies.contains_key(*id))
        .collect();
    assert!(
        unanswered.is_empty(),
        "seed {seed}: without a reply: {unanswered:?}"
    );
    if !restarts && world.count("replies_again") == 0 {
        // Published again after a lost confirmation: the same message, which receivers tell by its id.
        let doubled = ledger.replies.values().filter(|count| **count > 1).count();
        let lost = world.hub.doubled("response");
        assert!(
            doubled <= lost,
            "seed {seed}: {doubled} doubled, {lost} published again"
        );
    }
    let mut done = world.a.done.lock().unwrap().clone();
    for (what, count) in world.b.done.lock().unwrap().iter() {
        *done.entry(what.clone()).or_default() += count;
    }
    let is_write =
        |what: &str| what.starts_with("Work.write ") || what.starts_with("Work.job_write ");
    let twice: Vec<_> = done
        .iter()
        .filter(|(what, count)| is_write(what) && **count > 1)
        .collect();
    assert!(
        twice.is_empty(),
        "seed {seed}: of {writes} writes done twice: {twice:?}"
    );
    assert_eq!(
        world.service.status().jobs_open,
        0,
        "seed {seed}: {:?}",
        world.service.jobs(10)
    );
    assert_eq!(world.service.status().requests_open, 0, "seed {seed}");
    assert_eq!(
        world.hub.unacknowledged(),
        0,
        "seed {seed}: the broker would give it again"
    );
    if !restarts {
        let ended = world.count("jobs_finished") + world.count("jobs_failed");
        assert_eq!(world.count("jobs_accepted"), ended, "seed {seed}");
        assert!(
            ledger.jobs_ended >= ended,
            "seed {seed}: {} of {ended} told",
            ledger.jobs_ended
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_gets_its_reply_whatever_the_brokers_and_targets_do() {
    for seed in 1..=seeds() {
        play(seed, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_request_gets_its_reply_over_kills_of_the_proxy() {
    for seed in 1..=seeds() {
        play(1_000 + seed, true).await;
    }
}
