//! The same read over rusqlite behind a hand-off to a thread, our driver and the facade.

use std::future::Future;
use std::hint::black_box;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mainstay::DataProxy;
use mainstay::sql::{Access, AnswerMax, Connection, Driver, Value};
use mainstay::sqlite::{SqliteDriver, SqliteSettings, create_sample};
use mainstay::tasks::Tasks;
use mainstay_benches::{Comparison, is_measuring, report, timed};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::{facade, ids, read};

const TEXT: &str = "SELECT id, name, city FROM customers WHERE id = ?1";
const ROWS: u64 = 250;

/// The facade adds at most this to the raw library; a measured run fails where it adds twice as much.
const ADDED_NS_MAX: f64 = 2000.0;

type RawRow = (i64, String, String);
type RawJob = (i64, oneshot::Sender<rusqlite::Result<RawRow>>);

/// The least that any asynchronous use of SQLite must do.
struct Raw {
    jobs: SyncSender<RawJob>,
}

impl Raw {
    fn start(path: &Path) -> anyhow::Result<Self> {
        let connection = rusqlite::Connection::open(path)?;
        let (jobs, received) = sync_channel::<RawJob>(2);
        std::thread::spawn(move || {
            while let Ok((id, reply)) = received.recv() {
                let row = connection.prepare_cached(TEXT).and_then(|mut statement| {
                    statement.query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                });
                let _ = reply.send(row);
            }
        });
        Ok(Raw { jobs })
    }

    async fn read(&self, id: i64) -> anyhow::Result<RawRow> {
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send((id, reply))?;
        Ok(answer.await??)
    }
}

async fn driven(connection: &mut dyn Connection, id: i64) -> anyhow::Result<Vec<Value>> {
    let params = [Value::I64(id)];
    let run = connection.run(TEXT, &params, AnswerMax::default(), &|| ());
    Ok(run.await?.rows.remove(0))
}

/// How the reading side waits.
#[derive(Clone, Copy)]
enum Wait<'a> {
    /// By polling: the wake-up of a sleeping thread costs tens of microseconds and would hide what is
    /// measured.
    Spinning,
    /// As a program does.
    Sleeping(&'a Runtime),
}

impl Wait<'_> {
    fn on<T>(self, future: impl Future<Output = T>) -> T {
        match self {
            Wait::Spinning => spin(future),
            Wait::Sleeping(runtime) => runtime.block_on(future),
        }
    }
}

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

/// All three sides on one file.
struct Sides {
    raw: Raw,
    driver: Box<dyn Connection>,
    proxy: DataProxy,
}

impl Sides {
    fn open(path: &Path, runtime: &Runtime, tasks: &Tasks) -> anyhow::Result<Self> {
        create_sample(path)?;
        let driver = Arc::new(SqliteDriver::new(SqliteSettings::new(path))?);
        let connection = runtime.block_on(driver.connect(Access::ReadOnly))?;
        Ok(Sides {
            raw: Raw::start(path)?,
            driver: connection,
            proxy: facade(driver, tasks)?,
        })
    }

    fn check(&mut self, wait: Wait<'_>) -> anyhow::Result<()> {
        let (id, name, city) = wait.on(self.raw.read(7))?;
        let expected = vec![Value::I64(id), Value::Text(name), Value::Text(city)];
        assert_eq!(wait.on(driven(self.driver.as_mut(), 7))?, expected);
        assert_eq!(wait.on(read(&self.proxy, TEXT, 7))?, expected);
        Ok(())
    }

    /// What the facade adds.
    fn compare(&mut self, label: &str, wait: Wait<'_>) -> Comparison {
        let Sides { raw, driver, proxy } = self;
        let mut of_raw = |times| all(times, |id| wait.on(raw.read(id)));
        let mut of_driver = |times| all(times, |id| wait.on(driven(driver.as_mut(), id)));
        let mut of_facade = |times| all(times, |id| wait.on(read(proxy, TEXT, id)));
        let added = mainstay_benches::compare(&mut of_driver, &mut of_raw);
        report(
            &format!("point read, SQLite driver, {label}"),
            "rusqlite on a thread",
            added,
        );
        let added = mainstay_benches::compare(&mut of_facade, &mut of_raw);
        report(
            &format!("point read, SQLite facade, {label}"),
            "rusqlite on a thread",
            added,
        );
        added
    }
}

/// Reads so many keys one after the other.
fn all<T>(times: u64, mut one: impl FnMut(i64) -> anyhow::Result<T>) -> Duration {
    let mut keys = ids(times, ROWS);
    timed(times, || {
        let id = keys.next().expect("there is a key for each time");
        black_box(one(id).expect("the key is there"));
    })
}

pub(crate) fn compare() -> anyhow::Result<()> {
    // One worker for timers and health checks; the reads run on this thread.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let tasks = Tasks::new();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("sample.db");
    let added = {
        let _inside = runtime.enter();
        let mut sides = Sides::open(&path, &runtime, &tasks)?;
        sides.check(Wait::Sleeping(&runtime))?;
        let sleeping = sides.compare("sleeping", Wait::Sleeping(&runtime));
        // With one core (`taskset -c 1`) nobody can spin while the other works. What is left are two switches
        // between threads that cost the same on each side; with more cores whether a thread has just gone to
        // sleep decides about more than all the rest.
        let added = match std::thread::available_parallelism()?.get() {
            1 => sleeping,
            _ => sides.compare("spinning", Wait::Spinning),
        };
        added.added_ns.median
    };
    println!("point read, SQLite: the facade may add {ADDED_NS_MAX} ns");
    runtime.block_on(tasks.shutdown(Duration::from_secs(1)));
    anyhow::ensure!(
        !is_measuring() || added <= 2.0 * ADDED_NS_MAX,
        "a point read through the facade adds {added:.0} ns"
    );
    Ok(())
}
