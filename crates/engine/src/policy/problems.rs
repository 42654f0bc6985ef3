//! What makes no sense in settings, all of it at once.

use super::PolicyProblem;
use super::settings::{
    CircuitMode, CircuitSettings, Jitter, PoolSettings, RetrySettings, Settings,
};

impl Settings {
    /// Everything that makes no sense, with what would: values that do not go with others, and values
    /// beyond their bounds.
    pub(super) fn problems(&self) -> Vec<PolicyProblem> {
        let mut found = Vec::new();
        let mut refuse = |wrong: bool, path: &'static str, message: String| {
            if wrong {
                found.push(PolicyProblem { path, message });
            }
        };
        self.retry.problems(&mut refuse);
        self.circuit.problems(&mut refuse);
        self.pool.problems(&mut refuse);
        for problem in self.beyond_bounds() {
            // What was said of the key before says more.
            if found.iter().all(|known| known.path != problem.path) {
                found.push(problem);
            }
        }
        found
    }
}

impl RetrySettings {
    fn problems(&self, refuse: &mut impl FnMut(bool, &'static str, String)) {
        refuse(
            self.delay_max.is_some_and(|max| max < self.delay),
            "retry.delay_max",
            format!(
                "is below retry.delay ({:?}), so no wait could have its length; raise it, or lower retry.delay",
                self.delay
            ),
        );
        if let Jitter::UpTo(share) | Jitter::PlusMinus(share) = self.jitter {
            refuse(
                !(0.0..=1.0).contains(&share),
                "retry.jitter",
                format!("a share of {share} is not between 0 % and 100 %; use one such as 25%"),
            );
        }
    }
}

impl CircuitSettings {
    fn problems(&self, refuse: &mut impl FnMut(bool, &'static str, String)) {
        refuse(
            self.mode != CircuitMode::Off && self.open_for.is_zero(),
            "circuit.open_for",
            "0 would never hold anything back; use mode = \"off\" for no circuit".into(),
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
            self.min_idle > self.idle_max,
            "pool.min_idle",
            format!(
                "is above pool.idle_max ({}); lower it, or raise pool.idle_max",
                self.idle_max
            ),
        );
    }
}
