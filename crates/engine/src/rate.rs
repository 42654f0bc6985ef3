//! How many calls per second are let in.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::origin::Origin;

/// Times are kept in sixteenths of a nanosecond, so that the interval of a million calls per second
/// is not rounded by more than a hundredth of a percent; 36 years fit.
const UNITS: u64 = 16;

/// A token bucket as GCRA (ITU-T I.371): one number, the time at which the bucket will be full
/// again. Rate and burst may differ from call to call.
#[derive(Debug, Default)]
pub struct Rate {
    origin: Origin,
    full_at: AtomicU64,
    /// Time in which an empty bucket fills; a change of it means other settings.
    capacity: AtomicU64,
}

impl Rate {
    /// A full bucket.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one token, or says after what time there will be one. A refusal costs nothing.
    ///
    /// `rate` is in calls per second and above 0; `burst` (at least 1) is how many calls may come at
    /// once before the rate binds.
    pub fn take(&self, rate: f64, burst: u32, now: Instant) -> Result<(), Duration> {
        // A cast from a float saturates: a rate near 0 fills never, one without bound at once.
        let interval = (1e9 * UNITS as f64 / rate) as u64;
        let capacity = interval.saturating_mul(u64::from(burst.max(1)));
        let now = self.origin.nanos(now).saturating_mul(UNITS);
        if self.capacity.load(Relaxed) != capacity {
            self.settle(capacity, now);
        }
        let mut full_at = self.full_at.load(Relaxed);
        loop {
            let debt = full_at.saturating_sub(now);
            let after = debt.saturating_add(interval);
            if after > capacity {
                return Err(Duration::from_nanos((after - capacity).div_ceil(UNITS)));
            }
            match self.full_at.compare_exchange_weak(
                full_at,
                now.saturating_add(after),
                Relaxed,
                Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(seen) => full_at = seen,
            }
        }
    }

    /// Under other settings than before a bucket cannot owe more than its new capacity: otherwise one
    /// call an hour, changed to a thousand a second, would still wait for its hour.
    fn settle(&self, capacity: u64, now: u64) {
        self.capacity.store(capacity, Relaxed);
        self.full_at
            .fetch_min(now.saturating_add(capacity), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls every `step` for `time`; how many were let in.
    fn admitted(rate: &Rate, per_second: f64, burst: u32, start: Instant, ms: u64) -> u64 {
        (0..ms * 10)
            .filter(|tick| {
                let now = start + Duration::from_micros(tick * 100);
                rate.take(per_second, burst, now).is_ok()
            })
            .count() as u64
    }

    #[test]
    fn the_rate_holds_to_within_five_percent_once_the_burst_is_used_up() {
        let start = Instant::now();
        for per_second in [0.5, 1.0, 7.0, 100.0, 999.0, 4321.0] {
            let rate = Rate::new();
            let burst = (per_second / 10.0_f64).ceil() as u32;
            while rate.take(per_second, burst, start).is_ok() {}
            let count = admitted(&rate, per_second, burst, start, 20_000) as f64;
            let expected = per_second * 20.0;
            assert!(
                (count - expected).abs() <= (expected * 0.05).max(1.0),
                "{per_second}: {count} instead of {expected}"
            );
        }
    }

    #[test]
    fn high_rates_are_not_rounded_away() {
        let start = Instant::now();
        for per_second in [1e6, 1e7, 5e7] {
            let rate = Rate::new();
            let mut now = start;
            let mut count = 0_u32;
            while now < start + Duration::from_millis(1) {
                if rate.take(per_second, 1, now).is_ok() {
                    count += 1;
                }
                now += Duration::from_nanos(5);
            }
            let expected = per_second / 1000.0;
            assert!((f64::from(count) - expected).abs() < expected * 0.05);
        }
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rate_binds_after_it() {
        let rate = Rate::new();
        let now = Instant::now();
        assert!((0..10).all(|_| rate.take(5.0, 10, now).is_ok()));
        assert_eq!(rate.take(5.0, 10, now), Err(Duration::from_millis(200)));
        let later = now + Duration::from_millis(200);
        assert!(rate.take(5.0, 10, later).is_ok());
        assert!(rate.take(5.0, 10, later).is_err());
    }

    #[test]
    fn a_refusal_says_when_a_token_is_due_and_costs_none() {
        let rate = Rate::new();
        let now = Instant::now();
        for per_second in [3.0, 7.0, 1234.5] {
            let rate = &rate;
            while rate.take(per_second, 1, now).is_ok() {}
            let wait = rate.take(per_second, 1, now).unwrap_err();
            for _ in 0..100 {
                assert_eq!(rate.take(per_second, 1, now), Err(wait));
            }
            assert!(
                rate.take(per_second, 1, now + wait - Duration::from_nanos(2))
                    .is_err()
            );
            assert!(rate.take(per_second, 1, now + wait).is_ok());
        }
    }

    #[test]
    fn a_changed_rate_holds_at_once() {
        let rate = Rate::new();
        let now = Instant::now();
        assert!(rate.take(1.0 / 3600.0, 1, now).is_ok());
        assert!(rate.take(1.0 / 3600.0, 1, now).is_err());
        let wait = rate.take(1000.0, 10, now).unwrap_err();
        assert!(wait <= Duration::from_millis(1), "{wait:?}");
        assert!(rate.take(1000.0, 10, now + wait).is_ok());
    }

    #[test]
    fn an_idle_bucket_gains_no_more_than_its_burst() {
        let rate = Rate::new();
        let now = Instant::now();
        let _ = rate.take(10.0, 3, now);
        let later = now + Duration::from_secs(3600);
        let passed = (0..10)
            .filter(|_| rate.take(10.0, 3, later).is_ok())
            .count();
        assert_eq!(passed, 3);
    }

    #[test]
    fn eight_threads_together_get_no_more_than_the_burst() {
        let rate = Rate::new();
        let now = Instant::now();
        let passed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..1000)
                            .filter(|_| rate.take(1.0, 500, now).is_ok())
                            .count()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(passed, 500);
    }
}
