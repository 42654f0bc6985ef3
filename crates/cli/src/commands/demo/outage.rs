//! A database that can be taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_engine::{Category, Failure, Policy, Sent};
use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{
    Answer, Begin, Borrower, BoxFuture, Code, Database, Dialect, Loan, Meta, Position, Probe,
    Request, RowStream, Schema, Scope, SqlError, State, Transaction,
};

/// Takes a database away and brings it back.
#[derive(Debug, Clone, Default)]
pub(super) struct Switch {
    is_off: Arc<AtomicBool>,
}

impl Switch {
    /// From now on every connection is refused, or no longer.
    pub(super) fn turn_off(&self, off: bool) {
        self.is_off.store(off, Ordering::Release);
    }

    /// What a host says whose server is gone: nothing was sent.
    fn check(&self) -> Result<(), SqlError> {
        if !self.is_off.load(Ordering::Acquire) {
            return Ok(());
        }
        let failure = Failure::new(Category::Transient, "connection refused").sent(Sent::No);
        Err(SqlError::new(Code::AttemptsFailed, failure).hint("the demo brings it back"))
    }
}

/// A database behind a [`Switch`]: calls and health checks meet the same refusal.
pub(super) struct Switched {
    inner: Arc<dyn Database>,
    switch: Switch,
}

impl Switched {
    /// That database, there at first.
    pub(super) fn new(inner: Arc<dyn Database>, switch: Switch) -> Self {
        Switched { inner, switch }
    }

    fn guarded<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce() -> BoxFuture<'a, Result<T, SqlError>>,
    ) -> BoxFuture<'a, Result<T, SqlError>> {
        match self.switch.check() {
            Ok(()) => work(),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }
}

impl Database for Switched {
    fn dialect(&self) -> Dialect {
        self.inner.dialect()
    }

    fn schema(&self) -> &Schema {
        self.inner.schema()
    }

    fn collect<'a>(
        &'a self,
        request: &'a Request,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Answer, SqlError>> {
        self.guarded(|| self.inner.collect(request, scope))
    }

    fn lend<'a>(
        &'a self,
        loan: &'a Loan,
        work: &'a dyn Borrower,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Meta, SqlError>> {
        self.guarded(|| self.inner.lend(loan, work, scope))
    }

    fn stream<'a>(
        &'a self,
        request: &'a Request,
        scope: Scope,
    ) -> BoxFuture<'a, Result<RowStream, SqlError>> {
        self.guarded(|| self.inner.stream(request, scope))
    }

    fn begin<'a>(
        &'a self,
        begin: &'a Begin,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, SqlError>> {
        self.guarded(|| self.inner.begin(begin, scope))
    }

    fn describe<'a>(
        &'a self,
        what: &'a Describe,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        self.guarded(|| self.inner.describe(what, scope))
    }

    fn probe(&self) -> BoxFuture<'_, Result<Probe, SqlError>> {
        self.guarded(|| self.inner.probe())
    }

    fn position(&self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        self.guarded(|| self.inner.position())
    }

    fn retries(&self) -> u32 {
        self.inner.retries()
    }

    fn apply(&self, policy: &Policy) {
        self.inner.apply(policy);
    }

    fn rest(&self, resting: bool) {
        self.inner.rest(resting);
    }

    fn close(&self, limit: Duration) -> BoxFuture<'_, ()> {
        self.inner.close(limit)
    }

    fn state(&self) -> State {
        match self.switch.check() {
            Ok(()) => self.inner.state(),
            Err(_) => State::Broken,
        }
    }
}
