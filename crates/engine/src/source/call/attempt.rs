//! One attempt: choosing and asking an endpoint, running the work under its limits, recording the end.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::super::candidates::{Choice, SnapshotRef};
use super::super::{Member, Need, Snapshot};
use super::decision::Failed;
use super::{Run, Stop, deadline_passed};
use crate::attempt::{Attempt, Marks};
use crate::endpoint::{CutMark, Endpoint};
use crate::event::EventKind;
use crate::failure::{Category, Classify, Failure, Outcome, Sent};
use crate::gate::{Refusal, Ticket};
use crate::in_flight::{InFlight, Slot};
use crate::intercept::Fault;
use crate::rejection::{Reason, Rejection, Stopped};

/// A trial of a half-open circuit keeps its permit for so long if attempts have no limit.
const TRIAL_LEASE: Duration = Duration::from_secs(30);
/// And longer than the attempt's limit by this, so that an attempt that times out still decides.
const TRIAL_LEASE_MARGIN: Duration = Duration::from_secs(1);

/// An endpoint that let the attempt in.
pub(super) struct Begun<M> {
    snapshot: SnapshotRef<M>,
    index: usize,
    ticket: Ticket,
    began: Instant,
    ends_at: Option<Instant>,
    /// The caller's deadline ends the attempt earlier than the policy would.
    cut_by_deadline: bool,
}

/// How an attempt ended.
pub(super) enum AttemptEnd<T, E> {
    /// The result, the endpoint that gave it, and when.
    Success(T, Arc<Endpoint>, Instant),
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
            let (now, snapshot) = match self.fresh.take() {
                Some(fresh) => fresh,
                None => (Instant::now(), self.inner.snapshot.load_full()),
            };
            if self.ends_at.is_some_and(|end| now >= end) {
                return Err(Stop::Stopped(Stopped::Deadline));
            }
            let need = self.route.need.unwrap_or_else(|| {
                Need::of(self.operation.safety, snapshot.policy.route.read_from)
            });
            match self.choose(&snapshot, need, now) {
                Choice::Use { index, last_resort } => {
                    self.check_time_left(snapshot.placed(index).endpoint.as_ref(), now)?;
                    if let Some(begun) = self.ask(&snapshot, index, now) {
                        self.last_resort |= last_resort;
                        if last_resort {
                            let endpoint = snapshot.placed(index).endpoint.id.clone();
                            let event = EventKind::LastResort { endpoint };
                            self.inner.events.publish(event);
                        }
                        self.epoch = snapshot.epoch;
                        self.policy_version = snapshot.policy.version;
                        return Ok(begun);
                    }
                }
                Choice::Exhausted => self.next_round(&snapshot).await?,
                Choice::Nobody => self.wait_for_somebody(&snapshot, need, now).await?,
            }
        }
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
    fn ask(&mut self, snapshot: &SnapshotRef<M>, index: usize, now: Instant) -> Option<Begun<M>> {
        let endpoint = &snapshot.placed(index).endpoint;
        let policy = endpoint.policy_guard();
        let limit = policy.attempt_limit(self.deadline);
        let lease = limit.map_or(TRIAL_LEASE, |limit| {
            limit + TRIAL_LEASE_MARGIN + self.route.grace
        });
        let admitted = self
            .progress
            .whole_calls
            .admit(endpoint, lease, now)
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
                Some(Begun {
                    snapshot: Arc::clone(snapshot),
                    index,
                    ticket,
                    began: now,
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

    /// Waits until an endpoint gives a concurrency slot or a rate token back, bounded by the queue's
    /// settings.
    async fn wait_for_slot(&mut self, snapshot: &Snapshot<M>) -> Result<(), Stop> {
        let limits = &snapshot.policy.limits;
        let waiting = Waiting::enter(&self.inner.waiting);
        if waiting.others >= u64::from(limits.queue_depth) {
            return Err(Stop::Rejected(Rejection::new(
                Reason::QueueFull,
                Some(limits.queue_wait),
                "every endpoint is at its limit and the queue is full; send less or raise limits.concurrency",
            )));
        }
        let give_up = self.account.began + limits.queue_wait;
        let until = self.ends_at.map_or(give_up, |end| end.min(give_up));
        let retry = self
            .progress
            .token_due(Instant::now())
            .map_or(until, |due| due.min(until));
        let freed = self.inner.freed.notified();
        let timed_out = tokio::time::timeout_at(retry, freed).await.is_err();
        if timed_out && Instant::now() >= until {
            return Err(Stop::Rejected(Rejection::new(
                Reason::QueueTimeout,
                Some(limits.queue_wait),
                "no endpoint had a free place in time; send less or raise limits.concurrency",
            )));
        }
        self.progress.excluded.refused.clear();
        self.progress.forget_refusals();
        Ok(())
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
            snapshot,
            index,
            ticket,
            began,
            ends_at,
            cut_by_deadline,
        } = begun;
        let placed = snapshot.placed(index);
        let endpoint = &placed.endpoint;
        self.account.on(endpoint.id.clone());
        self.progress.use_endpoint(endpoint.number);
        let mark = endpoint.cut_mark(!self.operation.safety.is_read());
        let marks = self.route.tracks.then(|| {
            let slot = Slot::new(Arc::clone(endpoint));
            Marks::within(self.route.outer.clone(), Some(Box::new(slot)))
        });
        let in_flight = InFlight::new(&**endpoint, ticket, began, marks.is_none());
        let number = self.account.begun;
        let attempt = Attempt::new(
            placed.member.clone(),
            endpoint.id.clone(),
            number,
            ends_at,
            self.account.correlation_id,
            marks.clone(),
        );
        let fault = self.inner.fault(self.operation, &endpoint.id, number);
        let hard_end = ends_at.map(|end| end + self.route.grace);
        let ran = match fault {
            None => bounded(work(attempt), hard_end, endpoint, mark).await,
            Some(fault) => injected(fault, || work(attempt), hard_end, endpoint, mark).await,
        };
        let now = Instant::now();
        let (outcome, result) = settle(ran, classify, marks.as_deref(), ends_at, began);
        let outcome = self.overruled(
            outcome,
            &snapshot.policy.retry.on,
            &snapshot.policy.retry.never,
        );
        let cut_short = cut_by_deadline && self.is_below_p99(&outcome, endpoint, began, now);
        in_flight.finish(&outcome, cut_short, now);
        let elapsed = now.saturating_duration_since(began);
        match (outcome, result) {
            (Outcome::Success, Some(Ok(value))) => {
                self.account.attempted(&endpoint.id, elapsed, None);
                AttemptEnd::Success(value, Arc::clone(endpoint), now)
            }
            (Outcome::Neutral, Some(Err(error))) => AttemptEnd::Neutral(error),
            (Outcome::Redirect, Some(Err(error))) => AttemptEnd::Redirect(error),
            (outcome, result) => {
                let failure = failure_of(outcome);
                self.account
                    .attempted(&endpoint.id, elapsed, Some(&failure));
                AttemptEnd::Failure(Failed {
                    endpoint: Arc::clone(endpoint),
                    role: placed.role,
                    error: result.and_then(Result::err),
                    failure,
                })
            }
        }
    }

    /// Rules of the policy by the back end's code.
    fn overruled(&self, outcome: Outcome, on: &[String], never: &[String]) -> Outcome {
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
    fn is_below_p99(
        &self,
        outcome: &Outcome,
        endpoint: &Endpoint,
        began: Instant,
        now: Instant,
    ) -> bool {
        let Outcome::Failure(failure) = outcome else {
            return false;
        };
        failure.category == Category::Timeout
            && endpoint
                .stats
                .quantile_if_fresh(0.99, now)
                .is_none_or(|p99| now.saturating_duration_since(began) < p99)
    }
}

/// Calls that wait for a slot are counted while they do.
struct Waiting<'a> {
    count: &'a std::sync::atomic::AtomicU64,
    others: u64,
}

impl<'a> Waiting<'a> {
    fn enter(count: &'a std::sync::atomic::AtomicU64) -> Self {
        Waiting {
            count,
            others: count.fetch_add(1, Ordering::AcqRel),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Runs work until it ends, its time is over or its endpoint is given up. Timer and cut are set up only
/// if the work does not end at once.
async fn bounded<T, E>(
    work: impl Future<Output = Result<T, E>>,
    ends_at: Option<Instant>,
    endpoint: &Endpoint,
    mark: CutMark,
) -> Ran<T, E> {
    let mut work = pin!(work);
    let first = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
    if let Poll::Ready(result) = first {
        return Ran::Result(result);
    }
    let cut = endpoint.cut_since(mark);
    match ends_at {
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

async fn injected<T, E, Fut>(
    fault: Fault,
    work: impl FnOnce() -> Fut,
    ends_at: Option<Instant>,
    endpoint: &Endpoint,
    mark: CutMark,
) -> Ran<T, E>
where
    Fut: Future<Output = Result<T, E>>,
{
    match fault {
        Fault::Error(failure) => Ran::Injected(failure),
        Fault::Hang => bounded(std::future::pending(), ends_at, endpoint, mark).await,
        Fault::Delay(delay) => {
            let delayed = async {
                tokio::time::sleep(delay).await;
                work().await
            };
            bounded(delayed, ends_at, endpoint, mark).await
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
