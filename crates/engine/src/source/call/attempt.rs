//! One attempt: running the work under its limits and recording the end.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::super::Member;
use super::Run;
use super::decision::Failed;
use crate::attempt::{Attempt, Marks};
use crate::endpoint::{CutMark, Endpoint};
use crate::failure::{Blame, Category, Classify, Failure, Outcome, Sent};
use crate::in_flight::InFlight;
use crate::intercept::Fault;

/// How an attempt ended.
pub(super) enum AttemptEnd<T, E> {
    /// The result and when it came, in nanoseconds of the source's origin as well.
    Success(T, Instant, u64),
    Failure(Box<Failed<E>>),
    Neutral(E),
    Redirect(E),
}

/// How running the work ended.
enum Ran<T, E> {
    Result(Result<T, E>),
    TimedOut,
    Cut,
    Injected(Failure),
}

impl<M: Member, E: fmt::Display> Run<'_, M, E> {
    /// Runs one attempt to its end and records it.
    pub(super) async fn attempt<T, F, Fut>(
        &mut self,
        in_flight: &mut InFlight<M>,
        classify: &impl Classify<T, E>,
        work: &F,
    ) -> AttemptEnd<T, E>
    where
        F: Fn(Attempt<M>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let (attempt, marks) = self.hand_out(in_flight, self.limit.ends_at);
        let fault = self
            .inner
            .fault(self.operation, &attempt.endpoint, attempt.number)
            .map(Box::new);
        let bounds = Bounds {
            ends_at: self.limit.ends_at,
            grace: self.route.grace,
            mark: self.limit.mark,
            marks: marks.as_deref(),
        };
        let ran = match fault {
            None => 'ran: {
                let mut work = pin!(work(attempt));
                // What ends at once needs neither timer nor cut.
                let first = poll_fn(|context| Poll::Ready(work.as_mut().poll(context)));
                if let Poll::Ready(result) = first.await {
                    break 'ran Ran::Result(result);
                }
                bounds.hold(work, in_flight).await
            }
            Some(fault) => Box::pin(injected(*fault, || work(attempt), bounds, in_flight)).await,
        };
        let now = Instant::now();
        let at = self.inner.origin.nanos(now);
        let ended = match ran {
            Ran::Result(result) => match (classify.classify(&result), result) {
                (Outcome::Success, Ok(value)) => {
                    let elapsed = in_flight.succeed(now, at);
                    self.account.attempted(elapsed, None);
                    return AttemptEnd::Success(value, now, at);
                }
                (outcome, result) => (outcome, Some(result)),
            },
            ran => {
                let outcome =
                    ran.without_result(marks.as_deref(), self.limit.ends_at, in_flight.began);
                (outcome, None)
            }
        };
        self.give_up(ended, in_flight, now, at)
    }

    /// Records an attempt that gave no good result.
    #[cold]
    fn give_up<T>(
        &mut self,
        (outcome, result): (Outcome, Option<Result<T, E>>),
        in_flight: &mut InFlight<M>,
        now: Instant,
        at: u64,
    ) -> AttemptEnd<T, E> {
        let placed = in_flight.placed();
        let (endpoint, role) = (Arc::clone(&placed.endpoint), placed.role);
        let retry = &placed.policy.retry;
        let outcome = overruled(outcome, &retry.on, &retry.never);
        let cut_short =
            self.limit.cut_by_deadline && is_below_p99(&outcome, &endpoint, in_flight.began, now);
        let elapsed = in_flight.finish(&outcome, cut_short, now, at);
        match (outcome, result) {
            (Outcome::Neutral, Some(Err(error))) => {
                self.account.attempted_in_vain(elapsed, &error);
                AttemptEnd::Neutral(error)
            }
            (Outcome::Redirect, Some(Err(error))) => {
                self.account.attempted_in_vain(elapsed, &error);
                AttemptEnd::Redirect(error)
            }
            (outcome, result) => {
                let failure = failure_of(outcome);
                self.account.attempted(elapsed, Some(&failure));
                AttemptEnd::Failure(Box::new(Failed {
                    endpoint,
                    role,
                    error: result.and_then(Result::err),
                    failure,
                }))
            }
        }
    }

    /// What the work gets, and the marks through which it reports, where it does.
    fn hand_out(
        &mut self,
        in_flight: &mut InFlight<M>,
        ends_at: Option<Instant>,
    ) -> (Attempt<M>, Option<Arc<Marks>>) {
        let marks = self.route.tracks.then(|| {
            let slot = in_flight.hand_out_slot();
            let slot = slot.map(|slot| Box::new(slot) as Box<dyn std::any::Any + Send + Sync>);
            Marks::within(self.route.outer.clone(), slot)
        });
        let placed = in_flight.placed();
        self.account.on(placed.endpoint.id.clone());
        if let Some(progress) = &mut self.progress {
            progress.primary_wait_ends = None;
        }
        let attempt = Attempt::new(
            placed.member.clone(),
            placed.endpoint.id.clone(),
            self.account.begun,
            ends_at,
            self.account.correlation_id,
            marks.clone(),
        );
        let attempt = match self.route.grace.is_zero() {
            true => attempt,
            false => attempt.announcing_end(),
        };
        (attempt, marks)
    }
}

/// Rules of the policy by the back end's code.
fn overruled(outcome: Outcome, on: &[String], never: &[String]) -> Outcome {
    let Outcome::Failure(mut failure) = outcome else {
        return outcome;
    };
    if let Some(code) = failure.code.as_deref() {
        if never.iter().any(|rule| rule == code) {
            failure.category = Category::Persistent;
        } else if on.iter().any(|rule| rule == code) && !failure.is_retryable() {
            failure.category = Category::Transient;
        }
    }
    Outcome::Failure(failure)
}

/// Whether a timeout came only from the caller's own deadline, sooner than the endpoint's p99.
fn is_below_p99(outcome: &Outcome, endpoint: &Endpoint, began: Instant, now: Instant) -> bool {
    let Outcome::Failure(failure) = outcome else {
        return false;
    };
    failure.category == Category::Timeout
        && endpoint
            .stats
            .quantile_if_fresh(0.99, now)
            .is_none_or(|p99| now.saturating_duration_since(began) < p99)
}

/// What ends an attempt before its work does.
struct Bounds<'a> {
    ends_at: Option<Instant>,
    /// How long the work may go on when it was told that its time is over.
    grace: Duration,
    /// How far the endpoint's cuts were at the beginning.
    mark: CutMark,
    /// Through which it is told.
    marks: Option<&'a Marks>,
}

impl Bounds<'_> {
    /// Runs work until it ends, its time is over or its endpoint is given up.
    async fn hold<T, E, M>(
        self,
        work: impl Future<Output = Result<T, E>> + Unpin,
        in_flight: &mut InFlight<M>,
    ) -> Ran<T, E> {
        in_flight.keep();
        // Also when this is dropped: work that runs elsewhere ends with the attempt that it belongs to.
        let mut told = Told(self.marks);
        let mut work = work;
        let mut cut = pin!(in_flight.placed().endpoint.cut_since(self.mark));
        let Some(end) = self.ends_at else {
            return tokio::select! {
                biased;
                result = work => {
                    told.needs_no_word();
                    Ran::Result(result)
                }
                () = cut => Ran::Cut,
            };
        };
        tokio::select! {
            biased;
            result = &mut work => {
                told.needs_no_word();
                return Ran::Result(result);
            }
            () = &mut cut => return Ran::Cut,
            () = tokio::time::sleep_until(end) => {}
        }
        if self.grace.is_zero() {
            return Ran::TimedOut;
        }
        drop(told);
        // Whether it was told or has a timer of its own, it knows best how to end.
        let last = async {
            tokio::select! {
                biased;
                result = work => Ran::Result(result),
                () = cut => Ran::Cut,
                () = tokio::time::sleep(self.grace) => Ran::TimedOut,
            }
        };
        Box::pin(last).await
    }
}

/// Tells the work at its drop that its time is over.
struct Told<'a>(Option<&'a Marks>);

impl Told<'_> {
    /// The work has ended by itself.
    fn needs_no_word(&mut self) {
        self.0 = None;
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if let Some(marks) = self.0 {
            marks.end();
        }
    }
}

async fn injected<T, E, Fut, M>(
    fault: Fault,
    work: impl FnOnce() -> Fut,
    bounds: Bounds<'_>,
    in_flight: &mut InFlight<M>,
) -> Ran<T, E>
where
    Fut: Future<Output = Result<T, E>>,
{
    match fault {
        Fault::Error(failure) => Ran::Injected(failure),
        Fault::Hang => bounds.hold(std::future::pending(), in_flight).await,
        Fault::Delay(delay) => {
            let delayed = async {
                tokio::time::sleep(delay).await;
                work().await
            };
            bounds.hold(pin!(delayed), in_flight).await
        }
    }
}

impl<T, E> Ran<T, E> {
    /// What it means that the work gave no result.
    fn without_result(
        self,
        marks: Option<&Marks>,
        ends_at: Option<Instant>,
        began: Instant,
    ) -> Outcome {
        let sent = match marks {
            Some(marks) if !marks.is_handed_over() => Sent::No,
            _ => Sent::Maybe,
        };
        let message = match self {
            Ran::Injected(failure) => return Outcome::Failure(failure),
            Ran::Result(_) => return Outcome::Neutral,
            Ran::TimedOut => {
                let limit = ends_at
                    .map(|end| end.saturating_duration_since(began))
                    .unwrap_or_default();
                Cow::from(format!("no answer within {limit:?}"))
            }
            // Our own doing. Where the endpoint is at fault its health has said so already.
            Ran::Cut => {
                let message = "the endpoint went down, was isolated or lost its role meanwhile";
                let failure = Failure::new(Category::Timeout, message).blame(Blame::Us);
                return Outcome::Failure(failure.sent(sent));
            }
        };
        Outcome::Failure(Failure::new(Category::Timeout, message).sent(sent))
    }
}

fn failure_of(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failure(failure) => failure,
        // A classifier that calls an error a success, or a result neutral: nothing else fits.
        Outcome::Success | Outcome::Neutral | Outcome::Redirect => Failure::new(
            Category::Unknown,
            "the result and its classification contradict each other",
        ),
    }
}
