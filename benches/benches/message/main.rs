//! What the message proxy costs beside a direct call on the same broker: added latency, sustained rate with
//! open jobs, its own CPU and memory. Raw peers on both sides (the SDK is too slow to load it); direct and
//! proxied rounds in turn, in one run. `cargo bench --bench message` measures and prints;
//! `cargo test --benches` runs a few rounds.
//!
//! The proxy runs in a process of its own, which is this program started once more, so that its CPU and memory
//! are its own.

#![allow(clippy::unwrap_used, reason = "a bench that cannot run must stop")]

mod brokers;
mod peers;
mod proxy;

use std::time::Duration;

use brokers::{Kind, Place};
use peers::{Client, worker};

/// Bytes of a request's body.
const BODY: usize = 1024;

/// How much is done.
struct Plan {
    pairs: usize,
    calls: usize,
    jobs: usize,
    burst: usize,
}

impl Plan {
    fn new() -> Self {
        match std::env::args().any(|word| word == "--bench") {
            true => Plan {
                pairs: 21,
                calls: 200,
                jobs: 1000,
                burst: 4000,
            },
            false => Plan {
                pairs: 2,
                calls: 10,
                jobs: 20,
                burst: 50,
            },
        }
    }
}

fn main() {
    if let Some(place) = Place::from_environment() {
        return proxy::run(place);
    }
    let only = std::env::args().find_map(|word| Kind::parse(&word));
    let kinds = only.map_or_else(|| Kind::ALL.to_vec(), |kind| vec![kind]);
    for kind in kinds {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(measure(kind, &Plan::new()));
        runtime.shutdown_background();
    }
}

async fn measure(kind: Kind, plan: &Plan) {
    let broker = brokers::start(kind).await;
    let place = broker.place();
    let _worker = worker(&place).await;
    let proxy = proxy::start(&place);
    let client = Client::new(&place).await;
    client.until_answered(Duration::from_secs(20)).await;

    let (mut direct, mut proxied) = (Vec::new(), Vec::new());
    for _ in 0..plan.pairs {
        direct.push(client.median(peers::DIRECT, plan.calls).await);
        proxied.push(client.median(peers::FRONTED, plan.calls).await);
    }
    let hop = client.hop(plan.calls).await;
    let added: Vec<f64> = direct.iter().zip(&proxied).map(|(d, p)| p - d).collect();
    println!(
        "{kind} latency, p50 of {} B: direct {} ms, proxied {} ms, added {} ms; an extra broker hop there and back {hop:.3} ms",
        BODY,
        spread(&direct),
        spread(&proxied),
        spread(&added),
    );

    client.open_jobs(plan.jobs).await;
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    let mut cpu = Vec::new();
    for _ in 0..plan.pairs {
        let alone = client.rate(peers::DIRECT, plan.burst).await;
        let before = proxy.cpu();
        let through = client.rate(peers::FRONTED, plan.burst).await;
        cpu.push((proxy.cpu() - before).as_secs_f64() * 1e6 / plan.burst as f64);
        ratios.push(through / alone);
        rates.push(through);
    }
    println!(
        "{kind} rate with {} open jobs: {} a second, {} of direct; CPU of the proxy {} us a request; memory {:.0} MB",
        plan.jobs,
        spread(&rates),
        spread(&ratios),
        spread(&cpu),
        proxy.memory_mb(),
    );
    drop(proxy);
}

/// Median, and the middle half.
fn spread(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    format!("{:.3} ({:.3}-{:.3})", at(0.5), at(0.25), at(0.75))
}
