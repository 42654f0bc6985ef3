//! Mainstay in-process: protect any async function, or put a set of databases behind one.
//!
//! ```
//! use mainstay::{protect, transient};
//!
//! # async fn fetch() -> Result<u32, std::io::Error> { Ok(7) }
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let answer = protect("fetch", transient::io).call(fetch).await?;
//! assert_eq!(answer, 7);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! What is protected is called again after a transient error, under limits that a [`Policy`] sets. For
//! databases see [`DataProxy`].

mod protect;

pub use mainstay_engine::{
    Attempt, Blame, CallError, CallErrorKind, Category, Chance, Classify, CorrelationId, Done,
    EndpointId, EndpointSpec, Event, EventKind, Failure, Leased, Need, Observer, Operation,
    Outcome, Policy, PolicyProblem, Preset, Priority, Rejection, RejectionReason, Role, Route,
    Safety, Sent, Settings, Severity, Source, Stopped, audit, event, policy, source, tasks,
    transient, watchdog,
};
pub use mainstay_sql::{self as sql, DataProxy, Database, SqlError};
pub use protect::{Protected, protect};

/// The driver of SQLite.
pub use mainstay_sqlite as sqlite;

/// The driver of PostgreSQL.
pub use mainstay_postgres as postgres;
