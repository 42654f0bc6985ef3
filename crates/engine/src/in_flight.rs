//! An attempt in flight as a value: `finish` records what it came to; dropping it is a cancelled
//! attempt, which decides nothing and gives every permit back.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::circuit::Verdict;
use crate::endpoint::Endpoint;
use crate::failure::{Blame, Category, Failure, Outcome};
use crate::gate::Ticket;
use crate::policy::CircuitMode;

/// A failure counts in the latency estimate as at least so many times the estimate: a refused
/// connection is fast and yet the slowest possible answer.
const FAILURE_LATENCY_FACTOR: u32 = 2;
/// And as at least this.
const FAILURE_LATENCY_MIN: Duration = Duration::from_millis(100);
/// But never as more than this or what it took: many failures at once are one outage, and an estimate
/// that doubled with each of them would keep the endpoint without traffic long after it is back.
const FAILURE_LATENCY_MAX: Duration = Duration::from_secs(1);

/// The concurrency slot of one attempt, given back when dropped.
pub(crate) struct Slot(Arc<Endpoint>);

impl Slot {
    pub(crate) fn new(endpoint: Arc<Endpoint>) -> Self {
        Slot(endpoint)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.release_slot();
    }
}

/// An attempt between its admission and its end.
pub(crate) struct InFlight<R: Deref<Target = Endpoint>> {
    endpoint: R,
    ticket: Option<Ticket>,
    began: Instant,
    /// Whether this value gives the slot back; otherwise a [`Slot`] does.
    owns_slot: bool,
}

impl<R: Deref<Target = Endpoint>> InFlight<R> {
    pub(crate) fn new(endpoint: R, ticket: Ticket, began: Instant, owns_slot: bool) -> Self {
        InFlight {
            endpoint,
            ticket: Some(ticket),
            began,
            owns_slot,
        }
    }

    /// Records the outcome. `cut_short`: the caller's own deadline ended it before the endpoint's p99.
    pub(crate) fn finish(mut self, outcome: &Outcome, cut_short: bool, now: Instant) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let endpoint = &*self.endpoint;
        let elapsed = now.saturating_duration_since(self.began);
        let policy = endpoint.policy_guard();
        let verdict = match outcome {
            Outcome::Success => {
                endpoint.latency.observe(elapsed, now);
                endpoint.stats.record(true, elapsed, now);
                Verdict::Success { elapsed }
            }
            Outcome::Failure(failure) if failure.blame == Blame::Us => {
                // Our own refusal says nothing about the endpoint.
                endpoint.stats.cancel();
                Verdict::Cancelled
            }
            Outcome::Failure(failure) if weighs_on_stats(failure) => {
                let estimate = endpoint.latency.estimate(now).unwrap_or_default();
                let hidden = estimate
                    .saturating_mul(FAILURE_LATENCY_FACTOR)
                    .clamp(FAILURE_LATENCY_MIN, FAILURE_LATENCY_MAX);
                endpoint.latency.observe(elapsed.max(hidden), now);
                endpoint.stats.record(false, elapsed, now);
                endpoint.remember_unknown(failure, ticket.pass);
                let weight = if cut_short {
                    0
                } else {
                    failure.weight(policy.circuit.failures)
                };
                Verdict::Failure {
                    weight,
                    retry_after: failure.retry_after,
                    elapsed,
                    generation: failure.generation,
                }
            }
            Outcome::Failure(_) | Outcome::Redirect => {
                // A mistake of the caller's or contention between callers: the endpoint answered.
                // That decides a trial, but neither adds to a count nor clears it.
                endpoint.stats.record(true, elapsed, now);
                match ticket.pass.trial {
                    Some(_) => Verdict::Success { elapsed },
                    None => Verdict::Cancelled,
                }
            }
            Outcome::Neutral => {
                endpoint.stats.cancel();
                Verdict::Cancelled
            }
        };
        let verdict = match policy.circuit.mode {
            // Whole calls are counted there, not attempts.
            CircuitMode::Operations => Verdict::Cancelled,
            _ => verdict,
        };
        if let Some(transition) = endpoint.gate.finish(&policy.circuit, ticket, verdict, now) {
            endpoint.publish(&transition);
        }
    }
}

/// A mistake of the caller's, or two callers in each other's way, is no failure of the endpoint's.
fn weighs_on_stats(failure: &Failure) -> bool {
    failure.blame != Blame::Caller
        && !matches!(
            failure.category,
            Category::Persistent | Category::Contention
        )
}

impl<R: Deref<Target = Endpoint>> Drop for InFlight<R> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let endpoint = &*self.endpoint;
            let now = Instant::now();
            endpoint
                .latency
                .raise(now.saturating_duration_since(self.began), now);
            endpoint.stats.cancel();
            let policy = endpoint.policy_guard();
            endpoint
                .gate
                .finish(&policy.circuit, ticket, Verdict::Cancelled, now);
        }
        if self.owns_slot {
            self.endpoint.release_slot();
        }
    }
}
