//! The retry budget: attempts after the first must stay a small share of the calls, or retries turn
//! an overload into an outage.

use std::cmp::Ordering;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::origin::{Origin, nanos};
use crate::policy::BudgetSettings;
use crate::stripes::Stripes;

/// The window is counted in so many slices: it is true to 1/64 of its length, always to the strict
/// side (no call older than the window pays, no attempt within it is forgotten).
const SLICES: usize = 64;
/// Slices are numbered in 32 bits, so they must not be too short; a window below one second counts as
/// one second.
const WINDOW_MIN: Duration = Duration::from_secs(1);
/// One slice more than the window, so that an attempt counts for the whole window at least.
const SLOTS: usize = SLICES + 1;

/// How many attempts beyond the first a source may make. Calls deposit, attempts withdraw.
///
/// At most `ratio` × calls of the sliding window, and always `floor_per_second` × window. A deposit
/// is lock-free; a withdrawal, which only follows a failure, takes a short lock so that two of them
/// never share the last place.
#[derive(Debug)]
pub struct Budget {
    origin: Origin,
    /// Length of a slice in nanoseconds; a change of it means another window.
    length: AtomicU64,
    /// The newest slice, so that its number need not be computed by each call.
    newest: AtomicU64,
    /// Calls per slice, by thread: number of the slice in the upper half, calls in the lower.
    calls: Stripes<Calls>,
    attempts: Mutex<Attempts>,
}

type Calls = [AtomicU64; SLOTS];

/// Attempts per slice, and their sum over the window.
#[derive(Debug)]
struct Attempts {
    newest: u64,
    counts: [u32; SLOTS],
    sum: u64,
}

impl Budget {
    /// A budget whose window begins now.
    pub fn new(now: Instant) -> Self {
        let origin = Origin::new();
        origin.nanos(now);
        Budget {
            origin,
            length: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            calls: Stripes::new(|| [const { AtomicU64::new(0) }; SLOTS]),
            attempts: Mutex::new(Attempts::new()),
        }
    }

    /// Counts one call.
    pub fn deposit(&self, settings: &BudgetSettings, now: Instant) {
        self.deposit_at(settings, self.origin.nanos(now));
    }

    /// As [`deposit`](Budget::deposit), in nanoseconds since it was made.
    pub(crate) fn deposit_at(&self, settings: &BudgetSettings, at: u64) {
        let slice = self.slice(settings, at);
        let word = &self.calls.mine()[(slice % SLOTS as u64) as usize];
        let mut seen = word.load(Relaxed);
        loop {
            let next = match (seen >> 32).cmp(&slice) {
                Ordering::Equal => seen + 1,
                Ordering::Less => slice << 32 | 1,
                // This thread was overtaken by a whole window: its call counts no more.
                Ordering::Greater => return,
            };
            match word.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(changed) => seen = changed,
            }
        }
    }

    /// Takes one attempt beyond the first out of the budget, or says that there is none left.
    pub fn withdraw(&self, settings: &BudgetSettings, now: Instant) -> bool {
        let slice = self.slice(settings, self.origin.nanos(now));
        let floor =
            f64::from(settings.floor_per_second) * settings.window.max(WINDOW_MIN).as_secs_f64();
        let share = settings.ratio * self.calls_until(slice) as f64;
        let mut attempts = self.attempts.lock();
        let slice = attempts.advance(slice);
        if (attempts.sum + 1) as f64 > floor.max(share) {
            return false;
        }
        attempts.counts[(slice % SLOTS as u64) as usize] += 1;
        attempts.sum += 1;
        true
    }

    /// Calls of the window that ends in this slice.
    fn calls_until(&self, slice: u64) -> u64 {
        let oldest = (slice + 1).saturating_sub(SLICES as u64);
        self.calls
            .iter()
            .flatten()
            .map(|word| word.load(Relaxed))
            .filter(|word| (oldest..=slice).contains(&(word >> 32)))
            .map(|word| word & u64::from(u32::MAX))
            .sum()
    }

    /// The number of the slice that `now` falls in.
    fn slice(&self, settings: &BudgetSettings, now: u64) -> u64 {
        let length = nanos(settings.window).max(nanos(WINDOW_MIN)) / SLICES as u64;
        if self.length.load(Acquire) != length {
            self.begin_anew(length);
        }
        let newest = self.newest.load(Relaxed);
        if now.wrapping_sub(newest.wrapping_mul(length)) < length {
            return newest;
        }
        let slice = now / length;
        self.newest.store(slice, Relaxed);
        slice
    }

    /// Slices of another length have other numbers, so the counts begin anew. Whoever sees the new length
    /// counts after that: a call counted before would be lost.
    fn begin_anew(&self, length: u64) {
        let mut attempts = self.attempts.lock();
        if self.length.load(Relaxed) != length {
            *attempts = Attempts::new();
            for word in self.calls.iter().flatten() {
                word.store(0, Relaxed);
            }
            self.length.store(length, Release);
        }
    }
}

impl Attempts {
    fn new() -> Self {
        Attempts {
            newest: 0,
            counts: [0; SLOTS],
            sum: 0,
        }
    }

    /// Forgets what has left the window. Returns the slice to count in: a thread that was overtaken
    /// counts in the newest.
    fn advance(&mut self, slice: u64) -> u64 {
        if slice > self.newest {
            for passed in 0..(slice - self.newest).min(SLOTS as u64) {
                let slot = ((self.newest + 1 + passed) % SLOTS as u64) as usize;
                self.sum -= u64::from(std::mem::take(&mut self.counts[slot]));
            }
            self.newest = slice;
        }
        self.newest
    }
}

#[cfg(test)]
mod tests;
