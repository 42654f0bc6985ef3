//! What a session shares with its cancel handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Set by one side and read by the other.
pub(crate) struct Link {
    /// One permit: taken to start a statement, and by a cancel request while it is on its way.
    pub(crate) gate: Arc<Semaphore>,
    busy: AtomicBool,
    cancel_asked: AtomicBool,
    retired: AtomicBool,
    /// Why the connection ended or is not to be used any more.
    cause: Mutex<Option<String>>,
}

impl Link {
    pub(crate) fn new() -> Self {
        Link {
            gate: Arc::new(Semaphore::new(1)),
            busy: AtomicBool::new(false),
            cancel_asked: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            cause: Mutex::new(None),
        }
    }

    /// A statement is about to be sent, or has ended.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Release);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    pub(crate) fn note_cancel(&self) {
        self.cancel_asked.store(true, Ordering::Release);
    }

    pub(crate) fn cancel_was_asked(&self) -> bool {
        self.cancel_asked.load(Ordering::Acquire)
    }

    /// The server has forgotten the cancel.
    pub(crate) fn forget_cancel(&self) {
        self.cancel_asked.store(false, Ordering::Release);
    }

    /// Says that the session is not to be used any more.
    pub(crate) fn retire(&self, cause: impl Into<String>) {
        self.cause.lock().get_or_insert_with(|| cause.into());
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub(crate) fn cause(&self) -> Option<String> {
        self.cause.lock().clone()
    }
}
