//! What makes no sense in settings, all of it at once.

use std::time::Duration;

use super::PolicyProblem;
use super::settings::{CircuitMode, CircuitSettings, Jitter, PoolSettings, Settings};

impl Settings {
    /// Everything that makes no sense, with what would.
    pub(super) fn problems(&self) -> Vec<PolicyProblem> {
        let mut found = Vec::new();
        let mut refuse = |wrong: bool, path: &'static str, message: String| {
            if wrong {
                found.push(PolicyProblem { path, message });
            }
        };
        let retry = &self.retry;
        refuse(
            retry.attempts_max == 0,
            "retry.attempts_max",
            "0 attempts would call nothing; use 1 for no retries".into(),
        );
        refuse(
            retry.endpoints_max == Some(0),
            "retry.endpoints_max",
            "0 endpoints would call nothing; use \"all\" or at least 1".into(),
        );
        refuse(
            !(retry.factor.is_finite() && retry.factor >= 1.0),
            "retry.factor",
            format!("{} would shorten the waits; use at least 1", retry.factor),
        );
        refuse(
            retry.delay_max.is_some_and(|max| max < retry.delay),
            "retry.delay_max",
            format!(
                "is below retry.delay ({:?}), so no wait could have its length; raise it, or lower retry.delay",
                retry.delay
            ),
        );
        if let Jitter::UpTo(share) | Jitter::PlusMinus(share) = retry.jitter {
            refuse(
                !(0.0..=1.0).contains(&share),
                "retry.jitter",
                format!("a share of {share} is not between 0 % and 100 %; use one such as 25%"),
            );
        }
        for (limit, path) in [
            (retry.deadline, "retry.deadline"),
            (retry.attempt_timeout, "retry.attempt_timeout"),
            (Some(retry.connect_timeout), "retry.connect_timeout"),
        ] {
            refuse(
                limit == Some(Duration::ZERO),
                path,
                "0 would end everything before it began; use \"none\" or a positive time".into(),
            );
        }
        self.circuit.problems(&mut refuse);
        self.pool.problems(&mut refuse);
        let health = &self.health;
        for (time, path) in [
            (health.interval, "health.interval"),
            (health.timeout, "health.timeout"),
            (health.urgent_interval, "health.urgent_interval"),
        ] {
            refuse(
                time.is_zero(),
                path,
                "0 is no time; it must be longer".into(),
            );
        }
        for (count, path) in [
            (health.down_after, "health.down_after"),
            (health.up_after, "health.up_after"),
            (health.healthy_after, "health.healthy_after"),
        ] {
            refuse(
                count == 0,
                path,
                "0 would never be reached; it must be at least 1".into(),
            );
        }
        let limits = &self.limits;
        refuse(
            limits
                .rate
                .is_some_and(|rate| !(rate.is_finite() && rate > 0.0)),
            "limits.rate",
            "must be above 0; use \"off\" for no limit".into(),
        );
        refuse(
            limits.burst == Some(0),
            "limits.burst",
            "0 would admit nothing; use \"auto\" or at least 1".into(),
        );
        refuse(
            limits.concurrency == Some(0),
            "limits.concurrency",
            "0 would admit nothing; use \"off\" for no limit".into(),
        );
        for problem in self.beyond_bounds() {
            // What was said of the key before says more.
            if found.iter().all(|known| known.path != problem.path) {
                found.push(problem);
            }
        }
        found
    }
}

impl CircuitSettings {
    fn problems(&self, refuse: &mut impl FnMut(bool, &'static str, String)) {
        refuse(
            self.trials_max == 0,
            "circuit.trials_max",
            "0 could never close again; use at least 1".into(),
        );
        refuse(
            self.successes == 0,
            "circuit.successes",
            "0 would never be reached; it must be at least 1".into(),
        );
        refuse(
            self.mode != CircuitMode::Off && self.open_for.is_zero(),
            "circuit.open_for",
            "0 would never hold anything back; use mode = \"off\" for no circuit".into(),
        );
        refuse(
            !(self.open_growth.is_finite() && self.open_growth >= 1.0),
            "circuit.open_growth",
            format!(
                "{} would shorten the opening; use at least 1",
                self.open_growth
            ),
        );
        refuse(
            self.open_for_max < self.open_for,
            "circuit.open_for_max",
            format!(
                "is below circuit.open_for ({:?}); raise it, or lower circuit.open_for",
                self.open_for
            ),
        );
        let windowed = matches!(self.mode, CircuitMode::Window | CircuitMode::Rate);
        refuse(
            windowed && self.window.is_zero(),
            "circuit.window",
            "mode needs a window longer than 0".into(),
        );
        for (ratio, path) in [
            (self.failure_ratio, "circuit.failure_ratio"),
            (self.slow_ratio, "circuit.slow_ratio"),
        ] {
            refuse(
                !(ratio > 0.0 && ratio <= 1.0),
                path,
                format!("{ratio} is not above 0 and at most 1; use from 0.001 to 1"),
            );
        }
        refuse(
            self.mode == CircuitMode::Rate && self.calls_min == 0,
            "circuit.calls_min",
            "0 would never be reached; it must be at least 1".into(),
        );
    }
}

impl PoolSettings {
    fn problems(&self, refuse: &mut impl FnMut(bool, &'static str, String)) {
        refuse(
            self.active_max == 0,
            "pool.active_max",
            "0 would lend nothing; use at least 1".into(),
        );
        refuse(
            self.min_idle > self.idle_max,
            "pool.min_idle",
            format!(
                "is above pool.idle_max ({}); lower it, or raise pool.idle_max",
                self.idle_max
            ),
        );
        refuse(
            self.lifetime_max.is_zero(),
            "pool.lifetime_max",
            "0 is no time; it must be longer".into(),
        );
        refuse(
            self.cleanup_max.is_zero(),
            "pool.cleanup_max",
            "0 is no time; it must be longer".into(),
        );
    }
}
