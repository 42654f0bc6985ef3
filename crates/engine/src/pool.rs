//! The connections of one endpoint.
//!
//! A [`Pool`] lends connections as [`Lease`] guards: at most `active_max` at once, first come first
//! served, each known to be usable. What comes back is sorted by what happened to it: clean ones are
//! kept, dirty ones are reset, broken ones are closed, and one that was abandoned in the middle of a
//! statement is cleaned up in the background before its place is given to anybody else.
//!
//! An endpoint that gets no work [rests](Pool::rest) its pool; one that ends [drains](Pool::drain) it.
//!
//! All bookkeeping sits behind one short mutex; no foreign code runs under it: connections are opened,
//! tested, closed and handed over outside.

mod checkout;
mod lease;
mod state;
mod sweep;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::chance::Chance;
use crate::failure::{Blame, Category, Failure, Sent, Severity};
use crate::policy::PoolSettings;
use crate::tasks::Tasks;

pub use checkout::{Checkout, Later};
pub use lease::Lease;
use lease::Permit;
pub use state::PoolStats;
use state::{Origin, Phase, State};

/// A boxed future of a port: what a driver returns where it cannot return `impl Future`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a connection was opened for. The pool keeps idle connections apart by it; the numbers are the
/// connector's own (for SQL: read-only and read-write sessions).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mode(pub u8);

/// How connections of one endpoint are opened, tested and restored: the pool's port to a driver.
///
/// Every future may be dropped at any await point; the connection it was given is closed then.
pub trait Connector: Send + Sync + 'static {
    /// A connection. Dropping it closes it, without blocking.
    type Connection: Send + 'static;

    /// Opens a connection, within a time limit of its own. Names are resolved here, each time.
    fn connect(&self, mode: Mode) -> BoxFuture<'_, Result<Self::Connection, Failure>>;

    /// Whether the connection is already known to be closed or broken; free, no io.
    fn is_closed(&self, connection: &Self::Connection) -> bool;

    /// Whether the connection still answers: one round trip after long idleness.
    fn check<'a>(&'a self, connection: &'a mut Self::Connection) -> BoxFuture<'a, bool>;

    /// Brings a dirty session back to that of a new one; `false`: it must be closed.
    fn reset<'a>(&'a self, connection: &'a mut Self::Connection) -> BoxFuture<'a, bool>;

    /// Ends a statement that was abandoned: cancels it at the server and reads on to a known state;
    /// `false`: it must be closed.
    fn clean_up<'a>(&'a self, connection: &'a mut Self::Connection) -> BoxFuture<'a, bool>;
}

/// Why no connection was lent. Nothing was handed to the back end for the caller's work.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// All were in use for as long as a caller may wait.
    #[error(
        "no connection became free within {waited:?}: {active} are in use and {waiting} callers wait; raise pool.active_max or pool.wait_max"
    )]
    WaitTimeout {
        /// How long this caller waited.
        waited: Duration,
        /// Connections in use at the end of the wait.
        active: u32,
        /// Callers that still wait.
        waiting: usize,
    },
    /// All were in use, and as many callers as may wait were waiting.
    #[error(
        "all {active} connections are in use and {waiting} callers wait already; call less at once, or raise pool.active_max or pool.waiting_max"
    )]
    QueueFull {
        /// Connections in use.
        active: u32,
        /// Callers that wait.
        waiting: usize,
    },
    /// The endpoint is being drained.
    #[error("the endpoint is being drained and lends no connections; use another one")]
    Draining,
    /// The pool was closed for good.
    #[error("the pool is closed; use another endpoint")]
    Closed,
    /// A connection could not be opened.
    #[error("cannot connect: {0}")]
    Connect(#[source] Failure),
}

impl PoolError {
    /// Whether we refused, rather than the endpoint failed: a refusal weighs nothing.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, PoolError::Connect(_))
    }

    /// The error in the engine's words; `sent` is always `no`. A refusal of our own becomes a
    /// saturation that nobody but us is to blame for, and must not be counted against a circuit
    /// (see [`PoolError::is_refusal`]).
    pub fn into_failure(self) -> Failure {
        match self {
            PoolError::Connect(failure) => failure.sent(Sent::No),
            refusal => Failure::new(Category::Saturation, refusal.to_string())
                .severity(Severity::Low)
                .blame(Blame::Us)
                .sent(Sent::No),
        }
    }
}

/// The connections of one endpoint. Copies share them.
pub struct Pool<C: Connector> {
    shared: Arc<Shared<C>>,
}

impl<C: Connector> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Pool {
            shared: self.shared.clone(),
        }
    }
}

struct Shared<C: Connector> {
    connector: C,
    /// Settings live here and not behind a pointer of their own: every path that needs them holds
    /// this lock anyway, and a change is seen by all at once.
    state: Mutex<State<C>>,
    tasks: Tasks,
    chance: Chance,
    sweeping: AtomicBool,
    /// Wakes the sweeper: settings changed.
    changed: Arc<Notify>,
    /// Told when the last lease of a pool that lends no more has ended.
    emptied: Notify,
}

impl<C: Connector> Pool<C> {
    /// An empty pool. Its sweeper starts by itself, now or, outside a runtime, with the first
    /// connection.
    pub fn new(connector: C, settings: PoolSettings, tasks: Tasks, chance: Chance) -> Self {
        let pool = Pool {
            shared: Arc::new(Shared {
                connector,
                state: Mutex::new(State::new(settings)),
                tasks,
                chance,
                sweeping: AtomicBool::new(false),
                changed: Arc::new(Notify::new()),
                emptied: Notify::new(),
            }),
        };
        pool.start_sweeper();
        pool
    }

    /// Opens a connection outside the pool: it has no place, waits for nobody and is closed at the end
    /// of its lease. Cancel safe.
    ///
    /// # Errors
    /// [`PoolError::Connect`], and the refusals of a pool that lends no more.
    pub async fn unpooled(&self, mode: Mode) -> Result<Lease<C>, PoolError> {
        let refusal = self.shared.state.lock().refusal();
        if let Some(error) = refusal {
            return Err(error);
        }
        let opened = self.shared.open(mode).await;
        let (connection, origin) = opened.map_err(|e| PoolError::Connect(e.sent(Sent::No)))?;
        let permit = Permit::uncounted(&self.shared);
        Ok(Lease::new(connection, origin, permit, ()))
    }

    /// Takes new settings while running. Connections stay; a lower `active_max` takes hold as leases
    /// end, a higher one lets waiters in at once.
    pub fn apply(&self, settings: PoolSettings) {
        let (granted, evicted) = self.shared.state.lock().apply(settings);
        drop(evicted);
        for next in granted {
            self.shared.grant(next);
        }
        self.shared.changed.notify_one();
    }

    /// Lends no more, sends waiters away and closes idle connections, until [`Pool::reopen`]; then
    /// waits until every lease and clean-up has ended, at most `limit`. Returns how many are still out.
    /// Cancel safe: the pool stays in draining.
    pub async fn drain(&self, limit: Duration) -> u32 {
        self.shared.stop_lending(Phase::Draining);
        let emptied = async {
            loop {
                let told = self.shared.emptied.notified();
                if self.shared.state.lock().active == 0 {
                    return;
                }
                told.await;
            }
        };
        let _ = tokio::time::timeout(limit, emptied).await;
        self.shared.state.lock().active
    }

    /// Lends again after a drain. A closed pool stays closed.
    pub fn reopen(&self) {
        let mut state = self.shared.state.lock();
        if state.phase == Phase::Draining {
            state.phase = Phase::Open;
        }
    }

    /// Keeps no idle connections from now on, or keeps them again: those there are closed at once, those
    /// that come back as they come. It goes on lending to whoever still asks.
    pub fn rest(&self, resting: bool) {
        let evicted = {
            let mut state = self.shared.state.lock();
            state.resting = resting;
            match resting {
                true => state.evict_all(),
                false => Vec::new(),
            }
        };
        drop(evicted);
        self.shared.changed.notify_one();
    }

    /// Ends the pool: lends no more, sends waiters away, closes idle connections now and leased ones as
    /// they come back.
    pub fn close(&self) {
        self.shared.stop_lending(Phase::Closed);
        self.shared.changed.notify_one();
    }

    /// Counts and how the pool stands, all of one moment.
    pub fn stats(&self) -> PoolStats {
        self.shared.state.lock().stats()
    }

    /// The port it opens connections with.
    pub fn connector(&self) -> &C {
        &self.shared.connector
    }

    /// The generation that a connection opened now would have.
    pub fn generation(&self) -> u64 {
        self.shared.state.lock().generation
    }

    fn start_sweeper(&self) {
        let shared = &self.shared;
        if shared.sweeping.load(Ordering::Relaxed)
            || tokio::runtime::Handle::try_current().is_err()
            || shared.sweeping.swap(true, Ordering::Relaxed)
        {
            return;
        }
        shared.tasks.spawn(sweep::run(Arc::downgrade(shared)));
    }
}

impl<C: Connector> Shared<C> {
    /// Opens a connection. Its generation is that of the moment before: a break during the connect
    /// may have hit it too.
    async fn open(&self, mode: Mode) -> Result<(C::Connection, Origin), Failure> {
        let generation = self.state.lock().generation;
        let connection = self.connector.connect(mode).await?;
        let origin = Origin {
            mode,
            opened: Instant::now(),
            spread: (self.chance.draw() % 1001) as u16,
            generation,
        };
        Ok((connection, origin))
    }

    /// Hands a counted place to a waiter. If it has left, the place goes to the one after it.
    fn grant(self: &Arc<Self>, next: oneshot::Sender<Permit<C>>) {
        drop(next.send(Permit::counted(self)));
    }

    /// Gives a place back.
    fn release(self: &Arc<Self>) {
        let (next, empty) = {
            let mut state = self.state.lock();
            let next = state.release();
            (next, state.active == 0 && state.phase != Phase::Open)
        };
        if let Some(next) = next {
            self.grant(next);
        } else if empty {
            self.emptied.notify_waiters();
        }
    }

    fn retire(&self, generation: u64) {
        let retired = self.state.lock().retire(generation);
        drop(retired);
    }

    fn stop_lending(&self, phase: Phase) {
        let (evicted, sent_away) = {
            let mut state = self.state.lock();
            if state.phase != Phase::Closed {
                state.phase = phase;
            }
            (state.evict_all(), state.line.take_all())
        };
        drop(evicted);
        drop(sent_away);
    }
}
