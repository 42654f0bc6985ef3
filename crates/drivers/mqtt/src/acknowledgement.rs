//! Messages on their way back from their receivers: acknowledged, or dropped.

use std::sync::Arc;

use mainstay_message::Acknowledge;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Return {
    /// The packet's identifier.
    pub(crate) id: u16,
    /// Tells apart the messages that have had this identifier.
    pub(crate) serial: u64,
    /// Acknowledged, not dropped.
    pub(crate) done: bool,
}

/// Where receivers leave what became of their deliveries. As many wait here as there were deliveries
/// unacknowledged.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    list: Mutex<Vec<Return>>,
    come: Notify,
}

impl Returns {
    /// Takes all of them out, into an empty list.
    pub(crate) fn take(&self, into: &mut Vec<Return>) {
        std::mem::swap(&mut *self.list.lock(), into);
    }

    /// Waits for the next. Cancel safe.
    pub(crate) async fn come(&self) {
        self.come.notified().await;
    }

    fn leave(&self, one: Return) {
        let is_first = {
            let mut list = self.list.lock();
            list.push(one);
            list.len() == 1
        };
        if is_first {
            self.come.notify_one();
        }
    }
}

/// The acknowledgement of one delivery.
#[derive(Debug)]
pub(crate) struct Acknowledgement {
    returns: Arc<Returns>,
    what: Return,
}

impl Acknowledgement {
    pub(crate) fn new(returns: &Arc<Returns>, id: u16, serial: u64) -> Self {
        Acknowledgement {
            returns: Arc::clone(returns),
            what: Return {
                id,
                serial,
                done: false,
            },
        }
    }
}

impl Acknowledge for Acknowledgement {
    fn acknowledge(mut self: Box<Self>) {
        self.what.done = true;
    }
}

impl Drop for Acknowledgement {
    fn drop(&mut self) {
        self.returns.leave(self.what);
    }
}
