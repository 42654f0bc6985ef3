//! The store of requests and jobs behind `mainstay-message`'s port: one SQLite file.
//!
//! SQLite blocks its caller, so one thread owns the file. Whatever waits for it becomes one transaction, which is
//! written without an fsync: it survives a kill of the process. What must survive a crash of the machine is answered
//! by a second thread after an fsync of the write-ahead log, one for all who wait; writes that need none do not wait
//! for it.
//!
//! ```no_run
//! use mainstay_journal::{Journal, JournalSettings};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = Journal::open(JournalSettings::within("./mainstay-data")).await?;
//! journal.close().await;
//! # Ok(())
//! # }
//! ```

mod counts;
mod error;
mod file;
mod journal;
mod ledger;
mod message;
mod queue;
mod reading;
mod settings;
mod syncer;
mod writer;

pub use counts::Counts;
pub use error::JournalError;
pub use journal::{Journal, WAITING_MAX};
pub use settings::{FILE_NAME, JournalSettings, LENGTH_MAX_DEFAULT, LENGTH_MAX_LEAST};
