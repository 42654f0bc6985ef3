//! The driver port: what a back end family must be able to do on one connection. Everything above it
//! (pooling, retries, verbs, roles) is written once.

use std::sync::Arc;

use crate::catalog::{Describe, Description};
use crate::database::{Access, Answer, AnswerMax, BoxFuture, Position, Probe};
use crate::dialect::Dialect;
use crate::error::SqlError;
use crate::proof::Lineage;
use crate::stream::{Batch, BatchMax};
use crate::transaction::Begin;
use crate::value::{Column, Value};

/// Opens connections to one endpoint.
pub trait Driver: Send + Sync + 'static {
    /// How its SQL is written.
    fn dialect(&self) -> Dialect;

    /// Opens a session that the server itself keeps read-only where `access` says so. Errors have
    /// `sent: no`. Names are resolved and secrets read anew each time.
    fn connect(&self, access: Access) -> BoxFuture<'_, Result<Box<dyn Connection>, SqlError>>;

    /// Where it connects to, for readers, without secrets.
    fn address(&self) -> String;

    /// Whether every endpoint of the source works on one store in this very process. A statement that
    /// takes too long here takes as long at the others, and says nothing about the endpoint: it is not
    /// tried again and weighs on no circuit. Default: no.
    fn has_one_store(&self) -> bool {
        false
    }
}

/// Tells the server to stop what a connection is doing. Made before the work, used beside it.
pub trait Cancel: Send + Sync {
    /// Asks the server; returns when the request was delivered, so that a late one never hits the next
    /// statement. Errors are not reported: the work's own end tells.
    fn cancel(&self) -> BoxFuture<'_, ()>;
}

/// Called by a driver right before the first byte of a statement is handed to the back end.
pub type HandedOver<'a> = &'a (dyn Fn() + Send + Sync);

/// One session. Between two methods it is in a known protocol state, or says so by
/// [`is_closed`](Connection::is_closed). Dropping a method's future leaves it unusable until
/// [`clean_up`](Connection::clean_up) succeeded.
pub trait Connection: Send {
    /// Free test, no io: whether the session is known to be gone.
    fn is_closed(&self) -> bool;

    /// Round trip test.
    fn check(&mut self) -> BoxFuture<'_, Result<(), SqlError>>;

    /// Brings the session back to what `connect` gave (temporary tables, settings, locks).
    fn reset(&mut self) -> BoxFuture<'_, Result<(), SqlError>>;

    /// After a dropped future: cancels at the server, drains to a known state, rolls back. An error
    /// means: close it.
    fn clean_up(&mut self) -> BoxFuture<'_, Result<(), SqlError>>;

    /// A handle that cancels what the session is doing.
    fn canceller(&self) -> Arc<dyn Cancel>;

    /// Runs one statement and collects its rows, refusing more than `max`. Prepared statements are kept
    /// per session, bounded.
    fn run<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        max: AnswerMax,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Answer, SqlError>>;

    /// Starts one statement whose rows are fetched by [`next_batch`](Connection::next_batch).
    fn open<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Arc<[Column]>, SqlError>>;

    /// The next rows of the started statement, bounded by rows and bytes; `None`: it ended well.
    fn next_batch(&mut self, max: BatchMax) -> BoxFuture<'_, Result<Option<Batch>, SqlError>>;

    /// Begins a transaction.
    fn begin<'a>(&'a mut self, begin: &'a Begin) -> BoxFuture<'a, Result<(), SqlError>>;

    /// Commits. An error whose effect is unknown has `sent: maybe`.
    fn commit<'a>(&'a mut self, handed_over: HandedOver<'a>)
    -> BoxFuture<'a, Result<(), SqlError>>;

    /// Rolls back.
    fn rollback(&mut self) -> BoxFuture<'_, Result<(), SqlError>>;

    /// Asks the catalog.
    fn describe<'a>(
        &'a mut self,
        what: &'a Describe,
    ) -> BoxFuture<'a, Result<Description, SqlError>>;

    /// What the server says about itself.
    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, SqlError>>;

    /// Which server, and which run of it, this is; on a primary. Asked once a session. Default: unknown.
    fn lineage(&mut self) -> BoxFuture<'_, Result<Lineage, SqlError>> {
        Box::pin(std::future::ready(Ok(Lineage::default())))
    }

    /// Whether all that this server has received from another one has been applied, and no more can come. Asked of one
    /// that has become primary. Default: yes.
    fn has_applied_all(&mut self) -> BoxFuture<'_, Result<bool, SqlError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    /// On a primary: the position that covers what this session has just committed. On a replica: what
    /// it has replayed. `None`: the database has no such thing.
    fn position(&mut self) -> BoxFuture<'_, Result<Option<Position>, SqlError>>;
}
