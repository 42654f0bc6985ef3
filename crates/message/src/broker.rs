//! The port to message brokers: what a driver does for the face, in words that MQTT 5 and AMQP 0-9-1
//! share.
//!
//! A driver keeps its connection up by itself, for ever, and subscribes again after each reconnect. It
//! repeats no publication of its own accord beyond what its protocol demands, and decides nothing about
//! retries: the face does.

mod delivery;
mod headers;
mod link;
mod publication;
mod topic;

use std::fmt;

use mainstay_engine::BoxFuture;
use tokio::sync::watch;

pub(crate) use delivery::acknowledge_all;
pub use delivery::{
    Acknowledge, Deliveries, Delivery, Queue, Registration, Subscription, SubscriptionState,
};
pub use headers::Headers;
pub use link::Link;
pub use publication::{Persistence, Publication, PublishError, PublishErrorKind};
pub use topic::{Topic, TopicError, TopicFilter};

/// One broker, reached through a connection that keeps itself up.
pub trait Broker: Send + Sync + fmt::Debug + 'static {
    /// Publishes one message and waits until the broker has taken it: until it is written to the socket
    /// where the protocol confirms nothing (MQTT QoS 0), else until it is confirmed. Many may be under
    /// way at once; they leave in the order of their calls.
    ///
    /// There is no time limit inside: the caller bounds the wait. While the connection is down it fails
    /// at once with [`PublishErrorKind::NotConnected`].
    ///
    /// # Errors
    /// With what is known about whether it arrived: [`PublishError::sent`].
    ///
    /// # Cancel safety
    /// A dropped future may still be delivered.
    fn publish(&self, message: Publication) -> BoxFuture<'_, Result<(), PublishError>>;

    /// Asks for messages. They come as soon as the connection is up and again after each reconnect; the
    /// registration tells which. Subscriptions of one broker must not overlap: a message goes to the
    /// first that fits. Dropping the deliveries ends the subscription; a durable queue stays.
    fn subscribe(&self, subscription: Subscription) -> Registration;

    /// The state of the connection, now and later.
    fn link(&self) -> watch::Receiver<Link>;

    /// Ends the connection in the protocol's own way, waits at most a second, and stops whatever ran.
    /// Deliveries that were not acknowledged come again to whoever connects next.
    fn close(&self) -> BoxFuture<'_, ()>;
}
