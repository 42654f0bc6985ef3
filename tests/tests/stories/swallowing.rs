//! An SQLite file whose COMMITs lose their answers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mainstay::sql::catalog::{Describe, Description};
use mainstay::sql::{
    Access, Answer, AnswerMax, Batch, BatchMax, Begin, BoxFuture, Cancel, Code, Column, Connection,
    Dialect, Driver, HandedOver, Lineage, Position, Probe, SqlError, Value,
};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::{Category, Failure, Sent};
use parking_lot::Mutex;

/// Which COMMITs are struck.
pub(crate) struct Swallow {
    random: Mutex<fastrand::Rng>,
    per_thousand: u32,
    on: AtomicBool,
    count: AtomicU64,
}

/// What becomes of a COMMIT.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It takes place, and the connection is lost.
    Committed,
    /// It never takes place, and the connection is lost.
    Lost,
    /// It takes place, and no answer comes.
    CommittedAndSilent,
    /// It never takes place, and no answer comes.
    Silent,
}

impl Swallow {
    pub(crate) fn new(seed: u64, per_thousand: u32) -> Arc<Self> {
        Arc::new(Swallow {
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            per_thousand,
            on: AtomicBool::new(true),
            count: AtomicU64::new(0),
        })
    }

    pub(crate) fn set(&self, on: bool) {
        self.on.store(on, Ordering::Release);
    }

    /// COMMITs that were struck so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    fn draw(&self) -> Option<Fate> {
        let mut random = self.random.lock();
        if !self.on.load(Ordering::Acquire) || random.u32(0..1000) >= self.per_thousand {
            return None;
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        let fates = [
            Fate::Committed,
            Fate::Lost,
            Fate::CommittedAndSilent,
            Fate::Silent,
        ];
        random.choice(fates)
    }
}

/// The driver over the file.
pub(crate) struct Swallowing {
    inner: SqliteDriver,
    swallow: Arc<Swallow>,
}

impl Swallowing {
    pub(crate) fn over(path: PathBuf, swallow: Arc<Swallow>) -> Self {
        let settings = SqliteSettings::new(path).create(true);
        Swallowing {
            inner: SqliteDriver::new(settings).unwrap(),
            swallow,
        }
    }
}

impl Driver for Swallowing {
    fn dialect(&self) -> Dialect {
        self.inner.dialect()
    }

    fn connect(&self, access: Access) -> BoxFuture<'_, Result<Box<dyn Connection>, SqlError>> {
        Box::pin(async move {
            let inner = self.inner.connect(access).await?;
            let swallow = Arc::clone(&self.swallow);
            let is_lost = false;
            Ok(Box::new(Session {
                inner,
                swallow,
                is_lost,
            }) as Box<dyn Connection>)
        })
    }

    fn address(&self) -> String {
        self.inner.address()
    }
}

struct Session {
    inner: Box<dyn Connection>,
    swallow: Arc<Swallow>,
    is_lost: bool,
}

fn lost() -> SqlError {
    let failure = Failure::new(Category::Transient, "the disk gave no answer").sent(Sent::Maybe);
    SqlError::new(Code::OutcomeUnknown, failure)
}

impl Connection for Session {
    fn is_closed(&self) -> bool {
        self.is_lost || self.inner.is_closed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.inner.check()
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.inner.reset()
    }

    fn clean_up(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.inner.clean_up()
    }

    fn canceller(&self) -> Arc<dyn Cancel> {
        self.inner.canceller()
    }

    fn run<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        max: AnswerMax,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Answer, SqlError>> {
        self.inner.run(text, params, max, handed_over)
    }

    fn open<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Arc<[Column]>, SqlError>> {
        self.inner.open(text, params, handed_over)
    }

    fn next_batch(&mut self, max: BatchMax) -> BoxFuture<'_, Result<Option<Batch>, SqlError>> {
        self.inner.next_batch(max)
    }

    fn begin<'a>(&'a mut self, begin: &'a Begin) -> BoxFuture<'a, Result<(), SqlError>> {
        self.inner.begin(begin)
    }

    fn commit<'a>(
        &'a mut self,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        let Some(fate) = self.swallow.draw() else {
            return self.inner.commit(handed_over);
        };
        Box::pin(async move {
            match fate {
                Fate::Committed | Fate::CommittedAndSilent => {
                    self.inner.commit(handed_over).await?;
                }
                Fate::Lost | Fate::Silent => handed_over(),
            }
            self.is_lost = true;
            match fate {
                Fate::Committed | Fate::Lost => Err(lost()),
                Fate::CommittedAndSilent | Fate::Silent => std::future::pending().await,
            }
        })
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.inner.rollback()
    }

    fn describe<'a>(
        &'a mut self,
        what: &'a Describe,
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        self.inner.describe(what)
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, SqlError>> {
        self.inner.probe()
    }

    fn lineage(&mut self) -> BoxFuture<'_, Result<Lineage, SqlError>> {
        self.inner.lineage()
    }

    fn position(&mut self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        self.inner.position()
    }
}
