//! Transactions: a pinned endpoint and connection until commit or rollback.

use std::sync::Arc;

use mainstay_engine::EndpointId;

use crate::database::{Access, Answer, BoxFuture, Options, Request};
use crate::dialect::Dialect;
use crate::error::SqlError;
use crate::schema::Schema;

/// How strictly transactions are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// The database's own default.
    #[default]
    Default,
    /// Read committed.
    ReadCommitted,
    /// Repeatable read.
    RepeatableRead,
    /// Serializable.
    Serializable,
}

/// How a transaction begins.
#[derive(Debug, Clone)]
pub struct Begin {
    /// Whether it may change anything. A read-only one may run on a replica.
    pub access: Access,
    /// Isolation.
    pub isolation: Isolation,
    /// Session, deadline of the begin itself, correlation id.
    pub options: Options,
}

impl Default for Begin {
    fn default() -> Self {
        Begin {
            access: Access::ReadWrite,
            isolation: Isolation::Default,
            options: Options::default(),
        }
    }
}

/// A transaction. Dropping it rolls back in the background.
pub trait Transaction: Send {
    /// Runs a request inside. Nothing is repeated statement by statement. After an error that ended the
    /// transaction at the server every further call says so.
    fn run<'a>(&'a mut self, request: &'a Request) -> BoxFuture<'a, Result<Answer, SqlError>>;

    /// Sets a savepoint; the name is checked and quoted.
    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<(), SqlError>>;

    /// Goes back to a savepoint, which stays.
    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<(), SqlError>>;

    /// Forgets a savepoint.
    fn release<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<(), SqlError>>;

    /// Commits. `outcome_unknown` if the answer was lost.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<Answer, SqlError>>;

    /// Rolls back.
    fn rollback(self: Box<Self>) -> BoxFuture<'static, Result<(), SqlError>>;

    /// The endpoint it is pinned to; empty for a plain driver.
    fn endpoint(&self) -> Option<EndpointId>;
}

/// After the loss of a transaction that may have committed a part by itself.
pub(crate) const AFTER_LOSS_OF_KEPT: &str = "DDL and CALL may have committed what came before them, the rest was rolled back: look what is there, then begin a new one";

/// Whether this work commits the transaction that it stands in, or may: on MySQL all but reads and single
/// statements that change rows.
pub(crate) fn commits_by_itself(dialect: Dialect, schema: &Schema, request: &Request) -> bool {
    let may_commit = |text: &Arc<str>| request.class_of(text, schema).commits_by_itself(dialect);
    // Elsewhere nobody needs to look.
    dialect == Dialect::MySql && request.work.texts().any(may_commit)
}
