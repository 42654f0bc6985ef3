//! From SQLite's result codes to what went wrong, whose fault it was and what it proves.

mod code;
mod place;

use mainstay_engine::{Blame, Category, Failure, Sent, Severity};
use mainstay_sql::{Code, SqlError, Verdict};
use rusqlite::ffi;

/// What was going on when an error came; it decides what the error proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Opening the file: nothing was handed over.
    Connect,
    /// A statement whose failure undoes it, and which commits nothing by itself.
    Statement,
    /// A changing statement outside a transaction: its end is a commit.
    Autocommit,
    /// COMMIT.
    Commit,
}

/// What a result code means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    code: Code,
    category: Category,
    severity: Severity,
    blame: Blame,
    verdict: Verdict,
    hint: &'static str,
}

impl Class {
    const fn caller(code: Code, hint: &'static str) -> Self {
        Class {
            code,
            category: Category::Persistent,
            severity: Severity::Low,
            blame: Blame::Caller,
            verdict: Verdict::None,
            hint,
        }
    }

    const fn endpoint(category: Category, severity: Severity, hint: &'static str) -> Self {
        Class {
            code: Code::AttemptsFailed,
            category,
            severity,
            blame: Blame::Endpoint,
            verdict: Verdict::None,
            hint,
        }
    }

    const fn code(self, code: Code) -> Self {
        Class { code, ..self }
    }

    const fn blame(self, blame: Blame) -> Self {
        Class { blame, ..self }
    }

    const fn verdict(self, verdict: Verdict) -> Self {
        Class { verdict, ..self }
    }
}

/// The table: the extended code decides where it says more than the primary one.
fn class(extended: i32) -> Class {
    match extended {
        ffi::SQLITE_READONLY_DBMOVED => {
            return Class::endpoint(
                Category::Endpoint,
                Severity::Medium,
                "the database file was moved or deleted; put it back",
            );
        }
        ffi::SQLITE_READONLY_DIRECTORY
        | ffi::SQLITE_READONLY_ROLLBACK
        | ffi::SQLITE_READONLY_RECOVERY
        | ffi::SQLITE_READONLY_CANTINIT
        | ffi::SQLITE_READONLY_CANTLOCK => {
            return Class::endpoint(
                Category::Endpoint,
                Severity::Medium,
                "give the process write access to the database file and its folder",
            );
        }
        ffi::SQLITE_BUSY_SNAPSHOT => {
            return contention("another connection wrote first: run the transaction again");
        }
        ffi::SQLITE_ABORT_ROLLBACK => {
            return Class::caller(
                Code::TransactionLost,
                "the transaction was rolled back while the statement ran; begin it again",
            );
        }
        _ => {}
    }
    primary_class(extended & 0xff)
}

fn contention(hint: &'static str) -> Class {
    Class::endpoint(Category::Contention, Severity::Low, hint).code(Code::Contention)
}

fn primary_class(primary: i32) -> Class {
    use Category::{Auth, Endpoint, Saturation, Unknown};
    match primary {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED | ffi::SQLITE_PROTOCOL => {
            contention("another connection holds the lock; try again")
        }
        // Reads go on.
        ffi::SQLITE_FULL => Class::endpoint(Saturation, Severity::None, "make room on the disk"),
        ffi::SQLITE_NOMEM => Class::endpoint(
            Saturation,
            Severity::Critical,
            "give the process more memory",
        ),
        ffi::SQLITE_IOERR => Class::endpoint(
            Endpoint,
            Severity::Medium,
            "check the disk and the folder of the database file",
        ),
        ffi::SQLITE_CANTOPEN => Class::endpoint(
            Endpoint,
            Severity::Medium,
            "make the file, or set options.create = true; if it is there, check that it may be read and is no folder",
        ),
        ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB => Class::endpoint(
            Endpoint,
            Severity::Critical,
            "the file is damaged or no SQLite database; restore it from a backup",
        ),
        ffi::SQLITE_READONLY => Class::caller(
            Code::BadStatement,
            "the session is read-only; send it as a write, or begin its transaction without read_only",
        )
        .verdict(Verdict::ReadOnly),
        ffi::SQLITE_INTERRUPT => Class::caller(
            Code::Cancelled,
            "it was cancelled; send it again if it is still wanted",
        )
        .verdict(Verdict::Neutral),
        ffi::SQLITE_AUTH => Class::endpoint(
            Auth,
            Severity::Low,
            "the statement is not permitted on this source; leave it out",
        )
        .code(Code::NotAllowed)
        .blame(Blame::Caller),
        ffi::SQLITE_PERM => Class::endpoint(
            Auth,
            Severity::High,
            "give the process access to the database file",
        )
        .code(Code::NotAllowed),
        ffi::SQLITE_SCHEMA => Class::caller(
            Code::BadStatement,
            "the tables behind it were changed; run it again",
        )
        .verdict(Verdict::PrepareAgain),
        ffi::SQLITE_MISUSE => Class::endpoint(
            Unknown,
            Severity::Medium,
            "this is a fault of Mainstay; please report it with the correlation id",
        )
        .code(Code::Internal)
        .blame(Blame::Us),
        ffi::SQLITE_CONSTRAINT => {
            Class::caller(Code::Constraint, "change the values or the constraint")
        }
        ffi::SQLITE_TOOBIG => Class::caller(
            Code::BadValue,
            "a text, blob, row or statement is too big: split it, or raise the endpoint's option value_max_bytes",
        ),
        ffi::SQLITE_MISMATCH => Class::caller(Code::BadValue, "give a value of the column's type"),
        _ => Class::caller(Code::BadStatement, "correct the statement"),
    }
}

/// Whether a session that answered this is not to be used again: it looks at a file that is gone or damaged,
/// or was misused.
fn breaks(extended: i32) -> bool {
    extended == ffi::SQLITE_READONLY_DBMOVED
        || matches!(
            extended & 0xff,
            ffi::SQLITE_IOERR
                | ffi::SQLITE_CANTOPEN
                | ffi::SQLITE_CORRUPT
                | ffi::SQLITE_NOTADB
                | ffi::SQLITE_MISUSE
        )
}

/// What an error of that primary code proves.
fn sent(stage: Stage, primary: i32) -> Sent {
    match (stage, primary) {
        (Stage::Connect, _) => Sent::No,
        // Whether the commit record reached the disk is not known.
        (Stage::Commit | Stage::Autocommit, ffi::SQLITE_IOERR) => Sent::Maybe,
        _ => Sent::YesUnprocessed,
    }
}

/// An error with what the driver must do beside reporting it.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: SqlError,
    /// The session is not to be used again.
    pub(crate) is_fatal: bool,
    /// A lock stood in the way.
    pub(crate) is_busy: bool,
}

impl From<SqlError> for Fault {
    fn from(error: SqlError) -> Self {
        Fault {
            error,
            is_fatal: false,
            is_busy: false,
        }
    }
}

/// Turns an error of SQLite into ours.
pub(crate) fn fault(stage: Stage, error: &rusqlite::Error) -> Fault {
    match error {
        rusqlite::Error::SqliteFailure(cause, message) => {
            let message = message.clone().unwrap_or_else(|| cause.to_string());
            from_code(stage, cause.extended_code, message)
        }
        rusqlite::Error::SqlInputError {
            error, msg, offset, ..
        } => {
            let mut fault = from_code(stage, error.extended_code, msg.clone());
            let position = (*offset).max(0).to_string();
            fault.error = fault.error.place("position", position);
            fault
        }
        rusqlite::Error::MultipleStatement => refused(
            "the text has more than one statement",
            "send one statement a call, or use a script",
        )
        .into(),
        rusqlite::Error::Empty => refused("the text has no statement", "send a statement").into(),
        other => from_code(stage, ffi::SQLITE_MISUSE, other.to_string()),
    }
}

/// A statement that is refused before SQLite ran any of it.
pub(crate) fn refused(message: impl Into<String>, hint: &'static str) -> SqlError {
    let failure = Failure::new(Category::Persistent, message.into()).sent(Sent::YesUnprocessed);
    SqlError::new(Code::BadStatement, failure).hint(hint)
}

fn from_code(stage: Stage, extended: i32, message: String) -> Fault {
    let primary = extended & 0xff;
    let class = class(extended);
    let places = place::named(extended, &message);
    let failure = Failure::new(class.category, message)
        .severity(class.severity)
        .blame(class.blame)
        .sent(sent(stage, primary))
        .code(code::name(extended));
    let is_busy = primary == ffi::SQLITE_BUSY;
    let commits_again = stage == Stage::Commit && is_busy;
    let verdict = match commits_again {
        true => Verdict::CommitAgain,
        false => class.verdict,
    };
    let mut error = SqlError::new(class.code, failure)
        .hint(class.hint)
        .verdict(verdict);
    for (kind, name) in places {
        error = error.place(kind, name);
    }
    if error.sent() == Sent::Maybe {
        error.detail_mut().code = Code::OutcomeUnknown;
    }
    Fault {
        error,
        is_fatal: breaks(extended),
        is_busy,
    }
}

/// The answer to a job that was cancelled before SQLite saw it, or while it waited for a lock.
pub(crate) fn cancelled(stage: Stage) -> SqlError {
    from_code(stage, ffi::SQLITE_INTERRUPT, "interrupted".into()).error
}

/// The file under the session is not the one at its path any more.
pub(crate) fn moved(stage: Stage) -> Fault {
    let message = "the database file was deleted or replaced while it was open";
    from_code(stage, ffi::SQLITE_READONLY_DBMOVED, message.into())
}

/// The session is gone; nothing was handed over.
pub(crate) fn closed() -> SqlError {
    let failure = Failure::new(Category::Transient, "the connection is closed").sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
        .verdict(Verdict::LeaseLost)
        .hint("open a new connection")
}

/// The worker ended without an answer.
pub(crate) fn worker_lost() -> SqlError {
    let mut error = SqlError::internal("the connection's thread ended without an answer");
    error.detail_mut().verdict = Verdict::LeaseLost;
    error
}

/// SQLite rolled the transaction back with an earlier error.
pub(crate) fn transaction_lost() -> SqlError {
    let message = "an earlier error rolled the transaction back";
    let failure = Failure::new(Category::Persistent, message).sent(Sent::YesUnprocessed);
    SqlError::new(Code::TransactionLost, failure).hint("roll back and begin the transaction again")
}

/// A request that does not fit the session's transaction.
pub(crate) fn conflict(message: &'static str, hint: &'static str) -> SqlError {
    let failure = Failure::new(Category::Persistent, message).sent(Sent::YesUnprocessed);
    SqlError::new(Code::Conflict, failure).hint(hint)
}

#[cfg(test)]
mod tests;
