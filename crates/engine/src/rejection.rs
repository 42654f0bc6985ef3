//! The two ways in which a call ends without a result: "we refused" and "it failed".

use std::fmt;
use std::time::Duration;

use crate::audit::AttemptRecord;
use crate::failure::{Failure, Sent, named};
use crate::operation::CorrelationId;

named! {
    /// Why a call was refused before it reached a back end.
    Reason {
        /// No endpoint has the role primary.
        NoPrimary = "no_primary",
        /// No endpoint fits the call.
        NoEndpoint = "no_endpoint",
        /// Every fitting endpoint's circuit is open or isolated.
        CircuitOpen = "circuit_open",
        /// Every fitting endpoint is at its concurrency limit, or the queue is full.
        QueueFull = "queue_full",
        /// Waited too long for a place.
        QueueTimeout = "queue_timeout",
        /// The source is paused.
        Paused = "paused",
        /// The source is being drained or is closed.
        Draining = "draining",
        /// Over the rate limit.
        RateLimited = "rate_limited",
        /// The deadline passed before anything was tried.
        DeadlineExceeded = "deadline_exceeded",
    }
}

/// A refusal of our own: weighs on nothing, `sent: no`, free of budget.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// Why.
    pub reason: Reason,
    /// When it is worth another try.
    pub retry_after: Option<Duration>,
    /// For a reader; ends in what to do.
    pub message: String,
}

impl Rejection {
    pub(crate) fn new(
        reason: Reason,
        retry_after: Option<Duration>,
        message: impl Into<String>,
    ) -> Self {
        Rejection {
            reason,
            retry_after,
            message: message.into(),
        }
    }
}

named! {
    /// Why no further attempt was made after a failure.
    Stopped {
        /// All attempts that the policy allows were made.
        Exhausted = "exhausted",
        /// The failure is of a kind that another try does not mend.
        NotRetryable = "not_retryable",
        /// It may have taken effect and must not run twice.
        NotSafe = "not_safe",
        /// The retry budget is spent.
        Budget = "budget",
        /// The deadline leaves no time.
        Deadline = "deadline",
        /// The circuits of what was left opened meanwhile.
        Circuit = "circuit",
        /// Something was already handed on to the caller.
        HandedOn = "handed_on",
    }
}

/// An account that goes on in another call: its begin, its id and its attempts so far.
#[derive(Debug, Clone)]
pub struct Carried {
    pub(crate) began: tokio::time::Instant,
    pub(crate) correlation_id: CorrelationId,
    pub(crate) attempts: Vec<AttemptRecord>,
    pub(crate) begun: u32,
}

/// How a call went wrong.
#[derive(Debug)]
pub enum CallErrorKind<E> {
    /// We refused: nothing was handed to a back end.
    Rejected(Rejection),
    /// It failed.
    Failed {
        /// The caller's own error; `None` if the attempt was cut before it gave one.
        error: Option<E>,
        /// The same in the engine's words; `sent` speaks of all attempts.
        failure: Failure,
        /// Why no further attempt was made.
        stopped: Stopped,
        /// The refusal that ended the tries, where one did.
        rejection: Option<Rejection>,
    },
    /// It was cancelled at the back end: neither success nor failure.
    Neutral(E),
    /// The work belongs elsewhere; the account is still open and goes on with what is carried.
    Redirected {
        /// What the endpoint said.
        error: E,
        /// To be handed to the next call's route.
        carried: Carried,
    },
}

/// A call that gave no result, with every attempt that was made.
#[derive(Debug)]
pub struct CallError<E> {
    parts: Box<CallErrorParts<E>>,
}

/// The parts of a [`CallError`].
#[derive(Debug)]
pub struct CallErrorParts<E> {
    /// How it went wrong.
    pub kind: CallErrorKind<E>,
    /// Every failed attempt, in order, redacted.
    pub attempts: Vec<AttemptRecord>,
    /// The call's id.
    pub correlation_id: CorrelationId,
    /// The whole call, waits included.
    pub elapsed: Duration,
}

impl<E> CallError<E> {
    pub(crate) fn new(
        kind: CallErrorKind<E>,
        attempts: Vec<AttemptRecord>,
        correlation_id: CorrelationId,
        elapsed: Duration,
    ) -> Self {
        CallError {
            parts: Box::new(CallErrorParts {
                kind,
                attempts,
                correlation_id,
                elapsed,
            }),
        }
    }

    /// The parts.
    pub fn parts(&self) -> &CallErrorParts<E> {
        &self.parts
    }

    /// The parts, owned.
    pub fn into_parts(self) -> CallErrorParts<E> {
        *self.parts
    }

    /// The refusal, if it is one.
    pub fn rejection(&self) -> Option<&Rejection> {
        match &self.parts.kind {
            CallErrorKind::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }

    /// The failure, if it is one.
    pub fn failure(&self) -> Option<&Failure> {
        match &self.parts.kind {
            CallErrorKind::Failed { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// The caller's own error, if an attempt gave one.
    pub fn into_error(self) -> Option<E> {
        match self.parts.kind {
            CallErrorKind::Failed { error, .. } => error,
            CallErrorKind::Neutral(error) | CallErrorKind::Redirected { error, .. } => Some(error),
            CallErrorKind::Rejected(_) => None,
        }
    }

    /// Whether it may have taken effect, over all attempts: one attempt with an unknown effect makes
    /// the call's effect unknown.
    pub fn sent(&self) -> Sent {
        let own = match &self.parts.kind {
            CallErrorKind::Rejected(_) => Sent::No,
            CallErrorKind::Failed { failure, .. } => failure.sent,
            CallErrorKind::Neutral(_) => Sent::Maybe,
            CallErrorKind::Redirected { .. } => Sent::YesUnprocessed,
        };
        let attempts = self.parts.attempts.iter();
        attempts
            .filter_map(|attempt| attempt.sent)
            .fold(own, Sent::and)
    }
}

impl<E> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.parts.kind {
            CallErrorKind::Rejected(rejection) => write!(f, "refused: {rejection}"),
            CallErrorKind::Failed {
                failure, stopped, ..
            } => {
                let count = self.parts.attempts.len();
                write!(
                    f,
                    "failed after {count} attempt{} ({stopped}): {failure}",
                    if count == 1 { "" } else { "s" }
                )
            }
            CallErrorKind::Neutral(_) => f.write_str("cancelled at the back end"),
            CallErrorKind::Redirected { .. } => f.write_str("belongs elsewhere"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for CallError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.parts.kind {
            CallErrorKind::Rejected(rejection) => Some(rejection),
            CallErrorKind::Failed {
                error: Some(error), ..
            }
            | CallErrorKind::Redirected { error, .. }
            | CallErrorKind::Neutral(error) => Some(error),
            CallErrorKind::Failed { failure, .. } => Some(failure),
        }
    }
}
