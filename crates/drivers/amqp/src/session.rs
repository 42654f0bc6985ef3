//! One connection as a machine: frames in, bytes out, no sockets, `now` as an argument.
//!
//! Channel 1 publishes, with confirmations. Each subscription has a channel of its own, so that what the broker
//! refuses of one takes no other down.

mod acks;
mod confirms;
mod consumer;
mod handshake;
mod publisher;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::consumer::Subscribed;
pub(crate) use self::handshake::Login;
pub(crate) use self::publisher::Outgoing;

use self::consumer::Consumer;
use self::publisher::Publisher;
use crate::settings::AmqpSettings;
use crate::shared::Counters;
use crate::wire::{self, Frame, FrameWriter, Incoming, Kind, Output};

/// The least that a peer must take.
const FRAME_MIN: usize = 4096;
/// What we take at most; RabbitMQ's own default.
const FRAME_MAX: usize = 128 * 1024;
/// The channel that publishes.
const PUBLISHING: u16 = 1;
/// How soon is looked again whether a reader has made room.
const PUMP_AGAIN: Duration = Duration::from_millis(10);
/// How soon is noticed that nobody reads a subscription any more.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) reason: String,
    /// The broker answered and refused: somebody has to change something.
    pub(crate) refused: bool,
}

impl End {
    pub(crate) fn lost(reason: impl Into<String>) -> Self {
        End {
            reason: reason.into(),
            refused: false,
        }
    }

    fn refused(reason: impl Into<String>) -> Self {
        End {
            reason: reason.into(),
            refused: true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Start,
    Tune,
    Open,
    /// The exchange is being declared.
    Prepare,
    Up,
    Closing,
    Closed,
}

/// What both sides agreed on.
#[derive(Debug, Clone, Copy)]
struct Limits {
    frame_max: usize,
    channel_max: u16,
    heartbeat: Duration,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    settings: Arc<AmqpSettings>,
    counters: Arc<Counters>,
    phase: Phase,
    limits: Limits,
    blocked: Option<Arc<str>>,
    publisher: Publisher,
    consumers: BTreeMap<u16, Consumer>,
}

impl Session {
    pub(crate) fn new(settings: Arc<AmqpSettings>, counters: Arc<Counters>) -> Self {
        let heartbeat = Duration::from_secs(settings.heartbeat_seconds().into());
        Session {
            publisher: Publisher::new(Arc::clone(&settings)),
            settings,
            counters,
            phase: Phase::Start,
            limits: Limits {
                frame_max: FRAME_MAX,
                channel_max: u16::MAX,
                heartbeat,
            },
            blocked: None,
            consumers: BTreeMap::new(),
        }
    }

    /// Whether messages can go and come.
    pub(crate) fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Whether the broker has said goodbye.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Why the broker takes no publications.
    pub(crate) fn blocked(&self) -> Option<&Arc<str>> {
        self.blocked.as_ref()
    }

    /// The longest frame that may come.
    pub(crate) fn frame_max(&self) -> usize {
        self.limits.frame_max
    }

    /// How often we say something; a peer that says nothing for four times as long is gone.
    pub(crate) fn beat(&self) -> Duration {
        self.limits.heartbeat / 2
    }

    /// Takes a frame that came.
    pub(crate) fn receive(
        &mut self,
        frame: Frame<'_>,
        login: &Login,
        out: &mut Output,
        now: Instant,
    ) -> Result<(), End> {
        match frame.kind {
            Kind::Heartbeat => Ok(()),
            Kind::Method => {
                let method =
                    Incoming::read(frame.payload).map_err(|error| End::lost(error.to_string()))?;
                match frame.channel {
                    0 => self.connection(method, login, out),
                    PUBLISHING => self.publishing(method, out),
                    channel => self.consuming(channel, method, out, now),
                }
            }
            Kind::Header | Kind::Body if frame.channel == PUBLISHING => {
                self.publisher.content(frame)
            }
            Kind::Header | Kind::Body => match self.consumers.get_mut(&frame.channel) {
                Some(consumer) => consumer.content(frame, &self.settings, &self.counters),
                None => Err(End::lost("it sent a message on a channel that is not open")),
            },
        }
    }

    fn publishing(&mut self, method: Incoming<'_>, out: &mut Output) -> Result<(), End> {
        self.publisher.method(method, out)?;
        if self.phase == Phase::Prepare && self.publisher.is_ready() {
            self.phase = Phase::Up;
        }
        Ok(())
    }

    fn consuming(
        &mut self,
        channel: u16,
        method: Incoming<'_>,
        out: &mut Output,
        now: Instant,
    ) -> Result<(), End> {
        let Some(consumer) = self.consumers.get_mut(&channel) else {
            return Err(End::lost("it speaks of a channel that is not open"));
        };
        consumer.method(method, &self.settings, out, now)?;
        if consumer.is_over() {
            self.consumers.remove(&channel);
        }
        Ok(())
    }

    /// Whether a publication may be taken on now.
    pub(crate) fn can_publish(&self) -> bool {
        self.is_up() && self.blocked.is_none() && self.publisher.can_take()
    }

    /// Takes a publication on; what becomes of it is told to its own reply.
    pub(crate) fn publish(&mut self, message: Outgoing, out: &mut Output, now: Instant) {
        self.publisher
            .publish(message, self.limits.frame_max, out, now);
    }

    /// Begins what is new of these subscriptions, and leaves those that nobody reads.
    pub(crate) fn follow(&mut self, subscriptions: &[Arc<Subscribed>], out: &mut Output) {
        // Asked each time around, and nearly always nothing is new.
        if !self.is_up() || subscriptions.len() == self.consumers.len() {
            return;
        }
        for subscription in subscriptions {
            let known = self
                .consumers
                .values()
                .any(|consumer| consumer.is_of(subscription));
            if !known && !subscription.is_left() {
                self.begin(subscription, out);
            }
        }
    }

    fn begin(&mut self, subscription: &Arc<Subscribed>, out: &mut Output) {
        let free = (PUBLISHING + 1..=self.limits.channel_max)
            .find(|channel| !self.consumers.contains_key(channel));
        let Some(channel) = free else {
            let max = self.limits.channel_max;
            subscription.refuse(&format!(
                "the broker allows {max} channels in a connection; raise its channel_max"
            ));
            return;
        };
        let consumer = Consumer::begin(Arc::clone(subscription), channel, out);
        self.consumers.insert(channel, consumer);
    }

    /// Sends the acknowledgements that were given, hands on what waits for room, and tries refused subscriptions
    /// again.
    pub(crate) fn tend(&mut self, out: &mut Output, now: Instant) {
        if !self.is_up() {
            return;
        }
        for consumer in self.consumers.values_mut() {
            consumer.tend(out, now);
        }
        self.consumers.retain(|_, consumer| !consumer.is_over());
    }

    /// When to [`tend`](Session::tend) although nothing happens.
    pub(crate) fn tend_after(&self) -> Option<Duration> {
        let waits = self.consumers.values().any(Consumer::waits_for_room);
        match (waits, self.consumers.is_empty()) {
            (true, _) => Some(PUMP_AGAIN),
            (false, false) => Some(LOOK_AGAIN),
            (false, true) => None,
        }
    }

    /// Says goodbye.
    pub(crate) fn close(&mut self, out: &mut Output) {
        if matches!(self.phase, Phase::Closing | Phase::Closed) {
            return;
        }
        for consumer in self.consumers.values_mut() {
            consumer.send_acks(out);
        }
        self.phase = Phase::Closing;
        out.write(|bytes| {
            let frame = FrameWriter::method(bytes, 0, wire::CONNECTION_CLOSE);
            frame
                .u16(200)
                .short("closed by the client")
                .u16(0)
                .u16(0)
                .end();
        });
    }

    /// Says that we are still there.
    pub(crate) fn heartbeat(out: &mut Output) {
        out.write(|bytes| FrameWriter::begin(bytes, Kind::Heartbeat, 0).end());
    }

    /// The connection is over: tells every publication that was not confirmed, and every subscription.
    pub(crate) fn end(mut self, out: &Output, reason: &Arc<str>) {
        self.publisher.lose(out, reason);
        for consumer in self.consumers.into_values() {
            consumer.lose();
        }
    }
}

#[cfg(test)]
mod tests;
