//! Work under a time limit, and what its end proves.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use mainstay_engine::{Attempt, Category, Failure, Safety, Sent};
use tokio::time::Instant;

use crate::connection::Cancel;
use crate::error::{Code, SqlError, Verdict};

/// How long a write that was cancelled at its limit may take to say that it did nothing.
const PROOF_WAIT: Duration = Duration::from_millis(250);

/// Whether the first byte has left, told on to the attempt.
pub(super) struct HandOver {
    attempt: Option<Attempt>,
    happened: AtomicBool,
}

impl HandOver {
    pub(super) fn new(attempt: Option<Attempt>) -> Self {
        HandOver {
            attempt,
            happened: AtomicBool::new(false),
        }
    }

    pub(super) fn tell(&self) {
        self.happened.store(true, Ordering::Release);
        if let Some(attempt) = &self.attempt {
            attempt.handed_over();
        }
    }

    pub(super) fn has_happened(&self) -> bool {
        self.happened.load(Ordering::Acquire)
    }
}

/// How work under a limit ended.
pub(super) enum Ended<T> {
    /// Before the limit.
    InTime(Result<T, SqlError>),
    /// The limit passed.
    Late {
        /// What came within the wait for a proof.
        result: Option<Result<T, SqlError>>,
        /// No cancel request is still on its way, which could hit what comes next.
        is_quiet: bool,
    },
}

/// Runs work until its limit. If that passes and `at_limit` says so, the work is cancelled at the
/// server and waited for a little longer; without a canceller it is just dropped.
pub(super) async fn until<T>(
    ends_at: Option<Instant>,
    cancel: Option<Arc<dyn Cancel>>,
    at_limit: impl FnOnce() -> bool,
    work: impl Future<Output = Result<T, SqlError>>,
) -> Ended<T> {
    let Some(ends_at) = ends_at else {
        return Ended::InTime(work.await);
    };
    let mut work = pin!(work);
    tokio::select! {
        biased;
        result = &mut work => return Ended::InTime(result),
        () = tokio::time::sleep_until(ends_at) => {}
    }
    late(cancel, at_limit, work).await
}

/// [`until`] the end of an attempt that announces it: there one timer serves both.
pub(super) async fn until_told<T>(
    attempt: &Attempt,
    cancel: Option<Arc<dyn Cancel>>,
    at_limit: impl FnOnce() -> bool,
    work: impl Future<Output = Result<T, SqlError>>,
) -> Ended<T> {
    let mut work = pin!(work);
    let mut has_begun = false;
    let in_time = poll_fn(|context| {
        // What nobody waits for any more is not begun.
        if !has_begun && attempt.poll_over(context).is_ready() {
            return Poll::Ready(None);
        }
        has_begun = true;
        match work.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => attempt.poll_over(context).map(|()| None),
        }
    });
    match in_time.await {
        Some(result) => Ended::InTime(result),
        None => late(cancel, at_limit, work).await,
    }
}

/// What follows when the limit has passed.
async fn late<T>(
    cancel: Option<Arc<dyn Cancel>>,
    at_limit: impl FnOnce() -> bool,
    work: Pin<&mut impl Future<Output = Result<T, SqlError>>>,
) -> Ended<T> {
    match cancel.filter(|_| at_limit()) {
        Some(cancel) => Box::pin(cancelled(cancel, work)).await,
        None => Ended::Late {
            result: None,
            is_quiet: true,
        },
    }
}

/// Cancels work at the server and waits a little for what it says to that.
async fn cancelled<T>(
    cancel: Arc<dyn Cancel>,
    mut work: Pin<&mut impl Future<Output = Result<T, SqlError>>>,
) -> Ended<T> {
    let mut enough = pin!(tokio::time::sleep(PROOF_WAIT));
    let mut cancelling = cancel.cancel();
    let (mut result, mut is_quiet) = (None, false);
    while result.is_none() || !is_quiet {
        tokio::select! {
            ended = &mut work, if result.is_none() => result = Some(ended),
            () = &mut cancelling, if !is_quiet => is_quiet = true,
            () = &mut enough => break,
        }
    }
    Ended::Late { result, is_quiet }
}

/// Decides what an error or a late answer proves.
pub(super) struct Judge {
    pub(super) safety: Safety,
    /// An ERROR of the server means that nothing happened.
    pub(super) proves_on_error: bool,
}

impl Judge {
    pub(super) fn read() -> Self {
        Judge {
            safety: Safety::Read,
            proves_on_error: true,
        }
    }

    /// An error that came in time, or as the proof.
    pub(super) fn error(&self, mut error: SqlError) -> SqlError {
        let is_undone = error.detail().verdict == Verdict::Undone;
        if error.sent() == Sent::YesUnprocessed && !self.proves_on_error && !is_undone {
            error.detail_mut().failure.sent = Sent::Maybe;
        }
        if self.safety.is_read()
            || error.sent() != Sent::Maybe
            || matches!(error.code(), Code::OutcomeUnknown | Code::AnswerTooLarge)
        {
            return error;
        }
        unknown(error)
    }

    /// What came after we had cancelled.
    pub(super) fn late<T>(
        &self,
        result: Option<Result<T, SqlError>>,
        was_handed_over: bool,
    ) -> SqlError {
        match result {
            // The cancel may have undone a part of it that the answer does not show.
            Some(Ok(_)) if !self.safety.is_read() => unknown(SqlError::new(
                Code::OutcomeUnknown,
                Failure::new(
                    Category::Timeout,
                    "an answer came only after the statement had been cancelled at its time limit",
                ),
            )),
            Some(Err(error)) if error.detail().verdict == Verdict::Neutral => {
                let sent = if self.proves_on_error {
                    error.sent()
                } else {
                    Sent::Maybe
                };
                self.error(timeout(sent))
            }
            Some(Err(error)) => self.error(error),
            _ if was_handed_over => self.error(timeout(Sent::Maybe)),
            _ => self.error(timeout(Sent::No)),
        }
    }
}

/// The attempt's limit has passed.
pub(super) fn timeout(sent: Sent) -> SqlError {
    let failure = Failure::new(
        Category::Timeout,
        "the time limit of the attempt has passed",
    );
    SqlError::new(Code::DeadlineExceeded, failure.sent(sent))
        .hint("give it more time (deadline, retry.attempt_timeout), or ask for less")
}

/// The same error, saying that its effect is unknown.
pub(super) fn unknown(mut error: SqlError) -> SqlError {
    let detail = error.detail_mut();
    detail.code = Code::OutcomeUnknown;
    detail.failure.sent = Sent::Maybe;
    error.hint("it may have taken effect: look before you send it again")
}
