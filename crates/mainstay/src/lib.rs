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
//!
//! Several statements on one connection, with the retries that their safety allows, are a closure for
//! [`run`](sql::Verbs::run). It works on a [`DataProxy`] and on a plain driver alike; statements that
//! belong together go into a [`transaction`](sql::Verbs::transaction).
//!
//! ```
//! use mainstay::sql::{Options, Plain, Value, Verbs};
//! use mainstay::sqlite::{SqliteDriver, SqliteSettings};
//! use mainstay::{Chance, Policy, Preset, Safety, tasks::Tasks};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let folder = std::env::temp_dir().join(format!("mainstay-run-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let mut settings = SqliteSettings::new(folder.join("parts.db"));
//! settings.create = true;
//! let driver = std::sync::Arc::new(SqliteDriver::new(settings)?);
//! let policy = Policy::preset(Preset::Balanced);
//! let parts = Plain::new(driver, &policy, Tasks::new(), Chance::from_entropy());
//!
//! // Twice has the effect of once: it may be run again after a lost connection.
//! let count = parts
//!     .run(Safety::IdempotentWrite, Options::default(), |mut lent| async move {
//!         lent.execute("CREATE TABLE IF NOT EXISTS parts (id INTEGER PRIMARY KEY)", vec![]).await?;
//!         lent.execute("INSERT OR IGNORE INTO parts VALUES (?)", vec![Value::I64(7)]).await?;
//!         lent.scalar("SELECT count(*) FROM parts", vec![]).await
//!     })
//!     .await?;
//! assert_eq!(count, Some(Value::I64(1)));
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

pub mod blocking;
mod protect;
pub mod proxied;

pub use mainstay_engine::{
    Attempt, Blame, CallError, CallErrorKind, Category, Chance, Classify, CorrelationId, Done,
    EndpointId, EndpointSpec, Event, EventKind, Failure, Leased, Need, Observer, Operation,
    Outcome, Policy, PolicyProblem, Preset, Priority, Rejection, RejectionReason, Role, Route,
    Safety, Sent, Settings, Severity, Source, Stopped, audit, event, policy, source, tasks,
    transient, watchdog,
};
pub use mainstay_sql::{self as sql, DataProxy, Database, Lent, SqlError};
pub use protect::{Protected, protect};

/// Makes a proxy of a trait: a type with the same trait whose methods are tried again.
///
/// On a trait `Store` it makes `StoreProxy<S, R>`: `S` is what implements the trait, `R` the rules
/// ([`proxied::Judge`]). `StoreProxy::new(inner, rules)` tries every method again that can be;
/// `StoreProxy::builder(inner, rules)` takes [settings](proxied::Builder). Methods that return a `Result`
/// and take `&self` can be tried again, whether they are `async fn`, return `impl Future` or a boxed
/// future, or are not asynchronous; all others are handed through.
///
/// At the trait: `#[proxied(name = Other)]` names the type otherwise; `#[proxied(local)]` leaves the
/// futures of `async fn` without `Send`, which they else must be; `#[proxied(crate = path)]` says where
/// Mainstay is.
///
/// At a method: `#[proxied(read)]`, `#[proxied(idempotent_write)]` or `#[proxied(write)]` say that it can
/// be tried again and how safe that is; `#[proxied(pass)]` says that it is handed through. Without a word
/// a method counts as `idempotent_write`.
///
/// See the [module](mod@proxied) for what happens to errors.
pub use mainstay_macros::proxied;

/// The driver of SQLite.
pub use mainstay_sqlite as sqlite;

/// The driver of PostgreSQL.
pub use mainstay_postgres as postgres;

/// The driver of MySQL and MariaDB.
pub use mainstay_mysql as mysql;

/// A proxy in front of an INTERSECT service: [`Service`](message::Service), its settings, its
/// [`Hooks`](message::Hooks), and the ports that [`mqtt`], [`amqp`], [`journal`] and [`objects`] implement.
#[cfg(feature = "message")]
pub use mainstay_message as message;

/// Brokers that speak MQTT 5.
#[cfg(feature = "message")]
pub use mainstay_mqtt as mqtt;

/// Brokers that speak AMQP 0-9-1.
#[cfg(feature = "message")]
pub use mainstay_amqp as amqp;

/// The store of jobs of a message service, in one file.
#[cfg(feature = "message")]
pub use mainstay_journal as journal;

/// Stores of objects that speak S3's API.
#[cfg(feature = "message")]
pub use mainstay_objects as objects;
