//! How slow an endpoint is, as routing sees it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::origin::{Origin, nanos};

/// Time constant of the decay: after so long without news about two thirds of an estimate are gone.
const DECAY_NANOS: f64 = 10e9;
/// In 1 ms an estimate decays by a ten-thousandth: answers that come faster share one such step.
const SOON_NANOS: u64 = 1_000_000;

/// Peak EWMA, as in Finagle and linkerd: a slow answer raises the estimate at once, fast ones lower it
/// with a time constant of 10 s, and so does silence, so that an endpoint nobody uses any more is
/// tried again.
#[derive(Debug, Default)]
pub struct Latency {
    origin: Origin,
    /// Nanoseconds as the bits of a float; 0: not measured.
    estimate: AtomicU64,
    /// When it was last brought up to date, in nanoseconds of `origin`.
    updated: AtomicU64,
}

impl Latency {
    /// Not measured yet.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn since(origin: &Origin) -> Self {
        Latency {
            origin: origin.clone(),
            ..Self::default()
        }
    }

    /// Takes an answer's time into account.
    pub fn observe(&self, elapsed: Duration, now: Instant) {
        self.observe_at(nanos(elapsed), self.origin.nanos(now));
    }

    /// As [`observe`](Latency::observe), in nanoseconds and of the origin it was made with.
    pub(crate) fn observe_at(&self, elapsed_nanos: u64, at: u64) {
        let answer = measured(elapsed_nanos);
        let passed = at.saturating_sub(self.updated.load(Relaxed));
        // So soon after the last answer only a peak matters: the time is left for a later one to bring.
        if passed < SOON_NANOS && answer <= self.load() {
            return;
        }
        let kept = kept(self.advance(at));
        self.update(|estimate| {
            if answer >= estimate {
                answer
            } else {
                estimate * kept + answer * (1.0 - kept)
            }
        });
    }

    /// Raises the estimate to `elapsed` if it is below: for an attempt that was given up after so long.
    /// Never lowers it.
    pub fn raise(&self, elapsed: Duration, now: Instant) {
        let least = measured(nanos(elapsed));
        let kept = kept(self.passed(now));
        if self.load() * kept < least {
            self.advance(self.origin.nanos(now));
            self.update(|estimate| (estimate * kept).max(least));
        }
    }

    /// Not measured any more: what is known is of another time, before the endpoint failed and came
    /// back.
    pub fn forget(&self) {
        self.estimate.store(0, Relaxed);
    }

    /// The estimate as it has decayed by now; `None`: not measured yet. Reading changes nothing.
    pub fn estimate(&self, now: Instant) -> Option<Duration> {
        let estimate = self.load();
        if estimate == 0.0 {
            return None;
        }
        let kept = kept(self.passed(now));
        Some(Duration::from_nanos((estimate * kept) as u64))
    }

    fn load(&self) -> f64 {
        f64::from_bits(self.estimate.load(Relaxed))
    }

    /// Nanoseconds since the estimate was last brought up to date.
    fn passed(&self, now: Instant) -> u64 {
        self.origin
            .nanos(now)
            .saturating_sub(self.updated.load(Relaxed))
    }

    /// Brings the time forward; returns how much of it this thread has brought, so that no stretch of
    /// it decays twice.
    fn advance(&self, at: u64) -> u64 {
        at.saturating_sub(self.updated.fetch_max(at, Relaxed))
    }

    fn update(&self, next: impl Fn(f64) -> f64) {
        let mut seen = self.estimate.load(Relaxed);
        loop {
            let wanted = next(f64::from_bits(seen)).to_bits();
            match self
                .estimate
                .compare_exchange_weak(seen, wanted, Relaxed, Relaxed)
            {
                Ok(_) => return,
                Err(changed) => seen = changed,
            }
        }
    }
}

/// The share of an estimate that is left after so many nanoseconds.
fn kept(passed: u64) -> f64 {
    let steps = passed as f64 / DECAY_NANOS;
    // Below a thousandth the first term of the series is exact to a millionth.
    if steps < 1e-3 {
        1.0 - steps
    } else {
        (-steps).exp()
    }
}

/// An answer in no time at all is still a measurement.
fn measured(elapsed_nanos: u64) -> f64 {
    elapsed_nanos.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_answer_is_the_estimate() {
        let latency = Latency::new();
        let now = Instant::now();
        assert_eq!(latency.estimate(now), None);
        latency.observe(7 * MS, now);
        assert_eq!(latency.estimate(now), Some(7 * MS));
    }

    #[test]
    fn an_answer_in_no_time_is_measured_too() {
        let latency = Latency::new();
        let now = Instant::now();
        latency.observe(Duration::ZERO, now);
        assert!(latency.estimate(now).is_some());
    }

    #[test]
    fn a_peak_counts_at_once_and_fast_answers_lower_it_by_the_time_constant() {
        let latency = Latency::new();
        let start = Instant::now();
        latency.observe(MS, start);
        latency.observe(100 * MS, start);
        assert_eq!(latency.estimate(start), Some(100 * MS));
        for tick in 1..=1000 {
            latency.observe(MS, start + 10 * MS * tick);
        }
        let after = latency.estimate(start + Duration::from_secs(10)).unwrap();
        let expected = 1.0 + 99.0 * (-1.0_f64).exp();
        let got = after.as_secs_f64() * 1e3;
        assert!((got - expected).abs() < 0.5, "{got} instead of {expected}");
    }

    #[test]
    fn silence_lowers_the_estimate_and_reading_does_not() {
        let latency = Latency::new();
        let start = Instant::now();
        latency.observe(100 * MS, start);
        let later = start + Duration::from_secs(10);
        let first = latency.estimate(later).unwrap();
        for _ in 0..10 {
            assert_eq!(latency.estimate(later), Some(first));
        }
        assert!((first.as_secs_f64() * 1e3 - 36.8).abs() < 0.1, "{first:?}");
        assert_eq!(latency.estimate(start), Some(100 * MS));
    }

    #[test]
    fn a_cancelled_attempt_only_ever_raises() {
        let latency = Latency::new();
        let now = Instant::now();
        latency.observe(50 * MS, now);
        latency.raise(10 * MS, now);
        assert_eq!(latency.estimate(now), Some(50 * MS));
        latency.raise(80 * MS, now);
        assert_eq!(latency.estimate(now), Some(80 * MS));
        let later = now + Duration::from_secs(30);
        let before = latency.estimate(later);
        latency.raise(MS, later);
        assert_eq!(latency.estimate(later), before);
        latency.raise(20 * MS, later);
        assert_eq!(latency.estimate(later), Some(20 * MS));
    }

    #[test]
    fn an_unmeasured_endpoint_is_measured_by_an_attempt_that_was_given_up() {
        let latency = Latency::new();
        let now = Instant::now();
        latency.raise(20 * MS, now);
        assert_eq!(latency.estimate(now), Some(20 * MS));
    }
}
