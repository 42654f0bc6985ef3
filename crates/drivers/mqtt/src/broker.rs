//! The broker as the face sees it.

use std::fmt;
use std::sync::Arc;

use mainstay_engine::BoxFuture;
use mainstay_engine::chance::Chance;
use mainstay_engine::tasks::Tasks;
use mainstay_message::{
    Broker, Deliveries, Link, Publication, PublishError, PublishErrorKind, Queue, Registration,
    Subscription, SubscriptionState,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::driver::{Driver, Order};
use crate::session::Slot;
use crate::settings::{MqttSettings, SettingsError};

type Answer = oneshot::Receiver<Result<(), PublishError>>;

/// One MQTT 5 broker behind the port of the message face.
///
/// Dropping it ends the connection as [`Broker::close`] does, without waiting.
pub struct MqttBroker {
    settings: Arc<MqttSettings>,
    /// In the order of the calls. As many as there are callers who wait.
    orders: mpsc::UnboundedSender<Order>,
    subscriptions: mpsc::UnboundedSender<Slot>,
    link: watch::Receiver<Link>,
    closing: CancellationToken,
}

impl MqttBroker {
    /// Connects, and keeps connected, in a task of this group. Does not wait for the broker: see
    /// [`Broker::link`].
    ///
    /// # Errors
    /// A setting that cannot work.
    pub fn open(
        settings: MqttSettings,
        tasks: &Tasks,
        chance: &Chance,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        let settings = Arc::new(settings);
        let (orders, taken) = mpsc::unbounded_channel();
        let (subscriptions, slots) = mpsc::unbounded_channel();
        let (link, watched) = watch::channel(Link::BEGINNING);
        let closing = CancellationToken::new();
        let driver = Driver::new(Arc::clone(&settings), taken, slots, link, closing.clone());
        tasks.spawn(driver.run(chance.stream()));
        Ok(MqttBroker {
            settings,
            orders,
            subscriptions,
            link: watched,
            closing,
        })
    }

    /// Puts a publication into the queue at once, so that the order of the calls is kept.
    fn enqueue(&self, message: Publication) -> Result<Answer, PublishError> {
        let refusal = match &*self.link.borrow() {
            Link::Up { .. } => None,
            Link::Down { reason, .. } => Some(PublishErrorKind::NotConnected {
                reason: reason.clone(),
            }),
            Link::Closed => Some(PublishErrorKind::Closed),
        };
        if let Some(kind) = refusal {
            return Err(PublishError::unsent(kind));
        }
        let (reply, answer) = oneshot::channel();
        let order = Order {
            message,
            reply,
            since: Instant::now(),
        };
        match self.orders.send(order) {
            Ok(()) => Ok(answer),
            Err(_) => Err(PublishError::unsent(PublishErrorKind::Closed)),
        }
    }
}

impl Broker for MqttBroker {
    fn publish(&self, message: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        let queued = self.enqueue(message);
        Box::pin(async move {
            let gone = PublishError::unknown(PublishErrorKind::Closed);
            queued?.await.unwrap_or(Err(gone))
        })
    }

    fn subscribe(&self, subscription: Subscription) -> Registration {
        // The window of persistent messages always has room, so that they never hold up the connection.
        let window = match subscription.queue {
            Queue::Transient => 1,
            Queue::Durable(_) | Queue::Own { .. } => usize::from(self.settings.receive_max),
        };
        let capacity = subscription.backlog_max.saturating_add(window);
        let capacity = capacity.min(tokio::sync::Semaphore::MAX_PERMITS);
        let (deliveries, receiver) = mpsc::channel(capacity);
        let (state, watched) = watch::channel(SubscriptionState::Pending);
        // After a close nobody takes it, and its deliveries have ended.
        let _ = self
            .subscriptions
            .send(Slot::new(&subscription, deliveries, state));
        Registration {
            deliveries: Deliveries::new(receiver),
            state: watched,
        }
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closing.cancel();
        let mut link = self.link.clone();
        Box::pin(async move {
            // An error: the task is gone already.
            let _ = link.wait_for(|link| *link == Link::Closed).await;
        })
    }
}

impl Drop for MqttBroker {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl fmt::Debug for MqttBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttBroker")
            .field("settings", &self.settings)
            .field("link", &*self.link.borrow())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use mainstay_message::Topic;

    use super::*;

    #[test]
    fn publications_wait_in_the_order_of_their_calls_whoever_is_polled_first() {
        let (orders, mut taken) = mpsc::unbounded_channel();
        let up = Link::Up {
            number: 1,
            blocked: None,
        };
        let (_link, watched) = watch::channel(up);
        let broker = MqttBroker {
            settings: Arc::new(MqttSettings::new("nowhere", "order")),
            orders,
            subscriptions: mpsc::unbounded_channel().0,
            link: watched,
            closing: CancellationToken::new(),
        };
        let message = |n: usize| Publication::new(Topic::parse("a").unwrap(), n.to_string());
        let waiting: Vec<_> = (0..200).map(|n| broker.publish(message(n))).collect();
        for n in 0..200 {
            let order = taken.try_recv().unwrap();
            assert_eq!(order.message.body, n.to_string());
            assert!(!order.reply.is_closed());
        }
        drop(waiting);
    }
}
