//! How small and how large the value of a key may be. Beyond its bounds a value is a slip, and would
//! harm: a check every nanosecond, a rate of one call in a century, a deadline that no clock reaches.

use std::fmt;
use std::time::Duration;

use super::keys::{KEYS, Key};
use super::settings::Settings;
use super::{PolicyProblem, Setting};

/// Timers tick in milliseconds: a shorter time would be another one than was written.
const TICK: Duration = Duration::from_millis(1);
/// Checks of one endpoint further apart than this are no load; closer ones are.
const CHECK: Duration = Duration::from_millis(10);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Longer codes have no back end, and more rules no reader.
const CODE_BYTES_MAX: usize = 64;
const CODES_MAX: usize = 1000;

/// What the value of a key lies between, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// 0 is admitted below the least one: not at all, or at once.
    pub or_zero: bool,
    /// The least and the greatest.
    pub range: Range,
}

/// The two ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Of whole numbers.
    Count(u64, u64),
    /// Of numbers.
    Number(f64, f64),
    /// Of times.
    Time(Duration, Duration),
}

impl Bounds {
    fn admits(&self, value: &Setting) -> bool {
        match (self.range, value) {
            (Range::Count(least, most), Setting::Count(count)) => {
                (self.or_zero && *count == 0) || (least..=most).contains(count)
            }
            (Range::Number(least, most), Setting::Number(number)) => {
                (self.or_zero && *number == 0.0) || (least..=most).contains(number)
            }
            (Range::Time(least, most), Setting::Time(time)) => {
                (self.or_zero && time.is_zero()) || (least..=most).contains(time)
            }
            // Words and "off" have no size.
            _ => true,
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (zero, least, most) = match self.range {
            Range::Count(least, most) => ("0", Setting::Count(least), Setting::Count(most)),
            Range::Number(least, most) => ("0", Setting::Number(least), Setting::Number(most)),
            Range::Time(least, most) => ("0s", Setting::Time(least), Setting::Time(most)),
        };
        if self.or_zero {
            write!(f, "{zero} or ")?;
        }
        write!(f, "from {least} to {most}")
    }
}

const fn count(path: &'static str, least: u64, most: u64) -> (&'static str, Bounds) {
    let range = Range::Count(least, most);
    let or_zero = false;
    (path, Bounds { or_zero, range })
}

const fn number(path: &'static str, least: f64, most: f64) -> (&'static str, Bounds) {
    let range = Range::Number(least, most);
    let or_zero = false;
    (path, Bounds { or_zero, range })
}

const fn time(path: &'static str, least: Duration, most: Duration) -> (&'static str, Bounds) {
    let range = Range::Time(least, most);
    let or_zero = false;
    (path, Bounds { or_zero, range })
}

const fn zero_or(row: (&'static str, Bounds)) -> (&'static str, Bounds) {
    let range = row.1.range;
    let or_zero = true;
    (row.0, Bounds { or_zero, range })
}

/// The bounds of every key that has a size.
const BOUNDS: &[(&str, Bounds)] = &[
    count("retry.attempts_max", 1, 1000),
    count("retry.endpoints_max", 1, 1000),
    zero_or(time("retry.delay", TICK, HOUR)),
    number("retry.factor", 1.0, 100.0),
    zero_or(time("retry.delay_max", TICK, DAY)),
    zero_or(number("retry.budget_ratio", 0.001, 10.0)),
    count("retry.budget_floor", 0, 1_000_000),
    time("retry.deadline", TICK, DAY),
    time("retry.attempt_timeout", TICK, DAY),
    time("retry.connect_timeout", TICK, HOUR),
    count("circuit.failures", 0, 1_000_000),
    zero_or(time("circuit.open_for", TICK, DAY)),
    number("circuit.open_growth", 1.0, 100.0),
    zero_or(time("circuit.open_for_max", TICK, DAY)),
    count("circuit.successes", 1, 1000),
    count("circuit.trials_max", 1, 1000),
    zero_or(time("circuit.window", TICK, DAY)),
    number("circuit.failure_ratio", 0.001, 1.0),
    // Measured, not waited for: it may be shorter than a tick.
    time("circuit.slow_after", Duration::from_micros(1), HOUR),
    number("circuit.slow_ratio", 0.001, 1.0),
    count("circuit.calls_min", 0, 1_000_000),
    count("pool.idle_max", 0, 10_000),
    count("pool.active_max", 1, 100_000),
    zero_or(time("pool.wait_max", TICK, HOUR)),
    count("pool.waiting_max", 0, 1_000_000),
    zero_or(time("pool.idle_for", TICK, DAY)),
    time(
        "pool.lifetime_max",
        TICK,
        Duration::from_secs(30 * 24 * 3600),
    ),
    count("pool.min_idle", 0, 10_000),
    zero_or(time("pool.check_after", TICK, DAY)),
    count("pool.cleanups_max", 0, 1000),
    time("pool.cleanup_max", TICK, Duration::from_secs(600)),
    time("health.interval", CHECK, HOUR),
    time("health.timeout", TICK, HOUR),
    count("health.down_after", 1, 1000),
    count("health.up_after", 1, 1000),
    count("health.healthy_after", 1, 1000),
    time("health.urgent_interval", CHECK, HOUR),
    zero_or(time("health.urgent_for", TICK, DAY)),
    number("limits.rate", 0.001, 1e9),
    count("limits.burst", 1, 1_000_000_000),
    count("limits.concurrency", 1, 1_000_000),
    count("limits.queue_depth", 0, 1_000_000),
    zero_or(time("limits.queue_wait", TICK, HOUR)),
    zero_or(time("route.lag_max", TICK, DAY)),
    zero_or(time("route.primary_wait", TICK, HOUR)),
    zero_or(time("route.read_your_writes_wait", TICK, MINUTE)),
    count("audit.recent_max", 0, 100_000),
];

impl Key {
    /// Between what its value lies; `None`: it has no size.
    pub fn bounds(&self) -> Option<Bounds> {
        let row = BOUNDS.iter().find(|(path, _)| *path == self.path);
        row.map(|(_, bounds)| *bounds)
    }
}

impl Settings {
    /// Every value beyond its bounds.
    pub(super) fn beyond_bounds(&self) -> impl Iterator<Item = PolicyProblem> {
        KEYS.iter().filter_map(|key| {
            let value = (key.get)(self);
            let message = match (&value, key.bounds()) {
                (Setting::List(codes), _) => codes_problem(codes)?,
                (_, Some(bounds)) if !bounds.admits(&value) => match key.off {
                    Some(off) => format!("{value} is out of bounds; use {bounds}, or {off:?}"),
                    None => format!("{value} is out of bounds; use {bounds}"),
                },
                _ => return None,
            };
            let path = key.path;
            Some(PolicyProblem { path, message })
        })
    }
}

fn codes_problem(codes: &[String]) -> Option<String> {
    if codes.len() > CODES_MAX {
        let count = codes.len();
        return Some(format!(
            "{count} codes are too many; use at most {CODES_MAX}"
        ));
    }
    let odd = codes
        .iter()
        .find(|code| code.is_empty() || code.len() > CODE_BYTES_MAX)?;
    let bytes = odd.len();
    Some(format!(
        "a code of {bytes} bytes is none; use 1 to {CODE_BYTES_MAX}"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Policy, Preset};
    use super::*;

    fn refused(key: &Key, value: Setting) -> Option<String> {
        let mut settings = Preset::Balanced.settings();
        // A count beyond 32 bits is refused where it is read.
        if let Err(problem) = (key.set)(&mut settings, value) {
            return Some(problem);
        }
        let problems = Policy::new(settings).err()?;
        let own = problems
            .into_iter()
            .find(|problem| problem.path == key.path);
        own.map(|problem| problem.message)
    }

    #[test]
    fn every_key_with_a_size_has_bounds_and_no_other_has() {
        for key in KEYS {
            let has_size = matches!(key.kind, Kind::Count | Kind::Number | Kind::Time);
            assert_eq!(key.bounds().is_some(), has_size, "{}", key.path);
        }
        for (path, _) in BOUNDS {
            assert!(super::super::key(path).is_some(), "{path} is no key");
        }
    }

    #[test]
    fn absurd_values_of_every_key_are_refused_with_the_bound_in_the_problem() {
        for key in KEYS {
            let Some(bounds) = key.bounds() else { continue };
            let absurd = match bounds.range {
                Range::Count(..) => vec![Setting::Count(u32::MAX.into()), Setting::Count(u64::MAX)],
                Range::Number(..) => [1e-300, -1.0, 1e300, f64::NAN, f64::INFINITY]
                    .map(Setting::Number)
                    .to_vec(),
                Range::Time(..) => vec![
                    Setting::Time(Duration::from_nanos(1)),
                    Setting::Time(Duration::from_secs(365 * 24 * 3600)),
                    Setting::Time(Duration::MAX),
                ],
            };
            for value in absurd {
                let problem = refused(key, value.clone());
                let problem = problem.unwrap_or_else(|| panic!("{} = {value}", key.path));
                let names_a_way = ["; ", "at least", "at most", "above"]
                    .iter()
                    .any(|word| problem.contains(word));
                assert!(names_a_way, "{}: {problem}", key.path);
            }
        }
    }

    #[test]
    fn the_bounds_themselves_are_admitted_and_what_lies_beside_them_is_not() {
        let step = Duration::from_nanos(1);
        for key in KEYS {
            let Some(bounds) = key.bounds() else { continue };
            let (inside, outside) = match bounds.range {
                Range::Count(least, most) => (
                    vec![Setting::Count(least), Setting::Count(most)],
                    vec![Setting::Count(most + 1)],
                ),
                Range::Number(least, most) => (
                    vec![Setting::Number(least), Setting::Number(most)],
                    vec![Setting::Number(least / 2.0), Setting::Number(most * 2.0)],
                ),
                Range::Time(least, most) => (
                    vec![Setting::Time(least), Setting::Time(most)],
                    vec![Setting::Time(least - step), Setting::Time(most + step)],
                ),
            };
            for value in inside {
                assert!(bounds.admits(&value), "{} = {value}", key.path);
            }
            for value in outside {
                assert!(!bounds.admits(&value), "{} = {value}", key.path);
                assert!(
                    refused(key, value.clone()).is_some(),
                    "{} = {value}",
                    key.path
                );
            }
        }
    }

    #[test]
    fn a_problem_names_the_bounds_and_the_word_for_none() {
        let table = [
            (
                "health.interval",
                Setting::Time(Duration::from_nanos(1)),
                "1ns is out of bounds; use from 10ms to 1h",
            ),
            (
                "limits.rate",
                Setting::Number(1e-300),
                "is out of bounds; use from 0.001 to 1000000000, or \"off\"",
            ),
            (
                "pool.wait_max",
                Setting::Time(Duration::from_nanos(1)),
                "1ns is out of bounds; use 0s or from 1ms to 1h",
            ),
            (
                "retry.on",
                Setting::List(vec![String::new()]),
                "a code of 0 bytes is none; use 1 to 64",
            ),
            (
                "retry.never",
                Setting::List(vec!["40001".into(); 1001]),
                "1001 codes are too many; use at most 1000",
            ),
        ];
        for (path, value, expected) in table {
            let key = super::super::key(path).unwrap();
            let problem = refused(key, value).unwrap();
            assert!(problem.ends_with(expected), "{path}: {problem}");
        }
    }
}
