//! The port to the message face.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use mainstay_engine::BoxFuture;
use mainstay_engine::tasks::Tasks;
use mainstay_message::{
    Broker, Deliveries, Link, Publication, PublishError, PublishErrorKind, Registration,
    Subscription, SubscriptionState, Topic,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use crate::keeper::keep;
use crate::session::{Outgoing, Subscribed};
use crate::settings::AmqpSettings;
use crate::shared::{Oddities, Shared};
use crate::wire::{self, FrameWriter, write_properties};

/// The channel that publishes.
const PUBLISHING: u16 = 1;
/// The broker's goodbye takes at most a second.
const CLOSED_WITHIN: Duration = Duration::from_millis(1500);
/// What names and content types may have.
const SHORT_MAX: usize = 255;

/// An AMQP 0-9-1 broker, reached through one connection that keeps itself up.
///
/// Dropping it ends the connection, as [`Broker::close`] does, without waiting for it.
pub struct AmqpBroker {
    shared: Arc<Shared>,
    queue: mpsc::UnboundedSender<Outgoing>,
    /// The number of the next message that has to come back if nobody takes it.
    number: AtomicU64,
}

impl AmqpBroker {
    /// Begins to connect; waits for nothing and never fails. What goes wrong is in [`Broker::link`]. It runs in one
    /// task of `tasks`.
    pub fn connect(settings: AmqpSettings, tasks: &Tasks) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(settings));
        tasks.spawn(keep(Arc::clone(&shared), waiting, fastrand::Rng::new()));
        AmqpBroker {
            shared,
            queue,
            number: AtomicU64::new(1),
        }
    }

    /// What came that could not be handed on as it was.
    pub fn oddities(&self) -> Oddities {
        self.shared.counters.read()
    }

    /// Puts a message into the queue, which has no limit: each message there is held by its caller.
    fn enqueue(&self, message: Publication) -> Result<Told, PublishError> {
        match &*self.shared.link.borrow() {
            Link::Up { .. } => {}
            Link::Down { reason, .. } => {
                let reason = reason.clone();
                return Err(PublishError::unsent(PublishErrorKind::NotConnected {
                    reason,
                }));
            }
            Link::Closed => return Err(PublishError::unsent(PublishErrorKind::Closed)),
        }
        check(&message)?;
        let number = message
            .mandatory
            .then(|| self.number.fetch_add(1, Ordering::Relaxed));
        let (reply, told) = oneshot::channel();
        let outgoing = write(message, &self.shared.settings.exchange, number, reply);
        match self.queue.send(outgoing) {
            Ok(()) => Ok(told),
            Err(_) => Err(PublishError::unsent(PublishErrorKind::Closed)),
        }
    }
}

type Told = oneshot::Receiver<Result<(), PublishError>>;

impl Broker for AmqpBroker {
    fn publish(&self, message: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        // Here and not in the future: messages leave in the order of the calls.
        let queued = self.enqueue(message);
        Box::pin(async move {
            let told = queued?;
            let ended = || Err(PublishError::unknown(PublishErrorKind::Closed));
            told.await.unwrap_or_else(|_| ended())
        })
    }

    fn subscribe(&self, subscription: Subscription) -> Registration {
        let (sender, receiver) = mpsc::channel(subscription.backlog_max.max(1));
        let (state, states) = watch::channel(SubscriptionState::Pending);
        self.shared.subscribe(Subscribed {
            key: subscription.filter.binding_key(),
            topic: Topic::parse(subscription.filter.as_str()).ok(),
            queue: subscription.queue,
            sender,
            state,
            wake: Arc::clone(&self.shared.wake),
        });
        Registration {
            deliveries: Deliveries::new(receiver),
            state: states,
        }
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.shared.link.subscribe()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared.close();
        let mut link = self.shared.link.subscribe();
        Box::pin(async move {
            let closed = link.wait_for(|link| *link == Link::Closed);
            let _ = timeout(CLOSED_WITHIN, closed).await;
        })
    }
}

impl Drop for AmqpBroker {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for AmqpBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpBroker")
            .field("settings", &self.shared.settings)
            .field("link", &*self.shared.link.borrow())
            .finish_non_exhaustive()
    }
}

/// What AMQP cannot write down.
fn check(message: &Publication) -> Result<(), PublishError> {
    let too_long = |what: &str, length: usize| {
        let reason = format!("{what} has {length} bytes and AMQP takes {SHORT_MAX}; shorten it");
        Err(PublishError::unsent(PublishErrorKind::Refused {
            reason: reason.into(),
        }))
    };
    if let Some(content_type) = &message.content_type
        && content_type.len() > SHORT_MAX
    {
        return too_long("the content type", content_type.len());
    }
    match message
        .headers
        .iter()
        .find(|(name, _)| name.len() > SHORT_MAX)
    {
        Some((name, _)) => too_long("a header's name", name.len()),
        None => Ok(()),
    }
}

/// Writes the frames before the body, here at the caller: it may be on another processor.
fn write(
    message: Publication,
    exchange: &str,
    number: Option<u64>,
    reply: oneshot::Sender<Result<(), PublishError>>,
) -> Outgoing {
    let mut head =
        BytesMut::with_capacity(256 + message.headers.bytes() + 8 * message.headers.len());
    FrameWriter::method(&mut head, PUBLISHING, wire::BASIC_PUBLISH)
        .u16(0)
        .short(exchange)
        .short(&message.topic.routing_key())
        .u8(message.mandatory.into())
        .end();
    let method = head.len();
    write_properties(&mut head, PUBLISHING, &message, number);
    Outgoing {
        properties: method,
        expires: message.expiry.map(expires),
        head,
        body: message.body,
        topic: message.topic,
        number,
        reply,
    }
}

/// AMQP writes at most 32 bits of milliseconds.
fn expires(expiry: Duration) -> Instant {
    Instant::now() + expiry.min(Duration::from_millis(u32::MAX.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publications_wait_in_the_order_of_their_calls_however_many_there_are() {
        let (queue, mut waiting) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(AmqpSettings::new("host", "user")));
        shared.link.send_replace(Link::Up {
            number: 1,
            blocked: None,
        });
        let number = AtomicU64::new(1);
        let broker = AmqpBroker {
            shared,
            queue,
            number,
        };
        let mut told = vec![];
        for _ in 0..5000 {
            let mut message = Publication::new(Topic::parse("a/b").unwrap(), "body");
            message.mandatory = true;
            told.push(broker.publish(message));
        }
        let taken = std::iter::from_fn(|| waiting.try_recv().ok());
        let numbers: Vec<_> = taken.filter_map(|message| message.number).collect();
        assert_eq!(numbers, (1..=5000).collect::<Vec<_>>());
    }
}
