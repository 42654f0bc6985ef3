//! One endpoint as a [`Database`]: a driver's connections, pooled.
//!
//! The rules that keep a back end's state known are here, once for all drivers: a statement that is cut is
//! cancelled at the server, a connection in doubt never reaches the next borrower, and what may have
//! taken effect is said so.

mod batch;
mod keyed;
mod lend;
mod limit;
mod proving;
mod sessions;
mod statement;
mod stream;
mod transaction;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use mainstay_engine::pool::{Checkout, Later, Pool, PoolError, PoolStats};
use mainstay_engine::{
    Attempt, Blame, Category, Chance, Failure, Marks, Policy, Sent, tasks::Tasks,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::catalog::{Describe, Description};
use crate::connection::{Connection, Driver};
use crate::database::{
    Access, Answer, BoxFuture, Database, Meta, Options, Position, Probe, Request, Scope, State,
    Work,
};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError};
use crate::lent::{Borrower, Loan};
use crate::proof::{Fate, Mark};
use crate::schema::Schema;
use crate::stream::RowStream;
use crate::transaction::{Begin, Transaction};

pub(crate) use statement::refuse_control;

use limit::{HandOver, Judge, until};
use sessions::{Held, Limits, Sessions, mode};

/// One endpoint: a driver and a pool of its connections. Cheap to clone; copies share the pool.
///
/// Everything that [`Database`] promises about dropped futures holds: what was under way is cancelled at
/// the server by a tracked task, and only then its place in the pool is free again.
#[derive(Clone)]
pub struct Plain {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool<Sessions>,
    limits: Arc<ArcSwap<Limits>>,
    schema: Schema,
    dialect: Dialect,
    tasks: Tasks,
    proof_tables: proving::ProofTables,
    /// The connection of health checks; taken out while one is under way.
    prober: Mutex<Option<Box<dyn Connection>>>,
}

impl Plain {
    /// An endpoint with no connections yet; the first call opens one. Clean-ups run in `tasks`.
    pub fn new(driver: Arc<dyn Driver>, policy: &Policy, tasks: Tasks, chance: Chance) -> Plain {
        let dialect = driver.dialect();
        let limits = Arc::new(ArcSwap::from_pointee(Limits::of(policy)));
        let sessions = Sessions::new(driver, Arc::clone(&limits));
        let schema = Schema::with_chance(dialect, chance.clone());
        let pool = Pool::new(sessions, policy.pool.clone(), tasks.clone(), chance);
        let shared = Shared {
            pool,
            limits,
            schema,
            dialect,
            tasks,
            proof_tables: proving::ProofTables::default(),
            prober: Mutex::new(None),
        };
        Plain {
            shared: Arc::new(shared),
        }
    }

    /// What its pool counts.
    pub fn pool_stats(&self) -> PoolStats {
        self.shared.pool.stats()
    }

    /// Where it connects to, for readers, without secrets.
    pub fn address(&self) -> String {
        self.shared.pool.connector().driver().address()
    }

    /// What is known about the schema: by whoever classified the call, so that both see it alike.
    fn schema_of<'a>(&'a self, of_caller: Option<&'a Arc<Schema>>) -> &'a Schema {
        of_caller.map_or(&self.shared.schema, Arc::as_ref)
    }

    /// When work with these options is cut: at the attempt's end inside of a proxy, else by the
    /// deadline and the attempt timeout of the policy.
    fn ends_at(
        &self,
        options: &Options,
        attempt: Option<&Attempt>,
        now: Instant,
    ) -> Result<Option<Instant>, SqlError> {
        if options.deadline == Some(Duration::ZERO) {
            return Err(SqlError::caller(
                Code::BadRequest,
                "the deadline has passed before the call began",
                "give a deadline above 0",
            ));
        }
        if let Some(attempt) = attempt {
            return Ok(attempt.ends_at);
        }
        let limits = self.shared.limits.load();
        let limit = limits.of_call(options.deadline);
        // A limit beyond what the clock can hold is none.
        Ok(limit.and_then(|limit| now.checked_add(limit)))
    }

    /// Whether an error says for itself what it proves, of whatever kind the statement is: SQLite undoes
    /// every statement that fails as a whole, and its driver knows the exceptions.
    fn errors_tell_themselves(&self) -> bool {
        self.shared.dialect == Dialect::Sqlite
    }

    /// Where all endpoints work on one store, a statement that ran until its limit is slow by itself.
    fn judge_slowness(&self, mut error: SqlError) -> SqlError {
        let driver = self.shared.pool.connector().driver();
        let failure = &mut error.detail_mut().failure;
        let ran = failure.category == Category::Timeout && failure.sent != Sent::No;
        if ran && driver.has_one_store() {
            failure.blame = Blame::Caller;
        }
        error
    }

    /// A connection, waited for and opened within the limit. Nothing was sent if there is none.
    async fn lease(
        &self,
        access: Access,
        ends_at: Option<Instant>,
        attempt: Option<&Attempt>,
    ) -> Result<Held, SqlError> {
        let hold = attempt.and_then(Attempt::hold);
        let pool = &self.shared.pool;
        match pool.checkout_now(mode(access), hold, Instant::now()) {
            Ok(Checkout::Lent(lease)) => Ok(lease),
            Ok(Checkout::Later(later)) => Box::pin(self.lease_later(later, ends_at, attempt)).await,
            Err(error) => Err(sessions::refused(error)),
        }
    }

    async fn lease_later(
        &self,
        later: Later<Sessions, Option<Arc<Marks>>>,
        ends_at: Option<Instant>,
        attempt: Option<&Attempt>,
    ) -> Result<Held, SqlError> {
        let mut checkout = pin!(self.shared.pool.checkout_later(later));
        // Where the attempt was given up nobody may use what comes.
        let checkout = poll_fn(|context| {
            let over = attempt.map_or(Poll::Pending, |it| it.poll_over(context));
            match checkout.as_mut().poll(context) {
                Poll::Ready(lent) if over.is_pending() => Poll::Ready(Some(lent)),
                _ if over.is_ready() => Poll::Ready(None),
                _ => Poll::Pending,
            }
        });
        let lent = match ends_at {
            None => checkout.await,
            Some(end) => tokio::time::timeout_at(end, checkout)
                .await
                .unwrap_or_default(),
        };
        let lent = lent.ok_or_else(|| self.no_connection_in_time())?;
        lent.map_err(sessions::refused)
    }

    /// The limit passed before there was a connection: because all were in use, which is our own doing, or
    /// because the endpoint did not let us in.
    fn no_connection_in_time(&self) -> SqlError {
        let stats = self.shared.pool.stats();
        let limits = self.shared.limits.load();
        if stats.active >= limits.active_max {
            let message = format!(
                "no connection became free within the attempt's time: {} are in use and {} callers wait",
                stats.active, stats.waiting
            );
            let failure = Failure::new(Category::Saturation, message)
                .severity(mainstay_engine::Severity::Low)
                .blame(Blame::Us)
                .sent(Sent::No);
            return SqlError::new(Code::PoolTimeout, failure)
                .hint("raise pool.active_max, or call less at once");
        }
        let failure = Failure::new(
            Category::Timeout,
            "connecting took longer than the attempt may",
        )
        .sent(Sent::No);
        SqlError::new(Code::DeadlineExceeded, failure)
            .hint("see whether the endpoint is reachable, or raise retry.attempt_timeout")
    }

    /// One catalog question on a connection of its own choice.
    async fn ask(&self, what: &Describe, scope: Scope) -> Result<Description, SqlError> {
        let now = Instant::now();
        let ends_at = self.ends_at(&Options::default(), scope.attempt.as_ref(), now)?;
        let mut lease = self
            .lease(Access::ReadOnly, ends_at, scope.attempt.as_ref())
            .await?;
        let handed = HandOver::new(scope.attempt);
        // The port does not say when it hands over: at once, to be on the safe side.
        handed.tell();
        lease.set_active(true);
        let ended = until(ends_at, None, || false, lease.describe(what)).await;
        statement::settle(&mut lease, ended, &Judge::read(), &handed)
    }

    async fn ask_position(&self) -> Result<Option<Position>, SqlError> {
        let now = Instant::now();
        let ends_at = self.ends_at(&Options::default(), None, now)?;
        let mut lease = self.lease(Access::ReadOnly, ends_at, None).await?;
        let handed = HandOver::new(None);
        handed.tell();
        lease.set_active(true);
        let ended = until(ends_at, None, || false, lease.position()).await;
        statement::settle(&mut lease, ended, &Judge::read(), &handed)
    }

    /// A health check. Its connection is closed if this future is dropped or fails.
    async fn check(&self) -> Result<Probe, SqlError> {
        self.refuse_closed()?;
        let kept = self.shared.prober.lock().take();
        let mut connection = match kept {
            Some(connection) if !connection.is_closed() => connection,
            _ => {
                let sessions = self.shared.pool.connector();
                sessions.open(Access::ReadOnly).await?
            }
        };
        let probe = connection.probe().await?;
        let mut kept = self.shared.prober.lock();
        // Closing may have emptied it meanwhile.
        self.refuse_closed()?;
        *kept = Some(connection);
        Ok(probe)
    }

    fn refuse_closed(&self) -> Result<(), SqlError> {
        match self.state() {
            State::Closed => Err(sessions::refused(PoolError::Closed)),
            _ => Ok(()),
        }
    }
}

impl Database for Plain {
    fn dialect(&self) -> Dialect {
        self.shared.dialect
    }

    fn schema(&self) -> &Schema {
        &self.shared.schema
    }

    fn collect<'a>(
        &'a self,
        request: &'a Request,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Answer, SqlError>> {
        // Boxed one by one: together they would be as large as the largest.
        match &request.work {
            Work::Statement { .. } if scope.proving.is_none() => {
                Box::pin(self.run_statement(request, scope))
            }
            _ => Box::pin(async move {
                let answer = self.run_batch(request, scope).await;
                answer.map_err(|error| self.judge_slowness(error))
            }),
        }
    }

    fn lend<'a>(
        &'a self,
        loan: &'a Loan,
        work: &'a dyn Borrower,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Meta, SqlError>> {
        Box::pin(async move {
            let lent = self.lend_once(loan, work, scope).await;
            lent.map_err(|error| self.judge_slowness(error))
        })
    }

    fn stream<'a>(
        &'a self,
        request: &'a Request,
        scope: Scope,
    ) -> BoxFuture<'a, Result<RowStream, SqlError>> {
        Box::pin(async move {
            let opened = self.open_stream(request, scope).await;
            opened.map_err(|error| self.judge_slowness(error))
        })
    }

    fn begin<'a>(
        &'a self,
        begin: &'a Begin,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, SqlError>> {
        Box::pin(self.begin_transaction(begin, scope))
    }

    fn describe<'a>(
        &'a self,
        what: &'a Describe,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        Box::pin(self.ask(what, scope))
    }

    fn probe(&self) -> BoxFuture<'_, Result<Probe, SqlError>> {
        Box::pin(self.check())
    }

    fn position(&self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        Box::pin(self.ask_position())
    }

    fn prove<'a>(
        &'a self,
        mark: &'a Mark,
        _ran_on: Option<&'a str>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Fate, SqlError>> {
        Box::pin(self.look(mark, limit))
    }

    fn retries(&self) -> u32 {
        self.shared.limits.load().retries
    }

    fn apply(&self, policy: &Policy) {
        self.shared.limits.store(Arc::new(Limits::of(policy)));
        self.shared.pool.apply(policy.pool.clone());
    }

    fn rest(&self, resting: bool) {
        self.shared.pool.rest(resting);
    }

    fn close(&self, limit: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.pool.drain(limit).await;
            self.shared.pool.close();
            self.shared.pool.connector().note_closed();
            *self.shared.prober.lock() = None;
        })
    }

    fn state(&self) -> State {
        self.shared.pool.connector().state()
    }
}

impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plain")
            .field("address", &self.address())
            .field("state", &self.state())
            .field("pool", &self.pool_stats())
            .finish_non_exhaustive()
    }
}
