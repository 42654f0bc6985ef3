//! A histogram of the last minute that many threads write at once.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use parking_lot::Mutex;

use crate::stripes::Stripes;

/// Buckets per doubling: a value is known to ± 3 %.
const PER_OCTAVE: usize = 16;
const PER_OCTAVE_BITS: u32 = PER_OCTAVE.trailing_zeros();
/// Values below 2^10 ns share 16 buckets of 64 ns; above follow 32 doublings, up to 73 minutes.
const LINEAR_BITS: u32 = 10;
const OCTAVES: usize = 32;
const BUCKETS: usize = PER_OCTAVE * (1 + OCTAVES);
/// The window turns in slices of 5 s, so it holds the last 55 to 60 s.
const SLICES: usize = 12;
const SLICE_NANOS: u64 = 60_000_000_000 / SLICES as u64;
/// A slice's age at which its results count half in [`Window::failure_share`]: 10 s.
const HALF_AFTER_SLICES: f64 = 2.0;

/// The results of a life, and those of the last minute with their times. Time is in nanoseconds since
/// some origin.
#[derive(Debug)]
pub(crate) struct Window {
    life: Stripes<Counted>,
    slices: Box<[Slice]>,
    /// Held only while a slice is emptied for its next turn.
    turning: Mutex<()>,
}

#[derive(Debug, Default)]
struct Counted {
    successes: AtomicU64,
    failures: AtomicU64,
    elapsed_nanos: AtomicU64,
}

#[derive(Debug)]
struct Slice {
    /// Which slice of time it holds, plus one; 0: none yet.
    number: AtomicU64,
    /// The life's results before it, by which those within it are told without counting them twice.
    successes_before: AtomicU64,
    failures_before: AtomicU64,
    buckets: [AtomicU32; BUCKETS],
}

impl Window {
    pub(crate) fn new() -> Self {
        Window {
            life: Stripes::default(),
            slices: (0..SLICES).map(|_| Slice::new()).collect(),
            turning: Mutex::new(()),
        }
    }

    /// Counts one result.
    pub(crate) fn record(&self, failed: bool, elapsed_nanos: u64, at: u64) {
        let number = at / SLICE_NANOS + 1;
        let slice = &self.slices[(number % SLICES as u64) as usize];
        // A thread that was overtaken by a whole minute counts in the present.
        if slice.number.load(Acquire) < number {
            self.turn(slice, number);
        }
        let counted = self.life.mine();
        let count = if failed {
            &counted.failures
        } else {
            &counted.successes
        };
        count.fetch_add(1, Relaxed);
        counted.elapsed_nanos.fetch_add(elapsed_nanos, Relaxed);
        slice.buckets[bucket(elapsed_nanos)].fetch_add(1, Relaxed);
    }

    fn turn(&self, slice: &Slice, number: u64) {
        let _turning = self.turning.lock();
        if slice.number.load(Acquire) < number {
            let life = self.life();
            slice.successes_before.store(life.successes, Relaxed);
            slice.failures_before.store(life.failures, Relaxed);
            for bucket in &slice.buckets {
                bucket.store(0, Relaxed);
            }
            slice.number.store(number, Release);
        }
    }

    /// All results so far.
    pub(crate) fn life(&self) -> Results {
        let mut sum = Results::default();
        for counted in self.life.iter() {
            sum.successes += counted.successes.load(Relaxed);
            sum.failures += counted.failures.load(Relaxed);
        }
        sum
    }

    /// What all results so far took together.
    pub(crate) fn life_nanos(&self) -> u64 {
        let each = self.life.iter();
        each.fold(0, |sum, counted| {
            sum.wrapping_add(counted.elapsed_nanos.load(Relaxed))
        })
    }

    /// Slices of the window that ends at `at`, the newest first, with their age in slices.
    fn live(&self, at: u64) -> impl Iterator<Item = (u64, &Slice)> {
        let newest = at / SLICE_NANOS + 1;
        (0..newest.min(SLICES as u64)).filter_map(move |age| {
            let number = newest - age;
            let slice = &self.slices[(number % SLICES as u64) as usize];
            (slice.number.load(Acquire) == number).then_some((age, slice))
        })
    }

    /// Everything of the window in one.
    pub(crate) fn merged(&self, at: u64) -> Merged {
        let mut counts = [0; BUCKETS];
        let failures_now = self.life().failures;
        let mut failures_before = failures_now;
        for (_, slice) in self.live(at) {
            failures_before = slice.failures_before.load(Relaxed);
            for (sum, bucket) in counts.iter_mut().zip(&slice.buckets) {
                *sum += u64::from(bucket.load(Relaxed));
            }
        }
        let total = counts.iter().sum();
        let failures = failures_now.saturating_sub(failures_before);
        Merged {
            total,
            // A result that is just being counted may be in one of the two only.
            failures: failures.min(total),
            counts,
        }
    }

    /// The share of failures, the older the less: a result of 10 s ago counts half. One good result
    /// is taken as given, so that the share fades with its evidence.
    pub(crate) fn failure_share(&self, at: u64) -> f64 {
        let (mut failures, mut results) = (0.0, 1.0);
        let mut after = self.life();
        for (age, slice) in self.live(at) {
            let before = slice.before();
            let weight = (-(age as f64) / HALF_AFTER_SLICES).exp2();
            let failed = after.failures.saturating_sub(before.failures) as f64;
            let succeeded = after.successes.saturating_sub(before.successes) as f64;
            failures += weight * failed;
            results += weight * (failed + succeeded);
            after = before;
        }
        failures / results
    }
}

impl Slice {
    fn new() -> Self {
        Slice {
            number: AtomicU64::new(0),
            successes_before: AtomicU64::new(0),
            failures_before: AtomicU64::new(0),
            buckets: [const { AtomicU32::new(0) }; BUCKETS],
        }
    }

    fn before(&self) -> Results {
        Results {
            successes: self.successes_before.load(Relaxed),
            failures: self.failures_before.load(Relaxed),
        }
    }
}

/// How many worked and how many did not.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) successes: u64,
    pub(crate) failures: u64,
}

/// The window at one moment.
pub(crate) struct Merged {
    /// Results in it.
    pub(crate) total: u64,
    /// Failed ones among them.
    pub(crate) failures: u64,
    counts: [u64; BUCKETS],
}

impl Merged {
    /// The time that this share (0 to 1) of the results took at most, to ± 3 %.
    pub(crate) fn quantile(&self, share: f64) -> Option<Duration> {
        let rank = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut passed = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            passed += count;
            if passed >= rank {
                return Some(Duration::from_nanos(middle(bucket)));
            }
        }
        None
    }

    /// The average time, to ± 3 %.
    pub(crate) fn average(&self) -> Option<Duration> {
        let sum: f64 = self
            .counts
            .iter()
            .enumerate()
            .map(|(bucket, count)| middle(bucket) as f64 * *count as f64)
            .sum();
        (self.total > 0).then(|| Duration::from_nanos((sum / self.total as f64) as u64))
    }
}

/// The bucket of a value.
fn bucket(nanos: u64) -> usize {
    if nanos < 1 << LINEAR_BITS {
        return (nanos >> (LINEAR_BITS - PER_OCTAVE_BITS)) as usize;
    }
    let top = nanos.ilog2();
    let within = (nanos >> (top - PER_OCTAVE_BITS)) as usize & (PER_OCTAVE - 1);
    let octave = (top - LINEAR_BITS) as usize + 1;
    (octave * PER_OCTAVE + within).min(BUCKETS - 1)
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let (octave, within) = (bucket / PER_OCTAVE, (bucket % PER_OCTAVE) as u64);
    let (begin, shift) = match octave {
        0 => (0, LINEAR_BITS - PER_OCTAVE_BITS),
        _ => {
            let top = LINEAR_BITS + octave as u32 - 1;
            (1_u64 << top, top - PER_OCTAVE_BITS)
        }
    };
    begin + (within << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::nanos;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn every_value_falls_into_a_bucket_whose_middle_is_near_it() {
        let mut last = 0;
        for step in 0..4_000 {
            let value = (1.01_f64.powi(step)).min(4e12) as u64;
            let bucket = bucket(value);
            assert!(bucket >= last, "{value} in {bucket} after {last}");
            last = bucket;
            let off = middle(bucket).abs_diff(value);
            assert!(off <= 32 || (off as f64) < value as f64 * 0.032, "{value}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_true_to_three_percent() {
        let window = Window::new();
        for micros in 1..=10_000 {
            window.record(
                micros % 10 == 0,
                nanos(Duration::from_micros(micros)),
                SECOND,
            );
        }
        let merged = window.merged(SECOND);
        for (share, expected) in [(0.5, 5_000.0), (0.95, 9_500.0), (0.99, 9_900.0)] {
            let got = merged.quantile(share).unwrap().as_secs_f64() * 1e6;
            assert!((got - expected).abs() < expected * 0.035, "{share}: {got}");
        }
        let average = merged.average().unwrap().as_secs_f64() * 1e6;
        assert!((average - 5_000.0).abs() < 175.0, "{average}");
        assert_eq!((merged.total, merged.failures), (10_000, 1_000));
    }

    #[test]
    fn an_empty_window_has_no_quantiles() {
        let merged = Window::new().merged(0);
        assert_eq!(merged.quantile(0.5), None);
        assert_eq!(merged.average(), None);
    }

    #[test]
    fn results_leave_the_window_after_a_minute() {
        let window = Window::new();
        window.record(true, nanos(Duration::from_millis(1)), 0);
        for (at, total) in [(0, 1), (54, 1), (60, 0), (600, 0)] {
            assert_eq!(window.merged(at * SECOND).total, total, "after {at} s");
        }
        window.record(false, nanos(Duration::from_millis(1)), 60 * SECOND);
        let merged = window.merged(60 * SECOND);
        assert_eq!((merged.total, merged.failures), (1, 0));
    }

    #[test]
    fn the_failure_share_fades() {
        let window = Window::new();
        for _ in 0..100 {
            window.record(true, nanos(Duration::from_millis(1)), 0);
        }
        let shares: Vec<f64> = (0..12)
            .map(|slice| window.failure_share(slice * 5 * SECOND))
            .collect();
        assert!(shares[0] > 0.98 && shares[11] < 0.75, "{shares:?}");
        assert!(shares.is_sorted_by(|a, b| a > b), "{shares:?}");
        assert_eq!(window.failure_share(61 * SECOND), 0.0);
    }

    #[test]
    fn threads_lose_no_result_while_slices_turn() {
        let window = Window::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for step in 0..10_000 {
                        window.record(false, nanos(Duration::from_micros(5)), step * SECOND / 200);
                    }
                });
            }
        });
        assert_eq!(window.merged(49 * SECOND).total, 40_000);
    }
}
