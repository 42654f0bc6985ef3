//! Places for calls at once, with a bounded queue in front of them.
//!
//! Beside the number of calls in flight stand three flags: somebody waits, the queue is paused, it is
//! closed. While none is set, entering and leaving only count; with one set, both go through the mutex
//! behind which the waiters stand. Who enters or leaves counts first and looks at the flags then, who
//! sets a flag sets it first and looks at the count then, all in one order: they cannot miss each other.

#[cfg(test)]
mod tests;
mod waiters;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::occupancy::{Entry, Occupancy};
use crate::operation::Priority;
use crate::policy::LimitSettings;
use waiters::Waiters;

/// Somebody waits: who leaves must call the next, who enters must stand behind.
const WAITING: u8 = 1;
/// Paused: nobody enters directly.
const PAUSED: u8 = 1 << 1;
/// Closed for good.
const CLOSED: u8 = 1 << 2;

/// What a paused queue does with new calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// They are refused.
    Refuse,
    /// They wait, as many and as long as the queue allows.
    Queue,
}

/// Why a call got no place. Nothing was done for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueRefusal {
    /// Too many wait already.
    #[error("{depth} calls wait already; try later, or raise limits.queue_depth")]
    Full {
        /// How many wait.
        depth: u32,
    },
    /// No place became free in time.
    #[error("no place became free within {waited:?}; try later, or raise limits.concurrency")]
    Timeout {
        /// How long the call waited.
        waited: Duration,
    },
    /// The call's own deadline ends before it would get a place.
    #[error("the deadline ends before a place is free; allow the call more time")]
    Deadline,
    /// New calls are refused for a while.
    #[error("paused: new calls are refused until it is resumed")]
    Paused,
    /// No more calls are taken.
    #[error("closed: no more calls are taken; use another endpoint or source")]
    Closed,
}

/// Places for calls at once. Copies share them.
#[derive(Clone, Default)]
pub struct Queue {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    flags: AtomicU8,
    /// Calls in flight.
    inside: Occupancy,
    waiters: Mutex<Waiters>,
    /// Told when the last place of a paused or closed queue is given back.
    emptied: Notify,
}

/// A place in use. Dropping it gives the place to the next waiter.
#[must_use = "a place that is dropped is free at once"]
pub struct Place {
    shared: Arc<Shared>,
    entry: Entry,
}

/// A place that was free, held by reference: entering and leaving cost no shared count.
#[must_use = "a place that is dropped is free at once"]
pub(crate) struct DirectPlace<'a> {
    shared: &'a Arc<Shared>,
    entry: Entry,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Place")
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("in_use", &self.in_use())
            .field("waiting", &self.waiting())
            .finish()
    }
}

impl Queue {
    /// Every place free, nobody waiting.
    pub fn new() -> Self {
        Self::default()
    }

    /// A place if one is free and nobody waits for it; never waits. `None` as the limit: no limit,
    /// which costs one atomic step.
    pub fn try_enter(&self, limit: Option<u32>) -> Option<Place> {
        let entry = self.shared.count_in(limit)?;
        let shared = self.shared.clone();
        Some(Place { shared, entry })
    }

    /// As [`try_enter`](Queue::try_enter), for one who cannot outlive the queue.
    pub(crate) fn try_enter_direct(&self, limit: Option<u32>) -> Option<DirectPlace<'_>> {
        let entry = self.shared.count_in(limit)?;
        let shared = &self.shared;
        Some(DirectPlace { shared, entry })
    }

    /// A place, if need be after a wait: strictly by priority, a waiter rising by one class for each
    /// second, first come first served within a class. The wait ends with `limits.queue_wait` or the
    /// call's deadline, whichever is first.
    ///
    /// The limits of the call that came last hold for all who wait.
    ///
    /// Cancel safe: a future that is dropped leaves the queue, and gives a place that was just handed
    /// to it to the next.
    ///
    /// # Errors
    /// [`QueueRefusal`], each with its reason.
    pub async fn enter(
        &self,
        limits: &LimitSettings,
        priority: Priority,
        deadline: Option<Instant>,
    ) -> Result<Place, QueueRefusal> {
        if let Some(place) = self.try_enter(limits.concurrency) {
            return Ok(place);
        }
        let now = Instant::now();
        let (limit, until_deadline) = match deadline.map(|at| at.saturating_duration_since(now)) {
            Some(left) if left.is_zero() => return Err(QueueRefusal::Deadline),
            Some(left) => (left.min(limits.queue_wait), left <= limits.queue_wait),
            None => (limits.queue_wait, false),
        };
        let mut waiting = self.join(limits, priority, now)?;
        match tokio::time::timeout(limit, &mut waiting.granted).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) => Err(self.sent_away()),
            Err(_) => waiting.give_up(now, until_deadline),
        }
    }

    /// Calls in flight.
    pub fn in_use(&self) -> u32 {
        self.shared.inside.count()
    }

    /// Calls that wait for a place.
    pub fn waiting(&self) -> u32 {
        self.shared.waiters.lock().len()
    }

    /// Takes a changed limit and lets in at once whom it lets in.
    pub fn apply(&self, limits: &LimitSettings) {
        self.shared.waiters.lock().limit = limits.concurrency;
        self.shared.call_next();
    }

    /// Lets nobody in until [`Queue::resume`]; calls in flight go on. With [`Pause::Refuse`] those who
    /// wait are sent away as well.
    pub fn pause(&self, pause: Pause) {
        self.shared.flags.fetch_or(PAUSED, Ordering::SeqCst);
        let sent_away = {
            let mut waiters = self.shared.waiters.lock();
            waiters.refuses = pause == Pause::Refuse;
            match pause {
                Pause::Refuse => self.shared.send_all_away(&mut waiters),
                Pause::Queue => Vec::new(),
            }
        };
        drop(sent_away);
    }

    /// Ends a pause.
    pub fn resume(&self) {
        {
            let mut waiters = self.shared.waiters.lock();
            waiters.refuses = false;
            self.shared.flags.fetch_and(!PAUSED, Ordering::SeqCst);
        }
        self.shared.call_next();
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.shared.flags.load(Ordering::Relaxed) & PAUSED != 0
    }

    /// Refuses new calls and those that wait, for good. Calls in flight go on.
    pub fn close(&self) {
        self.shared.flags.fetch_or(CLOSED, Ordering::SeqCst);
        let sent_away = self.shared.send_all_away(&mut self.shared.waiters.lock());
        drop(sent_away);
    }

    /// Waits until no call is in flight, at most `limit`; says whether that came true. Meant for a
    /// paused or closed queue: in an open one new calls may enter at any time. Cancel safe.
    pub async fn drained(&self, limit: Duration) -> bool {
        let emptied = async {
            loop {
                let told = self.shared.emptied.notified();
                if self.in_use() == 0 {
                    return;
                }
                told.await;
            }
        };
        tokio::time::timeout(limit, emptied).await.is_ok()
    }

    /// Stands in line, unless the line is full or nobody may enter.
    fn join(
        &self,
        limits: &LimitSettings,
        priority: Priority,
        now: Instant,
    ) -> Result<Waiting<'_>, QueueRefusal> {
        let shared = &*self.shared;
        let waiting = {
            let mut waiters = shared.waiters.lock();
            waiters.limit = limits.concurrency;
            let flags = shared.flags.load(Ordering::SeqCst);
            if flags & CLOSED != 0 {
                return Err(QueueRefusal::Closed);
            }
            if flags & PAUSED != 0 && waiters.refuses {
                return Err(QueueRefusal::Paused);
            }
            let depth = waiters.len();
            let enters_at_once =
                depth == 0 && flags & PAUSED == 0 && shared.has_room(limits.concurrency);
            if depth >= limits.queue_depth && !enters_at_once {
                return Err(QueueRefusal::Full { depth });
            }
            let (number, granted) = waiters.join(priority, now);
            shared.flags.fetch_or(WAITING, Ordering::SeqCst);
            Waiting {
                shared: &self.shared,
                priority,
                number,
                granted,
            }
        };
        // A place may have become free before the flag was seen.
        self.shared.call_next();
        Ok(waiting)
    }

    /// Why a waiter was sent away.
    fn sent_away(&self) -> QueueRefusal {
        match self.shared.flags.load(Ordering::SeqCst) & CLOSED != 0 {
            true => QueueRefusal::Closed,
            false => QueueRefusal::Paused,
        }
    }
}

impl Shared {
    /// Counts one in, unless that would exceed the limit or somebody must be asked first.
    fn count_in(self: &Arc<Self>, limit: Option<u32>) -> Option<Entry> {
        if self.flags.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let entry = self.inside.enter(limit)?;
        if self.flags.load(Ordering::SeqCst) != 0 {
            // A flag was raised meanwhile, and who raised it may have counted this one.
            self.give_back(entry);
            return None;
        }
        Some(entry)
    }

    /// Counts one out; says whether somebody waits.
    fn count_out(&self, entry: Entry) -> bool {
        self.inside.leave(entry);
        let flags = self.flags.load(Ordering::SeqCst);
        if flags != 0 && self.inside.count() == 0 {
            self.emptied.notify_waiters();
        }
        flags & WAITING != 0
    }

    /// Counts one out and calls the next.
    fn give_back(self: &Arc<Self>, entry: Entry) {
        if self.count_out(entry) {
            self.call_next();
        }
    }

    fn has_room(&self, limit: Option<u32>) -> bool {
        limit.is_none_or(|limit| self.inside.count() < limit)
    }

    /// Hands out the places that are free, each to the first in line.
    fn call_next(self: &Arc<Self>) {
        while let Some((next, entry)) = self.next_to_call() {
            // One that has left meanwhile leaves the place to this one's `Drop`, which calls on.
            let shared = self.clone();
            drop(next.send(Place { shared, entry }));
        }
    }

    /// Counts the first in line in, if there is room. While the flag `WAITING` stands nobody enters
    /// but through here, so that the room cannot vanish under the lock.
    fn next_to_call(&self) -> Option<(oneshot::Sender<Place>, Entry)> {
        let mut waiters = self.waiters.lock();
        let stopped = self.flags.load(Ordering::SeqCst) & (PAUSED | CLOSED) != 0;
        if stopped || waiters.len() == 0 {
            return None;
        }
        let entry = self.inside.enter(waiters.limit)?;
        let Some(next) = waiters.pop(Instant::now()) else {
            self.inside.leave(entry);
            return None;
        };
        self.lower_flag_if_empty(&waiters);
        Some((next, entry))
    }

    fn leave(&self, priority: Priority, number: u64) {
        let mut waiters = self.waiters.lock();
        waiters.leave(priority, number);
        self.lower_flag_if_empty(&waiters);
    }

    fn send_all_away(&self, waiters: &mut Waiters) -> Vec<oneshot::Sender<Place>> {
        let all = waiters.take_all();
        self.lower_flag_if_empty(waiters);
        all
    }

    fn lower_flag_if_empty(&self, waiters: &Waiters) {
        if waiters.len() == 0 {
            self.flags.fetch_and(!WAITING, Ordering::SeqCst);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.give_back(self.entry);
    }
}

impl Drop for DirectPlace<'_> {
    fn drop(&mut self) {
        self.shared.give_back(self.entry);
    }
}

/// A call in the line. Dropping it leaves the line first, so that it is not called any more; a place
/// that was on its way already is dropped with the channel and so goes on.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    priority: Priority,
    number: u64,
    granted: oneshot::Receiver<Place>,
}

impl Waiting<'_> {
    /// The wait is over; a place that arrived in the same moment is still taken.
    fn give_up(&mut self, since: Instant, by_deadline: bool) -> Result<Place, QueueRefusal> {
        self.shared.leave(self.priority, self.number);
        match self.granted.try_recv() {
            Ok(place) => Ok(place),
            Err(_) if by_deadline => Err(QueueRefusal::Deadline),
            Err(_) => Err(QueueRefusal::Timeout {
                waited: since.elapsed(),
            }),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.leave(self.priority, self.number);
    }
}
