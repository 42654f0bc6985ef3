//! What a broker's handle and its connection share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mainstay_message::Link;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::session::Subscribed;
use crate::settings::AmqpSettings;

/// What came that could not be handed on as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Oddities {
    /// Headers whose values are neither text, number nor boolean; the messages came without them.
    pub headers_ignored: u64,
    /// Messages whose routing key is no topic; they were acknowledged and dropped.
    pub topics_dropped: u64,
    /// Messages with larger bodies than [`AmqpSettings::body_max`]; they were acknowledged and dropped.
    pub bodies_dropped: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    headers_ignored: AtomicU64,
    topics_dropped: AtomicU64,
    bodies_dropped: AtomicU64,
}

impl Counters {
    pub(crate) fn ignored(&self, count: u64) {
        if count > 0 {
            self.headers_ignored.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn strange_topic(&self) {
        self.topics_dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn large_body(&self) {
        self.bodies_dropped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Oddities {
        Oddities {
            headers_ignored: self.headers_ignored.load(Ordering::Relaxed),
            topics_dropped: self.topics_dropped.load(Ordering::Relaxed),
            bodies_dropped: self.bodies_dropped.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Arc<AmqpSettings>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) link: watch::Sender<Link>,
    /// Something was asked for: a subscription, an acknowledgement, the end.
    pub(crate) wake: Arc<Notify>,
    subscriptions: Mutex<Vec<Arc<Subscribed>>>,
    closing: AtomicBool,
}

impl Shared {
    pub(crate) fn new(settings: AmqpSettings) -> Self {
        Shared {
            settings: Arc::new(settings),
            counters: Arc::default(),
            link: watch::Sender::new(Link::BEGINNING),
            wake: Arc::default(),
            subscriptions: Mutex::default(),
            closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn subscribe(&self, subscription: Subscribed) {
        if matches!(*self.link.borrow(), Link::Closed) {
            return;
        }
        self.subscriptions.lock().push(Arc::new(subscription));
        self.wake.notify_one();
    }

    /// Calls `follow` with the subscriptions that somebody reads.
    pub(crate) fn with_subscriptions(&self, follow: impl FnOnce(&[Arc<Subscribed>])) {
        let mut subscriptions = self.subscriptions.lock();
        subscriptions.retain(|subscription| !subscription.is_left());
        follow(&subscriptions);
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Nothing runs any more: whoever reads a subscription is told by its end.
    pub(crate) fn ended(&self) {
        self.link.send_replace(Link::Closed);
        self.subscriptions.lock().clear();
    }
}
