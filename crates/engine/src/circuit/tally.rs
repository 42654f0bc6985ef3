//! Counting towards the opening of a closed circuit.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::circuit::{Reason, Verdict};
use crate::policy::{CircuitMode, CircuitSettings};

/// Failures that mode `window` remembers one by one; beyond them the two oldest become one, so that a
/// huge threshold costs no more memory.
const FAILURES_MAX: usize = 1024;
/// Slices that the window of mode `rate` is made of.
const SLICES: u32 = 32;

/// What a closed circuit has counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Weight in a row, or within the window, or failures within the window.
    count: u32,
    /// Mode `window`: when, and how heavy.
    failures: VecDeque<(Instant, u32)>,
    /// Mode `rate`.
    slices: VecDeque<Slice>,
    /// The last generation of connections that weighed, and how heavily.
    weighed: Option<(u64, u32)>,
}

#[derive(Debug)]
struct Slice {
    begin: Instant,
    calls: u64,
    failures: u64,
    slow: u64,
}

impl Tally {
    /// What is counted towards the threshold.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Forgets all but the generations that have weighed: connections of before an opening may still
    /// break after it.
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.failures.clear();
        self.slices.clear();
    }

    /// Counts a result; says why the circuit must open if it must.
    pub(super) fn add(
        &mut self,
        settings: &CircuitSettings,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Reason> {
        match settings.mode {
            CircuitMode::Off => None,
            CircuitMode::WeightedConsecutive | CircuitMode::Operations => {
                self.add_in_a_row(settings, verdict)
            }
            CircuitMode::Window => self.add_within(settings, verdict, now),
            CircuitMode::Rate => self.add_rated(settings, verdict, now),
        }
    }

    fn add_in_a_row(&mut self, settings: &CircuitSettings, verdict: Verdict) -> Option<Reason> {
        match verdict {
            Verdict::Success { .. } => self.count = 0,
            Verdict::Failure { .. } => self.count = self.count.saturating_add(self.weigh(verdict)),
            Verdict::Cancelled => {}
        }
        (self.count >= settings.failures).then_some(Reason::Failures)
    }

    fn add_within(
        &mut self,
        settings: &CircuitSettings,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Reason> {
        let weight = self.weigh(verdict);
        if weight == 0 {
            return None;
        }
        self.failures.push_back((now, weight));
        while let Some((at, _)) = self.failures.front()
            && now.saturating_duration_since(*at) >= settings.window
        {
            self.failures.pop_front();
        }
        if self.failures.len() > FAILURES_MAX
            && let Some((_, oldest)) = self.failures.pop_front()
            && let Some((_, weight)) = self.failures.front_mut()
        {
            *weight = weight.saturating_add(oldest);
        }
        let sum = self.failures.iter().map(|(_, weight)| u64::from(*weight));
        self.count = u32::try_from(sum.sum::<u64>()).unwrap_or(u32::MAX);
        (self.count >= settings.failures).then_some(Reason::Failures)
    }

    /// One failure counts once here, however heavy; a result of no weight does not count as a call.
    fn add_rated(
        &mut self,
        settings: &CircuitSettings,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Reason> {
        let (failed, elapsed) = match verdict {
            Verdict::Success { elapsed } => (false, elapsed),
            Verdict::Failure { elapsed, .. } if self.weigh(verdict) > 0 => (true, elapsed),
            Verdict::Failure { .. } | Verdict::Cancelled => return None,
        };
        let slow = settings.slow_after.is_some_and(|after| elapsed >= after);
        let slice = self.slice(settings, now);
        slice.calls += 1;
        slice.failures += u64::from(failed);
        slice.slow += u64::from(slow);
        if failed || slow {
            self.over_rate(settings)
        } else {
            None
        }
    }

    /// Mode `rate`: counts good calls in the newest slice.
    pub(super) fn add_good(&mut self, calls: u64) {
        if let Some(slice) = self.slices.back_mut() {
            slice.calls += calls;
        }
    }

    /// Mode `rate`: calls within the window.
    #[cfg(test)]
    pub(super) fn calls(&self) -> u64 {
        self.slices.iter().map(|slice| slice.calls).sum()
    }

    /// Mode `rate`: until when good calls belong to the newest slice.
    pub(super) fn slice_end(&self, settings: &CircuitSettings) -> Option<Instant> {
        Some(self.slices.back()?.begin + slice_length(settings))
    }

    /// The slice of `now`, after those that left the window were dropped.
    fn slice(&mut self, settings: &CircuitSettings, now: Instant) -> &mut Slice {
        while let Some(oldest) = self.slices.front()
            && now.saturating_duration_since(oldest.begin) >= settings.window
        {
            self.slices.pop_front();
        }
        let fits = |slice: &Slice| now < slice.begin + slice_length(settings);
        if !self.slices.back().is_some_and(fits) {
            self.slices.push_back(Slice {
                begin: now,
                calls: 0,
                failures: 0,
                slow: 0,
            });
        }
        let newest = self.slices.len() - 1;
        &mut self.slices[newest]
    }

    fn over_rate(&mut self, settings: &CircuitSettings) -> Option<Reason> {
        let (mut calls, mut failures, mut slow) = (0_u64, 0_u64, 0_u64);
        for slice in &self.slices {
            calls += slice.calls;
            failures += slice.failures;
            slow += slice.slow;
        }
        self.count = u32::try_from(failures).unwrap_or(u32::MAX);
        if calls < u64::from(settings.calls_min) {
            return None;
        }
        let share = |part: u64| part as f64 / calls as f64;
        if failures > 0 && share(failures) >= settings.failure_ratio {
            Some(Reason::Failures)
        } else if slow > 0 && share(slow) >= settings.slow_ratio {
            Some(Reason::SlowCalls)
        } else {
            None
        }
    }

    /// What a failure adds. One broken server breaks all its connections: those of one generation add
    /// no more together than the heaviest of their failures.
    fn weigh(&mut self, verdict: Verdict) -> u32 {
        let Verdict::Failure {
            weight, generation, ..
        } = verdict
        else {
            return 0;
        };
        let Some(generation) = generation.filter(|_| weight > 0) else {
            return weight;
        };
        match self.weighed {
            Some((last, _)) if generation < last => 0,
            Some((last, heaviest)) if generation == last => {
                self.weighed = Some((last, heaviest.max(weight)));
                weight.saturating_sub(heaviest)
            }
            _ => {
                self.weighed = Some((generation, weight));
                weight
            }
        }
    }
}

fn slice_length(settings: &CircuitSettings) -> Duration {
    (settings.window / SLICES).max(Duration::from_nanos(1))
}
