//! A connection lent to a closure of the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_engine::{Name, Safety};

use crate::database::{Access, Answer, BoxFuture, Options};
use crate::error::SqlError;
use crate::statement::Kind;
use crate::value::Value;

/// What a closure gets from [`Verbs::run`](crate::Verbs::run): one connection, its own until it drops it
/// or gives it back by returning.
///
/// Each statement has its effect by itself; for several that belong together use
/// [`Verbs::transaction`](crate::Verbs::transaction). What a statement changes in the session (SET,
/// temporary tables) is seen by the next ones and undone afterwards. Statements are cut at the end of the
/// attempt. A statement whose future is dropped takes the connection with it.
pub struct Lent {
    session: Box<dyn LentSession>,
    attempt: u32,
}

impl Lent {
    pub(crate) fn new(session: Box<dyn LentSession>, attempt: u32) -> Self {
        Lent { session, attempt }
    }

    /// Which attempt of the call this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Columns and rows of a statement.
    ///
    /// # Errors
    /// What the database says; `bad_statement` for BEGIN, COMMIT, ROLLBACK and SAVEPOINT; `conflict` once
    /// the connection is gone.
    pub async fn query(&mut self, sql: &str, params: Vec<Value>) -> Result<Answer, SqlError> {
        self.session.run(Arc::from(sql), params).await
    }

    /// Runs a statement for what it changes.
    ///
    /// # Errors
    /// As [`Lent::query`].
    pub async fn execute(&mut self, sql: &str, params: Vec<Value>) -> Result<Answer, SqlError> {
        self.query(sql, params).await
    }

    /// The one value of a statement's one row; `None`: there was no row.
    ///
    /// # Errors
    /// As [`Lent::query`]; `bad_request` if there is more than one row or column.
    pub async fn scalar(
        &mut self,
        sql: &str,
        params: Vec<Value>,
    ) -> Result<Option<Value>, SqlError> {
        self.query(sql, params).await?.into_scalar()
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lent")
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// What stands behind a [`Lent`].
pub(crate) trait LentSession: Send {
    /// Runs one statement.
    fn run(
        &mut self,
        text: Arc<str>,
        params: Vec<Value>,
    ) -> BoxFuture<'_, Result<Answer, SqlError>>;
}

/// For what a connection is lent.
#[derive(Debug, Clone)]
pub struct Loan {
    /// What it is called in audit and metrics.
    pub name: Name,
    /// What the caller declares about all of it.
    pub safety: Safety,
    /// Session, deadline, correlation id; `answer_max` bounds each answer.
    pub options: Options,
    changed_schema: Arc<AtomicBool>,
}

impl Loan {
    /// A loan called `run`. The declared safety takes the place of that in the options.
    pub fn new(safety: Safety, options: Options) -> Self {
        Loan {
            name: Name::Static("run"),
            safety,
            options: Options {
                safety: Some(safety),
                ..options
            },
            changed_schema: Arc::default(),
        }
    }

    /// What kind of session it needs.
    pub fn access(&self) -> Access {
        match self.safety {
            Safety::Read => Access::ReadOnly,
            Safety::IdempotentWrite | Safety::Write => Access::ReadWrite,
        }
    }

    /// Notes what kind of statement is about to run on it.
    pub(crate) fn note(&self, kind: Kind) {
        if kind >= Kind::Other {
            self.changed_schema.store(true, Ordering::Release);
        }
    }

    /// Whether what is remembered about the schema may have become untrue.
    pub(crate) fn changed_schema(&self) -> bool {
        self.changed_schema.load(Ordering::Acquire)
    }
}

/// Work on a lent connection, which may be asked for more than once: what [`Verbs::run`] makes of a
/// closure, so that a trait object can carry it.
///
/// [`Verbs::run`]: crate::Verbs::run
pub trait Borrower: Send + Sync {
    /// Does the work once. The result stays with the borrower.
    fn take(&self, lent: Lent) -> BoxFuture<'_, Result<(), SqlError>>;
}
