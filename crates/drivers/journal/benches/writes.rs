//! What a write costs, alone and among a hundred: its latency, and the processor time of the whole process for one
//! change, callers included. `cargo bench` measures and prints; `cargo test --benches` runs a few rounds.

#![allow(clippy::unwrap_used, reason = "a bench that cannot run must stop")]

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mainstay_engine::tasks::Tasks;
use mainstay_journal::{Journal, JournalSettings};
use mainstay_message::store::{Record, Stage, StoredMessage};
use mainstay_message::{Change, JobStore};
use tokio::sync::oneshot;
use tokio::time::Instant;

const SERVICE: &str = "compute";
/// A tick of the processor times in `/proc`, on all Linux there is.
const TICK: Duration = Duration::from_millis(10);

fn main() {
    let share = match std::env::args().any(|argument| argument == "--bench") {
        true => 1,
        false => 1000,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for (writers, rounds, is_durable) in [
        (1, 30_000, false),
        (1, 2000, true),
        (100, 2000, false),
        (100, 100, true),
    ] {
        let rounds = (rounds / share).max(1);
        runtime.block_on(measure(writers, rounds, is_durable));
    }
}

/// Each round is what an ordinary request makes: three writes of one change.
async fn measure(writers: usize, rounds: usize, is_durable: bool) {
    let folder = tempfile::tempdir().unwrap();
    let settings = JournalSettings::within(folder.path());
    let journal = Arc::new(Journal::open(settings).await.unwrap());
    let tasks = Tasks::new();
    let before = processor_time();
    let running = (0..writers).map(|writer| {
        let (sender, receiver) = oneshot::channel();
        let journal = Arc::clone(&journal);
        tasks.spawn(async move {
            let _ = sender.send(write(&journal, writer, rounds, is_durable).await);
        });
        receiver
    });
    let latencies = join_all(running).await;
    let spent = processor_time().saturating_sub(before);
    let mut latencies: Vec<Duration> = latencies.into_iter().flat_map(Result::unwrap).collect();
    latencies.sort_unstable();
    let count = latencies.len();
    println!(
        "{writers:>3} writers, {}: p50 {:?}, p99 {:?}, processor {:?} a change, {:?}",
        if is_durable {
            "durable    "
        } else {
            "not durable"
        },
        latencies[count / 2],
        latencies[count * 99 / 100],
        spent / count as u32,
        journal.counts(),
    );
    journal.close().await;
}

async fn write(journal: &Journal, writer: usize, rounds: usize, durable: bool) -> Vec<Duration> {
    let mut latencies = Vec::with_capacity(3 * rounds);
    for round in 0..rounds {
        for change in changes(format!("{writer}-{round}")) {
            let started = Instant::now();
            journal.write(SERVICE, vec![change], durable).await.unwrap();
            latencies.push(started.elapsed());
        }
    }
    latencies
}

fn changes(id: String) -> [Change; 3] {
    let record = |stage| Record {
        stage,
        function: "Compute.run".into(),
        tried: Vec::new(),
        target: Some("a".into()),
        forwarded_as: vec!["c6e0d1f8-6d5a-4f5e-9a3f-0f8f3f1f2a10".into()],
        job_key: None,
        replied: false,
        fetched: false,
        front: "main".into(),
        received_at_ms: 1_700_000_000_000,
    };
    let headers = [
        ("source", "org.fac.sys.sub.client"),
        ("destination", "org.fac.sys.sub.compute"),
        ("campaign_id", "7b2f7a52-2a24-4b52-a5c4-6a0d64c0a001"),
        ("request_id", "d2f7b1b0-62c5-4fbb-8d57-1a52a7c0b002"),
        ("message_id", "1f0d6c1e-9b56-4f0c-8f1d-3c52a7c0c003"),
        ("created_at", "2026-11-30T12:00:00.000000+00:00"),
        ("sdk_version", "0.9.3"),
        ("operation_id", "Compute.run"),
    ];
    let request = StoredMessage {
        topic: "org/fac/sys/sub/compute/request".into(),
        content_type: Some("application/json".into()),
        headers: headers.into_iter().collect(),
        body: vec![7; 1000].into(),
    };
    let id = smol_str::SmolStr::from(id);
    [
        Change::Accept {
            id: id.clone(),
            record: record(Stage::Received),
            request,
        },
        Change::Update {
            id: id.clone(),
            record: record(Stage::Accepted),
        },
        Change::Finish { id },
    ]
}

/// Of this process; zero where there is no `/proc`.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let times = after_name.split_whitespace().skip(11).take(2);
    let ticks: u32 = times.filter_map(|time| time.parse::<u32>().ok()).sum();
    TICK * ticks
}
