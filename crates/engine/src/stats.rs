//! The numbers of one endpoint.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::histogram::{Results, Window};
use crate::origin::{Origin, nanos};

/// Below so many results in the window nothing is concluded from its quantiles.
const SAMPLES_MIN: u64 = 20;
/// How far back a failure matters for [`EndpointStats::failure_rate`]: the window.
const WINDOW_NANOS: u64 = 60_000_000_000;
/// How exact a moment is that only a reader wants: 1 ms.
const ROUGH_NANOS: u64 = 1_000_000;

/// What happened on one endpoint, over its life and over the last minute. Every method may be called
/// from many threads at once and is lock-free but for a moment each 5 s; totals lose nothing.
#[derive(Debug)]
pub struct EndpointStats {
    origin: Origin,
    cancelled: AtomicU64,
    rejected: AtomicU64,
    circuit_opened: AtomicU64,
    /// Time of all successes and failures together.
    last_requested: Moment,
    last_success: Moment,
    last_failure: Moment,
    /// When it was last found to be back after it had failed.
    came_back: Moment,
    window: Window,
}

/// An instant in nanoseconds of the origin, plus one; 0: never.
#[derive(Debug, Default)]
struct Moment(AtomicU64);

/// The numbers at one moment, for a reader. Times are whole units, rounded down; `window` means the
/// last minute, and its times are true to ± 3 %.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatsSnapshot {
    /// Attempts in its life: successes, failures and cancelled ones.
    pub calls: u64,
    /// Attempts that worked.
    pub successes: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Attempts that neither worked nor failed.
    pub cancelled: u64,
    /// Attempts that were refused before they began.
    pub rejected: u64,
    /// How often its circuit opened.
    pub circuit_opened: u64,
    /// Successes and failures in the window.
    pub window_calls: u64,
    /// Failures in the window.
    pub window_failures: u64,
    /// Share of failures in the window, 0 to 100.
    pub window_errors_percent: f64,
    /// Share of failures over its life, 0 to 100.
    pub life_errors_percent: f64,
    /// Average time in the window; `None`: nothing in it.
    pub average_us: Option<u64>,
    /// Average time over its life.
    pub life_average_us: Option<u64>,
    /// Half of the window's attempts took at most this.
    pub p50_us: Option<u64>,
    /// 95 % of the window's attempts took at most this.
    pub p95_us: Option<u64>,
    /// 99 % of the window's attempts took at most this.
    pub p99_us: Option<u64>,
    /// Since the last finished attempt began; `None`: there was none.
    pub last_requested_ago_ms: Option<u64>,
    /// Since the last success.
    pub last_success_ago_ms: Option<u64>,
    /// Since the last failure.
    pub last_failure_ago_ms: Option<u64>,
}

impl Default for EndpointStats {
    fn default() -> Self {
        Self::new()
    }
}

impl EndpointStats {
    /// Nothing has happened.
    pub fn new() -> Self {
        Self::counted_from(Origin::new())
    }

    pub(crate) fn since(origin: &Origin) -> Self {
        Self::counted_from(origin.clone())
    }

    fn counted_from(origin: Origin) -> Self {
        EndpointStats {
            origin,
            cancelled: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            circuit_opened: AtomicU64::new(0),
            last_requested: Moment::default(),
            last_success: Moment::default(),
            last_failure: Moment::default(),
            came_back: Moment::default(),
            window: Window::new(),
        }
    }

    /// Counts an attempt that ended now. A timed-out one enters with the time it was given.
    pub fn record(&self, ok: bool, elapsed: Duration, now: Instant) {
        self.record_at(ok, nanos(elapsed), self.origin.nanos(now));
    }

    /// As [`record`](EndpointStats::record), in nanoseconds and of the origin it was made with.
    pub(crate) fn record_at(&self, ok: bool, elapsed_nanos: u64, now: u64) {
        if ok {
            self.last_success.set_roughly(now);
        } else {
            self.last_failure.set(now);
        }
        self.last_requested
            .set_roughly(now.saturating_sub(elapsed_nanos));
        self.window.record(!ok, elapsed_nanos, now);
    }

    /// Counts an attempt that was refused before it began.
    pub fn reject(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    /// Counts an attempt that neither worked nor failed: cancelled, or neutral by its nature.
    pub fn cancel(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// Counts an opening of the circuit.
    pub fn circuit_opened(&self) {
        self.circuit_opened.fetch_add(1, Relaxed);
    }

    /// Takes note that it is back after it had failed: what it did before tells nothing about it now.
    pub fn came_back(&self, now: Instant) {
        self.came_back.set(self.origin.nanos(now));
    }

    /// The share of recent attempts that failed, 0 to 1; a result of 10 s ago counts half, one of
    /// more than a minute ago nothing. Nor do failures count from before it came back.
    pub fn failure_rate(&self, now: Instant) -> f64 {
        let at = self.origin.nanos(now);
        let since = self.came_back.nanos();
        match self.last_failure.nanos().filter(|last| Some(*last) > since) {
            Some(last) if at.saturating_sub(last) < WINDOW_NANOS => self.window.failure_share(at),
            _ => 0.0,
        }
    }

    /// The median time, if at least 20 attempts of the last minute tell it.
    pub fn p50_if_fresh(&self, now: Instant) -> Option<Duration> {
        self.quantile_if_fresh(0.5, now)
    }

    /// The time that this share (0 to 1) of the attempts took at most, if at least 20 of the last
    /// minute tell it.
    pub fn quantile_if_fresh(&self, share: f64, now: Instant) -> Option<Duration> {
        let merged = self.window.merged(self.origin.nanos(now));
        if merged.total < SAMPLES_MIN {
            return None;
        }
        merged.quantile(share)
    }

    /// All numbers.
    pub fn snapshot(&self, now: Instant) -> StatsSnapshot {
        let at = self.origin.nanos(now);
        let merged = self.window.merged(at);
        let quantile_us = |share| merged.quantile(share).map(micros);
        let Results {
            successes,
            failures,
        } = self.window.life();
        let cancelled = self.cancelled.load(Relaxed);
        let finished = successes + failures;
        let sum_us = self.window.life_nanos() / 1_000;
        StatsSnapshot {
            calls: finished + cancelled,
            successes,
            failures,
            cancelled,
            rejected: self.rejected.load(Relaxed),
            circuit_opened: self.circuit_opened.load(Relaxed),
            window_calls: merged.total,
            window_failures: merged.failures,
            window_errors_percent: percent(merged.failures, merged.total),
            life_errors_percent: percent(failures, finished),
            average_us: merged.average().map(micros),
            life_average_us: sum_us.checked_div(finished),
            p50_us: quantile_us(0.5),
            p95_us: quantile_us(0.95),
            p99_us: quantile_us(0.99),
            last_requested_ago_ms: self.last_requested.ago_ms(at),
            last_success_ago_ms: self.last_success.ago_ms(at),
            last_failure_ago_ms: self.last_failure.ago_ms(at),
        }
    }
}

impl Moment {
    fn set(&self, nanos: u64) {
        self.0.store(nanos.saturating_add(1), Relaxed);
    }

    /// Leaves a moment of less than a millisecond ago as it is: what is told in milliseconds need not
    /// cost each call a cache line.
    fn set_roughly(&self, nanos: u64) {
        if nanos.saturating_add(1).saturating_sub(self.0.load(Relaxed)) >= ROUGH_NANOS {
            self.set(nanos);
        }
    }

    fn nanos(&self) -> Option<u64> {
        self.0.load(Relaxed).checked_sub(1)
    }

    fn ago_ms(&self, at: u64) -> Option<u64> {
        Some(at.saturating_sub(self.nanos()?) / 1_000_000)
    }
}

fn micros(time: Duration) -> u64 {
    nanos(time) / 1_000
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64 * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_new_endpoint_has_zeroes_and_no_times() {
        let snapshot = EndpointStats::new().snapshot(Instant::now());
        assert_eq!((snapshot.calls, snapshot.window_calls), (0, 0));
        assert_eq!(snapshot.window_errors_percent, 0.0);
        assert_eq!(snapshot.life_errors_percent, 0.0);
        assert_eq!(snapshot.p99_us, None);
        assert_eq!(snapshot.life_average_us, None);
        assert_eq!(snapshot.last_requested_ago_ms, None);
    }

    #[test]
    fn every_number_says_what_happened() {
        let stats = EndpointStats::new();
        let start = Instant::now();
        stats.record(true, MS, start);
        for _ in 0..3 {
            stats.record(true, MS, start + 100 * MS);
        }
        stats.record(false, 21 * MS, start + 200 * MS);
        stats.reject();
        stats.cancel();
        stats.circuit_opened();
        let snapshot = stats.snapshot(start + 300 * MS);
        assert_eq!(snapshot.calls, 6);
        assert_eq!((snapshot.successes, snapshot.failures), (4, 1));
        assert_eq!((snapshot.cancelled, snapshot.rejected), (1, 1));
        assert_eq!(snapshot.circuit_opened, 1);
        assert_eq!((snapshot.window_calls, snapshot.window_failures), (5, 1));
        assert_eq!(snapshot.window_errors_percent, 20.0);
        assert_eq!(snapshot.life_average_us, Some(5_000));
        assert_eq!(snapshot.last_success_ago_ms, Some(200));
        assert_eq!(snapshot.last_failure_ago_ms, Some(100));
        assert_eq!(snapshot.last_requested_ago_ms, Some(121));
        let p50 = snapshot.p50_us.unwrap();
        assert!(p50.abs_diff(1_000) < 35, "{p50}");
    }

    #[test]
    fn times_below_a_millisecond_are_told_apart() {
        let stats = EndpointStats::new();
        let now = Instant::now();
        for micros in [3, 30, 300] {
            for _ in 0..100 {
                stats.record(true, Duration::from_micros(micros), now);
            }
        }
        let snapshot = stats.snapshot(now);
        for (got, expected) in [(snapshot.p50_us, 30), (snapshot.p99_us, 300)] {
            let got = got.unwrap();
            assert!(got.abs_diff(expected) <= expected / 30, "{got}");
        }
    }

    #[test]
    fn life_outlasts_the_window() {
        let stats = EndpointStats::new();
        let start = Instant::now();
        for _ in 0..10 {
            stats.record(false, MS, start);
        }
        let snapshot = stats.snapshot(start + Duration::from_secs(120));
        assert_eq!((snapshot.failures, snapshot.window_calls), (10, 0));
        assert_eq!(snapshot.life_errors_percent, 100.0);
        assert_eq!(snapshot.window_errors_percent, 0.0);
    }

    #[test]
    fn the_median_is_told_only_from_twenty_fresh_samples() {
        let stats = EndpointStats::new();
        let start = Instant::now();
        for _ in 0..19 {
            stats.record(true, MS, start);
        }
        assert_eq!(stats.p50_if_fresh(start), None);
        stats.record(true, MS, start);
        assert!(stats.p50_if_fresh(start).is_some());
        assert!(stats.p50_if_fresh(start + 50_000 * MS).is_some());
        assert_eq!(stats.p50_if_fresh(start + 60_000 * MS), None);
    }

    #[test]
    fn the_failure_rate_is_zero_without_failures_and_fades_after_them() {
        let stats = EndpointStats::new();
        let start = Instant::now();
        for _ in 0..99 {
            stats.record(true, MS, start);
        }
        assert_eq!(stats.failure_rate(start), 0.0);
        for _ in 0..100 {
            stats.record(false, MS, start);
        }
        assert_eq!(stats.failure_rate(start), 0.5);
        assert!(stats.failure_rate(start + 40_000 * MS) < 0.5);
        assert_eq!(stats.failure_rate(start + 60_000 * MS), 0.0);
    }

    #[test]
    fn threads_lose_no_count() {
        let stats = EndpointStats::new();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..8_u32 {
                let stats = &stats;
                scope.spawn(move || {
                    for step in 0..5_000 {
                        stats.record(thread % 2 == 0, MS, start + MS * step);
                    }
                });
            }
        });
        let snapshot = stats.snapshot(start + MS * 5_000);
        assert_eq!((snapshot.successes, snapshot.failures), (20_000, 20_000));
        assert_eq!(
            (snapshot.window_calls, snapshot.window_failures),
            (40_000, 20_000)
        );
        assert_eq!(snapshot.life_average_us, Some(1_000));
    }

    #[test]
    fn a_snapshot_is_written_with_the_units_last_in_its_names() {
        let stats = EndpointStats::new();
        let json = serde_json::to_value(stats.snapshot(Instant::now())).unwrap();
        for name in [
            "p99_us",
            "average_us",
            "last_success_ago_ms",
            "window_errors_percent",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
    }
}
