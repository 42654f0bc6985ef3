//! What health checks say about an endpoint.

use tokio::time::Instant;

use crate::failure::named;
use crate::policy::HealthSettings;

named! {
    /// Whether an endpoint is well, as far as health checks know.
    HealthState {
        /// Not checked yet: counts as usable.
        Unknown = "unknown",
        /// The last checks were good.
        Up = "up",
        /// The last checks failed.
        Down = "down",
    }
}

named! {
    /// What a check has changed.
    HealthChange {
        /// It is down.
        Down = "down",
        /// It gets reads again.
        Healthy = "healthy",
        /// It has recovered for good: the watchdog may count on it again. Never said at the start.
        Recovered = "recovered",
    }
}

/// The verdict machine of one endpoint's health checks.
#[derive(Debug, Clone, Default)]
pub struct Health {
    is_up: Option<bool>,
    /// Was down and has not been called recovered since.
    recovering: bool,
    in_a_row: Row,
    checks: u64,
    failures: u64,
    last_check: Option<Instant>,
    last_change: Option<Instant>,
}

/// Equal results in a row.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    good: bool,
    length: u32,
}

impl Health {
    /// Not checked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a check's result into account.
    ///
    /// Down after `down_after` bad ones in a row. From there healthy for reads after `healthy_after`
    /// good ones in a row and recovered after `up_after`; where both are reached at once the answer is
    /// `Recovered`, which includes the other. At the start one good check is enough and no change,
    /// because an unchecked endpoint was usable already.
    pub fn observe(
        &mut self,
        settings: &HealthSettings,
        good: bool,
        now: Instant,
    ) -> Option<HealthChange> {
        self.checks += 1;
        self.failures += u64::from(!good);
        self.last_check = Some(now);
        self.in_a_row = Row {
            good,
            length: if self.in_a_row.good == good {
                self.in_a_row.length.saturating_add(1)
            } else {
                1
            },
        };
        let change = if good {
            self.rise(settings)
        } else {
            self.fall(settings)
        };
        if change.is_some() {
            self.last_change = Some(now);
        }
        change
    }

    fn fall(&mut self, settings: &HealthSettings) -> Option<HealthChange> {
        if self.is_up == Some(false) || self.in_a_row.length < settings.down_after {
            return None;
        }
        self.is_up = Some(false);
        self.recovering = true;
        Some(HealthChange::Down)
    }

    fn rise(&mut self, settings: &HealthSettings) -> Option<HealthChange> {
        let good = self.in_a_row.length;
        let was_down = self.is_up == Some(false);
        if was_down && good < settings.healthy_after {
            return None;
        }
        self.is_up = Some(true);
        if self.recovering && good >= settings.up_after {
            self.recovering = false;
            return Some(HealthChange::Recovered);
        }
        was_down.then_some(HealthChange::Healthy)
    }

    /// What is known.
    pub fn state(&self) -> HealthState {
        match self.is_up {
            None => HealthState::Unknown,
            Some(true) => HealthState::Up,
            Some(false) => HealthState::Down,
        }
    }

    /// Whether it may be used: anything but down.
    pub fn is_usable(&self) -> bool {
        self.is_up != Some(false)
    }

    /// Checks so far.
    pub fn checks(&self) -> u64 {
        self.checks
    }

    /// Checks that failed.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Good checks in a row up to now.
    pub fn good_in_a_row(&self) -> u32 {
        if self.in_a_row.good {
            self.in_a_row.length
        } else {
            0
        }
    }

    /// Bad checks in a row up to now.
    pub fn bad_in_a_row(&self) -> u32 {
        if self.in_a_row.good {
            0
        } else {
            self.in_a_row.length
        }
    }

    /// When it was last checked.
    pub fn last_check(&self) -> Option<Instant> {
        self.last_check
    }

    /// When a check last changed anything.
    pub fn last_change(&self) -> Option<Instant> {
        self.last_change
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use HealthChange::{Down, Healthy, Recovered};

    /// Runs checks (`+` good, `-` bad) and writes what each changed: `d`, `h`, `r` or `.`.
    fn changes(settings: &HealthSettings, checks: &str) -> String {
        let mut health = Health::new();
        checks
            .chars()
            .map(
                |check| match health.observe(settings, check == '+', Instant::now()) {
                    None => '.',
                    Some(Down) => 'd',
                    Some(Healthy) => 'h',
                    Some(Recovered) => 'r',
                },
            )
            .collect()
    }

    #[test]
    fn results_in_a_row_decide() {
        let settings = HealthSettings::default();
        for (checks, expected) in [
            ("+", "."),
            ("++++", "...."),
            ("-", "."),
            ("--", ".d"),
            ("----", ".d.."),
            ("-+-+-+", "......"),
            ("+--", "..d"),
            ("--+", ".d."),
            ("--++", ".d.h"),
            ("--+++", ".d.hr"),
            ("--++++++", ".d.hr..."),
            ("--+-++", ".d...h"),
            ("--++-+++", ".d.h...r"),
            ("--++--", ".d.h.d"),
            ("--+++--+++", ".d.hr.d.hr"),
        ] {
            assert_eq!(changes(&settings, checks), expected, "{checks}");
        }
    }

    #[test]
    fn equal_or_turned_thresholds_say_recovered_once() {
        let equal = HealthSettings {
            up_after: 2,
            ..HealthSettings::default()
        };
        assert_eq!(changes(&equal, "--+++"), ".d.r.");
        let turned = HealthSettings {
            up_after: 1,
            healthy_after: 3,
            ..HealthSettings::default()
        };
        assert_eq!(changes(&turned, "--++++"), ".d..r.");
        let at_once = HealthSettings {
            down_after: 1,
            up_after: 1,
            healthy_after: 1,
            ..HealthSettings::default()
        };
        assert_eq!(changes(&at_once, "-+-++"), "drdr.");
    }

    #[test]
    fn an_unchecked_endpoint_is_usable_until_it_is_found_down() {
        let settings = HealthSettings::default();
        let mut health = Health::new();
        let now = Instant::now();
        assert_eq!(health.state(), HealthState::Unknown);
        health.observe(&settings, false, now);
        assert_eq!(health.state(), HealthState::Unknown);
        assert!(health.is_usable());
        health.observe(&settings, false, now);
        assert_eq!(health.state(), HealthState::Down);
        assert!(!health.is_usable());
    }

    #[test]
    fn counters_tell_what_was_observed() {
        let settings = HealthSettings::default();
        let mut health = Health::new();
        let now = Instant::now();
        for good in [true, false, false, true] {
            health.observe(&settings, good, now);
        }
        assert_eq!((health.checks(), health.failures()), (4, 2));
        assert_eq!((health.good_in_a_row(), health.bad_in_a_row()), (1, 0));
        assert_eq!(health.last_check(), Some(now));
        assert_eq!(health.last_change(), Some(now));
    }
}
