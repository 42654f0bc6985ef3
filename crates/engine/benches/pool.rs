//! What lending a connection and taking a place cost when nothing waits.
//!
//! `cargo bench -p mainstay-engine --bench pool` measures; under `cargo test --benches` each runs once.

#![allow(missing_docs)] // the macros of criterion make a public function

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use mainstay_engine::chance::Chance;
use mainstay_engine::policy::{LimitSettings, PoolSettings};
use mainstay_engine::tasks::Tasks;
use mainstay_engine::{BoxFuture, Connector, Failure, Mode, Pool, Priority, Queue, redact_sql};

/// Connections that cost nothing, so that only the pool is measured.
struct Free;

impl Connector for Free {
    type Connection = u64;

    fn connect(&self, _: Mode) -> BoxFuture<'_, Result<u64, Failure>> {
        Box::pin(std::future::ready(Ok(7)))
    }

    fn is_closed(&self, _: &u64) -> bool {
        false
    }

    fn check<'a>(&'a self, _: &'a mut u64) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn reset<'a>(&'a self, _: &'a mut u64) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }

    fn clean_up<'a>(&'a self, _: &'a mut u64) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(true))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be built")
}

async fn lend(pool: &Pool<Free>, times: u64) {
    for _ in 0..times {
        let lease = pool.checkout(Mode(0), ()).await;
        drop(black_box(lease));
    }
}

/// Runs the same work on two threads and returns the time until both are done.
fn on_two_threads(work: impl Fn() + Sync) -> Duration {
    let start = tokio::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(&work);
        scope.spawn(&work);
    });
    start.elapsed()
}

fn clock(criterion: &mut Criterion) {
    criterion.bench_function("clock: the two readings in it", |bench| {
        bench.iter(|| (tokio::time::Instant::now(), tokio::time::Instant::now()));
    });
}

fn pool(criterion: &mut Criterion) {
    let runtime = runtime();
    let pool = runtime.block_on(async {
        let settings = PoolSettings::default();
        Pool::new(Free, settings, Tasks::new(), Chance::seeded(1))
    });
    criterion.bench_function("pool: checkout and return", |bench| {
        bench.iter_custom(|times| {
            let start = tokio::time::Instant::now();
            runtime.block_on(lend(&pool, times));
            start.elapsed()
        });
    });
    criterion.bench_function("pool: the same, the time given", |bench| {
        bench.iter_custom(|times| {
            let start = tokio::time::Instant::now();
            runtime.block_on(async {
                for _ in 0..times {
                    drop(black_box(pool.checkout_at(Mode(0), (), start).await));
                }
            });
            start.elapsed()
        });
    });
    criterion.bench_function("pool: the same on two threads, for both", |bench| {
        bench.iter_custom(|times| {
            on_two_threads(|| {
                let runtime = self::runtime();
                runtime.block_on(lend(&pool, times));
            })
        });
    });
}

fn queue(criterion: &mut Criterion) {
    let queue = Queue::new();
    for (name, limit) in [("no limit", None), ("a limit", Some(100))] {
        criterion.bench_function(&format!("queue: enter and leave, {name}"), |bench| {
            bench.iter(|| black_box(queue.try_enter(limit)));
        });
        criterion.bench_function(
            &format!("queue: the same on two threads, {name}"),
            |bench| {
                bench.iter_custom(|times| {
                    on_two_threads(|| {
                        for _ in 0..times {
                            black_box(queue.try_enter(limit));
                        }
                    })
                });
            },
        );
    }
    let runtime = runtime();
    let limits = LimitSettings {
        concurrency: Some(1),
        ..LimitSettings::default()
    };
    criterion.bench_function("queue: wait for a place and get it", |bench| {
        bench.iter_custom(|times| runtime.block_on(hand_over(&queue, &limits, times)));
    });
}

/// Two callers that take turns.
async fn hand_over(queue: &Queue, limits: &LimitSettings, times: u64) -> Duration {
    let start = tokio::time::Instant::now();
    let turns = || async {
        for _ in 0..times.div_ceil(2) {
            let place = queue.enter(limits, Priority::Normal, None).await;
            tokio::task::yield_now().await;
            drop(place);
        }
    };
    tokio::join!(turns(), turns());
    start.elapsed()
}

fn redaction(criterion: &mut Criterion) {
    let statement =
        "SELECT id, total FROM orders WHERE customer = 'Ann' AND total > 12.50 LIMIT 10";
    criterion.bench_function("redact: literals of a statement of 80 bytes", |bench| {
        bench.iter(|| black_box(redact_sql(black_box(statement))));
    });
    let redactor = mainstay_engine::Redactor::new();
    let text = "connection to db1.internal:5432 failed: connection refused (os error 111)";
    criterion.bench_function("redact: an error text without secrets", |bench| {
        bench.iter(|| black_box(redactor.redact(black_box(text))));
    });
}

criterion_group!(benches, clock, pool, queue, redaction);
criterion_main!(benches);
