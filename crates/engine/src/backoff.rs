//! How long to wait before the next attempt.

use std::time::Duration;

use crate::origin::nanos;
use crate::policy::{Jitter, RetrySettings, Series};

/// No wait is longer: 136 years, so that adding one to an instant never overflows.
const LONGEST: u64 = u32::MAX as u64 * 1_000_000_000;

/// The waits of one call. Each call has its own, with a random stream of its own, so that callers
/// that failed together do not come back together.
#[derive(Debug)]
pub struct Backoff {
    rng: fastrand::Rng,
    step: u32,
    /// The last wait of the series in nanoseconds, which `decorrelated` builds on.
    previous: Option<u64>,
}

impl Backoff {
    /// Before the first retry.
    pub fn new(rng: fastrand::Rng) -> Self {
        Backoff {
            rng,
            step: 0,
            previous: None,
        }
    }

    /// The wait before the next attempt; n of the series advances by one.
    ///
    /// The settings are read anew each time, so that a changed policy holds in a running call too.
    /// `doubled` doubles this step (the endpoint was saturated). `at_least` is what the back end asked
    /// for (`Retry-After`): the wait is never shorter, whatever the cap, and jitter only adds to it.
    pub fn next(
        &mut self,
        retry: &RetrySettings,
        doubled: bool,
        at_least: Option<Duration>,
    ) -> Duration {
        self.step = self.step.saturating_add(1);
        let cap = retry.delay_max.map_or(LONGEST, nanos).min(LONGEST);
        let series = self.series(retry).min(cap);
        self.previous = Some(series);
        let wait = if doubled {
            series.saturating_mul(2)
        } else {
            series
        };
        let (low, high) = spread(retry.jitter, wait.min(cap));
        let (low, high) = (low.min(cap), high.min(cap));
        let (low, high) = match at_least.map(|least| nanos(least).min(LONGEST)) {
            Some(least) if least > low => {
                let (from, to) = spread(retry.jitter, least);
                (least, high.max(least.saturating_add(to - from)))
            }
            _ => (low, high),
        };
        Duration::from_nanos(self.rng.u64(low..=high).min(LONGEST))
    }

    /// The series' own value at this step, in nanoseconds.
    fn series(&mut self, retry: &RetrySettings) -> u64 {
        let base = nanos(retry.delay).min(LONGEST);
        let n = u64::from(self.step);
        let times = |factor: u64| base.saturating_mul(factor).min(LONGEST);
        match retry.series {
            Series::Constant => base,
            Series::Linear => times(n),
            Series::Lengthening => times(2 * n - 1),
            Series::HalfSquare => times(n * n / 2),
            Series::Squaring => times(1_u64.checked_shl(self.step - 1).unwrap_or(u64::MAX)),
            // A float that is too large, or infinite, becomes the largest integer.
            Series::Exponential => {
                let power = retry.factor.powf(f64::from(self.step - 1));
                scaled(base, power).min(LONGEST)
            }
            Series::Decorrelated => {
                let previous = self.previous.unwrap_or(base);
                let high = previous.saturating_mul(3).min(LONGEST).max(base);
                self.rng.u64(base..=high)
            }
            Series::RandomLinear => {
                let steps = f64::from(self.step - 1) + self.rng.f64();
                scaled(base, steps).min(LONGEST)
            }
        }
    }
}

/// `value · factor`, saturating; 0 times anything is 0.
fn scaled(value: u64, factor: f64) -> u64 {
    if value == 0 {
        0
    } else {
        (value as f64 * factor) as u64
    }
}

/// The shortest and the longest wait that a jitter makes of one.
fn spread(jitter: Jitter, wait: u64) -> (u64, u64) {
    match jitter {
        Jitter::None => (wait, wait),
        Jitter::UpTo(share) => (wait, wait.saturating_add(scaled(wait, share))),
        Jitter::Full => (0, wait),
        Jitter::Equal => (wait / 2, wait),
        Jitter::PlusMinus(share) => {
            let part = scaled(wait, share);
            (wait.saturating_sub(part), wait.saturating_add(part))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Preset;

    fn retry(series: Series, delay_ms: u64) -> RetrySettings {
        RetrySettings {
            series,
            delay: Duration::from_millis(delay_ms),
            factor: 3.0,
            delay_max: None,
            jitter: Jitter::None,
            ..Preset::Balanced.settings().retry
        }
    }

    fn backoff(seed: u64) -> Backoff {
        Backoff::new(fastrand::Rng::with_seed(seed))
    }

    fn first_waits(retry: &RetrySettings, count: usize) -> Vec<u64> {
        let mut backoff = backoff(1);
        (0..count)
            .map(|_| backoff.next(retry, false, None).as_millis() as u64)
            .collect()
    }

    #[test]
    fn every_series_without_chance_has_the_values_of_its_formula() {
        for (series, expected) in [
            (Series::Constant, [100, 100, 100, 100, 100]),
            (Series::Linear, [100, 200, 300, 400, 500]),
            (Series::Lengthening, [100, 300, 500, 700, 900]),
            (Series::HalfSquare, [0, 200, 400, 800, 1200]),
            (Series::Squaring, [100, 200, 400, 800, 1600]),
            (Series::Exponential, [100, 300, 900, 2700, 8100]),
        ] {
            assert_eq!(first_waits(&retry(series, 100), 5), expected, "{series}");
        }
    }

    #[test]
    fn random_linear_lies_between_n_minus_one_and_n_times_the_base() {
        for seed in 0..200 {
            let mut backoff = backoff(seed);
            for n in 1..=6_u64 {
                let wait = backoff
                    .next(&retry(Series::RandomLinear, 1000), false, None)
                    .as_millis() as u64;
                assert!((1000 * (n - 1)..=1000 * n).contains(&wait), "{n}: {wait}");
            }
        }
    }

    #[test]
    fn decorrelated_lies_between_the_base_and_three_times_the_previous_wait() {
        for seed in 0..200 {
            let mut backoff = backoff(seed);
            let mut previous = Duration::from_millis(100);
            for _ in 0..12 {
                let wait = backoff.next(&retry(Series::Decorrelated, 100), false, None);
                assert!(wait >= Duration::from_millis(100) && wait <= previous * 3);
                previous = wait;
            }
        }
    }

    #[test]
    fn every_series_and_jitter_saturates_at_any_step() {
        for series in Series::ALL {
            for jitter in [
                Jitter::None,
                Jitter::Full,
                Jitter::Equal,
                Jitter::UpTo(1.0),
                Jitter::PlusMinus(1.0),
            ] {
                for factor in [1.0, 2.0, f64::MAX] {
                    for delay in [Duration::ZERO, Duration::from_secs(1), Duration::MAX] {
                        let settings = RetrySettings {
                            jitter,
                            factor,
                            delay,
                            ..retry(*series, 1)
                        };
                        let mut backoff = backoff(3);
                        backoff.step = u32::MAX - 2;
                        for _ in 0..4 {
                            let wait = backoff.next(&settings, true, Some(Duration::MAX));
                            assert!(wait <= Duration::from_nanos(LONGEST));
                            let wait = backoff.next(&settings, false, None);
                            assert!(!delay.is_zero() || wait.is_zero(), "{series} {wait:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_cap_holds_before_and_after_jitter_and_for_a_doubled_step() {
        let settings = RetrySettings {
            delay_max: Some(Duration::from_millis(250)),
            jitter: Jitter::UpTo(0.5),
            ..retry(Series::Squaring, 100)
        };
        for seed in 0..100 {
            let mut backoff = backoff(seed);
            for _ in 0..10 {
                let wait = backoff.next(&settings, true, None);
                assert!(wait >= Duration::from_millis(200) && wait <= Duration::from_millis(250));
            }
        }
    }

    #[test]
    fn each_jitter_stays_in_its_range_and_uses_all_of_it() {
        for (jitter, low, high) in [
            (Jitter::None, 1000, 1000),
            (Jitter::UpTo(0.25), 1000, 1250),
            (Jitter::Full, 0, 1000),
            (Jitter::Equal, 500, 1000),
            (Jitter::PlusMinus(0.1), 900, 1100),
        ] {
            let settings = RetrySettings {
                jitter,
                ..retry(Series::Constant, 1000)
            };
            let waits = first_waits(&settings, 2000);
            let (min, max) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
            assert!(*min >= low && *max <= high, "{jitter:?}: {min}..{max}");
            let slack = (high - low) / 50;
            assert!(
                *min <= low + slack && *max + slack >= high,
                "{jitter:?}: {min}..{max}"
            );
        }
    }

    #[test]
    fn what_the_back_end_asked_for_is_a_lower_bound_that_jitter_only_adds_to() {
        for jitter in [
            Jitter::None,
            Jitter::UpTo(0.25),
            Jitter::Full,
            Jitter::Equal,
            Jitter::PlusMinus(0.1),
        ] {
            for asked_ms in [1, 50, 100, 105, 5_000] {
                let settings = RetrySettings {
                    jitter,
                    delay_max: Some(Duration::from_millis(200)),
                    ..retry(Series::Constant, 100)
                };
                let asked = Duration::from_millis(asked_ms);
                let mut backoff = backoff(asked_ms);
                let waits: Vec<Duration> = (0..200)
                    .map(|_| backoff.next(&settings, false, Some(asked)))
                    .collect();
                assert!(waits.iter().all(|wait| *wait >= asked));
                let spreads = waits.iter().any(|wait| *wait != waits[0]);
                assert_eq!(spreads, jitter != Jitter::None, "{jitter:?} {asked_ms}");
            }
        }
    }

    #[test]
    fn settings_are_read_at_each_retry() {
        let mut backoff = backoff(1);
        assert_eq!(
            backoff.next(&retry(Series::Linear, 100), false, None),
            Duration::from_millis(100)
        );
        assert_eq!(
            backoff.next(&retry(Series::Linear, 7), false, None),
            Duration::from_millis(14)
        );
        assert_eq!(
            backoff.next(&retry(Series::Linear, 7), true, None),
            Duration::from_millis(42)
        );
    }
}
