//! One trait for everything that can run SQL: a plain driver and a proxy over many endpoints are both a
//! [`Database`], so code written against one works against the other, and an endpoint of a proxy may
//! itself be a proxy.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Attempt, CorrelationId, EndpointId, Name, Safety, Sent, policy::ReadFrom};

use crate::catalog::{Describe, Description};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError};
use crate::lent::{Borrower, Loan};
use crate::proof::{Fate, Mark, Proving};
use crate::schema::Schema;
use crate::statement::Class;
use crate::stream::RowStream;
use crate::transaction::{Begin, Transaction};
use crate::value::{Column, Row, Value};

/// A boxed future that may borrow.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whether a session may change anything. Idle connections are kept per access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The server itself refuses every change.
    ReadOnly,
    /// Changes are allowed.
    ReadWrite,
}

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// One text with its parameters; the database's own placeholders.
    Statement {
        /// The text as the caller wrote it.
        text: Arc<str>,
        /// Its parameters, always bound.
        params: Vec<Value>,
    },
    /// The same text with each of these parameters, in one transaction.
    Many {
        /// The text.
        text: Arc<str>,
        /// One set of parameters a run.
        params: Vec<Vec<Value>>,
    },
    /// Several texts with their parameters, in one transaction; their answers are one, as those of
    /// [`Work::Many`].
    Batch {
        /// The texts with their parameters.
        steps: Vec<(Arc<str>, Vec<Value>)>,
    },
    /// Several texts without parameters; stops at the first failure, in one transaction where the
    /// database can.
    Script {
        /// The texts, already split.
        statements: Vec<Arc<str>>,
    },
}

impl Work {
    /// Its texts, one after the other; one that is run many times stands there once.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Arc<str>> {
        let one = match self {
            Work::Statement { text, .. } | Work::Many { text, .. } => Some(text),
            Work::Batch { .. } | Work::Script { .. } => None,
        };
        let steps = match self {
            Work::Batch { steps } => steps.as_slice(),
            _ => &[],
        };
        let statements = match self {
            Work::Script { statements } => statements.as_slice(),
            _ => &[],
        };
        let steps = steps.iter().map(|(text, _)| text);
        one.into_iter().chain(steps).chain(statements)
    }
}

/// One piece of work with everything that the path needs to know.
#[derive(Debug, Clone)]
pub struct Request {
    /// What it is called in audit and metrics: `query`, `find`, `insert` …
    pub name: Name,
    /// What to run.
    pub work: Work,
    /// What its one text may do, where whoever made the request has found out; `None`: whoever runs it
    /// looks by itself.
    pub class: Option<Arc<Class>>,
    /// Whether it may be repeated.
    pub safety: Safety,
    /// What kind of session it needs.
    pub access: Access,
    /// What the caller asked for beside the work.
    pub options: Options,
    /// Rows and bytes that a collected answer may have; beyond it the answer is refused.
    pub answer_max: AnswerMax,
}

impl Request {
    /// A statement as it runs within a transaction: nothing there is repeated by itself, and its session is
    /// there already.
    pub fn within(
        schema: &Schema,
        name: impl Into<Name>,
        sql: &str,
        params: Vec<Value>,
        options: Options,
    ) -> Request {
        let class = schema.classify(sql);
        let by_text = class.safety_with(&params, None);
        Request {
            name: name.into(),
            safety: options.safety.unwrap_or(by_text),
            access: class.access,
            answer_max: options.answer_max,
            work: Work::Statement {
                text: class.text(sql),
                params,
            },
            options,
            class: Some(class),
        }
    }

    /// What one of its texts may do.
    pub(crate) fn class_of(&self, text: &str, schema: &Schema) -> Arc<Class> {
        match &self.class {
            Some(class) => Arc::clone(class),
            None => schema.classify(text),
        }
    }
}

/// Bounds of a collected answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerMax {
    /// Rows; `u64::MAX`: any number.
    pub rows: u64,
    /// Bytes of values; `u64::MAX`: any number.
    pub bytes: u64,
}

impl Default for AnswerMax {
    fn default() -> Self {
        AnswerMax {
            rows: u64::MAX,
            bytes: u64::MAX,
        }
    }
}

impl AnswerMax {
    /// Adds a row to what was collected so far and refuses it if that is too much.
    ///
    /// # Errors
    /// `answer_too_large`, which names the limit. The statement had its effect.
    pub fn add(&self, collected: &mut Collected, row: &Row) -> Result<(), SqlError> {
        collected.rows += 1;
        collected.bytes += row.iter().map(|value| value.size() as u64).sum::<u64>();
        if collected.rows > self.rows || collected.bytes > self.bytes {
            return Err(self.exceeded());
        }
        Ok(())
    }

    /// Refuses a collected answer that is too large.
    ///
    /// # Errors
    /// `answer_too_large`, which names the limit.
    pub fn check(&self, answer: &Answer) -> Result<(), SqlError> {
        if *self == AnswerMax::default() {
            return Ok(());
        }
        let mut collected = Collected::default();
        answer
            .rows
            .iter()
            .try_for_each(|row| self.add(&mut collected, row))
    }

    fn exceeded(&self) -> SqlError {
        let limit = match (self.rows, self.bytes) {
            (u64::MAX, bytes) => format!("{bytes} bytes"),
            (rows, u64::MAX) => format!("{rows} rows"),
            (rows, bytes) => format!("{rows} rows or {bytes} bytes"),
        };
        let mut error = SqlError::caller(
            Code::AnswerTooLarge,
            format!("the answer has more than {limit}"),
            "ask for fewer rows or smaller values; the library can stream it",
        );
        // The statement ran: only its answer was refused.
        error.detail_mut().failure.sent = Sent::Maybe;
        error
    }
}

/// How much of an answer was collected so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Rows.
    pub rows: u64,
    /// Bytes of values.
    pub bytes: u64,
}

/// Whether a read uses the cache. Anything but [`CacheUse::Off`] is refused in this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheUse {
    /// Never.
    #[default]
    Off,
    /// If it has an answer.
    Use,
    /// Load anew and store.
    Refresh,
}

/// Options of a call.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whether the cache is used.
    pub cache: CacheUse,
    /// How long a cached answer is good.
    pub ttl: Option<Duration>,
    /// Limit of the whole call; `None`: the policy's.
    pub deadline: Option<Duration>,
    /// Reads of a session see its writes.
    pub session: Option<Arc<str>>,
    /// Which roles a read may go to; `None`: the policy's.
    pub read_from: Option<ReadFrom>,
    /// What the caller declares; `None`: found from the text. A declaration is audited.
    pub safety: Option<Safety>,
    /// Makes a write repeatable where the source keeps a table for it: sent again with the same key, it gives the
    /// answer of the first time.
    pub idempotency_key: Option<Arc<str>>,
    /// Whose key it is: equal keys of different owners are different keys.
    pub key_owner: Option<Arc<str>>,
    /// The caller's id of the call.
    pub correlation_id: Option<CorrelationId>,
    /// Bounds of a collected answer.
    pub answer_max: AnswerMax,
    /// How long a stream may wait for its next batch; `None`: 30 s.
    pub stream_idle: Option<Duration>,
}

/// What a proxy tells the endpoint that runs an attempt: its time limit and the marks through which the
/// endpoint reports that bytes have left. Empty for a call that comes from outside.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// The attempt, where a proxy made one.
    pub attempt: Option<Attempt>,
    /// What a read must have seen of its session's writes, where the proxy has found out: a position as
    /// a number, 0 for nothing in particular. `None`: whoever gets it knows the session by itself.
    pub seen: Option<u64>,
    /// What the proxy knows about the schema, by which it classified the call. `None`: whoever gets it
    /// goes by its own.
    pub schema: Option<Arc<Schema>>,
    /// What the outermost proxy wants written down with a commit.
    pub proving: Option<Arc<Proving>>,
}

/// Where an answer came from.
#[derive(Debug, Clone, Default)]
pub struct Meta {
    /// The endpoint that answered; empty for a plain driver.
    pub endpoint: Option<EndpointId>,
    /// How many attempts it took.
    pub attempts: u32,
    /// `hit`, `stale`, `miss` or `off`.
    pub cache: &'static str,
    /// The whole call.
    pub elapsed: Duration,
    /// The call's id.
    pub correlation_id: Option<CorrelationId>,
    /// The policy it ran under.
    pub policy_version: u64,
    /// Whether the call went to an endpoint that health or lag had excluded.
    pub last_resort: bool,
    /// Whether it is the stored answer of an earlier request with the same idempotency key.
    pub replayed: bool,
}

/// What came back.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The columns; empty where the work gives no rows.
    pub columns: Arc<[Column]>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Rows changed, where the database counts them.
    pub affected: Option<u64>,
    /// Keys that the database generated, where it says so.
    pub keys: Vec<Value>,
    /// For scripts: one result a statement.
    pub results: Vec<StatementResult>,
    /// Where it came from. Boxed: an answer is handed on from layer to layer.
    pub meta: Box<Meta>,
}

impl Answer {
    /// The one value of its one row; `None`: it has no row.
    ///
    /// # Errors
    /// `bad_request` if there is more than one row or column.
    pub fn into_scalar(self) -> Result<Option<Value>, SqlError> {
        self.check_scalar()?;
        let row = self.rows.into_iter().next();
        Ok(row.and_then(|row| row.into_iter().next()))
    }

    /// Refuses an answer that is not one value or none.
    ///
    /// # Errors
    /// `bad_request` if there is more than one row or column.
    pub fn check_scalar(&self) -> Result<(), SqlError> {
        let of_first = self.rows.first().map_or(0, Vec::len);
        let (rows, columns) = (self.rows.len(), self.columns.len().max(of_first));
        if rows <= 1 && (columns <= 1 || rows == 0) {
            return Ok(());
        }
        let mut error = SqlError::caller(
            Code::BadRequest,
            format!("scalar gives one value, but the answer has {rows} rows of {columns} columns"),
            "if it changes something, that was carried out; use query, or make the statement give one row and one column",
        );
        // The statement ran: only its answer was refused.
        error.detail_mut().failure.sent = Sent::Maybe;
        Err(error)
    }
}

/// The result of one statement of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct StatementResult {
    /// Rows changed.
    pub affected: Option<u64>,
    /// Rows given.
    pub rows: u64,
}

/// How far a server has come: what it has written, or replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Position {
    /// A PostgreSQL log sequence number.
    Lsn(u64),
    /// How many transactions of MySQL or MariaDB, by the number that replication gives them.
    Gtid(u64),
    /// All endpoints share one file: always caught up.
    Shared,
}

impl Position {
    /// Whether a server at this position has everything up to `other`. Positions of different kinds
    /// cover nothing.
    pub fn covers(self, other: Position) -> bool {
        match (self, other) {
            (Position::Lsn(mine), Position::Lsn(theirs))
            | (Position::Gtid(mine), Position::Gtid(theirs)) => mine >= theirs,
            (Position::Shared, Position::Shared) => true,
            _ => false,
        }
    }
}

/// What a server says about itself in a health check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Probe {
    /// Whether it says it is the primary; `None`: it does not know (SQLite).
    pub is_primary: Option<bool>,
    /// What it has written (primary) or replayed (replica).
    pub position: Option<Position>,
    /// What a replica has received, which may be more than it has replayed.
    pub received: Option<Position>,
    /// The identity that a primary and its replicas share (PostgreSQL's system identifier).
    pub system: Option<u64>,
    /// Rises with each promotion (PostgreSQL's timeline).
    pub timeline: Option<u64>,
    /// Commits wait for a synchronous standby that is not there.
    pub lacks_sync_standby: bool,
}

/// State of a database from its user's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not opened yet, or closed.
    Closed,
    /// Opening for the first time.
    Connecting,
    /// Usable.
    Open,
    /// Open, but nothing can be reached.
    Broken,
}

/// Anything that runs SQL. The verbs people use are in [`Verbs`](crate::Verbs), which every database has.
///
/// All methods are cancel safe: dropping a future leaves no permit, connection or transaction behind;
/// what the server was doing is cancelled there.
pub trait Database: Send + Sync {
    /// How its SQL is written.
    fn dialect(&self) -> Dialect;

    /// What is remembered about its schema.
    fn schema(&self) -> &Schema;

    /// Runs a request and collects the answer, in the task that polls it. Whoever hands the work of an attempt
    /// to another task says so first by [`Attempt::handed_over`]: from there on nobody can tell whether it was
    /// sent.
    fn collect<'a>(
        &'a self,
        request: &'a Request,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Answer, SqlError>>;

    /// Lends work a connection; a proxy does so again, elsewhere, where the loan's safety allows it.
    /// Says where the last one came from.
    fn lend<'a>(
        &'a self,
        loan: &'a Loan,
        work: &'a dyn Borrower,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Meta, SqlError>>;

    /// Runs a request whose rows come in batches. The stream owns what it needs.
    fn stream<'a>(
        &'a self,
        request: &'a Request,
        scope: Scope,
    ) -> BoxFuture<'a, Result<RowStream, SqlError>>;

    /// Begins a transaction, which pins an endpoint and a connection.
    fn begin<'a>(
        &'a self,
        begin: &'a Begin,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, SqlError>>;

    /// Asks the catalog.
    fn describe<'a>(
        &'a self,
        what: &'a Describe,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Description, SqlError>>;

    /// One health check on a connection of its own; never counted as traffic.
    fn probe(&self) -> BoxFuture<'_, Result<Probe, SqlError>>;

    /// How far it has replayed, asked now.
    fn position(&self) -> BoxFuture<'_, Result<Option<Position>, SqlError>>;

    /// Looks up what became of a commit whose answer was lost, within this time. `ran_on`: the endpoint within this
    /// database that it ran on, where that is known. An error: nobody answered in time, so ask again.
    fn prove<'a>(
        &'a self,
        _mark: &'a Mark,
        _ran_on: Option<&'a str>,
        _limit: Duration,
    ) -> BoxFuture<'a, Result<Fate, SqlError>> {
        Box::pin(std::future::ready(Ok(Fate::Unknown)))
    }

    /// Whether writes may have idempotency keys. Default: no.
    fn takes_keys(&self) -> bool {
        false
    }

    /// How often the policy lets work be tried again that provably did nothing.
    fn retries(&self) -> u32;

    /// Takes over pool settings while running.
    fn apply(&self, policy: &mainstay_engine::Policy);

    /// Keeps no idle connections from now on, or keeps them again. It goes on working for whoever asks.
    fn rest(&self, resting: bool);

    /// Ends everything it holds, at most after `limit`.
    fn close(&self, limit: Duration) -> BoxFuture<'_, ()>;

    /// Its state.
    fn state(&self) -> State;
}
