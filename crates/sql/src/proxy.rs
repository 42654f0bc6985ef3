//! One source of several endpoints as one database: roles, failover, safe retries, sessions.
//!
//! Everything that decides is the engine's; this file turns requests into operations and results into
//! answers. An endpoint is any [`Database`], so a proxy may stand behind another proxy.

mod builder;
mod database;
mod errors;
mod keyed;
mod lend;
mod once;
mod own_writes;
mod place;
mod probe;
mod proved;
mod rest;
mod route;
mod run;
mod sessions;
mod stream;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use mainstay_engine::Source;
use mainstay_engine::source::ControlError;

use crate::database::{CacheUse, Database, Options};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError};
use crate::proof::Proofs;
use crate::schema::Schema;

pub use builder::{DataProxyBuilder, TransactionLimits};
use sessions::Sessions;

/// What stands behind an endpoint.
pub type Member = Arc<dyn Database>;

/// How long a timed-out write may go on to be cancelled at the server and to wait for the proof.
pub const WRITE_GRACE: Duration = Duration::from_millis(400);

/// The endpoint ends a read or a BEGIN at its limit by itself and knows best what that means; it is dropped
/// from outside only if it does not.
const READ_GRACE: Duration = Duration::from_millis(50);

/// A source with SQL endpoints. Copies share everything.
#[derive(Clone)]
pub struct DataProxy {
    shared: Arc<Shared>,
}

struct Shared {
    source: Source<Member>,
    dialect: Dialect,
    schema: Arc<Schema>,
    sessions: Sessions,
    limits: TransactionLimits,
    /// `None`: nothing is to be proven.
    proofs: Option<Proofs>,
    transactions: AtomicU32,
    closed: AtomicBool,
}

impl DataProxy {
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

    fn refuse_unavailable(&self, options: &Options) -> Result<(), SqlError> {
        if options.cache != CacheUse::Off || options.ttl.is_some() {
            return Err(SqlError::caller(
                Code::NotAvailable,
                "the cache is not available yet",
                "leave the options cache and ttl out",
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

/// Refuses an idempotency key where there is nothing that it could make repeatable.
pub(crate) fn refuse_key(options: &Options) -> Result<(), SqlError> {
    match options.idempotency_key {
        Some(_) => Err(keyed::no_use()),
        None => Ok(()),
    }
}

/// A refused change as an error of the face.
pub fn control(problem: &ControlError) -> SqlError {
    let (code, hint) = match problem {
        ControlError::UnknownEndpoint { .. } => (Code::UnknownEndpoint, "use one of its endpoints"),
        ControlError::Weight(_) => (Code::BadValue, "to take an endpoint out of use drain it"),
        ControlError::Policy(_) => (Code::PolicyRefused, "mend the settings and send them again"),
        _ => (
            Code::Conflict,
            "change the request to fit the present state",
        ),
    };
    SqlError::caller(code, problem.to_string(), hint)
}

impl std::fmt::Debug for DataProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataProxy")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}
