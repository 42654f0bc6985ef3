//! Errors of the data face. Each answers: what happened, whose fault, may it have taken effect, when to
//! try again, and what to do.

use std::fmt;
use std::time::Duration;

use mainstay_engine::{Blame, Category, EndpointId, Failure, Sent};

/// The stable code of an error; the HTTP surface maps it to a status, readers look it up in the docs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// There is no primary for a write.
    NoPrimary,
    /// No endpoint fits the call.
    NoEndpoint,
    /// Every fitting endpoint's circuit is open.
    CircuitOpen,
    /// Too many calls wait already.
    QueueFull,
    /// Waited too long for a place.
    QueueTimeout,
    /// Waited too long for a connection.
    PoolTimeout,
    /// The source is paused.
    Paused,
    /// The source or endpoint is being drained.
    Draining,
    /// Every attempt failed.
    AttemptsFailed,
    /// Over the rate limit.
    RateLimited,
    /// The call's deadline passed.
    DeadlineExceeded,
    /// It may or may not have taken effect.
    OutcomeUnknown,
    /// A fault of our own.
    Internal,
    /// The transaction is gone.
    TransactionLost,
    /// A constraint of the database refused it.
    Constraint,
    /// Deadlock, serialization conflict or lock timeout.
    Contention,
    /// It does not fit the present state.
    Conflict,
    /// The database refused the statement.
    BadStatement,
    /// The request makes no sense.
    BadRequest,
    /// A value does not fit its type or database.
    BadValue,
    /// Beyond a size limit.
    AnswerTooLarge,
    /// Permission denied by the database.
    NotAllowed,
    /// No such source.
    UnknownSource,
    /// No such table or view.
    UnknownEntity,
    /// No such column.
    UnknownColumn,
    /// No such endpoint.
    UnknownEndpoint,
    /// No such transaction.
    UnknownTransaction,
    /// An idempotency key needs a table that is not configured.
    IdempotencyUnavailable,
    /// The idempotency key belongs to another request.
    IdempotencyMismatch,
    /// The settings were refused.
    PolicyRefused,
    /// Not in this version.
    NotAvailable,
    /// The caller or we cancelled it.
    Cancelled,
}

impl Code {
    /// The stable lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::NoPrimary => "no_primary",
            Code::NoEndpoint => "no_endpoint",
            Code::CircuitOpen => "circuit_open",
            Code::QueueFull => "queue_full",
            Code::QueueTimeout => "queue_timeout",
            Code::PoolTimeout => "pool_timeout",
            Code::Paused => "paused",
            Code::Draining => "draining",
            Code::AttemptsFailed => "attempts_failed",
            Code::RateLimited => "rate_limited",
            Code::DeadlineExceeded => "deadline_exceeded",
            Code::OutcomeUnknown => "outcome_unknown",
            Code::Internal => "internal",
            Code::TransactionLost => "transaction_lost",
            Code::Constraint => "constraint",
            Code::Contention => "contention",
            Code::Conflict => "conflict",
            Code::BadStatement => "bad_statement",
            Code::BadRequest => "bad_request",
            Code::BadValue => "bad_value",
            Code::AnswerTooLarge => "answer_too_large",
            Code::NotAllowed => "not_allowed",
            Code::UnknownSource => "unknown_source",
            Code::UnknownEntity => "unknown_entity",
            Code::UnknownColumn => "unknown_column",
            Code::UnknownEndpoint => "unknown_endpoint",
            Code::UnknownTransaction => "unknown_transaction",
            Code::IdempotencyUnavailable => "idempotency_unavailable",
            Code::IdempotencyMismatch => "idempotency_mismatch",
            Code::PolicyRefused => "policy_refused",
            Code::NotAvailable => "not_available",
            Code::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a driver found out beside the failure, where the engine's categories do not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verdict {
    /// Nothing special.
    #[default]
    None,
    /// Weighs nothing, no retry of its own: we or the caller cancelled it.
    Neutral,
    /// The session or server is read-only, which proves that nothing happened.
    ReadOnly,
    /// The prepared statement is stale: prepare again once, outside a transaction.
    PrepareAgain,
    /// The connection with its transaction is gone.
    LeaseLost,
    /// A statement opened a transaction that nobody would commit. It was rolled back, which proves that
    /// nothing happened, of whatever kind the statement is.
    Undone,
    /// A statement ended the transaction that it ran in: what the transaction did may be there to stay.
    TransactionEnded,
    /// Work that nobody can look into, of which something was handed over: it is not begun again,
    /// whatever its failure proves.
    Once,
    /// The answer to COMMIT was lost, and there is something by which it can be found out what became of it.
    CommitLost,
    /// COMMIT found the database busy and can be repeated as it is (SQLite BUSY at COMMIT).
    CommitAgain,
}

/// An error of a verb, a driver or a proxy.
#[derive(Debug, Clone)]
pub struct SqlError {
    detail: Box<Detail>,
}

/// The parts of a [`SqlError`].
#[derive(Debug, Clone)]
pub struct Detail {
    /// The stable code.
    pub code: Code,
    /// What happened in the engine's words.
    pub failure: Failure,
    /// What the engine's words do not say.
    pub verdict: Verdict,
    /// What to do.
    pub hint: Option<String>,
    /// The endpoint it happened on.
    pub endpoint: Option<EndpointId>,
    /// Attempts made, where a proxy made them.
    pub attempts: Vec<mainstay_engine::audit::AttemptRecord>,
    /// The call's correlation id, where it is known.
    pub correlation_id: Option<mainstay_engine::CorrelationId>,
    /// Constraint, column, table or position that the database named.
    pub place: Vec<(&'static str, String)>,
}

impl SqlError {
    /// An error with a code and the failure behind it.
    pub fn new(code: Code, failure: Failure) -> Self {
        SqlError {
            detail: Box::new(Detail {
                code,
                failure,
                verdict: Verdict::None,
                hint: None,
                endpoint: None,
                attempts: Vec::new(),
                correlation_id: None,
                place: Vec::new(),
            }),
        }
    }

    /// A mistake of the caller that never reached a back end.
    pub fn caller(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let failure = Failure::new(Category::Persistent, message.into()).sent(Sent::No);
        SqlError::new(code, failure).hint(hint)
    }

    /// A fault of our own.
    pub fn internal(message: impl Into<String>) -> Self {
        let failure = Failure::new(Category::Unknown, message.into()).blame(Blame::Us);
        SqlError::new(Code::Internal, failure)
            .hint("this is a fault of Mainstay; please report it with the correlation id")
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.detail.hint = Some(hint.into());
        self
    }

    /// Attaches a driver's verdict.
    #[must_use]
    pub fn verdict(mut self, verdict: Verdict) -> Self {
        self.detail.verdict = verdict;
        self
    }

    /// Names a thing that the database named.
    #[must_use]
    pub fn place(mut self, kind: &'static str, name: impl Into<String>) -> Self {
        self.detail.place.push((kind, name.into()));
        self
    }

    /// The parts.
    pub fn detail(&self) -> &Detail {
        &self.detail
    }

    /// The parts, to add to them.
    pub fn detail_mut(&mut self) -> &mut Detail {
        &mut self.detail
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.detail.code
    }

    /// The failure in the engine's words.
    pub fn failure(&self) -> &Failure {
        &self.detail.failure
    }

    /// Whether it may have taken effect.
    pub fn sent(&self) -> Sent {
        self.detail.failure.sent
    }

    /// Not to be tried before this has passed.
    pub fn retry_after(&self) -> Option<Duration> {
        self.detail.failure.retry_after
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let detail = &self.detail;
        write!(f, "{}: {}", detail.code, detail.failure)?;
        if let Some(endpoint) = &detail.endpoint {
            write!(f, " (endpoint {endpoint})")?;
        }
        if let Some(hint) = &detail.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}
