//! Two things measured in turn, so that a machine that grows slower meanwhile slows both.
//!
//! Under `cargo bench` each comparison runs 25 interleaved pairs and prints the median of each side, the
//! median of the ratios and their spread. Under `cargo test --benches` everything runs once, to show that
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

/// The result of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    /// Nanoseconds of one run of the first, median.
    pub first_ns: f64,
    /// Nanoseconds of one run of the second, median.
    pub second_ns: f64,
    /// First ÷ second, median over the pairs.
    pub ratio: f64,
    /// The tenth part of the ratios is below this …
    pub ratio_low: f64,
    /// … and the tenth part above this.
    pub ratio_high: f64,
}

/// Measures two things in turn. Each closure runs its work so many times and returns how long it took.
pub fn compare(
    first: &mut dyn FnMut(u64) -> Duration,
    second: &mut dyn FnMut(u64) -> Duration,
) -> Comparison {
    let (times_first, times_second) = (times(first), times(second));
    let pairs = if is_measuring() { PAIRS } else { 1 };
    let mut rows = Vec::with_capacity(pairs);
    for _ in 0..pairs {
        let a = nanos(first(times_first), times_first);
        let b = nanos(second(times_second), times_second);
        rows.push((a, b, a / b));
    }
    let ratios = sorted(rows.iter().map(|row| row.2));
    Comparison {
        first_ns: middle(&sorted(rows.iter().map(|row| row.0))),
        second_ns: middle(&sorted(rows.iter().map(|row| row.1))),
        ratio: middle(&ratios),
        ratio_low: ratios[ratios.len() / 10],
        ratio_high: ratios[ratios.len() - 1 - ratios.len() / 10],
    }
}

/// Prints a comparison as one line of a table.
pub fn report(first: &str, second: &str, result: Comparison) {
    println!(
        "{first:<34} {:>9.1} ns   {second:<34} {:>9.1} ns   ratio {:>6.3}  ({:.3} to {:.3})",
        result.first_ns, result.second_ns, result.ratio, result.ratio_low, result.ratio_high
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

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn middle(sorted: &[f64]) -> f64 {
    sorted[sorted.len() / 2]
}
