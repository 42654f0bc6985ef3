//! What the threads have done, for metrics and tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work since the journal was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Transactions that were committed.
    pub transactions: u64,
    /// Changes in them.
    pub changes: u64,
    /// Times that the log was brought to the disk because somebody waited for it.
    pub syncs: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) transactions: AtomicU64,
    pub(crate) changes: AtomicU64,
    pub(crate) syncs: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        Counts {
            transactions: self.transactions.load(Ordering::Relaxed),
            changes: self.changes.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
        }
    }
}
