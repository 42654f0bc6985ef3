//! What an error of the server or of the connection means: whose fault it was, whether the statement may
//! have taken effect, what to do.

mod table;

use std::io;

use mainstay_engine::{Category, Failure, Sent};
use mainstay_sql::{Code, SqlError, Verdict};

use crate::wire::{Broken, Flavour, ServerError};

pub(crate) use table::{Phase, Report, rule};

/// When an error came, and from whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) phase: Phase,
    pub(crate) flavour: Flavour,
    /// Whether we asked the server to stop.
    pub(crate) cancel_asked: bool,
    /// We keep the session read-only.
    pub(crate) is_read_only: bool,
}

/// An error that the server reported.
pub(crate) fn answered(error: &ServerError, context: Context) -> SqlError {
    let ruling = rule(&Report {
        number: error.number,
        state: &error.state,
        phase: context.phase,
        flavour: context.flavour,
        cancel_asked: context.cancel_asked,
        is_read_only: context.is_read_only,
    });
    let failure = Failure::new(ruling.category, error.message.clone())
        .severity(ruling.severity)
        .blame(ruling.blame)
        .sent(ruling.sent)
        .code(error.number.to_string());
    let named = SqlError::new(ruling.code, failure)
        .verdict(ruling.verdict)
        .hint(ruling.hint);
    match constraint(error) {
        Some(name) => named.place("constraint", name),
        None => named.place("sqlstate", error.state.clone()),
    }
}

/// Whether the server ends the session with this error.
pub(crate) fn ends_session(error: &ServerError, flavour: Flavour) -> bool {
    table::ends_session(error.number, flavour)
}

/// Duplicate keys and CHECKs name what was broken between quotes, at the end or the beginning.
fn constraint(error: &ServerError) -> Option<String> {
    let quoted = error.message.split(['\'', '`']).skip(1).step_by(2);
    match error.number {
        1062 | 1586 => quoted.last().map(str::to_owned),
        4025 => error
            .message
            .split('`')
            .nth(1)
            .map(str::to_owned)
            .or_else(|| {
                let rest = error.message.strip_prefix("CONSTRAINT ")?;
                rest.split_whitespace().next().map(str::to_owned)
            }),
        1451 | 1452 => {
            let rest = error.message.split("CONSTRAINT `").nth(1)?;
            rest.split('`').next().map(str::to_owned)
        }
        _ => None,
    }
}

/// The connection is over.
pub(crate) fn broken(broken: &Broken, phase: Phase) -> SqlError {
    match broken {
        Broken::Refused(error) => answered(
            error,
            Context {
                phase,
                flavour: Flavour::Mariadb,
                cancel_asked: false,
                is_read_only: false,
            },
        ),
        // A file or setting of ours: no other attempt will help.
        Broken::Io(error)
            if phase == Phase::Connect
                && matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied
                ) =>
        {
            misconfigured(error)
        }
        Broken::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            let mut named = lost(error.to_string(), phase);
            named.detail_mut().failure.category = Category::Timeout;
            named
        }
        other => lost(other.to_string(), phase),
    }
}

/// The connection is gone, or is not to be used again.
pub(crate) fn lost(message: String, phase: Phase) -> SqlError {
    let sent = match phase {
        Phase::Connect | Phase::Before => Sent::No,
        // Nothing that these ask for outlives the session.
        Phase::Prepare | Phase::Control => Sent::YesUnprocessed,
        Phase::Run { .. } | Phase::Commit => Sent::Maybe,
    };
    let (code, hint) = match phase {
        Phase::Commit => (
            Code::OutcomeUnknown,
            "look whether the transaction took effect before repeating it",
        ),
        Phase::Connect => (
            Code::AttemptsFailed,
            "is the server up and reachable under this address?",
        ),
        _ => (
            Code::AttemptsFailed,
            "the connection was lost; a new one is made for the next call",
        ),
    };
    SqlError::new(code, Failure::new(Category::Transient, message).sent(sent)).hint(hint)
}

/// Something of ours is missing or wrong before a server is asked.
pub(crate) fn misconfigured(problem: impl std::fmt::Display) -> SqlError {
    let failure = Failure::new(Category::Endpoint, problem.to_string()).sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
        .hint("correct the connection settings of this endpoint")
}

/// The connect took longer than its limit.
pub(crate) fn connect_timeout(address: &str, limit: std::time::Duration) -> SqlError {
    let message = format!("connecting to {address} took longer than {limit:?}");
    let failure = Failure::new(Category::Timeout, message).sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
        .hint("is the server up and reachable under this address?")
}

/// The host's name has no address now.
pub(crate) fn unresolved(address: &str, error: &io::Error) -> SqlError {
    let message = format!("{address}: the name cannot be resolved: {error}");
    let failure = Failure::new(Category::Transient, message).sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure).hint("check `host` and the name service")
}

/// A rollback left something.
pub(crate) fn partly_undone() -> SqlError {
    let message = "the rollback left what was changed in tables without transactions";
    let failure = Failure::new(Category::Persistent, message).sent(Sent::Maybe);
    SqlError::new(Code::OutcomeUnknown, failure)
        .hint("look what is there, and use InnoDB for tables that are changed in transactions")
}

/// The session's transaction went with its connection.
pub(crate) fn transaction_lost(mut error: SqlError) -> SqlError {
    let detail = error.detail_mut();
    detail.code = Code::TransactionLost;
    detail.verdict = Verdict::LeaseLost;
    detail.hint = Some("the server has rolled the transaction back; begin it anew".into());
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broken_constraint_is_named() {
        let error = |number, message: &str| ServerError {
            number,
            state: "23000".into(),
            message: message.into(),
        };
        let table = [
            (
                1062,
                "Duplicate entry '1' for key 'PRIMARY'",
                Some("PRIMARY"),
            ),
            (4025, "CONSTRAINT `t.n` failed for `test`.`t`", Some("t.n")),
            (
                1452,
                "Cannot add or update a child row: a foreign key constraint fails (`d`.`c`, \
                 CONSTRAINT `fk` FOREIGN KEY (`p`) REFERENCES `p` (`id`))",
                Some("fk"),
            ),
            (1048, "Column 'v' cannot be null", None),
        ];
        for (number, message, expected) in table {
            assert_eq!(constraint(&error(number, message)).as_deref(), expected);
        }
    }
}
