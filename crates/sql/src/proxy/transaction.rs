//! Transactions through the source: begin pins an endpoint, and every statement has its own account.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mainstay_engine::source::{Ended, Leased, Snapshot};
use mainstay_engine::{
    Attempt, Category, EndpointId, Failure, Name, Need, Operation, Role, Route, Safety, Sent,
};
use tokio::time::Instant;

use super::proved::aborted;
use super::route::{operation, path};
use super::{DataProxy, Member, READ_GRACE, WRITE_GRACE, errors, refuse_key};
use crate::database::{Access, Answer, BoxFuture, Options, Request, Scope};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError, Verdict};
use crate::proof::{CommitWatch, Fate, Proving};
use crate::transaction::{AFTER_LOSS_OF_KEPT, Begin, Transaction, commits_by_itself};

impl DataProxy {
    pub(super) async fn begin_transaction(
        &self,
        begin: &Begin,
        scope: Scope,
    ) -> Result<Box<dyn Transaction>, SqlError> {
        self.refuse_unavailable(&begin.options)?;
        refuse_key(&begin.options)?;
        let counted = Counted::enter(self)?;
        let is_write = begin.access == Access::ReadWrite;
        // Nothing can have been written by BEGIN itself, so it may be tried again; but one that will write is
        // cut like a write where its endpoint ceases to be primary.
        let safety = match is_write {
            true => Safety::IdempotentWrite,
            false => Safety::Read,
        };
        let operation = operation("begin".into(), safety, &begin.options, &scope);
        let wanted = self.wanted(&begin.options, Safety::Read, &scope).await;
        let filter = |placed: &mainstay_engine::endpoint::Placed<Member>| wanted.admits(placed);
        let need = match is_write {
            true => Some(Need::Primary),
            false => wanted.need(begin.options.read_from, begin.access),
        };
        let route = Route {
            need,
            filter: (!is_write && wanted.filters()).then_some(&filter),
            tracks: true,
            grace: READ_GRACE,
            reason: wanted.reason(),
            outer: scope.attempt.as_ref().and_then(Attempt::hold),
            carried: None,
            rank: None,
        };
        let watch = self.watch(begin.access, &scope);
        let scope = Scope {
            proving: watch.clone().or(scope.proving),
            ..scope
        };
        let scope = &scope;
        let work = |attempt: Attempt<Member>| {
            let (member, attempt) = attempt.split();
            async move {
                let (endpoint, id) = (attempt.endpoint.clone(), attempt.correlation_id);
                let scope = self.within(attempt, wanted, scope);
                let begun = member.begin(begin, scope).await;
                Ok((begun.map_err(|error| errors::at(&endpoint, error))?, id))
            }
        };
        let leased = self
            .source()
            .lease(&operation, route, &errors::classify, work)
            .await;
        let leased = leased.map_err(|error| {
            let parts = error.into_parts();
            self.failed(parts, &operation, begin.access, Safety::Read)
        })?;
        let (endpoint, epoch) = (leased.endpoint.clone(), leased.epoch);
        let ((inner, id), held) = leased.split();
        // Its statements and its end go under the id of its beginning, at every level.
        let mut options = begin.options.clone();
        options.correlation_id = Some(id);
        Ok(Box::new(Pinned {
            proxy: self.clone(),
            inner: Some(inner),
            endpoint,
            options,
            is_write,
            epoch,
            is_kept: false,
            watch,
            last_used: Instant::now(),
            _held: held,
            _counted: counted,
        }))
    }
}

/// One of the transactions that a source may have open at once.
struct Counted(DataProxy);

impl Counted {
    fn enter(proxy: &DataProxy) -> Result<Self, SqlError> {
        let open = proxy.shared.transactions.fetch_add(1, Ordering::AcqRel);
        let counted = Counted(proxy.clone());
        if open < proxy.shared.limits.count {
            return Ok(counted);
        }
        Err(SqlError::caller(
            Code::QueueFull,
            format!("{open} transactions are open, as many as allowed"),
            "end some, or raise transactions_max",
        ))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.shared.transactions.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Pinned {
    proxy: DataProxy,
    /// `None`: it is gone.
    inner: Option<Box<dyn Transaction>>,
    endpoint: EndpointId,
    options: Options,
    is_write: bool,
    /// Of the primary it was begun on.
    epoch: u64,
    /// A statement was sent that commits by itself, or may: a rollback does not undo all of it.
    is_kept: bool,
    /// Over its COMMIT.
    watch: Option<Arc<Proving>>,
    last_used: Instant,
    _held: Leased<()>,
    _counted: Counted,
}

/// It is gone, and with it what its statements did, unless they committed by themselves: no COMMIT was
/// sent.
fn lost(category: Category, why: &str, is_kept: bool) -> SqlError {
    let (message, sent) = match is_kept {
        false => ("nothing of it was committed", Sent::YesUnprocessed),
        true => (
            "a statement of it may have committed what came before",
            Sent::Maybe,
        ),
    };
    let message = format!("the transaction is gone: {why}; {message}");
    let failure = Failure::new(category, message).sent(sent);
    let error = SqlError::new(Code::TransactionLost, failure).verdict(Verdict::LeaseLost);
    match is_kept {
        false => error.hint("begin it again from its first statement"),
        true => error.hint(AFTER_LOSS_OF_KEPT),
    }
}

fn lost_before(is_kept: bool) -> SqlError {
    lost(Category::Transient, "an earlier error ended it", is_kept)
}

impl Pinned {
    /// What to run on, unless the transaction is gone.
    fn alive(&mut self) -> Result<&mut Box<dyn Transaction>, SqlError> {
        let idle = self.last_used.elapsed();
        let limit = self.proxy.shared.limits.idle;
        if idle > limit {
            self.inner = None;
            let why = format!("it was idle for longer than {limit:?}");
            return Err(self.lost(Category::Transient, &why));
        }
        let snapshot = self.proxy.source().snapshot();
        if self.is_write {
            if !self.may_write(&snapshot) {
                self.inner = None;
                let why = "its endpoint is not primary any more";
                return Err(self.lost(Category::Transient, why));
            }
            self.epoch = snapshot.epoch;
        }
        self.last_used = Instant::now();
        let is_kept = self.is_kept;
        self.inner.as_mut().ok_or_else(|| lost_before(is_kept))
    }

    fn lost(&self, category: Category, why: &str) -> SqlError {
        lost(category, why, self.is_kept)
    }

    /// Its end did not come in time.
    fn unanswered(&self, limit: Duration) -> SqlError {
        let watch = self.watch.as_ref().and_then(|watch| watch.commit.as_ref());
        let may_be_sent = watch.is_none_or(CommitWatch::was_sent);
        // Without a COMMIT nothing of it is left, but in tables of MySQL without transactions.
        match may_be_sent || self.proxy.shared.dialect == Dialect::MySql {
            true => commit_unanswered(limit),
            false => {
                let why = format!("what goes before its COMMIT took longer than {limit:?}");
                self.lost(Category::Timeout, &why)
            }
        }
    }

    /// A statement is about to be sent.
    fn note(&mut self, request: &Request) {
        let shared = &self.proxy.shared;
        self.is_kept |= commits_by_itself(shared.dialect, &shared.schema, request);
    }

    /// Whether its endpoint still takes writes, as it did when it was chosen.
    fn may_write(&self, snapshot: &Snapshot<Member>) -> bool {
        match snapshot.endpoint(self.endpoint.as_str()).map(|it| it.role) {
            Some(Role::Primary) => true,
            // Of endpoints that are all alike, none of which becomes primary.
            Some(Role::Member) | None => snapshot.epoch == self.epoch,
            Some(_) => false,
        }
    }

    fn limit(&self, options: &Options) -> Duration {
        let policy = &self.proxy.source().snapshot().policy;
        // Not cut to half the deadline: there is no other endpoint to leave time for.
        let own = options.deadline.or(policy.retry.attempt_timeout);
        own.unwrap_or(Duration::from_secs(30))
    }

    fn operation(&self, name: Name, safety: Safety, options: &Options) -> Operation {
        let mut operation = operation(name, safety, options, &Scope::default());
        operation.correlation_id = operation.correlation_id.or(self.options.correlation_id);
        operation
    }

    async fn statement(&mut self, request: &Request) -> Result<Answer, SqlError> {
        let proxy = self.proxy.clone();
        let endpoint = self.endpoint.clone();
        let operation = self.operation(request.name.clone(), request.safety, &request.options);
        let mut account = proxy.source().account(&operation);
        let correlation_id = account.correlation_id;
        // The member cancels the statement at its limit and waits for the proof.
        let limit = self.limit(&request.options) + WRITE_GRACE;
        if let Err(error) = self.alive() {
            account.settle(&Ended::Rejected(error.code().as_str()));
            return Err(error);
        }
        self.note(request);
        account.on(endpoint.clone());
        let result = self.answer(request, limit).await;
        match result {
            Ok(mut answer) => {
                answer.meta.elapsed = account.settle(&Ended::Success);
                answer.meta.endpoint = Some(path(&endpoint, answer.meta.endpoint.as_deref()));
                answer.meta.attempts = 1;
                answer.meta.cache = "off";
                answer.meta.correlation_id = Some(correlation_id);
                answer.meta.policy_version = proxy.source().snapshot().policy.version;
                Ok(answer)
            }
            Err(mut error) => {
                account.settle(&Ended::Failure(error.failure()));
                if error.detail().verdict == Verdict::LeaseLost {
                    self.inner = None;
                    proxy.source().blame(&endpoint, error.failure());
                    error.detail_mut().code = Code::TransactionLost;
                }
                let mut error = errors::outward(&endpoint, error);
                error.detail_mut().correlation_id = Some(correlation_id);
                Err(error)
            }
        }
    }

    /// What the member gives; a statement whose end does not come, although it was to be cancelled at its
    /// limit, loses the transaction.
    async fn answer(&mut self, request: &Request, limit: Duration) -> Result<Answer, SqlError> {
        let is_kept = self.is_kept;
        let Some(inner) = &mut self.inner else {
            return Err(lost_before(is_kept));
        };
        let ran = tokio::time::timeout(limit, inner.run(request)).await;
        ran.unwrap_or_else(|_| {
            let why = format!("a statement gave no answer within {limit:?}");
            Err(lost(Category::Timeout, &why, is_kept))
        })
    }

    async fn savepoints(&mut self, what: Savepoint<'_>) -> Result<(), SqlError> {
        let alive = self.alive()?;
        match what {
            Savepoint::Set(name) => alive.savepoint(name).await,
            Savepoint::Back(name) => alive.rollback_to(name).await,
            Savepoint::Forget(name) => alive.release(name).await,
        }
    }

    async fn end(mut self: Box<Self>) -> Result<Answer, SqlError> {
        // Whatever its statements looked like: a view may write.
        let safety = match self.is_write {
            true => Safety::Write,
            false => Safety::Read,
        };
        let operation = self.operation("commit".into(), safety, &self.options.clone());
        let proxy = self.proxy.clone();
        let mut account = proxy.source().account(&operation);
        let correlation_id = account.correlation_id;
        if let Err(error) = self.alive() {
            account.settle(&Ended::Rejected(error.code().as_str()));
            return Err(error);
        }
        let ran_on = Transaction::endpoint(&*self);
        let Some(inner) = self.inner.take() else {
            let error = lost_before(self.is_kept);
            account.settle(&Ended::Rejected(error.code().as_str()));
            return Err(error);
        };
        account.on(self.endpoint.clone());
        let writing = proxy.begin_write(&self.options, safety);
        let limit = self.limit(&self.options) + WRITE_GRACE;
        let ended = tokio::time::timeout(limit, inner.commit()).await;
        let result = ended.unwrap_or_else(|_| Err(self.unanswered(limit)));
        let result = match result {
            Ok(answer) => Ok((answer, self.endpoint.clone())),
            Err(error) => {
                proxy.source().blame(&self.endpoint, error.failure());
                let watch = self.watch.as_ref();
                let ending = Ending {
                    proxy: &proxy,
                    watch: watch.and_then(|watch| watch.commit.as_ref()),
                    endpoint: &self.endpoint,
                    ran_on: ran_on.as_deref(),
                    is_kept: self.is_kept,
                };
                ending.prove(error).await
            }
        };
        match result {
            Ok((mut answer, endpoint)) => {
                proxy.acknowledged(writing, &endpoint).await;
                answer.meta.elapsed = account.settle(&Ended::Success);
                let inner = answer.meta.endpoint.as_deref();
                answer.meta.endpoint = Some(path(&self.endpoint, inner));
                answer.meta.attempts = 1;
                answer.meta.cache = "off";
                answer.meta.correlation_id = Some(correlation_id);
                answer.meta.policy_version = proxy.source().snapshot().policy.version;
                Ok(answer)
            }
            Err(error) => {
                writing.failed(error.sent());
                account.settle(&Ended::Failure(error.failure()));
                let mut error = errors::outward(&self.endpoint, error);
                error.detail_mut().correlation_id = Some(correlation_id);
                Err(error)
            }
        }
    }
}

/// The COMMIT of a transaction that gave an error.
struct Ending<'a> {
    proxy: &'a DataProxy,
    watch: Option<&'a CommitWatch>,
    endpoint: &'a EndpointId,
    /// The whole path.
    ran_on: Option<&'a str>,
    is_kept: bool,
}

impl Ending<'_> {
    /// What it came to by the proof, where there is one, and where that was found out.
    async fn prove(self, error: SqlError) -> Result<(Answer, EndpointId), SqlError> {
        let (Some(watch), Sent::Maybe) = (self.watch, error.sent()) else {
            return Err(error);
        };
        let found = self.proxy.fate(watch, self.ran_on).await;
        match found.fate {
            Fate::Committed => {
                let endpoint = found.endpoint.unwrap_or_else(|| self.endpoint.clone());
                Ok((Answer::default(), endpoint))
            }
            Fate::Aborted { is_whole } => {
                let error = aborted(Code::TransactionLost, is_whole && !self.is_kept);
                Err(error.verdict(Verdict::LeaseLost))
            }
            Fate::Unknown => Err(error),
        }
    }
}

fn commit_unanswered(limit: Duration) -> SqlError {
    let message = format!("COMMIT gave no answer within {limit:?}");
    SqlError::new(
        Code::OutcomeUnknown,
        Failure::new(Category::Timeout, message),
    )
    .hint("it may or may not have been committed; look before you do it again")
}

enum Savepoint<'a> {
    Set(&'a str),
    Back(&'a str),
    Forget(&'a str),
}

impl Transaction for Pinned {
    fn run<'a>(&'a mut self, request: &'a Request) -> BoxFuture<'a, Result<Answer, SqlError>> {
        Box::pin(self.statement(request))
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(self.savepoints(Savepoint::Set(name)))
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(self.savepoints(Savepoint::Back(name)))
    }

    fn release<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(self.savepoints(Savepoint::Forget(name)))
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<Answer, SqlError>> {
        Box::pin(self.end())
    }

    fn rollback(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SqlError>> {
        Box::pin(async move {
            match self.inner.take() {
                Some(inner) => inner.rollback().await,
                // It was rolled back when it was lost.
                None => Ok(()),
            }
        })
    }

    fn endpoint(&self) -> Option<EndpointId> {
        let inner = self.inner.as_ref().and_then(|inner| inner.endpoint());
        Some(path(&self.endpoint, inner.as_deref()))
    }
}
