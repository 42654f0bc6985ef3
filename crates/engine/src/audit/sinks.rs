//! Where entries can go: a port and the small sinks.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::AuditEntry;
use crate::operation::CorrelationId;

/// Takes entries.
pub trait Sink: Send + Sync {
    /// Takes an entry, or counts it as dropped. Never blocks, never fails: it runs on the call's path.
    fn offer(&self, entry: Arc<AuditEntry>);
}

/// The last entries, in memory.
pub struct Recent {
    ring: Mutex<Ring>,
}

struct Ring {
    entries: VecDeque<Arc<AuditEntry>>,
    entries_max: usize,
}

impl Recent {
    /// Keeps the last `entries_max`; 0 keeps none.
    pub fn new(entries_max: u32) -> Self {
        Recent {
            ring: Mutex::new(Ring {
                entries: VecDeque::new(),
                entries_max: entries_max as usize,
            }),
        }
    }

    /// Changes how many are kept; the oldest go.
    pub fn resize(&self, entries_max: u32) {
        let mut ring = self.ring.lock();
        ring.entries_max = entries_max as usize;
        let surplus = ring.entries.len().saturating_sub(ring.entries_max);
        let gone: Vec<_> = ring.entries.drain(..surplus).collect();
        drop(ring);
        drop(gone);
    }

    /// At most `count` entries that `wanted` picks, the newest first.
    pub fn last(&self, count: usize, wanted: impl Fn(&AuditEntry) -> bool) -> Vec<Arc<AuditEntry>> {
        let all: Vec<_> = self.ring.lock().entries.iter().cloned().collect();
        let wanted = all.into_iter().rev().filter(|entry| wanted(entry));
        wanted.take(count).collect()
    }

    /// The entry of a call, if it is still here.
    pub fn find(&self, id: CorrelationId) -> Option<Arc<AuditEntry>> {
        self.last(1, |entry| entry.correlation_id == id).pop()
    }
}

impl Sink for Recent {
    fn offer(&self, entry: Arc<AuditEntry>) {
        let mut ring = self.ring.lock();
        if ring.entries_max == 0 {
            return;
        }
        let oldest = match ring.entries.len() >= ring.entries_max {
            true => ring.entries.pop_front(),
            false => None,
        };
        ring.entries.push_back(entry);
        drop(ring);
        drop(oldest);
    }
}

/// A sink of the user's own. It runs on the call's path and so must be quick; a panic in it is caught
/// and counted.
pub struct Closure<F> {
    take: F,
    panics: AtomicU64,
}

impl<F: Fn(&AuditEntry) + Send + Sync> Closure<F> {
    /// A sink that calls `take` with each entry.
    pub fn new(take: F) -> Self {
        Closure {
            take,
            panics: AtomicU64::new(0),
        }
    }

    /// How often it panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

impl<F: Fn(&AuditEntry) + Send + Sync> Sink for Closure<F> {
    fn offer(&self, entry: Arc<AuditEntry>) {
        if catch_unwind(AssertUnwindSafe(|| (self.take)(&entry))).is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Offers each entry to several sinks. One that panics costs the others nothing.
pub struct Fanout {
    sinks: Vec<Arc<dyn Sink>>,
    panics: AtomicU64,
}

impl Fanout {
    /// All of these, in this order.
    pub fn new(sinks: Vec<Arc<dyn Sink>>) -> Self {
        Fanout {
            sinks,
            panics: AtomicU64::new(0),
        }
    }

    /// How often one of them panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

impl Sink for Fanout {
    fn offer(&self, entry: Arc<AuditEntry>) {
        for sink in &self.sinks {
            let offered = catch_unwind(AssertUnwindSafe(|| sink.offer(entry.clone())));
            if offered.is_err() {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A sink that can be exchanged while calls run. An entry goes to the one that stands when it is
/// offered.
#[derive(Default)]
pub struct SwapSink {
    current: ArcSwapOption<Arc<dyn Sink>>,
    panics: AtomicU64,
}

impl SwapSink {
    /// Begins with this sink; `None`: entries are thrown away.
    pub fn new(sink: Option<Arc<dyn Sink>>) -> Self {
        SwapSink {
            current: ArcSwapOption::new(sink.map(Arc::new)),
            panics: AtomicU64::new(0),
        }
    }

    /// Exchanges the sink and returns the former one, for example to close it.
    pub fn swap(&self, sink: Option<Arc<dyn Sink>>) -> Option<Arc<dyn Sink>> {
        let former = self.current.swap(sink.map(Arc::new))?;
        Some(Arc::clone(&former))
    }

    /// Whether anybody takes entries: if not, none need be made.
    pub fn is_on(&self) -> bool {
        self.current.load().is_some()
    }

    /// How often a sink panicked.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

impl Sink for SwapSink {
    fn offer(&self, entry: Arc<AuditEntry>) {
        let Some(sink) = self.current.load_full() else {
            return;
        };
        if catch_unwind(AssertUnwindSafe(|| sink.offer(entry))).is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::*;

    fn offer(sink: &dyn Sink, ids: std::ops::Range<u128>) {
        for id in ids {
            sink.offer(Arc::new(entry(id, "2026-11-29T23:00:00Z")));
        }
    }

    fn ids(entries: &[Arc<AuditEntry>]) -> Vec<u128> {
        entries.iter().map(|entry| entry.correlation_id.0).collect()
    }

    fn broken() -> Arc<dyn Sink> {
        Arc::new(Breaks)
    }

    struct Breaks;

    impl Sink for Breaks {
        fn offer(&self, _: Arc<AuditEntry>) {
            std::panic::resume_unwind(Box::new("as told"));
        }
    }

    #[test]
    fn recent_keeps_the_last_entries_and_lists_the_newest_first() {
        let recent = Recent::new(3);
        offer(&recent, 0..5);
        assert_eq!(ids(&recent.last(10, |_| true)), [4, 3, 2]);
        assert_eq!(ids(&recent.last(2, |_| true)), [4, 3]);
        let even = recent.last(10, |entry| entry.correlation_id.0 % 2 == 0);
        assert_eq!(ids(&even), [4, 2]);
        assert!(recent.find(CorrelationId(3)).is_some());
        assert!(recent.find(CorrelationId(1)).is_none());
        recent.resize(1);
        assert_eq!(ids(&recent.last(10, |_| true)), [4]);
        recent.resize(0);
        offer(&recent, 5..6);
        assert!(recent.last(10, |_| true).is_empty());
    }

    #[test]
    fn a_panic_in_a_sink_is_counted_and_touches_nobody_else() {
        let closure = Closure::new(|_: &AuditEntry| std::panic::resume_unwind(Box::new("as told")));
        offer(&closure, 0..2);
        assert_eq!(closure.panics(), 2);

        let recent = Arc::new(Recent::new(9));
        let fanout = Fanout::new(vec![broken(), recent.clone()]);
        offer(&fanout, 0..3);
        assert_eq!((fanout.panics(), recent.last(9, |_| true).len()), (3, 3));

        let swap = SwapSink::new(Some(broken()));
        offer(&swap, 0..4);
        assert_eq!(swap.panics(), 4);
    }

    #[test]
    fn a_sink_is_exchanged_while_running() {
        let swap = SwapSink::default();
        assert!(!swap.is_on());
        offer(&swap, 0..1);
        let (first, second) = (Arc::new(Recent::new(9)), Arc::new(Recent::new(9)));
        assert!(swap.swap(Some(first.clone())).is_none());
        assert!(swap.is_on());
        offer(&swap, 1..2);
        assert!(swap.swap(Some(second.clone())).is_some());
        offer(&swap, 2..3);
        assert_eq!(ids(&first.last(9, |_| true)), [1]);
        assert_eq!(ids(&second.last(9, |_| true)), [2]);
    }
}
