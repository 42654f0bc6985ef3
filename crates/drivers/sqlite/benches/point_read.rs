//! What the driver adds to a point read by key: raw rusqlite behind the same hand-off to a thread, and the
//! driver, in interleaved pairs in one run. `cargo bench` measures; `cargo test --benches` runs a few rounds.

#![allow(clippy::unwrap_used, reason = "a bench that cannot run must stop")]

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use mainstay_sql::{Access, AnswerMax, Connection, Driver, Value};
use mainstay_sqlite::{SqliteDriver, SqliteSettings, create_sample};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;

const TEXT: &str = "SELECT id, name, city FROM customers WHERE id = ?1";

type RawRow = (i64, String, String);
type RawJob = (i64, oneshot::Sender<RawRow>);

/// The least that any asynchronous use of SQLite must do.
struct Raw {
    jobs: SyncSender<RawJob>,
}

impl Raw {
    fn start(path: &std::path::Path) -> Self {
        let connection = rusqlite::Connection::open(path).unwrap();
        let (jobs, received) = sync_channel::<RawJob>(2);
        std::thread::spawn(move || {
            while let Ok((id, reply)) = received.recv() {
                let mut statement = connection.prepare_cached(TEXT).unwrap();
                let row = statement
                    .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                    .unwrap();
                drop(statement);
                let _ = reply.send(row);
            }
        });
        Raw { jobs }
    }

    async fn read(&self, id: i64) -> RawRow {
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send((id, reply)).unwrap();
        answer.await.unwrap()
    }
}

async fn read(connection: &mut dyn Connection, id: i64) -> Vec<Value> {
    let params = [Value::I64(id)];
    let run = connection.run(TEXT, &params, AnswerMax::default(), &|| ());
    run.await.unwrap().rows.remove(0)
}

/// Waits by polling: the wake-up of a sleeping thread costs tens of microseconds and would hide what is
/// measured.
fn spin<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::hint::spin_loop();
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    black_box(work());
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

struct Pair {
    raw: Raw,
    driver: Box<dyn Connection>,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

impl Pair {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sample.db");
        create_sample(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let driver = SqliteDriver::new(SqliteSettings::new(&path)).unwrap();
        let driver = runtime.block_on(driver.connect(Access::ReadOnly)).unwrap();
        Pair {
            raw: Raw::start(&path),
            driver,
            runtime,
            _folder: folder,
        }
    }

    fn check(&mut self) {
        let raw = spin(self.raw.read(7));
        let driver = spin(read(self.driver.as_mut(), 7));
        let expected = [Value::I64(raw.0), Value::Text(raw.1), Value::Text(raw.2)];
        assert_eq!(driver, expected);
    }

    /// Medians of both, and of the differences within pairs.
    fn compare(&mut self, label: &str, pairs: i64, spins: bool) {
        let (mut raws, mut drivers, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..pairs {
            let id = 1 + round % 250;
            let Pair {
                raw,
                driver,
                runtime,
                ..
            } = self;
            let mut one = || match spins {
                true => timed(|| spin(raw.read(id))),
                false => timed(|| runtime.block_on(raw.read(id))),
            };
            // Who goes first changes, so that neither has the warmer cache each time.
            let first = (round % 2 == 0).then(&mut one);
            let other = match spins {
                true => timed(|| spin(read(driver.as_mut(), id))),
                false => timed(|| runtime.block_on(read(driver.as_mut(), id))),
            };
            let raw = first.unwrap_or_else(one);
            raws.push(raw);
            drivers.push(other);
            added.push(other.as_nanos() as i64 - raw.as_nanos() as i64);
        }
        added.sort_unstable();
        let (raw, driver) = (median(raws), median(drivers));
        println!(
            "point_read/{label}: raw {raw:?}, driver {driver:?}, ratio {:.3}, added {} ns (median of {pairs} pairs)",
            driver.as_secs_f64() / raw.as_secs_f64(),
            added[added.len() / 2],
        );
    }
}

fn point_read(criterion: &mut Criterion) {
    let is_smoke = !std::env::args().any(|argument| argument == "--bench");
    let pairs = if is_smoke { 20 } else { 50_000 };
    let mut pair = Pair::open();
    pair.check();
    pair.compare("spinning", pairs, true);
    pair.compare("sleeping", pairs, false);

    let mut group = criterion.benchmark_group("point_read");
    group.measurement_time(Duration::from_secs(2));
    group.warm_up_time(Duration::from_millis(500));
    let Pair {
        raw,
        driver,
        runtime,
        ..
    } = &mut pair;
    group.bench_function("raw", |bencher| {
        bencher.iter_batched(
            || 7,
            |id| runtime.block_on(raw.read(id)),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("driver", |bencher| {
        bencher.iter_batched(
            || 7,
            |id| runtime.block_on(read(driver.as_mut(), id)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, point_read);
criterion_main!(benches);
