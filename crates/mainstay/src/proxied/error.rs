//! The error around a transient error that did not go away.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use mainstay_engine::{CorrelationId, Failure, Rejection, Sent, Stopped};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// A method that gave no result: its last transient error, or why it was not asked, with the method's
/// name, how often it was tried and how long that took.
///
/// It is as large as a pointer, so that an error type may have itself in it.
pub struct MethodError<E> {
    pub(super) parts: Box<Parts<E>>,
}

pub(super) struct Parts<E> {
    pub(super) method: &'static str,
    pub(super) attempts: u32,
    pub(super) elapsed: Duration,
    pub(super) stopped: Option<Stopped>,
    pub(super) sent: Sent,
    pub(super) correlation_id: CorrelationId,
    pub(super) cause: Cause<E>,
}

/// Why a method gave no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause<E> {
    /// Its last error, a transient one.
    Error(E),
    /// The attempt was cut before it gave an error: a time limit, or an isolated circuit.
    Cut(Failure),
    /// It was not asked: an open circuit, a limit, a deadline.
    Refused(Rejection),
}

impl<E> MethodError<E> {
    /// The method's name.
    pub fn method(&self) -> &'static str {
        self.parts.method
    }

    /// How often it was tried; 0 if it was refused.
    pub fn attempts(&self) -> u32 {
        self.parts.attempts
    }

    /// The whole call, pauses included.
    pub fn elapsed(&self) -> Duration {
        self.parts.elapsed
    }

    /// Why there was no further attempt; `None` if there was none at all.
    pub fn stopped(&self) -> Option<Stopped> {
        self.parts.stopped
    }

    /// Whether it may have taken effect, over all attempts.
    pub fn sent(&self) -> Sent {
        self.parts.sent
    }

    /// The call's id, as it stands in the audit entry.
    pub fn correlation_id(&self) -> CorrelationId {
        self.parts.correlation_id
    }

    /// Why it gave no result.
    pub fn cause(&self) -> &Cause<E> {
        &self.parts.cause
    }

    /// The same, owned.
    pub fn into_cause(self) -> Cause<E> {
        self.parts.cause
    }

    /// The method's last error, if it gave one.
    pub fn error(&self) -> Option<&E> {
        match &self.parts.cause {
            Cause::Error(error) => Some(error),
            _ => None,
        }
    }

    /// The refusal, if the method was not asked.
    pub fn rejection(&self) -> Option<&Rejection> {
        match &self.parts.cause {
            Cause::Refused(rejection) => Some(rejection),
            _ => None,
        }
    }
}

impl<E: fmt::Display> MethodError<E> {
    /// As JSON: `method`, `attempts`, `elapsed_ms`, `stopped`, `sent`, `source`, `correlation_id`. The
    /// error is [`Serialize`] in the same form.
    pub fn to_json(&self) -> String {
        // Texts and numbers cannot fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn source_text(&self) -> String {
        match &self.parts.cause {
            Cause::Error(error) => error.to_string(),
            Cause::Cut(failure) => failure.to_string(),
            Cause::Refused(rejection) => rejection.to_string(),
        }
    }
}

impl<E: fmt::Display> Serialize for MethodError<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts = &*self.parts;
        let elapsed_ms = u64::try_from(parts.elapsed.as_millis()).unwrap_or(u64::MAX);
        let mut fields = serializer.serialize_struct("MethodError", 7)?;
        fields.serialize_field("method", parts.method)?;
        fields.serialize_field("attempts", &parts.attempts)?;
        fields.serialize_field("elapsed_ms", &elapsed_ms)?;
        fields.serialize_field("stopped", &parts.stopped.map(Stopped::as_str))?;
        fields.serialize_field("sent", parts.sent.as_str())?;
        fields.serialize_field("source", &self.source_text())?;
        fields.serialize_field("correlation_id", &parts.correlation_id.to_string())?;
        fields.end()
    }
}

impl<E> fmt::Display for MethodError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.parts;
        let method = parts.method;
        if let Cause::Refused(_) = parts.cause {
            return write!(f, "`{method}` was refused");
        }
        let times = match parts.attempts {
            1 => "1 attempt".to_owned(),
            many => format!("{many} attempts"),
        };
        write!(f, "`{method}` failed after {times} in {:?}", parts.elapsed)?;
        f.write_str(match parts.stopped {
            Some(Stopped::NotSafe) => {
                ": it is a write that may have taken effect, so look before you repeat it"
            }
            Some(Stopped::Budget) => ": the retry budget is spent; send less, or try later",
            Some(Stopped::Deadline) => {
                ": the deadline leaves no time; give the call more, or try later"
            }
            Some(Stopped::Circuit) => ": its circuit opened meanwhile; try later",
            _ => ": what is behind it is still in trouble; try later",
        })
    }
}

impl<E: fmt::Debug> fmt::Debug for MethodError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.parts;
        f.debug_struct("MethodError")
            .field("method", &parts.method)
            .field("attempts", &parts.attempts)
            .field("elapsed", &parts.elapsed)
            .field("stopped", &parts.stopped)
            .field("cause", &parts.cause)
            .finish_non_exhaustive()
    }
}

impl<E: Error + 'static> Error for MethodError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(match &self.parts.cause {
            Cause::Error(error) => error,
            Cause::Cut(failure) => failure,
            Cause::Refused(rejection) => rejection,
        })
    }
}

/// Keeps the kind of the last error; a refusal is `ResourceBusy`, a cut attempt `TimedOut`. The
/// [`MethodError`] is found by `get_ref` and `downcast`.
impl From<MethodError<io::Error>> for io::Error {
    fn from(error: MethodError<io::Error>) -> Self {
        let kind = match error.cause() {
            Cause::Error(error) => error.kind(),
            Cause::Cut(_) => io::ErrorKind::TimedOut,
            Cause::Refused(_) => io::ErrorKind::ResourceBusy,
        };
        io::Error::new(kind, error)
    }
}

/// Both levels as one text.
impl From<MethodError<String>> for String {
    fn from(error: MethodError<String>) -> Self {
        format!("{error}: {}", error.source_text())
    }
}
