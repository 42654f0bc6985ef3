//! Readers and writers, and what came of their calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fastrand::Rng;
use mainstay_engine::Chance;
use mainstay_sql::verbs::Verbs;
use mainstay_sql::{DataProxy, Options, SqlError, Value};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::stage::Stage;

const READERS: usize = 8;
const WRITERS: usize = 3;

/// Rest of a reader and of a writer between two calls, in milliseconds.
const READER_REST: std::ops::Range<u64> = 4..12;
const WRITER_REST: std::ops::Range<u64> = 10..30;

/// Rows of the sample that calls choose from.
const PRODUCTS: i64 = 60;
const CUSTOMERS: i64 = 250;

/// Longer than any call may wait.
const STOP_MAX: Duration = Duration::from_secs(8);

const READ: &str = "SELECT id, name, price_cents FROM products WHERE id = ?";
const WRITE: &str = "INSERT INTO orders (customer_id, ordered_at, status) VALUES (?, '2026-01-02 10:00:00', 'open')";

/// What came of the calls.
#[derive(Debug)]
pub(super) struct Tally {
    reads_done: AtomicU64,
    reads_failed: AtomicU64,
    writes_done: AtomicU64,
    writes_failed: AtomicU64,
    /// Writes that were begun and have not ended.
    writing: AtomicU64,
    first_failure: Mutex<Option<String>>,
    pause: Mutex<Pause>,
}

/// The longest time in which no write was finished, once the primary was taken away.
#[derive(Debug)]
struct Pause {
    last_write: Instant,
    longest: Duration,
    is_measured: bool,
}

impl Tally {
    fn new() -> Self {
        Tally {
            reads_done: AtomicU64::new(0),
            reads_failed: AtomicU64::new(0),
            writes_done: AtomicU64::new(0),
            writes_failed: AtomicU64::new(0),
            writing: AtomicU64::new(0),
            first_failure: Mutex::new(None),
            pause: Mutex::new(Pause {
                last_write: Instant::now(),
                longest: Duration::ZERO,
                is_measured: false,
            }),
        }
    }

    /// Reads that were answered.
    pub(super) fn reads_done(&self) -> u64 {
        self.reads_done.load(Relaxed)
    }

    /// Reads that were not.
    pub(super) fn reads_failed(&self) -> u64 {
        self.reads_failed.load(Relaxed)
    }

    /// Writes that were acknowledged.
    pub(super) fn writes_done(&self) -> u64 {
        self.writes_done.load(Relaxed)
    }

    /// Writes that were not.
    pub(super) fn writes_failed(&self) -> u64 {
        self.writes_failed.load(Relaxed)
    }

    /// Writes that wait now or are being done.
    pub(super) fn writing(&self) -> u64 {
        self.writing.load(Relaxed)
    }

    /// What went wrong first, if anything did.
    pub(super) fn first_failure(&self) -> Option<String> {
        self.first_failure.lock().clone()
    }

    /// The longest time without a finished write since the primary was taken away.
    pub(super) fn pause(&self) -> Duration {
        self.pause.lock().longest
    }

    fn read(&self, result: Result<(), SqlError>) {
        match result {
            Ok(()) => self.reads_done.fetch_add(1, Relaxed),
            Err(error) => {
                self.note_failure("read", &error);
                self.reads_failed.fetch_add(1, Relaxed)
            }
        };
    }

    fn wrote(&self, result: Result<(), SqlError>) {
        match result {
            Ok(()) => {
                self.writes_done.fetch_add(1, Relaxed);
                self.pause.lock().write(Instant::now());
            }
            Err(error) => {
                self.note_failure("write", &error);
                self.writes_failed.fetch_add(1, Relaxed);
            }
        }
    }

    fn note_failure(&self, what: &str, error: &SqlError) {
        let mut first = self.first_failure.lock();
        first.get_or_insert_with(|| format!("{what}: {error}"));
    }
}

impl Pause {
    fn write(&mut self, now: Instant) {
        if self.is_measured {
            let gap = now.saturating_duration_since(self.last_write);
            self.longest = self.longest.max(gap);
        }
        self.last_write = now;
    }
}

/// The running load.
pub(super) struct Load {
    tally: Arc<Tally>,
    is_over: Arc<AtomicBool>,
    callers: Mutex<Vec<JoinHandle<()>>>,
}

impl Load {
    /// Starts all readers and writers.
    pub(super) fn start(stage: &Stage, seed: u64) -> Self {
        let tally = Arc::new(Tally::new());
        let is_over = Arc::new(AtomicBool::new(false));
        // A sequence of its own: the source's choices do not change the callers'.
        let chance = Chance::seeded(!seed);
        let mut callers = Vec::new();
        for number in 0..READERS + WRITERS {
            let caller = Caller {
                proxy: stage.proxy().clone(),
                tally: Arc::clone(&tally),
                is_over: Arc::clone(&is_over),
                random: chance.stream(),
            };
            callers.push(match number < READERS {
                true => stage.tasks().spawn(caller.read_on()),
                false => stage.tasks().spawn(caller.write_on()),
            });
        }
        Load {
            tally,
            is_over,
            callers: Mutex::new(callers),
        }
    }

    /// What came of it so far.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// From now on the time between writes is measured.
    pub(super) fn expect_pause(&self) {
        self.tally.pause.lock().is_measured = true;
    }

    /// Lets every call that was begun end.
    pub(super) async fn stop(&self) {
        self.is_over.store(true, Relaxed);
        let callers = std::mem::take(&mut *self.callers.lock());
        let end = Instant::now() + STOP_MAX;
        for caller in callers {
            // One that does not end is dropped with the stage.
            let _ = timeout(end.saturating_duration_since(Instant::now()), caller).await;
        }
    }
}

struct Caller {
    proxy: DataProxy,
    tally: Arc<Tally>,
    is_over: Arc<AtomicBool>,
    random: Rng,
}

impl Caller {
    async fn read_on(mut self) {
        while !self.is_over.load(Relaxed) {
            let id = Value::I64(self.random.i64(1..=PRODUCTS));
            let read = self.proxy.query(READ, vec![id], Options::default()).await;
            self.tally.read(read.map(drop));
            self.rest(READER_REST).await;
        }
    }

    async fn write_on(mut self) {
        while !self.is_over.load(Relaxed) {
            let customer = Value::I64(self.random.i64(1..=CUSTOMERS));
            self.tally.writing.fetch_add(1, Relaxed);
            let wrote = self
                .proxy
                .execute(WRITE, vec![customer], Options::default())
                .await;
            self.tally.writing.fetch_sub(1, Relaxed);
            self.tally.wrote(wrote.map(drop));
            self.rest(WRITER_REST).await;
        }
    }

    async fn rest(&mut self, millis: std::ops::Range<u64>) {
        tokio::time::sleep(Duration::from_millis(self.random.u64(millis))).await;
    }
}
