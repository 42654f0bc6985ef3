//! The proxy as a [`Database`].

use std::sync::atomic::Ordering;
use std::time::Duration;

use mainstay_engine::Policy;

use super::DataProxy;
use super::proved::nobody_answered;
use crate::catalog::{Describe, Description};
use crate::database::{Answer, BoxFuture, Database, Meta, Position, Probe, Request, Scope, State};
use crate::dialect::Dialect;
use crate::error::SqlError;
use crate::lent::{Borrower, Loan};
use crate::proof::{Fate, Mark};
use crate::schema::Schema;
use crate::stream::RowStream;
use crate::transaction::{Begin, Transaction};

impl Database for DataProxy {
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
        Box::pin(self.run_request(request, scope))
    }

    fn lend<'a>(
        &'a self,
        loan: &'a Loan,
        work: &'a dyn Borrower,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Meta, SqlError>> {
        Box::pin(self.lend_once(loan, work, scope))
    }

    fn stream<'a>(
        &'a self,
        request: &'a Request,
        scope: Scope,
    ) -> BoxFuture<'a, Result<RowStream, SqlError>> {
        Box::pin(self.stream_request(request, scope))
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
        Box::pin(self.describe_once(what, scope))
    }

    fn probe(&self) -> BoxFuture<'_, Result<Probe, SqlError>> {
        Box::pin(self.probe_members())
    }

    fn position(&self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        Box::pin(self.ask_position())
    }

    fn prove<'a>(
        &'a self,
        mark: &'a Mark,
        ran_on: Option<&'a str>,
        limit: Duration,
    ) -> BoxFuture<'a, Result<Fate, SqlError>> {
        Box::pin(async move {
            let found = self.find_out(mark, ran_on, limit).await;
            found.map(|found| found.fate).ok_or_else(nobody_answered)
        })
    }

    fn takes_keys(&self) -> bool {
        let proofs = self.shared.proofs.as_ref();
        proofs.is_some_and(|proofs| proofs.keys.is_some())
    }

    fn retries(&self) -> u32 {
        let policy = &self.source().snapshot().policy;
        policy.retry.attempts_max.saturating_sub(1)
    }

    fn apply(&self, policy: &Policy) {
        for placed in &self.source().snapshot().endpoints {
            placed.member.apply(policy);
        }
    }

    fn rest(&self, resting: bool) {
        for placed in &self.source().snapshot().endpoints {
            placed.member.rest(resting || placed.endpoint.is_draining());
        }
    }

    fn close(&self, limit: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.closed.store(true, Ordering::Release);
            let end = tokio::time::Instant::now() + limit;
            let left = || end.saturating_duration_since(tokio::time::Instant::now());
            self.source().drain(limit).await;
            // Health checks go on for as long as work does, and open no connection after it.
            self.source().tasks().shutdown(left()).await;
            for placed in &self.source().snapshot().endpoints {
                placed.member.close(left()).await;
            }
        })
    }

    fn state(&self) -> State {
        use mainstay_engine::endpoint::Fitness;
        if self.shared.closed.load(Ordering::Acquire) {
            return State::Closed;
        }
        let snapshot = self.source().snapshot();
        let fitness = || {
            snapshot
                .endpoints
                .iter()
                .map(|placed| placed.endpoint.fitness())
        };
        if fitness().any(|fitness| fitness == Fitness::Up) {
            State::Open
        } else if fitness().any(|fitness| fitness == Fitness::Unknown) {
            State::Connecting
        } else {
            State::Broken
        }
    }
}
