//! An attempt in flight as a value: `finish` records what it came to; dropping it is a cancelled
//! attempt, which decides nothing and gives every permit back.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::circuit::{Pass, Verdict};
use crate::endpoint::{Endpoint, Placed};
use crate::failure::{Blame, Category, Failure, Outcome};
use crate::gate::Ticket;
use crate::occupancy::Entry;
use crate::policy::{CircuitMode, CircuitSettings};
use crate::source::HeldSnapshot;

/// A failure counts in the latency estimate as at least so many times the estimate: a refused
/// connection is fast and yet the slowest possible answer.
const FAILURE_LATENCY_FACTOR: u32 = 2;
/// And as at least this.
const FAILURE_LATENCY_MIN: Duration = Duration::from_millis(100);
/// But never as more than this or what it took: many failures at once are one outage, and an estimate
/// that doubled with each of them would keep the endpoint without traffic long after it is back.
const FAILURE_LATENCY_MAX: Duration = Duration::from_secs(1);

/// The concurrency slot of one attempt, given back when dropped.
pub(crate) struct Slot {
    endpoint: Arc<Endpoint>,
    entry: Entry,
}

impl Slot {
    pub(crate) fn new(endpoint: Arc<Endpoint>, entry: Entry) -> Self {
        Slot { endpoint, entry }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.endpoint.release_slot(self.entry);
    }
}

/// An attempt between its admission and its end, on an endpoint of the snapshot that it was admitted by.
pub(crate) struct InFlight<M> {
    snapshot: HeldSnapshot<M>,
    index: usize,
    pass: Option<Pass>,
    /// The slot, unless a [`Slot`] gives it back.
    entry: Option<Entry>,
    pub(crate) began: Instant,
    /// The same in nanoseconds of the source's origin.
    began_nanos: u64,
}

impl<M> InFlight<M> {
    pub(crate) fn new(
        snapshot: HeldSnapshot<M>,
        index: usize,
        ticket: Ticket,
        began: Instant,
        began_nanos: u64,
    ) -> Self {
        InFlight {
            snapshot,
            index,
            pass: Some(ticket.pass),
            entry: Some(ticket.entry),
            began,
            began_nanos,
        }
    }

    /// The endpoint as the snapshot has it.
    pub(crate) fn placed(&self) -> &Placed<M> {
        &self.snapshot.endpoints[self.index]
    }

    /// Lets the slot live longer than the attempt.
    pub(crate) fn hand_out_slot(&mut self) -> Option<Slot> {
        let entry = self.entry.take()?;
        Some(Slot::new(Arc::clone(&self.placed().endpoint), entry))
    }

    /// To be called before a wait: what waits owns its snapshot.
    pub(crate) fn keep(&mut self) {
        self.snapshot.keep();
    }

    /// Records a success. Returns how long it took. `at` is `now` in nanoseconds of the source's
    /// origin.
    pub(crate) fn succeed(&mut self, now: Instant, at: u64) -> Duration {
        let elapsed_nanos = at.saturating_sub(self.began_nanos);
        let elapsed = Duration::from_nanos(elapsed_nanos);
        if let Some(pass) = self.pass.take() {
            let placed = self.placed();
            let endpoint = &*placed.endpoint;
            endpoint.latency.observe_at(elapsed_nanos, at);
            endpoint.stats.record_at(true, elapsed_nanos, at);
            // Of the policy that let it in: if the circuit's settings changed since, its epoch did too.
            let settings = &placed.policy.circuit;
            record(endpoint, settings, pass, Verdict::Success { elapsed }, now);
        }
        elapsed
    }

    /// Records any other outcome. `cut_short`: the caller's own deadline ended it before the endpoint's
    /// p99.
    pub(crate) fn finish(
        &mut self,
        outcome: &Outcome,
        cut_short: bool,
        now: Instant,
        at: u64,
    ) -> Duration {
        let elapsed = Duration::from_nanos(at.saturating_sub(self.began_nanos));
        if let Some(pass) = self.pass.take() {
            let endpoint = &*self.placed().endpoint;
            let policy = endpoint.policy_guard();
            let settings = &policy.circuit;
            let verdict = verdict(endpoint, settings, outcome, pass, cut_short, elapsed, now);
            record(endpoint, settings, pass, verdict, now);
        }
        elapsed
    }
}

/// Our own refusal says nothing about the endpoint, nor does work that would have needed more time than it
/// was given: there was no answer.
pub(crate) fn says_nothing(failure: &Failure) -> bool {
    match failure.blame {
        Blame::Us => true,
        Blame::Caller => failure.category == Category::Timeout,
        _ => false,
    }
}

/// Counts an outcome that is no success and says what it means to the circuit.
#[cold]
fn verdict(
    endpoint: &Endpoint,
    settings: &CircuitSettings,
    outcome: &Outcome,
    pass: Pass,
    cut_short: bool,
    elapsed: Duration,
    now: Instant,
) -> Verdict {
    match outcome {
        Outcome::Failure(failure) if says_nothing(failure) => {
            endpoint.stats.cancel();
            Verdict::Cancelled
        }
        Outcome::Failure(failure) if failure.weighs_on_endpoint() => {
            let estimate = endpoint.latency.estimate(now).unwrap_or_default();
            let hidden = estimate
                .saturating_mul(FAILURE_LATENCY_FACTOR)
                .clamp(FAILURE_LATENCY_MIN, FAILURE_LATENCY_MAX);
            endpoint.latency.observe(elapsed.max(hidden), now);
            endpoint.stats.record(false, elapsed, now);
            endpoint.remember_unknown(failure, pass);
            let weight = match cut_short {
                true => 0,
                false => failure.weight(settings.failures),
            };
            Verdict::Failure {
                weight,
                retry_after: failure.retry_after,
                elapsed,
                generation: failure.generation,
            }
        }
        Outcome::Success | Outcome::Failure(_) | Outcome::Redirect => {
            // A mistake of the caller's or contention between callers: the endpoint answered.
            // That decides a trial, but neither adds to a count nor clears it.
            endpoint.stats.record(true, elapsed, now);
            match pass.trial {
                Some(_) => Verdict::Success { elapsed },
                None => Verdict::Cancelled,
            }
        }
        Outcome::Neutral => {
            endpoint.stats.cancel();
            Verdict::Cancelled
        }
    }
}

fn record(
    endpoint: &Endpoint,
    settings: &CircuitSettings,
    pass: Pass,
    verdict: Verdict,
    now: Instant,
) {
    let verdict = match settings.mode {
        // Whole calls are counted there, not attempts.
        CircuitMode::Operations => Verdict::Cancelled,
        _ => verdict,
    };
    let circuit = endpoint.gate.circuit();
    if let Some(transition) = circuit.record(settings, pass, verdict, now) {
        endpoint.publish(&transition);
    }
}

impl<M> Drop for InFlight<M> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            let now = Instant::now();
            let endpoint = &*self.placed().endpoint;
            endpoint
                .latency
                .raise(now.saturating_duration_since(self.began), now);
            endpoint.stats.cancel();
            let settings = &endpoint.policy_guard().circuit;
            record(endpoint, settings, pass, Verdict::Cancelled, now);
        }
        if let Some(entry) = self.entry.take() {
            self.placed().endpoint.release_slot(entry);
        }
    }
}
