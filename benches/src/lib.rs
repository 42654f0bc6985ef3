//! Two things measured in turn, so that a machine that grows slower meanwhile slows both.
//!
//! Under `cargo bench` each comparison runs 25 interleaved pairs and prints the median of each side, and of
//! ratios and differences the median with the quartiles. Under `cargo test --benches` everything runs once, to show that
//! it still works.

use std::time::Duration;

use tokio::time::Instant;

/// Pairs of a comparison.
const PAIRS: usize = 25;

/// How long one side of a pair runs at least.
const SIDE_MIN: Duration = Duration::from_millis(20);

/// Whether this run measures; otherwise it only shows that the benches work.
pub fn is_measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Where the values of all pairs lie.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// A quarter is below.
    pub low: f64,
    /// Half is below.
    pub median: f64,
    /// A quarter is above.
    pub high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        Spread {
            low: values[values.len() / 4],
            median: values[values.len() / 2],
            high: values[values.len() - 1 - values.len() / 4],
        }
    }
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    /// Nanoseconds of one run of the first, median.
    pub first_ns: f64,
    /// Nanoseconds of one run of the second, median.
    pub second_ns: f64,
    /// First ÷ second of each pair.
    pub ratio: Spread,
    /// First − second of each pair, in nanoseconds.
    pub added_ns: Spread,
}

/// Measures two things in turn. Each closure runs its work so many times and returns how long it took.
pub fn compare(
    first: &mut dyn FnMut(u64) -> Duration,
    second: &mut dyn FnMut(u64) -> Duration,
) -> Comparison {
    let (times_first, times_second) = (times(first), times(second));
    let pairs = if is_measuring() { PAIRS } else { 1 };
    let mut rows = Vec::with_capacity(pairs);
    for pair in 0..pairs {
        // Who goes first changes, as the second may find warmer caches.
        let early = (pair % 2 == 0).then(|| nanos(first(times_first), times_first));
        let b = nanos(second(times_second), times_second);
        let a = early.unwrap_or_else(|| nanos(first(times_first), times_first));
        rows.push((a, b));
    }
    Comparison {
        first_ns: Spread::of(rows.iter().map(|row| row.0)).median,
        second_ns: Spread::of(rows.iter().map(|row| row.1)).median,
        ratio: Spread::of(rows.iter().map(|row| row.0 / row.1)),
        added_ns: Spread::of(rows.iter().map(|row| row.0 - row.1)),
    }
}

/// Prints a comparison as one line of a table.
pub fn report(first: &str, second: &str, result: Comparison) {
    let Comparison {
        first_ns,
        second_ns,
        ratio,
        added_ns,
    } = result;
    println!(
        "{first:<34} {first_ns:>9.1} ns   {second:<34} {second_ns:>9.1} ns   ratio {:>6.3} ({:.3} to {:.3})   added {:>8.0} ns ({:.0} to {:.0})",
        ratio.median, ratio.low, ratio.high, added_ns.median, added_ns.low, added_ns.high
    );
}

/// Times something that is not asynchronous.
pub fn timed(times: u64, mut work: impl FnMut()) -> Duration {
    let began = Instant::now();
    for _ in 0..times {
        work();
    }
    began.elapsed()
}

/// How often a side must run to take long enough to be measured.
fn times(side: &mut dyn FnMut(u64) -> Duration) -> u64 {
    if !is_measuring() {
        return 1;
    }
    let mut times = 16;
    loop {
        let taken = side(times);
        if taken >= SIDE_MIN || times >= 1 << 30 {
            return times;
        }
        times *= 2;
    }
}

fn nanos(taken: Duration, times: u64) -> f64 {
    taken.as_nanos() as f64 / times as f64
}
