//! One attempt: choosing and asking an endpoint, running the work under its limits, recording the end.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::super::candidates::Choice;
use super::super::{Member, Need, Snapshot};
use super::decision::Failed;
use super::{Run, Stop, deadline_passed};
use crate::attempt::{Attempt, Marks};
use crate::endpoint::{Endpoint, Placed};
use crate::event::EventKind;
use crate::failure::{Category, Classify, Failure, Outcome, Sent};
use crate::gate::{Refusal, Ticket};
use crate::in_flight::InFlight;
use crate::intercept::Fault;
use crate::rejection::{Reason, Rejection, Stopped};

/// A trial of a half-open circuit keeps its permit for so long if attempts have no limit.
const TRIAL_LEASE: Duration = Duration::from_secs(30);
/// And longer than the attempt's limit by this, so that an attempt that times out still decides.
const TRIAL_LEASE_MARGIN: Duration = Duration::from_secs(1);

/// An attempt that an endpoint let in.
pub(super) struct Begun<M> {
    in_flight: InFlight<M>,
    ends_at: Option<Instant>,
    /// The caller's deadline ends the attempt earlier than the policy would.
    cut_by_deadline: bool,
}

/// What the gate of an endpoint gave.
struct Asked {
    ticket: Ticket,
    ends_at: Option<Instant>,
    cut_by_deadline: bool,
}

/// How an attempt ended.
pub(super) enum AttemptEnd<T, E> {
    /// The result and when it came.
    Success(T, Instant),
    Failure(Failed<E>),
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
    /// Finds an endpoint that lets the next attempt in, waiting where the policy says so.
    pub(super) async fn begin_attempt(&mut self) -> Result<Begun<M>, Stop> {
        loop {
            let inner = self.inner;
            let (now, mut snapshot) = self.fresh.take().unwrap_or_else(|| inner.fresh());
            if self.ends_at.is_some_and(|end| now >= end) {
                return Err(Stop::Stopped(Stopped::Deadline));
            }
            let need = self.route.need.unwrap_or_else(|| {
                Need::of(self.operation.safety, snapshot.policy.route.read_from)
            });
            match self.choose(&snapshot, need, now) {
                Choice::Use { index, last_resort } => {
                    let placed = snapshot.placed(index);
                    self.check_time_left(&placed.endpoint, now)?;
                    if let Some(asked) = self.ask(placed, now) {
                        self.note_admission(&snapshot, index, last_resort);
                        return Ok(Begun {
                            in_flight: InFlight::new(snapshot, index, asked.ticket, now),
                            ends_at: asked.ends_at,
                            cut_by_deadline: asked.cut_by_deadline,
                        });
                    }
                }
                Choice::Exhausted => {
                    snapshot.keep();
                    self.next_round(&snapshot).await?;
                }
                Choice::Nobody => {
                    snapshot.keep();
                    self.wait_for_somebody(&snapshot, need, now).await?;
                }
            }
        }
    }

    fn note_admission(&mut self, snapshot: &Snapshot<M>, index: usize, last_resort: bool) {
        let endpoint = &snapshot.placed(index).endpoint;
        if last_resort {
            self.last_resort = true;
            let endpoint = endpoint.id.clone();
            self.inner
                .events
                .publish(EventKind::LastResort { endpoint });
        }
        if let Some(mut waits) = self.waits.take() {
            waits.admitted_by(endpoint.number);
        }
        self.epoch = snapshot.epoch;
        self.policy_version = snapshot.policy.version;
    }

    fn choose(&mut self, snapshot: &Snapshot<M>, need: Need, now: Instant) -> Choice {
        if let Some(number) = self.progress.stay_on.take() {
            let staying = snapshot.endpoints.iter().position(|placed| {
                placed.endpoint.number == number && !placed.endpoint.is_draining()
            });
            if let Some(index) = staying {
                return Choice::Use {
                    index,
                    last_resort: false,
                };
            }
        }
        let endpoints_max = snapshot
            .policy
            .retry
            .endpoints_max
            .map_or(usize::MAX, |max| max as usize);
        if self.progress.used.len() >= endpoints_max {
            let used = &self.progress.used;
            let filter = self.route.filter;
            let within = |placed: &crate::endpoint::Placed<M>| {
                used.contains(&placed.endpoint.number) && filter.is_none_or(|fits| fits(placed))
            };
            return self
                .inner
                .choose(snapshot, need, Some(&within), &self.progress.excluded, now);
        }
        self.inner.choose(
            snapshot,
            need,
            self.route.filter,
            &self.progress.excluded,
            now,
        )
    }

    /// A second or later attempt is not begun if less time is left than the endpoint usually needs.
    fn check_time_left(&self, endpoint: &Endpoint, now: Instant) -> Result<(), Stop> {
        let (Some(end), true) = (self.ends_at, self.account.begun > 0) else {
            return Ok(());
        };
        let left = end.saturating_duration_since(now);
        match endpoint.stats.p50_if_fresh(now) {
            Some(usual) if left < usual => Err(Stop::Stopped(Stopped::Deadline)),
            _ => Ok(()),
        }
    }

    /// Asks the endpoint's gate. `None`: refused; the refusal is remembered.
    fn ask(&mut self, placed: &Placed<M>, now: Instant) -> Option<Asked> {
        let Placed {
            endpoint, policy, ..
        } = placed;
        let limit = policy.attempt_limit(self.deadline);
        let lease = limit.map_or(TRIAL_LEASE, |limit| {
            limit + TRIAL_LEASE_MARGIN + self.route.grace
        });
        let admitted = self
            .progress
            .whole_calls
            .admit(placed, lease, now)
            .map_err(Refusal::from)
            .and_then(|()| {
                endpoint
                    .gate
                    .admit(&policy.circuit, &policy.limits, lease, now)
            });
        match admitted {
            Ok(ticket) => {
                if let Some(transition) = ticket.pass.transition() {
                    endpoint.publish(&transition);
                }
                let own_end = limit.and_then(|limit| now.checked_add(limit));
                let ends_at = match (own_end, self.ends_at) {
                    (Some(own), Some(end)) => Some(own.min(end)),
                    (own, end) => own.or(end),
                };
                Some(Asked {
                    ticket,
                    ends_at,
                    cut_by_deadline: ends_at == self.ends_at && ends_at != own_end,
                })
            }
            Err(refusal) => {
                endpoint.stats.reject();
                let number = endpoint.number;
                self.progress
                    .refused_by(number, refusal, policy.limits.over_rate);
                None
            }
        }
    }

    /// Everything that fits was tried or refused: another round, a wait for a slot, or the end.
    async fn next_round(&mut self, snapshot: &Snapshot<M>) -> Result<(), Stop> {
        if self.progress.waits_for_slot() {
            return self.wait_for_slot(snapshot).await;
        }
        let tried = !self.progress.excluded.tried.is_empty();
        if tried && self.progress.again_in_next_round {
            return self.wait_for_next_round(snapshot).await;
        }
        match (tried, self.progress.rejection()) {
            (true, None) => Err(Stop::Stopped(self.progress.why_stopped())),
            (_, Some(rejection)) => Err(Stop::Rejected(rejection)),
            (false, None) => Err(Stop::Rejected(Rejection::new(
                Reason::NoEndpoint,
                None,
                "every endpoint is down or too far behind; see the source's status",
            ))),
        }
    }

    /// Nothing fits: a write waits for a primary if the policy says so.
    async fn wait_for_somebody(
        &mut self,
        snapshot: &Snapshot<M>,
        need: Need,
        now: Instant,
    ) -> Result<(), Stop> {
        let lacks_primary = need == Need::Primary && snapshot.lacks_primary();
        if !lacks_primary {
            return Err(Stop::Rejected(Rejection::new(
                Reason::NoEndpoint,
                None,
                "no endpoint fits the call: roles, drains and what the call asks for leave none",
            )));
        }
        self.inner.urge.notify_one();
        let wait = snapshot.policy.route.primary_wait;
        let give_up = *self.progress.primary_wait_ends.get_or_insert(now + wait);
        let until = self.ends_at.map_or(give_up, |end| end.min(give_up));
        let mut changed = self.inner.changed.subscribe();
        let again = self.inner.snapshot.load().lacks_primary();
        if again
            && tokio::time::timeout_at(until, changed.changed())
                .await
                .is_err()
        {
            if self.ends_at.is_some_and(|end| Instant::now() >= end) {
                return Err(Stop::Rejected(deadline_passed()));
            }
            return Err(Stop::Rejected(Rejection::new(
                Reason::NoPrimary,
                Some(snapshot.policy.health.urgent_interval),
                "no endpoint is primary; nothing was written: try again when one was promoted",
            )));
        }
        Ok(())
    }

    /// Runs one attempt to its end and records it.
    pub(super) async fn attempt<T, F, Fut>(
        &mut self,
        begun: Begun<M>,
        classify: &impl Classify<T, E>,
        work: &F,
    ) -> AttemptEnd<T, E>
    where
        F: Fn(Attempt<M>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let Begun {
            mut in_flight,
            ends_at,
            cut_by_deadline,
        } = begun;
        let began = in_flight.began;
        let (attempt, marks) = self.hand_out(&mut in_flight, ends_at);
        let fault = self
            .inner
            .fault(self.operation, &attempt.endpoint, attempt.number);
        let bounds = Bounds {
            ends_at: ends_at.map(|end| end + self.route.grace),
            is_write: !self.operation.safety.is_read(),
        };
        let ran = match fault {
            None => bounds.hold(work(attempt), &mut in_flight).await,
            Some(fault) => injected(fault, || work(attempt), bounds, &mut in_flight).await,
        };
        let now = Instant::now();
        let (outcome, result) = settle(ran, classify, marks.as_deref(), ends_at, began);
        let retry = &in_flight.placed().policy.retry;
        let outcome = overruled(outcome, &retry.on, &retry.never);
        let cut_short =
            cut_by_deadline && is_below_p99(&outcome, &in_flight.placed().endpoint, began, now);
        in_flight.finish(&outcome, cut_short, now);
        let elapsed = now.saturating_duration_since(began);
        match (outcome, result) {
            (Outcome::Success, Some(Ok(value))) => {
                self.account.attempted(elapsed, None);
                AttemptEnd::Success(value, now)
            }
            (Outcome::Neutral, Some(Err(error))) => AttemptEnd::Neutral(error),
            (Outcome::Redirect, Some(Err(error))) => AttemptEnd::Redirect(error),
            (outcome, result) => {
                let failure = failure_of(outcome);
                self.account.attempted(elapsed, Some(&failure));
                AttemptEnd::Failure(Failed {
                    endpoint: Arc::clone(&in_flight.placed().endpoint),
                    role: in_flight.placed().role,
                    error: result.and_then(Result::err),
                    failure,
                })
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
        self.progress.use_endpoint(placed.endpoint.number);
        let attempt = Attempt::new(
            placed.member.clone(),
            placed.endpoint.id.clone(),
            self.account.begun,
            ends_at,
            self.account.correlation_id,
            marks.clone(),
        );
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
struct Bounds {
    ends_at: Option<Instant>,
    is_write: bool,
}

impl Bounds {
    /// Runs work until it ends, its time is over or its endpoint is given up. Timer and cut are set up
    /// only if the work does not end at once.
    async fn hold<T, E, M>(
        self,
        work: impl Future<Output = Result<T, E>>,
        in_flight: &mut InFlight<M>,
    ) -> Ran<T, E> {
        let mark = in_flight.placed().endpoint.cut_mark(self.is_write);
        let mut work = pin!(work);
        let first = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        if let Poll::Ready(result) = first {
            return Ran::Result(result);
        }
        in_flight.keep();
        let cut = in_flight.placed().endpoint.cut_since(mark);
        match self.ends_at {
            Some(end) => tokio::select! {
                biased;
                result = work => Ran::Result(result),
                () = cut => Ran::Cut,
                () = tokio::time::sleep_until(end) => Ran::TimedOut,
            },
            None => tokio::select! {
                biased;
                result = work => Ran::Result(result),
                () = cut => Ran::Cut,
            },
        }
    }
}

async fn injected<T, E, Fut, M>(
    fault: Fault,
    work: impl FnOnce() -> Fut,
    bounds: Bounds,
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
            bounds.hold(delayed, in_flight).await
        }
    }
}

/// What the end of the work means.
fn settle<T, E>(
    ran: Ran<T, E>,
    classify: &impl Classify<T, E>,
    marks: Option<&Marks>,
    ends_at: Option<Instant>,
    began: Instant,
) -> (Outcome, Option<Result<T, E>>) {
    let sent = || match marks {
        Some(marks) if !marks.is_handed_over() => Sent::No,
        _ => Sent::Maybe,
    };
    match ran {
        Ran::Result(result) => (classify.classify(&result), Some(result)),
        Ran::Injected(failure) => (Outcome::Failure(failure), None),
        Ran::TimedOut => {
            let limit = ends_at
                .map(|end| end.saturating_duration_since(began))
                .unwrap_or_default();
            let message = format!("no answer within {limit:?}");
            (
                Outcome::Failure(Failure::new(Category::Timeout, message).sent(sent())),
                None,
            )
        }
        Ran::Cut => {
            let message = "the endpoint went down, was isolated or lost its role meanwhile";
            (
                Outcome::Failure(Failure::new(Category::Timeout, message).sent(sent())),
                None,
            )
        }
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
