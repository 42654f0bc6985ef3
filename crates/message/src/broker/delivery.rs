//! Messages that come, and the subscriptions that they come through.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smol_str::SmolStr;
use tokio::sync::{mpsc, watch};

use super::{Headers, Topic, TopicFilter};

/// What keeps messages for a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Queue {
    /// Ends with the connection and loses what comes meanwhile: MQTT QoS 0, a queue of AMQP's own naming
    /// for this connection alone. Nothing is acknowledged.
    Transient,
    /// Keeps messages while we are away, and gives those again that were not acknowledged: MQTT QoS 2 in
    /// the session of our client id, a durable queue of this name in AMQP.
    Durable(Arc<str>),
    /// As a durable one, for nobody but us: where nobody reads it for so long, as after a target was removed, it ends
    /// with what it holds, if the broker knows of such a time: `x-expires` in AMQP, the session's expiry in MQTT. One
    /// that is there without such a time is used as it is.
    Own {
        /// Its name in AMQP.
        name: Arc<str>,
        /// At least 1 ms; AMQP brokers take at most about 49 days.
        unused_for: Duration,
    },
}

/// Asks for messages.
#[derive(Debug, Clone)]
pub struct Subscription {
    /// Which.
    pub filter: TopicFilter,
    /// What keeps them.
    pub queue: Queue,
    /// How many may wait for the face beyond the protocol's own window. A full one holds messages of this
    /// subscription back, at the broker or in the connection, so that nothing piles up. Where the protocol holds
    /// transient messages back nowhere (MQTT), those beyond are lost.
    pub backlog_max: usize,
}

/// The state of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionState {
    /// Waits for the connection or for the broker's answer.
    Pending,
    /// Messages come.
    Active,
    /// The broker refused it; tried again with the next connection.
    Refused(Arc<str>),
}

/// A subscription as its owner holds it.
#[derive(Debug)]
pub struct Registration {
    /// The messages. Dropping it ends the subscription.
    pub deliveries: Deliveries,
    /// Whether they come.
    pub state: watch::Receiver<SubscriptionState>,
}

/// The messages of one subscription, in the order in which the broker gave them.
#[derive(Debug)]
pub struct Deliveries(mpsc::Receiver<Delivery>);

impl Deliveries {
    /// The messages that a driver sends there.
    pub fn new(receiver: mpsc::Receiver<Delivery>) -> Self {
        Deliveries(receiver)
    }

    /// The next message; `None`: the connection was closed by us. Cancel safe.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.0.recv().await
    }

    /// What is there already, without waiting.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.0.try_recv().ok()
    }
}

/// Tells the broker that a message needs not come again. One that is dropped unacknowledged comes again
/// after the next reconnect. Late ones, for a connection that has ended, do nothing.
pub trait Acknowledge: Send + Sync {
    /// Acknowledges. Never waits and never fails: if the connection ends before it left, the message comes
    /// again.
    fn acknowledge(self: Box<Self>);
}

/// A message that has come.
pub struct Delivery {
    /// Where it was published to.
    pub topic: Topic,
    /// The media type of the body; `None`: not said.
    pub content_type: Option<SmolStr>,
    /// In their order. Of AMQP's table the values that are texts, numbers and booleans, as text.
    pub headers: Headers,
    /// The content.
    pub body: Bytes,
    /// The broker says that it may have come before.
    pub redelivered: bool,
    /// How to acknowledge it; `None`: the broker waits for nothing.
    pub acknowledgement: Option<Box<dyn Acknowledge>>,
}

impl Delivery {
    /// Tells the broker that it need not give it again; once, and only where it waits for that.
    pub fn acknowledge(&mut self) {
        acknowledge_all(self.acknowledgement.take());
    }
}

/// Makes acknowledgements that were taken out of their deliveries.
pub(crate) fn acknowledge_all(all: impl IntoIterator<Item = Box<dyn Acknowledge>>) {
    all.into_iter().for_each(Acknowledge::acknowledge);
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("topic", &self.topic)
            .field("content_type", &self.content_type)
            .field("headers", &self.headers)
            .field("bytes", &self.body.len())
            .field("redelivered", &self.redelivered)
            .finish_non_exhaustive()
    }
}
