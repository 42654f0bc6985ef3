//! A connector that does what a test tells it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use crate::chance::Chance;
use crate::failure::{Category, Failure};
use crate::policy::PoolSettings;
use crate::pool::{BoxFuture, Connector, Mode, Pool};
use crate::tasks::Tasks;

/// What the connector does, to be changed while the pool runs.
#[derive(Default)]
pub(super) struct Script {
    /// How often each of its futures is pending before it is done.
    pub(super) pending: AtomicU32,
    pub(super) refuse_connects: AtomicBool,
    pub(super) fail_checks: AtomicBool,
    pub(super) fail_resets: AtomicBool,
    pub(super) fail_clean_ups: AtomicBool,
    /// Clean-ups, resets and checks never end.
    pub(super) hang: AtomicBool,
    pub(super) opened: AtomicU32,
    pub(super) alive: AtomicU32,
    pub(super) checks: AtomicU32,
    pub(super) resets: AtomicU32,
    pub(super) clean_ups: AtomicU32,
    pub(super) cleaning: AtomicU32,
    pub(super) cleaning_most: AtomicU32,
}

pub(super) struct Connection {
    pub(super) number: u32,
    pub(super) mode: Mode,
    pub(super) closed: AtomicBool,
    /// What the last user left behind.
    pub(super) dirt: bool,
    script: Arc<Script>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.script.alive.fetch_sub(1, SeqCst);
    }
}

pub(super) struct Scripted(pub(super) Arc<Script>);

impl Scripted {
    async fn pend(&self) {
        pend(self.0.pending.load(SeqCst)).await;
    }

    async fn hang_if_told(&self) {
        if self.0.hang.load(SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

/// Is pending so many times, each time waking itself.
pub(super) async fn pend(times: u32) {
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct Counted(Arc<Script>);

impl Counted {
    fn enter(script: &Arc<Script>) -> Self {
        let now = script.cleaning.fetch_add(1, SeqCst) + 1;
        script.cleaning_most.fetch_max(now, SeqCst);
        Counted(script.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.cleaning.fetch_sub(1, SeqCst);
    }
}

impl Connector for Scripted {
    type Connection = Connection;

    fn connect(&self, mode: Mode) -> BoxFuture<'_, Result<Connection, Failure>> {
        Box::pin(async move {
            self.pend().await;
            if self.0.refuse_connects.load(SeqCst) {
                return Err(Failure::new(Category::Transient, "connection refused"));
            }
            self.0.alive.fetch_add(1, SeqCst);
            Ok(Connection {
                number: self.0.opened.fetch_add(1, SeqCst),
                mode,
                closed: AtomicBool::new(false),
                dirt: false,
                script: self.0.clone(),
            })
        })
    }

    fn is_closed(&self, connection: &Connection) -> bool {
        connection.closed.load(SeqCst)
    }

    fn check<'a>(&'a self, _: &'a mut Connection) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            self.0.checks.fetch_add(1, SeqCst);
            self.hang_if_told().await;
            self.pend().await;
            !self.0.fail_checks.load(SeqCst)
        })
    }

    fn reset<'a>(&'a self, connection: &'a mut Connection) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            self.0.resets.fetch_add(1, SeqCst);
            self.hang_if_told().await;
            self.pend().await;
            connection.dirt = false;
            !self.0.fail_resets.load(SeqCst)
        })
    }

    fn clean_up<'a>(&'a self, _: &'a mut Connection) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let _counted = Counted::enter(&self.0);
            self.0.clean_ups.fetch_add(1, SeqCst);
            self.hang_if_told().await;
            self.pend().await;
            !self.0.fail_clean_ups.load(SeqCst)
        })
    }
}

pub(super) struct Rig {
    pub(super) pool: Pool<Scripted>,
    pub(super) script: Arc<Script>,
    pub(super) tasks: Tasks,
}

/// A pool over a scripted connector with the default settings as changed by `change`.
pub(super) fn rig(change: impl FnOnce(&mut PoolSettings)) -> Rig {
    let mut settings = PoolSettings::default();
    change(&mut settings);
    let script = Arc::new(Script::default());
    let tasks = Tasks::new();
    let pool = Pool::new(
        Scripted(script.clone()),
        settings,
        tasks.clone(),
        Chance::seeded(1),
    );
    Rig {
        pool,
        script,
        tasks,
    }
}

impl Rig {
    /// Lets background work run until only the sweeper is left.
    pub(super) async fn settle(&self) {
        for _ in 0..10_000 {
            if self.tasks.running() <= 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(self.tasks.running() <= 1, "background work never ended");
    }

    /// Nothing is in use, nobody waits, and every open connection is an idle one.
    pub(super) fn assert_at_rest(&self) {
        let stats = self.pool.stats();
        assert_eq!((stats.active, stats.waiting), (0, 0), "{stats:?}");
        assert_eq!(stats.idle, self.script.alive.load(SeqCst), "{stats:?}");
    }
}

/// A value that counts its drops: the engine's slot in these tests.
pub(super) struct Slot(pub(super) Arc<AtomicU32>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}
