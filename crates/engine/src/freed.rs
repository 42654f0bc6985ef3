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
}

impl SlotWait {
    pub(crate) fn new(endpoint: Arc<Endpoint>) -> Self {
        endpoint.freed.waiting.fetch_add(1, SeqCst);
        SlotWait { endpoint }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Ends when a slot came back.
    pub(crate) fn freed(&self) -> Notified<'_> {
        self.endpoint.freed.notify.notified()
    }
}

impl Drop for SlotWait {
    fn drop(&mut self) {
        let freed = &self.endpoint.freed;
        freed.waiting.fetch_sub(1, SeqCst);
        // Two slots that came back before anybody looked have left one notice, and who was woken may
        // have gone elsewhere: the next one looks for itself.
        freed.tell_one();
    }
}
