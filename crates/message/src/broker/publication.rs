//! A message to publish, and what can become of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainstay_engine::Sent;
use smol_str::SmolStr;

use super::{Headers, Topic};

/// How well a broker keeps a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// For whoever listens now: MQTT QoS 0, AMQP delivery mode 1.
    Transient,
    /// Until it was taken, also over a restart of the broker: MQTT QoS 2, AMQP delivery mode 2.
    Persistent,
}

/// A message to publish.
#[derive(Debug, Clone)]
pub struct Publication {
    /// Where to.
    pub topic: Topic,
    /// The media type of the body; `None`: not said.
    pub content_type: Option<SmolStr>,
    /// In their order.
    pub headers: Headers,
    /// The content, not copied on its way.
    pub body: Bytes,
    /// How well the broker keeps it.
    pub persistence: Persistence,
    /// The broker drops it when nobody took it within this time: AMQP `expiration` in milliseconds, MQTT
    /// 5's message expiry in whole seconds, rounded up. `None`: it never expires.
    pub expiry: Option<Duration>,
    /// Whether a message that no queue takes is an error ([`PublishErrorKind::Unroutable`]). AMQP knows;
    /// MQTT 5 brokers may tell, and need not.
    pub mandatory: bool,
}

impl Publication {
    /// A persistent message that never expires, with nothing but a body.
    pub fn new(topic: Topic, body: impl Into<Bytes>) -> Self {
        Publication {
            topic,
            content_type: None,
            headers: Headers::new(),
            body: body.into(),
            persistence: Persistence::Persistent,
            expiry: None,
            mandatory: false,
        }
    }
}

/// A publication that is not known to have been taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct PublishError {
    /// What happened.
    pub kind: PublishErrorKind,
    /// Whether the broker may have taken it: `no` before the first byte left, `yes_unprocessed` where the
    /// broker said that it did not, else `maybe`.
    pub sent: Sent,
}

/// Why a publication is not known to have been taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// There is no connection.
    #[error("not connected to the broker{}; it is tried again by itself", .reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default())]
    NotConnected {
        /// Why, where that is known.
        reason: Option<Arc<str>>,
    },
    /// The connection ended before the broker confirmed.
    #[error("the connection to the broker ended before it confirmed: {reason}")]
    Lost {
        /// Why it ended.
        reason: Arc<str>,
    },
    /// The broker refused this message.
    #[error("the broker refused the message: {reason}; check what this user may publish")]
    Refused {
        /// The broker's words or reason code.
        reason: Arc<str>,
    },
    /// No queue takes messages of that topic.
    #[error("nobody takes messages of topic {topic}; is the service there, and its queue?")]
    Unroutable {
        /// The topic.
        topic: Topic,
    },
    /// The broker takes no message of that size.
    #[error(
        "the message has {length} bytes and the broker takes at most {length_max}; raise its limit or send less"
    )]
    TooLarge {
        /// What it has, as far as it was counted.
        length: usize,
        /// What the broker takes.
        length_max: usize,
    },
    /// The broker takes no messages for now.
    #[error("the broker takes no messages for now: {reason}")]
    Blocked {
        /// Why.
        reason: Arc<str>,
    },
    /// The connection was closed by us.
    #[error("the connection to the broker is closed; it is not opened again")]
    Closed,
}

impl PublishError {
    /// Nothing left.
    pub fn unsent(kind: PublishErrorKind) -> Self {
        PublishError {
            kind,
            sent: Sent::No,
        }
    }

    /// The broker proved that it did nothing with it.
    pub fn unprocessed(kind: PublishErrorKind) -> Self {
        PublishError {
            kind,
            sent: Sent::YesUnprocessed,
        }
    }

    /// It may have arrived.
    pub fn unknown(kind: PublishErrorKind) -> Self {
        PublishError {
            kind,
            sent: Sent::Maybe,
        }
    }
}
