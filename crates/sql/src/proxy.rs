//! One source of several endpoints as one database: roles, failover, safe retries, sessions.
//!
//! Everything that decides is the engine's; this file turns requests into operations and results into
//! answers. An endpoint is any [`Database`], so a proxy may stand behind another proxy.

mod errors;
mod lend;
mod once;
mod probe;
mod rest;
mod sessions;
mod stream;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use mainstay_engine::event::{EventKind, Observer};
use mainstay_engine::rejection::Carried;
use mainstay_engine::source::{ControlError, Filter, SourceBuilder};
use mainstay_engine::watchdog::Promotion;
use mainstay_engine::{
    Attempt, CallError, CallErrorKind, Chance, Done, EndpointId, EndpointSpec, Name, Need,
    Operation, Policy, Route, Safety, Source,
};

use crate::catalog::{Describe, Description};
use crate::database::{
    Access, Answer, BoxFuture, CacheUse, Database, Meta, Options, Position, Probe, Request, Scope,
    State, Work,
};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError};
use crate::lent::{Borrower, Loan};
use crate::schema::Schema;
use crate::stream::RowStream;
use crate::transaction::{Begin, Transaction};
use sessions::{Sessions, Wanted, Writing};

/// What stands behind an endpoint.
pub type Member = Arc<dyn Database>;

/// How long a timed-out write may go on to be cancelled at the server and to wait for the proof.
pub const WRITE_GRACE: Duration = Duration::from_millis(400);

/// What a proxy is made from.
pub struct DataProxyBuilder {
    source: SourceBuilder<Member>,
    dialect: Option<Dialect>,
    /// `None`: the dialect's.
    promotion: Option<Promotion>,
    limits: TransactionLimits,
}

/// Bounds of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionLimits {
    /// An idle one ends after this. Default 60 s.
    pub idle: Duration,
    /// Open at once. Default 1000.
    pub count: u32,
}

impl Default for TransactionLimits {
    fn default() -> Self {
        TransactionLimits {
            idle: Duration::from_secs(60),
            count: 1000,
        }
    }
}

impl DataProxyBuilder {
    /// Adds an endpoint.
    #[must_use]
    pub fn endpoint(mut self, spec: EndpointSpec<Member>) -> Self {
        self.dialect.get_or_insert(spec.member.dialect());
        self.source = self.source.endpoint(spec);
        self
    }

    /// Says how another endpoint becomes primary. Default: [`Promotion::Follow`], and for
    /// SQLite, whose file cannot say who is primary, [`Promotion::Route`].
    #[must_use]
    pub fn promotion(mut self, promotion: Promotion) -> Self {
        self.promotion = Some(promotion);
        self
    }

    /// Runs its background work in this group.
    #[must_use]
    pub fn tasks(mut self, tasks: mainstay_engine::tasks::Tasks) -> Self {
        self.source = self.source.tasks(tasks);
        self
    }

    /// Uses this source of randomness.
    #[must_use]
    pub fn chance(mut self, chance: Chance) -> Self {
        self.source = self.source.chance(chance);
        self
    }

    /// Adds an observer of its events.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.source = self.source.observer(observer);
        self
    }

    /// Bounds its transactions.
    #[must_use]
    pub fn transactions(mut self, limits: TransactionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Makes the proxy and starts its prober. Nothing needs to be reachable.
    ///
    /// # Errors
    /// If there is no endpoint, a name is used twice, a weight is not positive or two are primary.
    pub fn build(self) -> Result<DataProxy, SqlError> {
        let source = self.source.build().map_err(|problem| control(&problem))?;
        let Some(dialect) = self.dialect else {
            let message = format!("source {} has no endpoint", source.name());
            return Err(SqlError::caller(
                Code::BadRequest,
                message,
                "give it at least one",
            ));
        };
        let promotion = self.promotion.unwrap_or(match dialect {
            Dialect::Sqlite => Promotion::Route,
            Dialect::Postgres | Dialect::MySql => Promotion::Follow,
        });
        let proxy = DataProxy {
            shared: Arc::new(Shared {
                source,
                dialect,
                schema: Schema::new(dialect),
                sessions: Sessions::new(),
                limits: self.limits,
                transactions: AtomicU32::new(0),
                closed: AtomicBool::new(false),
            }),
        };
        proxy.source().watch(Arc::new(probe::Prober), promotion);
        rest::follow(proxy.source());
        Ok(proxy)
    }
}

/// A source with SQL endpoints. Copies share everything.
#[derive(Clone)]
pub struct DataProxy {
    shared: Arc<Shared>,
}

struct Shared {
    source: Source<Member>,
    dialect: Dialect,
    schema: Schema,
    sessions: Sessions,
    limits: TransactionLimits,
    transactions: AtomicU32,
    closed: AtomicBool,
}

impl DataProxy {
    /// Begins a proxy.
    pub fn builder(name: impl Into<Arc<str>>, policy: Arc<Policy>) -> DataProxyBuilder {
        DataProxyBuilder {
            source: Source::builder(name, policy),
            dialect: None,
            promotion: None,
            limits: TransactionLimits::default(),
        }
    }

    /// The engine's source: endpoints, policy, events, audit, control.
    pub fn source(&self) -> &Source<Member> {
        &self.shared.source
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        self.shared.source.name()
    }

    /// Bounds of its transactions.
    pub fn transaction_limits(&self) -> TransactionLimits {
        self.shared.limits
    }

    fn operation(&self, request: &Request, safety: Safety, scope: &Scope) -> Operation {
        operation(request.name.clone(), safety, &request.options, scope)
    }

    /// Runs a request, once more as a write if a read-only session says that it is one.
    async fn run_request(&self, request: &Request, scope: Scope) -> Result<Answer, SqlError> {
        self.refuse_unavailable(&request.options)?;
        let first = self.run_once(request, request.safety, &scope, None).await;
        match first {
            Ok(done) => Ok(answer(done)),
            Err(error) => match error.into_parts() {
                parts @ mainstay_engine::rejection::CallErrorParts {
                    kind: CallErrorKind::Redirected { .. },
                    ..
                } => self.run_as_write(request, scope, parts).await,
                parts => Err(errors::from_parts(parts, request.safety)),
            },
        }
    }

    /// The statement writes after all. From a session that we keep read-only it runs once more, on the
    /// primary; from the believed primary itself it does not: somebody else is primary now.
    async fn run_as_write(
        &self,
        request: &Request,
        scope: Scope,
        parts: mainstay_engine::rejection::CallErrorParts<SqlError>,
    ) -> Result<Answer, SqlError> {
        let CallErrorKind::Redirected { error, carried } = parts.kind else {
            return Err(SqlError::internal("a redirect without its account"));
        };
        if request.access == Access::ReadWrite {
            let operation = self.operation(request, request.safety, &scope);
            return Err(self.not_primary(error, carried, &operation));
        }
        // What the caller declared to be a read stays one. And behind another proxy's endpoint only that
        // proxy knows the primary and what may be repeated.
        if scope.attempt.is_some() || request.options.safety.is_some() {
            let operation = self.operation(request, request.safety, &scope);
            self.source()
                .settle_carried(&operation, carried, error.failure());
            return Err(error);
        }
        self.learn(request);
        let mut write = request.clone();
        write.access = Access::ReadWrite;
        write.safety = Safety::Write;
        let done = self
            .run_once(&write, Safety::Write, &scope, Some(carried))
            .await;
        match done {
            Ok(done) => Ok(answer(done)),
            Err(error) => match error.into_parts() {
                mainstay_engine::rejection::CallErrorParts {
                    kind: CallErrorKind::Redirected { error, carried },
                    ..
                } => {
                    let operation = self.operation(&write, Safety::Write, &scope);
                    Err(self.not_primary(error, carried, &operation))
                }
                parts => Err(errors::from_parts(parts, Safety::Write)),
            },
        }
    }

    /// The believed primary says that it is read-only: nothing happened, and nothing is sent again.
    fn not_primary(&self, error: SqlError, carried: Carried, operation: &Operation) -> SqlError {
        self.source().urge();
        self.source()
            .settle_carried(operation, carried, error.failure());
        let mut failure = error.failure().clone();
        failure.retry_after = Some(self.source().snapshot().policy.health.urgent_interval);
        SqlError::new(Code::NoPrimary, failure).hint(
            "the server that was primary is read-only now; nothing was written: try again when the roles were looked up anew",
        )
    }

    fn learn(&self, request: &Request) {
        if let Work::Statement { text, .. } = &request.work {
            // Callers who met it together learned it together.
            if !self.shared.schema.remember_write(text) {
                return;
            }
            let fingerprint = self.shared.schema.classify(text).fingerprint;
            let fingerprint = format!("{fingerprint:016x}");
            self.source()
                .publish(EventKind::LearnedWrite { fingerprint });
        }
    }

    async fn run_once(
        &self,
        request: &Request,
        safety: Safety,
        scope: &Scope,
        carried: Option<Carried>,
    ) -> Result<Done<Answer>, CallError<SqlError>> {
        let operation = self.operation(request, safety, scope);
        let wanted = self.wanted(&request.options, safety).await;
        let filter = |placed: &mainstay_engine::endpoint::Placed<Member>| wanted.admits(placed);
        let route = Route {
            carried,
            ..route(wanted, &filter, &request.options, request.access, scope)
        };
        let work = |attempt: Attempt<Member>| {
            let (member, attempt) = attempt.split();
            async move {
                let endpoint = attempt.endpoint.clone();
                let scope = Scope {
                    attempt: Some(attempt),
                };
                let ran = member.collect(request, scope).await;
                ran.map_err(|error| errors::at(&endpoint, error))
            }
        };
        let writing = self.begin_write(&request.options, safety);
        let ended = self
            .source()
            .call_on(&operation, route, &errors::classify, work)
            .await;
        self.end_write(writing, &ended).await;
        ended
    }

    /// What a session's reads must have seen.
    async fn wanted(&self, options: &Options, safety: Safety) -> Wanted {
        let snapshot = self.source().snapshot();
        let route = &snapshot.policy.route;
        let (Some(session), true, true) =
            (&options.session, route.read_your_writes, safety.is_read())
        else {
            return Wanted::Anything;
        };
        // Sources whose members share one store never lag.
        if !snapshot.has_roles() || snapshot.endpoints.len() < 2 {
            return Wanted::Anything;
        }
        let fresh_for = route.lag_max.unwrap_or(Duration::from_secs(10));
        let wait = route.read_your_writes_wait;
        self.shared
            .sessions
            .wanted(session, fresh_for, wait, &snapshot)
            .await
    }

    /// Keeps count of a call that may write in a session, from before it is sent.
    fn begin_write(&self, options: &Options, safety: Safety) -> Writing {
        match &options.session {
            Some(session) if !safety.is_read() && self.reads_its_writes() => {
                self.shared.sessions.begin_write(session)
            }
            _ => Writing::uncounted(),
        }
    }

    async fn end_write<T>(&self, writing: Writing, ended: &Result<Done<T>, CallError<SqlError>>) {
        match ended {
            Ok(done) => self.acknowledged(writing, &done.endpoint).await,
            Err(error) => writing.failed(error.sent()),
        }
    }

    async fn acknowledged(&self, writing: Writing, endpoint: &EndpointId) {
        if writing.is_counted() {
            let member = self.knows_position(endpoint.as_str());
            writing.acknowledged(member.as_ref()).await;
        }
    }

    fn reads_its_writes(&self) -> bool {
        self.source().snapshot().policy.route.read_your_writes
    }

    /// What can say how far an endpoint has come. A lone one is not asked: nobody would have to catch up
    /// with it.
    fn knows_position(&self, endpoint: &str) -> Option<Member> {
        let snapshot = self.source().snapshot();
        let placed = snapshot.endpoint(endpoint)?;
        (snapshot.endpoints.len() > 1).then(|| Arc::clone(&placed.member))
    }

    fn refuse_unavailable(&self, options: &Options) -> Result<(), SqlError> {
        if options.cache != CacheUse::Off || options.ttl.is_some() {
            return Err(SqlError::caller(
                Code::NotAvailable,
                "the cache is not available yet",
                "leave the options cache and ttl out",
            ));
        }
        if options.idempotency_key.is_some() {
            return Err(SqlError::caller(
                Code::IdempotencyUnavailable,
                "this source keeps no table for idempotency keys",
                "leave the key out, or make the write repeatable by itself (an upsert by key)",
            ));
        }
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(SqlError::caller(
                Code::Draining,
                "the source is closed",
                "use another instance",
            ));
        }
        Ok(())
    }
}

/// The way of work of an access, for a session that wants something.
fn route<'a>(
    wanted: Wanted,
    filter: Filter<'a, Member>,
    options: &Options,
    access: Access,
    scope: &Scope,
) -> Route<'a, Member> {
    Route {
        need: wanted.need(options.read_from, access),
        filter: wanted.filters().then_some(filter),
        tracks: true,
        grace: match access {
            Access::ReadWrite => WRITE_GRACE,
            Access::ReadOnly => Duration::ZERO,
        },
        reason: wanted.reason(),
        outer: scope.attempt.as_ref().and_then(Attempt::hold),
        carried: None,
    }
}

fn operation(name: Name, safety: Safety, options: &Options, scope: &Scope) -> Operation {
    let mut operation = Operation::new(name, safety);
    operation.deadline = options.deadline;
    operation.session_key = options.session.clone();
    operation.idempotency_key = options.idempotency_key.clone();
    operation.correlation_id = options.correlation_id;
    if let Some(attempt) = &scope.attempt {
        operation.correlation_id = Some(attempt.correlation_id);
        let left = attempt.left(tokio::time::Instant::now());
        operation.deadline = match (operation.deadline, left) {
            (Some(own), Some(left)) => Some(own.min(left)),
            (own, left) => own.or(left),
        };
    }
    operation
}

fn answer(done: Done<Answer>) -> Answer {
    let mut answer = done.value;
    answer.meta.endpoint = Some(path(&done.endpoint, answer.meta.endpoint.as_deref()));
    answer.meta.attempts = done.attempts;
    answer.meta.cache = "off";
    answer.meta.elapsed = done.elapsed;
    answer.meta.correlation_id = Some(done.correlation_id);
    answer.meta.policy_version = done.policy_version;
    answer.meta.last_resort |= done.last_resort;
    answer
}

/// Where something happened: a proxy behind an endpoint says which of its own it was, `outer/inner`.
fn path(endpoint: &EndpointId, inner: Option<&str>) -> Arc<str> {
    match inner {
        Some(inner) => Arc::from(format!("{endpoint}/{inner}")),
        None => endpoint.shared(),
    }
}

/// A refused change as an error of the face.
pub fn control(problem: &ControlError) -> SqlError {
    let (code, hint) = match problem {
        ControlError::UnknownEndpoint { .. } => (Code::UnknownEndpoint, "use one of its endpoints"),
        ControlError::Policy(_) => (Code::PolicyRefused, "mend the settings and send them again"),
        _ => (
            Code::Conflict,
            "change the request to fit the present state",
        ),
    };
    SqlError::caller(code, problem.to_string(), hint)
}

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
        Box::pin(async move {
            let snapshot = self.source().snapshot();
            let is_primary = snapshot.has_roles().then(|| snapshot.primary().is_some());
            let somebody = snapshot.endpoints.iter().any(|placed| {
                placed.endpoint.fitness() != mainstay_engine::endpoint::Fitness::Down
            });
            if somebody {
                return Ok(Probe {
                    is_primary,
                    ..Probe::default()
                });
            }
            Err(SqlError::caller(
                Code::NoEndpoint,
                "every endpoint of the source behind this endpoint is down",
                "see that source's status",
            ))
        })
    }

    fn position(&self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        Box::pin(async move {
            let snapshot = self.source().snapshot();
            match snapshot.primary() {
                Some(primary) => primary.member.position().await,
                None => Ok(None),
            }
        })
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
            self.source().drain(limit).await;
            for placed in &self.source().snapshot().endpoints {
                let left = end.saturating_duration_since(tokio::time::Instant::now());
                placed.member.close(left).await;
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

impl std::fmt::Debug for DataProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataProxy")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}

/// The role that an access needs, where the caller does not say.
fn need(read_from: Option<mainstay_engine::policy::ReadFrom>, access: Access) -> Option<Need> {
    match access {
        Access::ReadWrite => Some(Need::Primary),
        Access::ReadOnly => read_from.map(Need::Read),
    }
}
