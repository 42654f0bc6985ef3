//! A line of waiters: first come, first served, and leaving from anywhere costs a tree lookup.
//!
//! What is handed over is a guard: one that reaches a waiter which has left meanwhile comes back to
//! the giver or is dropped in the channel, and its own `Drop` passes it on. So nothing is lost,
//! whenever a waiting future is dropped.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// Waiters for a `T`, in order of arrival.
pub(crate) struct Line<T> {
    next: u64,
    waiters: BTreeMap<u64, Waiter<T>>,
}

/// One who waits.
pub(crate) struct Waiter<T> {
    pub(crate) since: Instant,
    pub(crate) sender: oneshot::Sender<T>,
}

impl<T> Line<T> {
    pub(crate) fn new() -> Self {
        Line {
            next: 0,
            waiters: BTreeMap::new(),
        }
    }

    /// Joins at the end; the number is for [`Line::leave`].
    pub(crate) fn join(&mut self, now: Instant) -> (u64, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.waiters.insert(number, Waiter { since: now, sender });
        (number, receiver)
    }

    /// Leaves, served or not. A waiter must leave before its receiver is dropped, so that whoever is
    /// called next is still there.
    pub(crate) fn leave(&mut self, number: u64) {
        self.waiters.remove(&number);
    }

    /// Since when the first has waited.
    pub(crate) fn first_since(&self) -> Option<Instant> {
        self.waiters
            .first_key_value()
            .map(|(_, waiter)| waiter.since)
    }

    /// Calls the first.
    pub(crate) fn pop(&mut self) -> Option<oneshot::Sender<T>> {
        self.waiters.pop_first().map(|(_, waiter)| waiter.sender)
    }

    /// Sends everybody away; the senders are dropped by the caller, outside its lock.
    pub(crate) fn take_all(&mut self) -> BTreeMap<u64, Waiter<T>> {
        std::mem::take(&mut self.waiters)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }
}
