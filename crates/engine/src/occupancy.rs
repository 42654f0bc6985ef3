//! How many are inside, with or without a limit.
//!
//! Under a limit all count in one word, because only that can be exact. Without one each thread counts
//! in its own stripe, so that threads do not take a cache line from each other; somebody may leave on
//! another thread than the one on which they entered, so a single stripe may be negative and only the
//! sum has a meaning.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use crossbeam_utils::CachePadded;

use crate::stripes::Stripes;

/// Counts who is inside.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    limited: CachePadded<AtomicU64>,
    unlimited: Stripes<AtomicI64>,
}

/// Where somebody was counted who is inside; goes back to where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Under a limit.
    Limited,
    /// Without one.
    Unlimited,
}

impl Occupancy {
    /// Counts one in; `None` if as many as `limit` are inside.
    ///
    /// All steps are sequentially consistent: whoever enters and then looks at a flag, and whoever sets
    /// the flag and then asks for the sum, cannot both miss each other.
    pub(crate) fn enter(&self, limit: Option<u32>) -> Option<Entry> {
        let Some(limit) = limit else {
            self.unlimited.mine().fetch_add(1, SeqCst);
            return Some(Entry::Unlimited);
        };
        let mut seen = self.limited.load(SeqCst);
        // Those who entered without a limit, before there was one, can only become fewer.
        while seen.saturating_add(self.without_limit()) < u64::from(limit) {
            match self
                .limited
                .compare_exchange_weak(seen, seen + 1, SeqCst, SeqCst)
            {
                Ok(_) => return Some(Entry::Limited),
                Err(changed) => seen = changed,
            }
        }
        None
    }

    /// Counts one out.
    pub(crate) fn leave(&self, entry: Entry) {
        match entry {
            Entry::Limited => {
                let before = self.limited.fetch_sub(1, SeqCst);
                debug_assert!(before > 0, "more left than entered");
            }
            Entry::Unlimited => {
                self.unlimited.mine().fetch_sub(1, SeqCst);
            }
        }
    }

    /// How many are inside. Exact while nobody enters; else it may miss somebody who passed through.
    pub(crate) fn count(&self) -> u32 {
        let inside = self
            .limited
            .load(SeqCst)
            .saturating_add(self.without_limit());
        u32::try_from(inside).unwrap_or(u32::MAX)
    }

    fn without_limit(&self) -> u64 {
        let sum = self
            .unlimited
            .iter()
            .fold(0_i64, |sum, stripe| sum.wrapping_add(stripe.load(SeqCst)));
        u64::try_from(sum).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_entered_without_a_limit_counts_under_a_later_one() {
        let inside = Occupancy::default();
        let first = inside.enter(None).unwrap();
        let second = inside.enter(Some(2)).unwrap();
        assert_eq!(inside.enter(Some(2)), None);
        assert_eq!(inside.count(), 2);
        inside.leave(first);
        assert_eq!(inside.enter(Some(2)), Some(Entry::Limited));
        inside.leave(second);
        inside.leave(Entry::Limited);
        assert_eq!(inside.count(), 0);
    }

    #[test]
    fn who_leaves_on_another_thread_is_counted_out() {
        let inside = Occupancy::default();
        let entries: Vec<Entry> = (0..100).map(|_| inside.enter(None).unwrap()).collect();
        std::thread::scope(|scope| {
            for entry in &entries {
                scope.spawn(|| inside.leave(*entry));
            }
        });
        assert_eq!(inside.count(), 0);
    }

    #[test]
    fn eight_threads_never_exceed_a_limit() {
        let inside = Occupancy::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        if let Some(entry) = inside.enter(Some(3)) {
                            assert!(inside.count() <= 3);
                            inside.leave(entry);
                        }
                    }
                });
            }
        });
        assert_eq!(inside.count(), 0);
    }
}
