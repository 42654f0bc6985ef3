//! A snapshot as a call holds it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::{ArcSwap, Guard};
use tokio::time::Instant;

use super::{Inner, Snapshot};

/// A snapshot borrowed from the pointer to the current one, which costs no shared count, or owned. What
/// waits must own it: only a few can be borrowed in each thread at once without a cost to all others.
pub(crate) enum HeldSnapshot<M> {
    /// For as long as nothing waits.
    Borrowed(Guard<Arc<Snapshot<M>>>),
    /// For any time.
    Owned(Arc<Snapshot<M>>),
}

impl<M> HeldSnapshot<M> {
    pub(crate) fn borrow(current: &ArcSwap<Snapshot<M>>) -> Self {
        HeldSnapshot::Borrowed(current.load())
    }

    /// To be called before a wait.
    pub(crate) fn keep(&mut self) {
        if let HeldSnapshot::Borrowed(guard) = self {
            let owned = Arc::clone(guard);
            *self = HeldSnapshot::Owned(owned);
        }
    }
}

impl<M> Deref for HeldSnapshot<M> {
    type Target = Snapshot<M>;

    fn deref(&self) -> &Snapshot<M> {
        match self {
            HeldSnapshot::Borrowed(guard) => guard,
            HeldSnapshot::Owned(snapshot) => snapshot,
        }
    }
}

/// The present moment and the snapshot of it, for one step of a call that does not wait.
pub(crate) struct Fresh<M> {
    pub(super) now: Instant,
    /// The same in nanoseconds of the source's origin.
    pub(super) at: u64,
    /// Of the snapshot or an older one, never of a newer one.
    pub(super) version: u64,
    pub(super) snapshot: HeldSnapshot<M>,
}

impl<M> Fresh<M> {
    pub(super) fn new(inner: &Inner<M>) -> Self {
        let now = Instant::now();
        // Before the snapshot, so that a change in between is noticed.
        let version = inner.version.load(Ordering::Acquire);
        Fresh {
            now,
            at: inner.origin.nanos(now),
            version,
            snapshot: HeldSnapshot::borrow(&inner.snapshot),
        }
    }
}
