//! Messages of a session that nobody has subscribed to yet: a broker that kept the session of an earlier
//! run gives them at once, and the subscriptions of this run come a moment later.

use std::collections::VecDeque;

use mainstay_message::Delivery;
use tokio::time::{Duration, Instant};

use super::subscriptions::Slot;

/// Until then somebody has subscribed, or nobody will: it is the window of unacknowledged messages that
/// they take up.
const UNCLAIMED_AFTER: Duration = Duration::from_secs(30);

/// A message that waits for its subscription.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) since: Instant,
    pub(crate) id: u16,
    pub(crate) serial: u64,
    pub(crate) delivery: Delivery,
}

/// All of them, the oldest first. As many as the window has.
#[derive(Debug, Default)]
pub(crate) struct Unclaimed(VecDeque<Waiting>);

impl Unclaimed {
    pub(crate) fn add(&mut self, waiting: Waiting) {
        self.0.push_back(waiting);
    }

    /// Gives a new subscription those that fit it, as far as it has room.
    pub(crate) fn claim(&mut self, slot: &Slot) {
        for _ in 0..self.0.len() {
            let Some(mut waiting) = self.0.pop_front() else {
                return;
            };
            if slot.fits(&waiting.delivery.topic) {
                match slot.deliveries().try_send(waiting.delivery) {
                    Ok(()) => continue,
                    Err(refused) => waiting.delivery = refused.into_inner(),
                }
            }
            self.0.push_back(waiting);
        }
    }

    /// When the next is given up.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.front().map(|oldest| oldest.since + UNCLAIMED_AFTER)
    }

    /// The next one that nobody wanted.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<Waiting> {
        match self.next() {
            Some(at) if at <= now => self.0.pop_front(),
            _ => None,
        }
    }

    /// They come again, or not at all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
