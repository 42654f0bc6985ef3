//! Tells calls that wait for a concurrency slot of an endpoint that one came back. Where nobody waits,
//! giving a slot back costs one load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::endpoint::Endpoint;

/// Who waits for a slot of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    waiting: AtomicU64,
    notify: Notify,
}

impl Freed {
    /// To be called after a slot was given back.
    pub(crate) fn tell_one(&self) {
        if self.waiting.load(SeqCst) > 0 {
            self.notify.notify_one();
        }
    }
}

/// One who waits. A slot that comes back after this was made wakes it or somebody else who waits; one
/// that came back before is found by asking once more.
pub(crate) struct SlotWait {
    endpoint: Arc<Endpoint>,
    has_slot: bool,
}

impl SlotWait {
    pub(crate) fn new(endpoint: Arc<Endpoint>) -> Self {
        endpoint.freed.waiting.fetch_add(1, SeqCst);
        SlotWait {
            endpoint,
            has_slot: false,
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Ends when a slot came back.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.endpoint.freed.notify.notified()
    }

    /// The wait ends because a slot of this endpoint was got.
    pub(crate) fn got_slot(&mut self) {
        self.has_slot = true;
    }
}

impl Drop for SlotWait {
    fn drop(&mut self) {
        let freed = &self.endpoint.freed;
        freed.waiting.fetch_sub(1, SeqCst);
        if !self.has_slot {
            // It may have been woken for a slot that it did not take.
            freed.tell_one();
        }
    }
}
