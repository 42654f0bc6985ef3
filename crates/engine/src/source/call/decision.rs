//! What follows a failure: the same endpoint again, the next one, another round after a wait, or the
//! end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::candidates::{Excluded, Numbers};
use super::super::{Member, Snapshot};
use super::{Run, Stop};
use crate::backoff::Backoff;
use crate::endpoint::{Endpoint, Placed};
use crate::event::{EventKind, Role};
use crate::failure::{Blame, Category, Failure, Sent};
use crate::gate::Refusal;
use crate::operation::Safety;
use crate::policy::{OverRate, Policy, RetryOrder};
use crate::rejection::{Reason, Rejection, Stopped};

/// A failed attempt.
pub(super) struct Failed<E> {
    pub endpoint: Arc<Endpoint>,
    pub role: Role,
    /// The caller's own error, where the attempt gave one.
    pub error: Option<E>,
    pub failure: Failure,
}

/// What a call remembers between its attempts.
pub(super) struct Progress<E> {
    pub excluded: Excluded,
    /// Every endpoint that was used.
    pub used: Numbers,
    /// The next attempt goes to this endpoint.
    pub stay_on: Option<u64>,
    /// Tries on the endpoint used last, for `same_first` and contention.
    tries_here: u32,
    rounds: u32,
    backoff: Option<Backoff>,
    /// A failure of this round is worth another one.
    pub again_in_next_round: bool,
    saturated: bool,
    retry_after: Option<Duration>,
    /// Another attempt after the last failure is free of budget: nothing had left.
    free: bool,
    stopped: Option<Stopped>,
    pub first: Option<Box<Failed<E>>>,
    pub last: Option<Box<Failed<E>>>,
    pub primary_wait_ends: Option<Instant>,
    refusals: Refusals,
}

/// Refusals of gates in this round.
#[derive(Default)]
struct Refusals {
    circuit: Option<Option<Duration>>,
    isolated: bool,
    concurrency: bool,
    rate: Option<Duration>,
    queues_for_rate: bool,
}

impl<E> Default for Progress<E> {
    fn default() -> Self {
        Progress {
            excluded: Excluded::default(),
            used: Numbers::new(),
            stay_on: None,
            tries_here: 0,
            rounds: 1,
            backoff: None,
            again_in_next_round: false,
            saturated: false,
            retry_after: None,
            free: true,
            stopped: None,
            first: None,
            last: None,
            primary_wait_ends: None,
            refusals: Refusals::default(),
        }
    }
}

impl<E> Progress<E> {
    fn has_used(&mut self, number: u64) {
        if !self.used.contains(&number) {
            self.used.push(number);
        }
    }

    pub(super) fn refused_by(&mut self, number: u64, refusal: Refusal, over_rate: OverRate) {
        self.excluded.refused.push(number);
        match refusal {
            Refusal::CircuitOpen { retry_in } => {
                let soonest = match (self.refusals.circuit.flatten(), retry_in) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                self.refusals.circuit = Some(soonest);
            }
            Refusal::Isolated => self.refusals.isolated = true,
            Refusal::Concurrency { .. } => {
                self.excluded.is_full = true;
                self.refusals.concurrency = true;
            }
            Refusal::Rate { retry_in } => {
                self.excluded.is_full = true;
                let soonest = self
                    .refusals
                    .rate
                    .map_or(retry_in, |known| known.min(retry_in));
                self.refusals.rate = Some(soonest);
                self.refusals.queues_for_rate |= over_rate == OverRate::Queue;
            }
        }
    }

    /// Whether what refused will soon let somebody in and the call may wait for it.
    pub(super) fn waits_for_slot(&self) -> bool {
        self.refusals.concurrency || (self.refusals.rate.is_some() && self.refusals.queues_for_rate)
    }

    pub(super) fn token_due(&self, now: Instant) -> Option<Instant> {
        self.refusals.rate.and_then(|wait| now.checked_add(wait))
    }

    pub(super) fn forget_refusals(&mut self) {
        self.refusals = Refusals::default();
    }

    /// What the gates said, if they refused anything.
    pub(super) fn rejection(&self, policy: &Policy) -> Option<Rejection> {
        let refusals = &self.refusals;
        if let Some(retry_in) = refusals.rate {
            let message = format!("every endpoint is over its rate; try again in {retry_in:?}");
            return Some(Rejection::new(Reason::RateLimited, Some(retry_in), message));
        }
        if let Some(retry_in) = refusals.circuit {
            // Two good health checks make the trial due earlier.
            let probed = policy.health.enabled && policy.circuit.probe_reopens;
            let soon = 2 * policy.health.interval;
            let at_most = retry_in.filter(|wait| probed && *wait > soon);
            let message = match retry_in {
                Some(wait) if at_most.is_some() => format!(
                    "the circuit is open; the next trial is due in {wait:?}, or as soon as health checks are good: try again in {soon:?}"
                ),
                Some(wait) => format!("the circuit is open; the next trial is due in {wait:?}"),
                None => "the circuit is half-open and its trials are under way; try again".into(),
            };
            let retry_in = retry_in.map(|wait| at_most.map_or(wait, |_| soon));
            return Some(Rejection::new(Reason::CircuitOpen, retry_in, message));
        }
        refusals.isolated.then(|| {
            let message = "every endpoint that fits is isolated by its operator; release one (over HTTP: POST /v1/sources/SOURCE/endpoints/ENDPOINT/release)";
            Rejection::new(Reason::CircuitOpen, None, message)
        })
    }

    pub(super) fn why_stopped(&self) -> Stopped {
        self.stopped.unwrap_or(Stopped::Exhausted)
    }

    fn remember(&mut self, failed: Box<Failed<E>>) {
        if let Some(earlier) = self.last.replace(failed)
            && self.first.is_none()
        {
            self.first = Some(earlier);
        }
    }

    fn begin_round(&mut self) {
        self.rounds += 1;
        self.excluded.clear();
        self.again_in_next_round = false;
        self.saturated = false;
        self.retry_after = None;
        self.refusals = Refusals::default();
    }
}

/// The next step after a failure, before budget and deadline have their say.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// The same endpoint after a wait.
    Stay,
    /// Another endpoint, or the end of the round.
    Move,
    /// No further attempt.
    Stop(Stopped),
}

/// Whether a repetition can do no harm.
fn is_repeatable(safety: Safety, sent: Sent) -> bool {
    safety != Safety::Write || sent.is_proven_harmless()
}

fn next(failure: &Failure, safety: Safety, policy: &Policy, tries_here: u32) -> Next {
    let reads_on =
        failure.category == Category::Unknown && failure.blame != Blame::Caller && safety.is_read();
    let moves = failure.moves_on() || reads_on;
    let again = failure.is_retryable() && failure.blame != Blame::Caller;
    if !moves && !again {
        return Next::Stop(Stopped::NotRetryable);
    }
    if !is_repeatable(safety, failure.sent) {
        return Next::Stop(Stopped::NotSafe);
    }
    let may_stay = tries_here < policy.retry.attempts_max;
    let stays = failure.category == Category::Contention
        || (policy.retry.order == RetryOrder::SameFirst && again);
    match (stays, moves) {
        (true, _) if may_stay => Next::Stay,
        (_, true) => Next::Move,
        _ => Next::Stop(Stopped::Exhausted),
    }
}

impl<M: Member, E: fmt::Display> Run<'_, M, E> {
    /// What the call remembers between its attempts, from the first thing worth it.
    pub(super) fn progress(&mut self) -> &mut Progress<E> {
        self.progress.get_or_insert_default()
    }

    /// Decides what follows a failure and waits where a wait is due. `Some`: the call ends.
    #[cold]
    pub(super) async fn after(&mut self, failed: Box<Failed<E>>) -> Option<Stop> {
        let policy = Arc::clone(&self.inner.snapshot.load().policy);
        let failure = failed.failure.clone();
        let endpoint = Arc::clone(&failed.endpoint);
        if failed.role == Role::Primary && weakens_primary(&failure) {
            self.inner.urge.notify_one();
        }
        let safety = self.operation.safety;
        let begun = self.account.begun;
        let is_last = self
            .operation
            .attempts_max
            .is_some_and(|attempts_max| begun >= attempts_max);
        let progress = self.progress();
        progress.has_used(endpoint.number);
        progress.tries_here += 1;
        progress.free = failure.sent == Sent::No;
        progress.remember(failed);
        match next(&failure, safety, &policy, progress.tries_here) {
            Next::Stop(stopped) => Some(Stop::Stopped(stopped)),
            Next::Stay | Next::Move if is_last => Some(Stop::Stopped(Stopped::Exhausted)),
            Next::Stay => {
                progress.saturated |= failure.category == Category::Saturation;
                progress.retry_after = failure.retry_after;
                let wait = self.next_wait(&policy);
                if let Err(stop) = self.spend(&policy, &endpoint) {
                    return Some(stop);
                }
                let attempt = self.account.begun;
                let reason = self.inner.redacted(&failure);
                self.inner.events.publish(EventKind::Retry {
                    endpoint: endpoint.id.clone(),
                    attempt,
                    wait,
                    reason,
                });
                self.progress().stay_on = Some(endpoint.number);
                self.sleep(wait, endpoint.number).await.err()
            }
            Next::Move => {
                progress.tries_here = 0;
                progress.excluded.tried.push(endpoint.number);
                let again = failure.is_retryable() && policy.retry.order == RetryOrder::NextFirst;
                progress.again_in_next_round |= again;
                progress.saturated |= failure.category == Category::Saturation;
                progress.retry_after = progress.retry_after.max(failure.retry_after);
                // With `same_first` its tries are used up, which is another reason.
                if !failure.is_retryable() {
                    progress.stopped = Some(Stopped::NotRetryable);
                }
                self.move_on(&policy, &endpoint, &failure)
            }
        }
    }

    /// Goes to the next endpoint at once if there is one; its attempt costs budget.
    fn move_on(
        &mut self,
        policy: &Policy,
        from: &Arc<Endpoint>,
        failure: &Failure,
    ) -> Option<Stop> {
        let snapshot = self.inner.snapshot.load_full();
        let need = self.need(&snapshot);
        let filter = self.route.filter;
        let progress = self.progress();
        let may_use = |placed: &Placed<M>| {
            let endpoints_max = policy
                .retry
                .endpoints_max
                .map_or(usize::MAX, |max| max as usize);
            let within = progress.used.len() < endpoints_max
                || progress.used.contains(&placed.endpoint.number);
            within && filter.is_none_or(|fits| fits(placed))
        };
        if !snapshot.has_another(need, &may_use, &progress.excluded) {
            return None;
        }
        if let Err(stop) = self.spend(policy, from) {
            return Some(stop);
        }
        let reason = self.inner.redacted(failure);
        self.inner.events.publish(EventKind::Failover {
            from: from.id.clone(),
            reason,
        });
        None
    }

    /// After a whole round: waits and begins the next one, or ends.
    pub(super) async fn wait_for_next_round(&mut self, snapshot: &Snapshot<M>) -> Result<(), Stop> {
        if self.progress().rounds >= snapshot.policy.retry.attempts_max {
            return Err(Stop::Stopped(Stopped::Exhausted));
        }
        let wait = self.next_wait(&snapshot.policy);
        let Some(last) = &self.progress().last else {
            return Err(Stop::Stopped(Stopped::Exhausted));
        };
        let endpoint = Arc::clone(&last.endpoint);
        let failure = last.failure.clone();
        let reason = self.inner.redacted(&failure);
        self.spend(&snapshot.policy, &endpoint)?;
        let attempt = self.account.begun;
        let id = endpoint.id.clone();
        self.inner.events.publish(EventKind::Retry {
            endpoint: id,
            attempt,
            wait,
            reason,
        });
        self.sleep(wait, endpoint.number).await?;
        self.progress().begin_round();
        Ok(())
    }

    fn next_wait(&mut self, policy: &Policy) -> Duration {
        let inner = self.inner;
        let progress = self.progress();
        let backoff = progress
            .backoff
            .get_or_insert_with(|| Backoff::new(inner.chance.stream()));
        backoff.next(&policy.retry, progress.saturated, progress.retry_after)
    }

    /// Takes one attempt from the budget, unless nothing had left.
    fn spend(&mut self, policy: &Policy, endpoint: &Arc<Endpoint>) -> Result<(), Stop> {
        let Some(budget) = &policy.retry.budget else {
            return Ok(());
        };
        let inner = self.inner;
        let progress = self.progress();
        if progress.free || inner.budget.withdraw(budget, Instant::now()) {
            // Paid once, also if several endpoints refuse before one is tried.
            progress.free = true;
            return Ok(());
        }
        let endpoint = endpoint.id.clone();
        self.inner
            .events
            .publish(EventKind::BudgetSpent { endpoint });
        Err(Stop::Stopped(Stopped::Budget))
    }

    /// Waits before another attempt. A write that waits for its primary goes on as soon as another one
    /// is promoted; a wait that would outlast the deadline ends the call at once.
    async fn sleep(&self, wait: Duration, on: u64) -> Result<(), Stop> {
        let now = Instant::now();
        let due = now.checked_add(wait);
        let outlasts = match (due, self.ends_at) {
            (Some(due), Some(end)) => due >= end,
            (None, _) => true,
            (Some(_), None) => false,
        };
        let (Some(due), false) = (due, outlasts) else {
            return Err(Stop::Stopped(Stopped::Deadline));
        };
        if self.operation.safety.is_read() {
            tokio::time::sleep_until(due).await;
            return Ok(());
        }
        let mut changed = self.inner.changed.subscribe();
        loop {
            let another = {
                let snapshot = self.inner.snapshot.load();
                snapshot
                    .primary()
                    .is_some_and(|primary| primary.endpoint.number != on)
            };
            if another {
                return Ok(());
            }
            match tokio::time::timeout_at(due, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Ok(()),
            }
        }
    }
}

/// A failure after which it is worth asking at once who is primary.
fn weakens_primary(failure: &Failure) -> bool {
    matches!(
        failure.category,
        Category::Transient | Category::Timeout | Category::Endpoint
    )
}

#[cfg(test)]
mod tests;
