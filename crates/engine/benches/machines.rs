//! What one decision of each pure machine costs on the closed path. `cargo bench -p mainstay-engine`
//! measures; `cargo test --benches` only runs each once.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use mainstay_engine::policy::{
    BudgetSettings, CircuitMode, CircuitSettings, LimitSettings, Preset, Strategy,
};
use mainstay_engine::{
    Backoff, Budget, Candidate, Circuit, EndpointStats, Gate, Latency, Rate, Router, Verdict,
};
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(30);
const ELAPSED: Duration = Duration::from_micros(120);
/// Between two calls: ten million a second, so that windows turn while measuring.
const STEP: Duration = Duration::from_nanos(100);

/// Measures a decision whose time goes on from call to call.
fn over_time<T>(b: &mut Bencher<'_>, mut decide: impl FnMut(Instant) -> T) {
    let mut now = Instant::now();
    b.iter(|| {
        now += STEP;
        black_box(decide(now))
    });
}

/// Measures a decision that two threads take at once; the time is that of both together, so twice one
/// thread's means that they were served one after the other.
fn on_two_threads(b: &mut Bencher<'_>, decide: impl Fn(Instant) + Sync) {
    b.iter_custom(|count| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for call in 0..count {
                        decide(black_box(start + STEP * (call as u32)));
                    }
                });
            }
        });
        start.elapsed()
    });
}

/// What the machine at hand can do, to read the others against.
fn yardsticks(c: &mut Criterion) {
    c.bench_function("yardstick: only the time goes on", |b| {
        over_time(b, |now| now)
    });
    let count = AtomicU64::new(0);
    let increment = |_| count.fetch_add(1, Relaxed);
    c.bench_function("yardstick: one atomic increment", |b| {
        over_time(b, increment)
    });
    c.bench_function("yardstick: one atomic increment, two threads", |b| {
        on_two_threads(b, |now| {
            increment(now);
        });
    });
}

fn circuits(c: &mut Criterion) {
    for mode in [
        CircuitMode::WeightedConsecutive,
        CircuitMode::Window,
        CircuitMode::Rate,
    ] {
        let settings = CircuitSettings {
            mode,
            ..CircuitSettings::default()
        };
        let circuit = Circuit::new();
        let call = |now| {
            if let Ok(pass) = circuit.admit(&settings, LEASE, now) {
                let verdict = Verdict::Success { elapsed: ELAPSED };
                black_box(circuit.record(&settings, pass, verdict, now));
            }
        };
        c.bench_function(&format!("circuit admit and record, {mode}"), |b| {
            over_time(b, call);
        });
        c.bench_function(&format!("circuit on two threads, {mode}"), |b| {
            on_two_threads(b, call);
        });
    }
}

fn gates(c: &mut Criterion) {
    let circuit = CircuitSettings::default();
    let unlimited = LimitSettings::default();
    let limited = LimitSettings {
        rate: Some(1e9),
        concurrency: Some(100),
        ..LimitSettings::default()
    };
    for (name, limits) in [("without limits", unlimited), ("with limits", limited)] {
        let gate = Gate::new();
        let call = |now| {
            if let Ok(ticket) = gate.admit(&circuit, &limits, LEASE, now) {
                let verdict = Verdict::Success { elapsed: ELAPSED };
                let entry = ticket.entry;
                black_box(gate.finish(&circuit, ticket, verdict, now));
                gate.release_slot(entry);
            }
        };
        c.bench_function(&format!("gate {name}"), |b| over_time(b, call));
        c.bench_function(&format!("gate {name}, two threads"), |b| {
            on_two_threads(b, call);
        });
    }
}

fn counters(c: &mut Criterion) {
    let settings = BudgetSettings::default();
    let budget = Budget::new(Instant::now());
    c.bench_function("budget deposit", |b| {
        over_time(b, |now| budget.deposit(&settings, now));
    });
    c.bench_function("budget withdraw", |b| {
        over_time(b, |now| budget.withdraw(&settings, now));
    });
    let rate = Rate::new();
    c.bench_function("rate take", |b| {
        over_time(b, |now| rate.take(1e8, 1000, now))
    });
    let stats = EndpointStats::new();
    let record = |now| stats.record(true, ELAPSED, now);
    c.bench_function("stats record", |b| over_time(b, record));
    c.bench_function("stats record, two threads", |b| on_two_threads(b, record));
    c.bench_function("stats failure rate", |b| {
        over_time(b, |now| stats.failure_rate(now));
    });
    c.bench_function("stats p50", |b| {
        over_time(b, |now| stats.p50_if_fresh(now));
    });
    let latency = Latency::new();
    c.bench_function("latency observe", |b| {
        over_time(b, |now| latency.observe(ELAPSED, now));
    });
    c.bench_function("latency estimate", |b| {
        over_time(b, |now| latency.estimate(now));
    });
}

fn choices(c: &mut Criterion) {
    let candidates: Vec<Candidate> = [3, 5, 4]
        .into_iter()
        .map(|ms| Candidate {
            weight: 1.0,
            in_flight: ms,
            latency: Some(Duration::from_millis(u64::from(ms))),
            failure_rate: 0.0,
            is_primary: ms == 3,
            is_standby: false,
        })
        .collect();
    let router = Router::new();
    let mut rng = fastrand::Rng::with_seed(1);
    for strategy in Strategy::ALL {
        c.bench_function(&format!("routing over three, {strategy}"), |b| {
            b.iter(|| router.pick(*strategy, black_box(&candidates), &[1, 2, 3], &mut rng));
        });
    }
    let retry = Preset::Balanced.settings().retry;
    let mut backoff = Backoff::new(fastrand::Rng::with_seed(1));
    c.bench_function("backoff next", |b| {
        b.iter(|| backoff.next(black_box(&retry), false, None));
    });
}

criterion_group!(machines, yardsticks, circuits, gates, counters, choices);
criterion_main!(machines);
