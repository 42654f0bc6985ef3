//! What goes into a circuit and what comes out of it, as plain data.

use std::time::Duration;

use tokio::time::Instant;

use crate::failure::named;

/// The state of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// Traffic flows.
    Closed,
    /// Nothing passes; from `until` on the next attempt is a trial.
    Open {
        /// When trials are admitted.
        until: Instant,
    },
    /// A few trials decide.
    HalfOpen,
    /// Held open by a person until released.
    Isolated,
    /// The policy has no circuit: everything passes and nothing counts.
    Disabled,
}

impl CircuitState {
    /// The stable lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            CircuitState::Closed => "closed",
            CircuitState::Open { .. } => "open",
            CircuitState::HalfOpen => "half_open",
            CircuitState::Isolated => "isolated",
            CircuitState::Disabled => "disabled",
        }
    }
}

impl std::fmt::Display for CircuitState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Leave for one attempt; comes back with its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// The epoch it was given in. A result of an older epoch decides nothing.
    pub epoch: u64,
    /// The trial it is, while half-open.
    pub trial: Option<TrialId>,
}

impl Pass {
    /// The change from open to half-open, if this is the trial that began it.
    pub fn transition(&self) -> Option<Transition> {
        let until = self.trial?.ended_opening?;
        Some(Transition {
            from: CircuitState::Open { until },
            to: CircuitState::HalfOpen,
            epoch: self.epoch,
            reason: Reason::TrialDue,
        })
    }
}

/// One trial of a half-open circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialId {
    pub(super) number: u64,
    /// Until when the circuit would have been open that this trial made half-open.
    pub(super) ended_opening: Option<Instant>,
}

/// Why an attempt was not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// `Open`, `HalfOpen` (all trials are under way) or `Isolated`.
    pub state: CircuitState,
    /// When asking again makes sense; `None`: when a person releases it.
    pub retry_in: Option<Duration>,
}

/// What an attempt came to, as far as a circuit cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It worked.
    Success {
        /// How long it took.
        elapsed: Duration,
    },
    /// It failed.
    Failure {
        /// What it adds to the count. 0 (the caller's mistake, contention, our own refusal) decides
        /// nothing; a trial's permit goes back.
        weight: u32,
        /// The least time the circuit stays open if this failure opens it, at most 5 minutes.
        retry_after: Option<Duration>,
        /// How long it took.
        elapsed: Duration,
        /// The generation of pooled connections it happened on. While closed, failures of one
        /// generation weigh once, by the heaviest of them; generations only grow.
        generation: Option<u64>,
    },
    /// It was given up before it came to anything: decides nothing, a trial's permit goes back.
    Cancelled,
}

impl Verdict {
    /// A success whose duration does not matter.
    pub fn success() -> Self {
        Verdict::Success {
            elapsed: Duration::ZERO,
        }
    }

    /// A failure of that weight about which nothing else is known.
    pub fn failure(weight: u32) -> Self {
        Verdict::Failure {
            weight,
            retry_after: None,
            elapsed: Duration::ZERO,
            generation: None,
        }
    }
}

named! {
    /// Why a circuit changed its state.
    Reason {
        /// Enough failures.
        Failures = "failures",
        /// Too large a share of slow calls.
        SlowCalls = "slow_calls",
        /// The opening is over.
        TrialDue = "trial_due",
        /// Health checks were good, so the trial is due early.
        Probed = "probed",
        /// A trial failed.
        TrialFailed = "trial_failed",
        /// Enough trials succeeded.
        TrialsSucceeded = "trials_succeeded",
        /// A person holds it open.
        Isolated = "isolated",
        /// A person released it.
        Released = "released",
        /// Its settings changed.
        Reset = "reset",
        /// A shared store decided.
        Forced = "forced",
    }
}

/// A change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Before.
    pub from: CircuitState,
    /// After.
    pub to: CircuitState,
    /// The epoch that begins with it.
    pub epoch: u64,
    /// Why.
    pub reason: Reason,
}

/// A circuit's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitSnapshot {
    /// Weight counted towards the threshold, as of the last result.
    pub failures: u32,
    /// How often it has opened in its life.
    pub times_opened: u64,
    /// When its state last changed.
    pub last_change: Option<Instant>,
    /// Raised with each change of state.
    pub epoch: u64,
}
