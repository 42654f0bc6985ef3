//! From what the engine says about a call to an error that a caller can act on.

use std::sync::Arc;

use mainstay_engine::rejection::{CallErrorParts, Rejection};
use mainstay_engine::{
    Blame, CallErrorKind, Category, Failure, Outcome, RejectionReason, Safety, Sent, Stopped,
};

use crate::error::{Code, SqlError, Verdict};

/// What a result of a member means to the engine.
pub(super) fn classify<T>(result: &Result<T, SqlError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(error) => match error.detail().verdict {
            Verdict::Neutral => Outcome::Neutral,
            Verdict::ReadOnly => Outcome::Redirect,
            _ => Outcome::Failure(error.failure().clone()),
        },
    }
}

/// The error that the caller of a verb gets.
pub(super) fn from_parts(parts: CallErrorParts<SqlError>, safety: Safety) -> SqlError {
    let CallErrorParts {
        kind,
        attempts,
        correlation_id,
    } = parts;
    let mut error = match kind {
        CallErrorKind::Rejected(rejection) => refused(rejection),
        CallErrorKind::Failed {
            error,
            failure,
            stopped,
            rejection,
        } => failed(error, failure, stopped, rejection, safety),
        CallErrorKind::Neutral(mut error) => {
            error.detail_mut().code = Code::Cancelled;
            error
        }
        CallErrorKind::Redirected { error, .. } => error,
    };
    let detail = error.detail_mut();
    if detail.endpoint.is_none() {
        detail.endpoint = attempts.last().map(|attempt| Arc::clone(&attempt.endpoint));
    }
    detail.attempts = attempts;
    detail.correlation_id = Some(correlation_id);
    error
}

fn refused(rejection: Rejection) -> SqlError {
    let code = code_of(rejection.reason);
    let mut failure = Failure::new(Category::Saturation, rejection.message)
        .blame(Blame::Us)
        .sent(Sent::No);
    failure.retry_after = rejection.retry_after;
    SqlError::new(code, failure)
}

fn code_of(reason: RejectionReason) -> Code {
    match reason {
        RejectionReason::NoPrimary => Code::NoPrimary,
        RejectionReason::NoEndpoint => Code::NoEndpoint,
        RejectionReason::CircuitOpen => Code::CircuitOpen,
        RejectionReason::QueueFull => Code::QueueFull,
        RejectionReason::QueueTimeout => Code::QueueTimeout,
        RejectionReason::Paused => Code::Paused,
        RejectionReason::Draining => Code::Draining,
        RejectionReason::RateLimited => Code::RateLimited,
        RejectionReason::DeadlineExceeded => Code::DeadlineExceeded,
    }
}

fn failed(
    error: Option<SqlError>,
    failure: Failure,
    stopped: Stopped,
    rejection: Option<Rejection>,
    safety: Safety,
) -> SqlError {
    let unknown = !safety.is_read() && failure.sent == Sent::Maybe;
    let mut error = error.unwrap_or_else(|| {
        let code = match failure.category {
            Category::Timeout if stopped == Stopped::Deadline => Code::DeadlineExceeded,
            _ => Code::AttemptsFailed,
        };
        SqlError::new(code, failure.clone())
    });
    let detail = error.detail_mut();
    if unknown && speaks_of_the_back_end(detail.code) {
        detail.code = Code::OutcomeUnknown;
        detail.hint = Some(
            "it may or may not have taken effect; look before you send it again, or make it repeatable by a key"
                .to_owned(),
        );
    } else if stopped == Stopped::Deadline && speaks_of_the_back_end(detail.code) {
        detail.code = Code::DeadlineExceeded;
    } else if let (Some(rejection), true) = (rejection, detail.code == Code::AttemptsFailed) {
        detail.failure.retry_after = detail.failure.retry_after.max(rejection.retry_after);
    }
    if detail.hint.is_none() {
        detail.hint = Some(advice(detail.code, stopped).to_owned());
    }
    error
}

/// Whether a code only says that the back end failed, so that what the call came to says more.
fn speaks_of_the_back_end(code: Code) -> bool {
    matches!(
        code,
        Code::AttemptsFailed | Code::DeadlineExceeded | Code::PoolTimeout | Code::OutcomeUnknown
    )
}

fn advice(code: Code, stopped: Stopped) -> &'static str {
    match (code, stopped) {
        (Code::DeadlineExceeded, _) => {
            "give the call a longer deadline, or see why the endpoint is slow"
        }
        (_, Stopped::Budget) => {
            "the retry budget is spent: too many calls fail; see the endpoints' status"
        }
        (_, Stopped::Exhausted) => {
            "every allowed attempt failed; see the attempts and the endpoints' status"
        }
        (_, Stopped::Circuit) => {
            "the circuits of the remaining endpoints are open; try again later"
        }
        _ => "see the message for what the database said",
    }
}
