//! Why a journal could not be opened, and what a write's failure becomes.

use std::io;
use std::path::PathBuf;

use mainstay_message::StoreError;

/// The journal could not be opened. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process has it open.
    #[error(
        "{path} is in use by another process; stop the other one, or give this one another data folder"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It does not hold together.
    #[error(
        "{path} is damaged: {reason}; move {path} and what is beside it ({path}-wal) aside and start again: \
         requests that were open in it are lost, `sqlite3 {path} .recover` may show them"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A log without its file.
    #[error(
        "{log} is there but {path} is missing; put the file back, or move its log aside as well to start with no open \
         requests"
    )]
    Torn {
        /// The file.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// It was written by a later version.
    #[error(
        "{path} has the format {found}, and this version reads up to {known}; run the version that wrote it, or move \
         {path} aside"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The last one that is known here.
        known: i64,
    },
    /// It is a database, but not a journal.
    #[error("{path} is a database of another program; move it away, or give another data folder")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The system did not let it.
    #[error("{path} cannot be opened; check the disk and the rights of its folder")]
    System {
        /// The file, or its folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// SQLite did not let it, for another reason.
    #[error("{path} cannot be opened: {reason}; check the disk and the rights of its folder")]
    Unopened {
        /// The file.
        path: PathBuf,
        /// In SQLite's words.
        reason: String,
    },
}

/// A write or a reading that did not work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("a row of the request {id} cannot be read: {reason}")]
    Row { id: String, reason: String },
}

impl Fault {
    pub(crate) fn row(id: &str, reason: impl ToString) -> Self {
        Fault::Row {
            id: id.to_owned(),
            reason: reason.to_string(),
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        failed(&fault.to_string())
    }
}

pub(crate) fn failed(reason: &str) -> StoreError {
    StoreError {
        reason: reason.into(),
    }
}
