//! What an error of the server or of the connection means: whose fault it was, whether the statement may
//! have taken effect, what to do.

mod table;

use std::error::Error as _;
use std::io;

use mainstay_engine::{Blame, Category, Failure, Sent};
use mainstay_sql::{Code, SqlError, Verdict};
use tokio_postgres::error::{DbError, ErrorPosition, Severity as ServerSeverity};

pub(crate) use table::{Phase, Report, rule};

/// Names an error of a session in the words of the data face.
///
/// `cause` is why the connection ended, where it did.
pub(crate) fn named(
    error: &tokio_postgres::Error,
    phase: Phase,
    cancel_asked: bool,
    cause: Option<&str>,
) -> SqlError {
    match error.as_db_error() {
        Some(answer) => answered(answer, phase, cancel_asked),
        None => match fault(error) {
            Fault::Unsent => unsent(error),
            // At a connect it is no server of this kind that answers.
            Fault::Garbled if phase != Phase::Connect => garbled(error, phase, cause),
            Fault::Garbled | Fault::Broken => broken(error, phase, cause),
        },
    }
}

/// Where an error comes from that no server wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A message could not be made of what the caller gave; nothing has left.
    Unsent,
    /// An answer could not be read.
    Garbled,
    /// The connection failed.
    Broken,
}

/// The library tells the kinds of its errors by their first words alone.
fn fault(error: &tokio_postgres::Error) -> Fault {
    let words = error.to_string();
    let is_one = |kinds: &[&str]| kinds.iter().any(|kind| words.starts_with(kind));
    if is_one(&["error serializing", "error encoding", "expected "]) {
        Fault::Unsent
    } else if is_one(&[
        "error parsing",
        "unexpected message",
        "error deserializing",
        "invalid column",
        "query returned",
    ]) {
        Fault::Garbled
    } else {
        Fault::Broken
    }
}

/// Whether the session is not to be used after this error.
pub(crate) fn ends_session(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        Some(answer) => is_fatal(answer) || answer.code().code() == "08P01",
        None => fault(error) != Fault::Unsent,
    }
}

/// An ERROR, FATAL or PANIC that the server wrote.
pub(crate) fn answered(answer: &DbError, phase: Phase, cancel_asked: bool) -> SqlError {
    let ruling = rule(&Report {
        state: answer.code().code(),
        is_fatal: is_fatal(answer),
        routine: answer.routine().unwrap_or(""),
        message: answer.message(),
        phase,
        cancel_asked,
    });
    let mut failure = Failure::new(ruling.category, answer.message().to_owned())
        .severity(ruling.severity)
        .blame(ruling.blame)
        .sent(ruling.sent)
        .code(answer.code().code().to_owned());
    failure.retry_after = ruling.retry_after;
    let mut error = SqlError::new(ruling.code, failure).verdict(ruling.verdict);
    error = error.hint(match answer.hint() {
        Some(its_own) => format!("{}; {}", its_own.trim_end_matches('.'), ruling.hint),
        None => ruling.hint.to_owned(),
    });
    places(answer)
        .into_iter()
        .fold(error, |error, (kind, name)| error.place(kind, name))
}

/// Whether the server ends the session with this answer.
pub(crate) fn is_fatal(answer: &DbError) -> bool {
    match answer.parsed_severity() {
        Some(severity) => matches!(severity, ServerSeverity::Fatal | ServerSeverity::Panic),
        None => matches!(answer.severity(), "FATAL" | "PANIC"),
    }
}

fn places(answer: &DbError) -> Vec<(&'static str, String)> {
    let named = [
        ("detail", answer.detail()),
        ("schema", answer.schema()),
        ("table", answer.table()),
        ("column", answer.column()),
        ("type", answer.datatype()),
        ("constraint", answer.constraint()),
    ];
    let mut places: Vec<_> = named
        .into_iter()
        .filter_map(|(kind, v)| Some((kind, v?.to_owned())))
        .collect();
    if let Some(ErrorPosition::Original(position)) = answer.position() {
        places.push(("position", position.to_string()));
    }
    places
}

/// What the caller gave makes no message.
fn unsent(error: &tokio_postgres::Error) -> SqlError {
    SqlError::caller(
        Code::BadValue,
        with_causes(error, None),
        "check the number, the types and the size of the parameters",
    )
}

/// The two sides do not understand each other: that is no sign of a sick server, and goes no better
/// elsewhere.
fn garbled(error: &tokio_postgres::Error, phase: Phase, cause: Option<&str>) -> SqlError {
    let failure =
        Failure::new(Category::Unknown, with_causes(error, cause)).sent(sent_when_lost(phase));
    SqlError::new(Code::AttemptsFailed, failure).hint(
        "the server's answer could not be read, so that the connection was closed; \
         look for what stands between, and try a simpler statement",
    )
}

/// The connection failed.
fn broken(error: &tokio_postgres::Error, phase: Phase, cause: Option<&str>) -> SqlError {
    lost(with_causes(error, cause), phase, io_kind(error))
}

fn with_causes(error: &tokio_postgres::Error, cause: Option<&str>) -> String {
    let mut message = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        message = format!("{message}: {source}");
        next = source.source();
    }
    if let Some(cause) = cause {
        message = format!("{message}: {cause}");
    }
    message
}

/// What a lost connection says about the statement that was under way.
fn sent_when_lost(phase: Phase) -> Sent {
    match phase {
        Phase::Connect | Phase::Before => Sent::No,
        // Nothing that these ask for outlives the session.
        Phase::Prepare | Phase::Control | Phase::Begin { .. } => Sent::YesUnprocessed,
        Phase::Run { .. } | Phase::Commit => Sent::Maybe,
    }
}

/// The connection is gone, or is not to be used again.
pub(crate) fn lost(message: String, phase: Phase, kind: Option<io::ErrorKind>) -> SqlError {
    let category = match kind {
        Some(io::ErrorKind::TimedOut) => Category::Timeout,
        // A file or setting of ours: no other attempt will help.
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied)
            if phase == Phase::Connect =>
        {
            return misconfigured(message);
        }
        _ => Category::Transient,
    };
    let sent = sent_when_lost(phase);
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
    SqlError::new(code, Failure::new(category, message).sent(sent)).hint(hint)
}

fn misconfigured(message: String) -> SqlError {
    let failure = Failure::new(Category::Endpoint, message).sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
        .hint("correct the connection settings of this endpoint")
}

/// The kind of the io error at the bottom of the chain.
fn io_kind(error: &tokio_postgres::Error) -> Option<io::ErrorKind> {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(io) = source.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        next = source.source();
    }
    None
}

/// The connect took longer than its limit.
pub(crate) fn connect_timeout(address: &str, limit: std::time::Duration) -> SqlError {
    let message = format!("connecting to {address} took longer than {limit:?}");
    let failure = Failure::new(Category::Timeout, message).sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
        .hint("is the server up and reachable under this address?")
}

/// Committed here, but perhaps on no standby: a failover may lose it.
pub(crate) fn not_replicated() -> SqlError {
    let message = "the wait for synchronous replication was cancelled: committed on the primary, perhaps nowhere else";
    let failure = Failure::new(Category::Transient, message)
        .sent(Sent::Maybe)
        .code("01000")
        .blame(Blame::Endpoint);
    SqlError::new(Code::OutcomeUnknown, failure)
        .hint("look whether it took effect before repeating it")
}

/// The session's transaction went with its connection.
pub(crate) fn transaction_lost(mut error: SqlError) -> SqlError {
    let detail = error.detail_mut();
    detail.code = Code::TransactionLost;
    detail.verdict = Verdict::LeaseLost;
    detail.hint = Some("the server has rolled the transaction back; begin it anew".into());
    error
}

/// The host's name has no address now.
pub(crate) fn unresolved(address: &str, error: &io::Error) -> SqlError {
    let message = format!("{address}: the name cannot be resolved: {error}");
    let failure = Failure::new(Category::Transient, message).sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure).hint("check `host` and the name service")
}
