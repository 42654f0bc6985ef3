//! Why a try, or all of them, gave no good reply.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainstay_engine::{Blame, CallError, CallErrorKind, Category, Failure, Sent, Severity};
use smol_str::SmolStr;

use crate::broker::{Headers, PublishError, PublishErrorKind};
use crate::object::ObjectError;
use crate::refusal::Meaning;

/// An error reply of a target.
#[derive(Debug, Clone)]
pub(crate) struct ErrorReply {
    pub headers: Headers,
    pub content_type: Option<SmolStr>,
    pub body: Bytes,
    pub meaning: Meaning,
    /// The target's own name of the operation.
    pub operation: Arc<str>,
}

impl ErrorReply {
    pub(crate) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

/// A request that no target acknowledged.
pub(crate) struct Undriven {
    pub error: CallError<AttemptError>,
    /// The last error that a target answered with, if any did: it says more than the silence of another.
    pub refused: Option<Box<ErrorReply>>,
}

impl Undriven {
    /// What went wrong, for a reader.
    pub(crate) fn reason(&self) -> String {
        match (&self.refused, &self.error.parts().kind) {
            (Some(reply), _) => reply.text().into_owned(),
            (None, CallErrorKind::Rejected(rejection)) => rejection.message.clone(),
            (None, CallErrorKind::Failed { failure, .. }) => failure.message.clone().into_owned(),
            (None, CallErrorKind::Neutral(_) | CallErrorKind::Redirected { .. }) => {
                "it was cancelled".to_owned()
            }
        }
    }
}

/// Why a try gave no good reply.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// The request was not published.
    Publish(PublishError),
    /// No reply came in time.
    NoReply {
        waited: Duration,
        /// It works on something older: silence says nothing about it.
        busy: bool,
        /// The connection to its broker was down meanwhile.
        unlinked: bool,
        /// Whether the request left at all.
        sent: Sent,
    },
    /// The target answered with an error.
    Refused(Box<ErrorReply>),
    /// The target answered, and not with what acknowledges.
    NotAcknowledged,
    /// The argument could not be put where the target reads it.
    Object(ObjectError),
    /// A write could not be written down before it would run.
    NotWritten,
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttemptError::Publish(error) => write!(f, "not published: {error}"),
            AttemptError::NoReply {
                waited, busy: true, ..
            } => {
                write!(
                    f,
                    "no acknowledgement within {waited:?}, it is busy with older work"
                )
            }
            AttemptError::NoReply {
                waited,
                unlinked: true,
                ..
            } => {
                write!(
                    f,
                    "no acknowledgement within {waited:?}, the connection to its broker was down"
                )
            }
            AttemptError::NoReply { waited, .. } => {
                write!(f, "no acknowledgement within {waited:?}")
            }
            AttemptError::Refused(reply) => write!(f, "error reply: {}", reply.text()),
            AttemptError::NotAcknowledged => {
                f.write_str("its reply does not acknowledge the request")
            }
            AttemptError::Object(error) => write!(f, "the argument was not passed on: {error}"),
            AttemptError::NotWritten => f.write_str("not written down before it would run"),
        }
    }
}

impl AttemptError {
    /// In the engine's words.
    pub(super) fn failure(&self) -> Failure {
        let failure = |category| Failure::new(category, self.to_string());
        match self {
            AttemptError::Publish(error) => {
                let category = match &error.kind {
                    PublishErrorKind::TooLarge { .. } => Category::Persistent,
                    PublishErrorKind::Refused { .. } | PublishErrorKind::Unroutable { .. } => {
                        Category::Endpoint
                    }
                    _ => Category::Transient,
                };
                failure(category).sent(error.sent)
            }
            // Straight to the next one, and no mark.
            AttemptError::NoReply {
                busy,
                unlinked,
                sent,
                ..
            } if *busy || *unlinked => failure(Category::Endpoint)
                .severity(Severity::None)
                .blame(Blame::Us)
                .sent(*sent),
            AttemptError::NoReply { sent, .. } => failure(Category::Timeout).sent(*sent),
            AttemptError::Refused(reply) => {
                failure(reply.meaning.category).sent(reply.meaning.sent)
            }
            AttemptError::NotAcknowledged => failure(Category::Transient),
            AttemptError::Object(_) => failure(Category::Transient).blame(Blame::Us).sent(Sent::No),
            AttemptError::NotWritten => failure(Category::Endpoint).blame(Blame::Us).sent(Sent::No),
        }
    }

    /// Whether new requests had better go elsewhere.
    pub(super) fn speaks_against_target(&self) -> bool {
        match self {
            AttemptError::Publish(error) => matches!(
                error.kind,
                PublishErrorKind::Unroutable { .. } | PublishErrorKind::Refused { .. }
            ),
            AttemptError::NoReply { busy, unlinked, .. } => !busy && !unlinked,
            AttemptError::Refused(reply) => matches!(
                reply.meaning.category,
                Category::Transient | Category::Endpoint
            ),
            AttemptError::NotAcknowledged => true,
            AttemptError::Object(_) | AttemptError::NotWritten => false,
        }
    }
}
