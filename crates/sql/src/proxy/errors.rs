//! From what the engine says about a call to an error that a caller can act on.

use mainstay_engine::rejection::{CallErrorParts, Rejection};
use mainstay_engine::{
    Blame, CallErrorKind, Category, EndpointId, Failure, Operation, Outcome, RejectionReason,
    Safety, Sent, Stopped,
};

use super::DataProxy;
use crate::database::Access;
use crate::error::{Code, SqlError, Verdict};

/// What a result of a member means to the engine.
pub(super) fn classify<T>(result: &Result<T, SqlError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(error) => match error.detail().verdict {
            Verdict::Neutral => Outcome::Neutral,
            // What became of it is found out elsewhere.
            Verdict::ReadOnly | Verdict::CommitLost => Outcome::Redirect,
            Verdict::Once => Outcome::Failure(error.failure().clone().sent(Sent::Maybe)),
            _ => Outcome::Failure(error.failure().clone()),
        },
    }
}

/// The error that a caller outside of this source gets from something held on an endpoint.
pub(super) fn outward(endpoint: &EndpointId, error: SqlError) -> SqlError {
    let mut error = at(endpoint, error);
    // Counted by the endpoint's own pool, of which nobody outside of this source knows.
    error.detail_mut().failure.generation = None;
    error
}

/// The error with the endpoint it happened on.
pub(super) fn at(endpoint: &EndpointId, mut error: SqlError) -> SqlError {
    let detail = error.detail_mut();
    detail.endpoint = Some(super::route::path(endpoint, detail.endpoint.as_deref()));
    error
}

/// The error of a write with an idempotency key, which can always be sent again.
pub(super) fn with_key(error: SqlError) -> SqlError {
    match error.code() {
        Code::OutcomeUnknown => error.hint(
            "it may or may not have taken effect; send it again with the same idempotency key, which gives the answer of the first time if it did",
        ),
        _ => error,
    }
}

impl DataProxy {
    /// The error that the caller of a verb gets. The only way from the engine's error to ours, so that no
    /// redirect leaves the account of its call open: the declared access stands, nothing is run again as
    /// something else.
    ///
    /// `safety`: of what was under way, by which the error is judged.
    pub(super) fn failed(
        &self,
        parts: CallErrorParts<SqlError>,
        operation: &Operation,
        access: Access,
        safety: Safety,
    ) -> SqlError {
        let CallErrorParts {
            kind,
            attempts,
            correlation_id,
            ..
        } = parts;
        let mut error = match kind {
            CallErrorKind::Rejected(rejection) => refused(rejection),
            CallErrorKind::Failed {
                error,
                failure,
                stopped,
                rejection,
            } => failed(error, failure, stopped, rejection, safety),
            CallErrorKind::Neutral(error) => {
                let sent = attempts.iter().filter_map(|attempt| attempt.sent);
                neutral(error, sent.fold(Sent::No, Sent::and), safety)
            }
            CallErrorKind::Redirected { error, carried } => match access {
                Access::ReadWrite if error.detail().verdict != Verdict::CommitLost => {
                    self.not_primary(error, carried, operation)
                }
                _ => {
                    let failure = error.failure().clone();
                    self.source().settle_carried(operation, carried, &failure);
                    error
                }
            },
        };
        let detail = error.detail_mut();
        // Counted by the endpoint's own pool, of which nobody outside of this source knows.
        detail.failure.generation = None;
        if detail.endpoint.is_none() {
            detail.endpoint = attempts.last().map(|attempt| attempt.endpoint.clone());
        }
        detail.attempts = attempts;
        detail.correlation_id = Some(correlation_id);
        error
    }
}

/// Cancelled, after attempts that together prove `earlier`.
fn neutral(mut error: SqlError, earlier: Sent, safety: Safety) -> SqlError {
    let sent = error.sent().and(earlier);
    let is_unknown = !safety.is_read() && sent == Sent::Maybe;
    let detail = error.detail_mut();
    detail.failure.sent = sent;
    detail.code = match is_unknown {
        true => Code::OutcomeUnknown,
        false => Code::Cancelled,
    };
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
    let mut failure = failure;
    if let Some(error) = &error
        && error.detail().verdict == Verdict::Once
    {
        // Attempts before it handed nothing over: what it proves is what all of them prove.
        failure.sent = error.sent();
    }
    let unknown = !safety.is_read() && failure.sent == Sent::Maybe;
    let mut error = error.unwrap_or_else(|| {
        let code = match failure.category {
            Category::Timeout if stopped == Stopped::Deadline => Code::DeadlineExceeded,
            _ => Code::AttemptsFailed,
        };
        SqlError::new(code, failure.clone())
    });
    // The last attempt may prove more than all of them do.
    let hides_earlier = error.sent().is_proven_harmless();
    let detail = error.detail_mut();
    detail.failure.sent = failure.sent;
    if unknown && (hides_earlier || speaks_of_the_back_end(detail.code)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a call whose attempts together prove `all`, the last of which gave `error`.
    fn failed_as(error: SqlError, all: Sent, safety: Safety) -> SqlError {
        let failure = error.failure().clone().sent(all);
        failed(Some(error), failure, Stopped::Exhausted, None, safety)
    }

    #[test]
    fn an_unknown_effect_of_an_earlier_attempt_is_said_in_sent_and_code() {
        use Safety::{IdempotentWrite, Read};
        let unknown = Code::OutcomeUnknown;
        for (code, last, all, safety, expected) in [
            (
                Code::AttemptsFailed,
                Sent::No,
                Sent::Maybe,
                IdempotentWrite,
                unknown,
            ),
            (
                Code::Constraint,
                Sent::YesUnprocessed,
                Sent::Maybe,
                IdempotentWrite,
                unknown,
            ),
            (
                Code::AnswerTooLarge,
                Sent::Maybe,
                Sent::Maybe,
                IdempotentWrite,
                Code::AnswerTooLarge,
            ),
            (
                Code::Constraint,
                Sent::YesUnprocessed,
                Sent::YesUnprocessed,
                IdempotentWrite,
                Code::Constraint,
            ),
            (
                Code::AttemptsFailed,
                Sent::No,
                Sent::Maybe,
                Read,
                Code::AttemptsFailed,
            ),
        ] {
            let failure = Failure::new(Category::Transient, "x").sent(last);
            let error = failed_as(SqlError::new(code, failure), all, safety);
            let got = (error.code(), error.sent());
            assert_eq!(got, (expected, all), "{code} {last} {safety}");
        }
    }

    #[test]
    fn a_cancelled_write_after_an_unknown_attempt_is_unknown() {
        for (earlier, safety, expected) in [
            (Sent::No, Safety::IdempotentWrite, Code::Cancelled),
            (
                Sent::YesUnprocessed,
                Safety::IdempotentWrite,
                Code::Cancelled,
            ),
            (Sent::Maybe, Safety::IdempotentWrite, Code::OutcomeUnknown),
            (Sent::Maybe, Safety::Read, Code::Cancelled),
        ] {
            let failure = Failure::new(Category::Transient, "x").sent(Sent::YesUnprocessed);
            let error = SqlError::new(Code::AttemptsFailed, failure);
            let error = neutral(error, earlier, safety);
            assert_eq!(error.code(), expected, "{earlier} {safety}");
            assert_eq!(error.sent(), Sent::YesUnprocessed.and(earlier));
        }
    }
}
