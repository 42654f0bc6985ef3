//! The decisions of a circuit, single-threaded and without a clock.

use std::time::Duration;

use tokio::time::Instant;

use super::tally::Tally;
use super::{CircuitSnapshot, CircuitState, Held, Pass, Reason, Transition, TrialId, Verdict};
use crate::origin::after;
use crate::policy::{CircuitMode, CircuitSettings};

/// A back end that asks for a longer pause is not believed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// Good health checks in a row that make a trial due.
const GOOD_CHECKS: u32 = 2;

#[derive(Debug)]
pub(super) struct Machine {
    phase: Phase,
    /// Raised with each change of phase.
    epoch: u64,
    tally: Tally,
    /// Openings since the circuit was last closed, for `open_growth`.
    openings: u32,
    /// Trials under way; at most `trials_max`. They outlive their epoch: a trial whose circuit was
    /// opened by another keeps its permit, because it is still at the back end.
    leases: Vec<Lease>,
    trials_begun: u64,
    times_opened: u64,
    last_change: Option<Instant>,
}

#[derive(Debug)]
enum Phase {
    Closed,
    Open(Opening),
    HalfOpen(Trials),
    Isolated,
}

#[derive(Debug)]
struct Opening {
    since: Instant,
    until: Instant,
    /// The back end asked not to be tried earlier.
    not_before: Instant,
    good_checks: u32,
}

#[derive(Debug, Default)]
struct Trials {
    successes: u32,
    /// The end of the opening before, until a trial has taken the news of it along.
    ended_opening: Option<Instant>,
}

#[derive(Debug)]
struct Lease {
    number: u64,
    until: Instant,
}

/// Whether the settings have no circuit at all.
pub(super) fn is_disabled(settings: &CircuitSettings) -> bool {
    settings.mode == CircuitMode::Off || settings.failures == 0
}

impl Machine {
    pub(super) fn new() -> Self {
        Machine {
            phase: Phase::Closed,
            epoch: 0,
            tally: Tally::default(),
            openings: 0,
            leases: Vec::new(),
            trials_begun: 0,
            times_opened: 0,
            last_change: None,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a success has nothing to clear.
    pub(super) fn is_clean(&self) -> bool {
        self.tally.count() == 0
    }

    pub(super) fn state(&self) -> CircuitState {
        match &self.phase {
            Phase::Closed => CircuitState::Closed,
            Phase::Open(opening) => CircuitState::Open {
                until: opening.until,
            },
            Phase::HalfOpen(_) => CircuitState::HalfOpen,
            Phase::Isolated => CircuitState::Isolated,
        }
    }

    pub(super) fn snapshot(&self) -> CircuitSnapshot {
        CircuitSnapshot {
            failures: self.tally.count(),
            times_opened: self.times_opened,
            last_change: self.last_change,
            epoch: self.epoch,
        }
    }

    pub(super) fn admit(
        &mut self,
        settings: &CircuitSettings,
        trial_lease: Duration,
        now: Instant,
    ) -> Result<Pass, Held> {
        if is_disabled(settings) {
            return self.admit_unless_isolated();
        }
        match &self.phase {
            Phase::Closed | Phase::Isolated => return self.admit_unless_isolated(),
            Phase::Open(opening) if now < opening.until => return Err(held(opening.until, now)),
            Phase::Open(opening) => {
                let trials = Trials {
                    ended_opening: Some(opening.until),
                    ..Trials::default()
                };
                self.enter(Phase::HalfOpen(trials), Reason::TrialDue, now);
            }
            Phase::HalfOpen(_) => {}
        }
        self.admit_trial(settings, trial_lease, now)
    }

    /// An attempt within a call that was admitted as a whole.
    pub(super) fn admit_within(
        &self,
        settings: &CircuitSettings,
        now: Instant,
    ) -> Result<Pass, Held> {
        match &self.phase {
            Phase::Open(opening) if !is_disabled(settings) => Err(held(opening.until, now)),
            _ => self.admit_unless_isolated(),
        }
    }

    pub(super) fn admit_unless_isolated(&self) -> Result<Pass, Held> {
        match self.phase {
            Phase::Isolated => Err(Held {
                state: CircuitState::Isolated,
                retry_in: None,
            }),
            _ => Ok(Pass {
                epoch: self.epoch,
                trial: None,
            }),
        }
    }

    fn admit_trial(
        &mut self,
        settings: &CircuitSettings,
        trial_lease: Duration,
        now: Instant,
    ) -> Result<Pass, Held> {
        let Phase::HalfOpen(trials) = &mut self.phase else {
            return self.admit_unless_isolated();
        };
        self.leases.retain(|lease| now < lease.until);
        if self.leases.len() >= settings.trials_max as usize {
            let next = self.leases.iter().map(|lease| lease.until).min();
            return Err(Held {
                state: CircuitState::HalfOpen,
                retry_in: next.map(|until| until.saturating_duration_since(now)),
            });
        }
        self.trials_begun += 1;
        self.leases.push(Lease {
            number: self.trials_begun,
            until: after(now, trial_lease),
        });
        Ok(Pass {
            epoch: self.epoch,
            trial: Some(TrialId {
                number: self.trials_begun,
                ended_opening: trials.ended_opening.take(),
            }),
        })
    }

    pub(super) fn record(
        &mut self,
        settings: &CircuitSettings,
        pass: Pass,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Transition> {
        let is_on_the_books = pass.trial.is_some_and(|trial| self.end(trial));
        if pass.epoch != self.epoch || is_disabled(settings) {
            return None;
        }
        match &self.phase {
            Phase::Closed if pass.trial.is_none() => {
                let reason = self.tally.add(settings, verdict, now)?;
                Some(self.open(settings, verdict, reason, now))
            }
            Phase::HalfOpen(_) if is_on_the_books => self.decide(settings, verdict, now),
            _ => None,
        }
    }

    /// Takes a trial off the books; whether it was still on them.
    fn end(&mut self, trial: TrialId) -> bool {
        let before = self.leases.len();
        self.leases.retain(|lease| lease.number != trial.number);
        self.leases.len() < before
    }

    /// What a trial's result decides.
    fn decide(
        &mut self,
        settings: &CircuitSettings,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Transition> {
        let Phase::HalfOpen(trials) = &mut self.phase else {
            return None;
        };
        match verdict {
            Verdict::Cancelled | Verdict::Failure { weight: 0, .. } => None,
            Verdict::Failure { .. } => Some(self.open(settings, verdict, Reason::TrialFailed, now)),
            Verdict::Success { .. } => {
                trials.successes = trials.successes.saturating_add(1);
                if trials.successes < settings.successes {
                    return None;
                }
                self.openings = 0;
                self.tally.clear();
                Some(self.enter(Phase::Closed, Reason::TrialsSucceeded, now))
            }
        }
    }

    pub(super) fn give_back(&mut self, pass: Pass) {
        let Some(trial) = pass.trial.filter(|trial| self.end(*trial)) else {
            return;
        };
        if let Phase::HalfOpen(trials) = &mut self.phase
            && pass.epoch == self.epoch
            && trial.ended_opening.is_some()
        {
            trials.ended_opening = trial.ended_opening;
        }
    }

    pub(super) fn probed(
        &mut self,
        settings: &CircuitSettings,
        good: bool,
        begun: Instant,
        now: Instant,
    ) -> Option<Transition> {
        let Phase::Open(opening) = &mut self.phase else {
            return None;
        };
        if !settings.probe_reopens || is_disabled(settings) || begun <= opening.since {
            return None;
        }
        opening.good_checks = if good { opening.good_checks + 1 } else { 0 };
        if opening.good_checks < GOOD_CHECKS {
            return None;
        }
        opening.good_checks = 0;
        opening.until = opening.until.min(opening.not_before.max(now));
        if now < opening.until {
            return None;
        }
        let trials = Phase::HalfOpen(Trials::default());
        Some(self.enter(trials, Reason::Probed, now))
    }

    pub(super) fn isolate(&mut self, now: Instant) -> Option<Transition> {
        match self.phase {
            Phase::Isolated => None,
            _ => Some(self.enter(Phase::Isolated, Reason::Isolated, now)),
        }
    }

    pub(super) fn release(&mut self, now: Instant) -> Option<Transition> {
        match self.phase {
            Phase::Isolated => {
                self.tally.clear();
                let trials = Phase::HalfOpen(Trials::default());
                Some(self.enter(trials, Reason::Released, now))
            }
            _ => None,
        }
    }

    pub(super) fn reset(&mut self, now: Instant) -> Option<Transition> {
        self.tally = Tally::default();
        self.openings = 0;
        match self.phase {
            Phase::Isolated | Phase::Closed => {
                // Attempts under way were let in by other settings: they count no more.
                self.epoch += 1;
                None
            }
            _ => Some(self.enter(Phase::Closed, Reason::Reset, now)),
        }
    }

    pub(super) fn force(&mut self, state: CircuitState, now: Instant) -> Option<Transition> {
        if self.state() == state {
            return None;
        }
        let phase = match state {
            CircuitState::Closed | CircuitState::Disabled => {
                if matches!(self.phase, Phase::Closed) {
                    return None;
                }
                self.openings = 0;
                Phase::Closed
            }
            CircuitState::Open { until } => {
                self.times_opened += 1;
                self.openings = self.openings.saturating_add(1);
                Phase::Open(Opening::new(until, now))
            }
            CircuitState::HalfOpen => Phase::HalfOpen(Trials::default()),
            CircuitState::Isolated => Phase::Isolated,
        };
        self.tally.clear();
        Some(self.enter(phase, Reason::Forced, now))
    }

    /// Mode `rate`: takes over calls that were counted elsewhere.
    pub(super) fn count_good(&mut self, calls: u64) {
        if matches!(self.phase, Phase::Closed) {
            self.tally.add_good(calls);
        }
    }

    #[cfg(test)]
    pub(super) fn calls(&self) -> u64 {
        self.tally.calls()
    }

    /// Mode `rate`: until when good calls may be counted elsewhere.
    pub(super) fn slice_end(&self, settings: &CircuitSettings) -> Option<Instant> {
        self.tally.slice_end(settings)
    }

    fn open(
        &mut self,
        settings: &CircuitSettings,
        verdict: Verdict,
        reason: Reason,
        now: Instant,
    ) -> Transition {
        let asked = match verdict {
            Verdict::Failure { retry_after, .. } => retry_after.unwrap_or(Duration::ZERO),
            _ => Duration::ZERO,
        };
        let mut opening = Opening::new(after(now, open_for(settings, self.openings)), now);
        opening.not_before = now + asked.min(RETRY_AFTER_MAX);
        opening.until = opening.until.max(opening.not_before);
        self.openings = self.openings.saturating_add(1);
        self.times_opened += 1;
        self.tally.clear();
        self.enter(Phase::Open(opening), reason, now)
    }

    fn enter(&mut self, phase: Phase, reason: Reason, now: Instant) -> Transition {
        let from = self.state();
        self.phase = phase;
        self.epoch += 1;
        self.last_change = Some(now);
        Transition {
            from,
            to: self.state(),
            epoch: self.epoch,
            reason,
        }
    }
}

impl Opening {
    fn new(until: Instant, now: Instant) -> Self {
        Opening {
            since: now,
            until,
            not_before: now,
            good_checks: 0,
        }
    }
}

fn held(until: Instant, now: Instant) -> Held {
    Held {
        state: CircuitState::Open { until },
        retry_in: Some(until.saturating_duration_since(now)),
    }
}

/// How long an opening lasts after so many in a row before it.
fn open_for(settings: &CircuitSettings, before: u32) -> Duration {
    let grown = settings.open_for.as_secs_f64() * settings.open_growth.powf(f64::from(before));
    Duration::try_from_secs_f64(grown)
        .unwrap_or(settings.open_for_max)
        .min(settings.open_for_max)
        .max(settings.open_for)
}

#[cfg(test)]
mod tests;
