//! The same for code without async: every verb of a database, and the engine's call, as plain functions.
//!
//! ```
//! use mainstay::blocking::Database;
//! use mainstay::sql::{Options, Plain, Value};
//! use mainstay::sqlite::{SqliteDriver, SqliteSettings};
//! use mainstay::{Chance, Policy, Preset, tasks::Tasks};
//!
//! # let folder = std::env::temp_dir().join(format!("mainstay-blocking-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! let mut settings = SqliteSettings::new(folder.join("parts.db"));
//! settings.create = true;
//! let parts = Database::start(|| {
//!     let driver = std::sync::Arc::new(SqliteDriver::new(settings)?);
//!     let policy = Policy::preset(Preset::Balanced);
//!     let parts = Plain::new(driver, &policy, Tasks::new(), Chance::from_entropy());
//!     Ok::<_, mainstay::sqlite::SettingsError>(parts)
//! })?;
//! let one = parts.scalar("SELECT 1", vec![], Options::default())?;
//! assert_eq!(one, Some(Value::I64(1)));
//! # drop(parts);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Runtime`] does the waiting. It may be used in a thread of its own, within a task of another runtime,
//! of either kind, and, if made by [`Runtime::start`], within a task of its own. There it waits for nothing
//! that the thread it blocks would have to do, as long as what it calls was made by it
//! ([`Runtime::enter`], [`Database::start`]). What a blocked thread does to others is said at
//! [`Runtime::wait`].

mod call;
mod database;
mod lent;
mod runtime;
mod transaction;

pub use call::Source;
pub use database::{Database, StartError};
pub use lent::Lent;
pub use runtime::Runtime;
pub use transaction::{OwnTransaction, Rows, Transaction};
