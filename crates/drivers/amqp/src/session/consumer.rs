//! One subscription on a channel of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use mainstay_message::{Delivery, Queue, SubscriptionState, Topic};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::End;
use super::acks::{Ack, AckQueue, Window};
use crate::settings::AmqpSettings;
use crate::shared::Counters;
use crate::wire::{self, Content, Frame, FrameWriter, Incoming, Kind, Output};

const ACCESS_REFUSED: u16 = 403;
/// There is one of that name with other properties.
const PRECONDITION_FAILED: u16 = 406;
/// The wait before a refused subscription is tried again, doubled each time up to the greatest.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// What is set aside for a body before any of it has come: a broker may say any size.
const RESERVED_MAX: u64 = 1 << 20;

/// A subscription over all connections.
#[derive(Debug)]
pub(crate) struct Subscribed {
    /// As AMQP binds it.
    pub(crate) key: String,
    /// The only topic that fits, if there is just one.
    pub(crate) topic: Option<Topic>,
    pub(crate) queue: Queue,
    pub(crate) sender: mpsc::Sender<Delivery>,
    pub(crate) state: watch::Sender<SubscriptionState>,
    pub(crate) wake: Arc<Notify>,
}

impl Subscribed {
    /// Whether nobody reads it any more.
    pub(crate) fn is_left(&self) -> bool {
        self.sender.is_closed()
    }

    pub(crate) fn refuse(&self, reason: &str) {
        self.state
            .send_replace(SubscriptionState::Refused(reason.into()));
    }

    fn topic(&self, key: &[u8]) -> Option<Topic> {
        if let Some(topic) = &self.topic
            && key == self.key.as_bytes()
        {
            return Some(topic.clone());
        }
        Topic::from_routing_key(std::str::from_utf8(key).ok()?)
    }

    fn is_transient(&self) -> bool {
        self.queue == Queue::Transient
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Opening,
    Declaring,
    Binding,
    Limiting,
    Beginning,
    Active,
    /// Tried again then.
    Refused(Instant),
    Closing,
    Over,
}

/// A message of which parts are missing.
#[derive(Debug)]
struct Incomplete {
    tag: u64,
    redelivered: bool,
    topic: Option<Topic>,
    content: Option<Content>,
    body: BytesMut,
    /// How much of the body has come; what is too large is not kept.
    come: u64,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    subscription: Arc<Subscribed>,
    channel: u16,
    step: Step,
    /// We may not declare the queue, and only look whether it is there.
    passive: bool,
    /// As the broker calls it.
    queue: String,
    incomplete: Option<Incomplete>,
    /// Messages that wait for room, never more than the broker gives without acknowledgements.
    backlog: VecDeque<(u64, Delivery)>,
    acks: Arc<AckQueue>,
    window: Window,
    scratch: Vec<u64>,
    retry: Duration,
}

impl Consumer {
    /// Opens the channel.
    pub(crate) fn begin(subscription: Arc<Subscribed>, channel: u16, out: &mut Output) -> Self {
        let acks = AckQueue::new(Arc::clone(&subscription.wake));
        let mut consumer = Consumer {
            subscription,
            channel,
            step: Step::Opening,
            passive: false,
            queue: String::new(),
            incomplete: None,
            backlog: VecDeque::new(),
            acks,
            window: Window::default(),
            scratch: Vec::new(),
            retry: RETRY_MIN,
        };
        consumer.open(out);
        consumer
    }

    pub(crate) fn is_of(&self, subscription: &Arc<Subscribed>) -> bool {
        Arc::ptr_eq(&self.subscription, subscription)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.step == Step::Over
    }

    pub(crate) fn waits_for_room(&self) -> bool {
        !self.backlog.is_empty()
    }

    fn open(&mut self, out: &mut Output) {
        self.forget();
        self.acks = AckQueue::new(Arc::clone(&self.subscription.wake));
        self.window = Window::default();
        self.step = Step::Opening;
        out.write(|bytes| {
            FrameWriter::method(bytes, self.channel, wire::CHANNEL_OPEN)
                .u8(0)
                .end()
        });
    }

    /// The messages of this channel come again, with other numbers.
    fn forget(&mut self) {
        self.acks.close();
        self.scratch.clear();
        self.backlog.clear();
        self.incomplete = None;
    }

    pub(crate) fn method(
        &mut self,
        method: Incoming<'_>,
        settings: &AmqpSettings,
        out: &mut Output,
        now: Instant,
    ) -> Result<(), End> {
        match (self.step, method) {
            (Step::Closing, Incoming::ChannelCloseOk) => self.step = Step::Over,
            (_, Incoming::ChannelClose { code, text }) => self.closed(code, &text, out, now),
            (Step::Closing, _) => {}
            (Step::Opening, Incoming::ChannelOpenOk) => self.declare(out),
            (Step::Declaring, Incoming::QueueDeclareOk { queue }) => {
                self.queue = String::from_utf8_lossy(queue).into_owned();
                self.bind(settings, out);
            }
            (Step::Binding, Incoming::QueueBindOk) => {
                self.step = Step::Limiting;
                let prefetch = settings.prefetch();
                out.write(|bytes| {
                    let frame = FrameWriter::method(bytes, self.channel, wire::BASIC_QOS);
                    frame.u32(0).u16(prefetch).u8(0).end();
                });
            }
            (Step::Limiting, Incoming::QosOk) => self.consume(out),
            (Step::Beginning, Incoming::ConsumeOk) => {
                self.step = Step::Active;
                self.retry = RETRY_MIN;
                self.subscription
                    .state
                    .send_replace(SubscriptionState::Active);
            }
            (
                _,
                Incoming::Deliver {
                    tag,
                    redelivered,
                    key,
                },
            ) => return self.deliver(tag, redelivered, key, settings),
            (_, Incoming::Cancel) => self.cancelled(out),
            (step, method) => {
                return Err(End::lost(format!(
                    "it sent {method:?} to a subscription's channel, which is {step:?}"
                )));
            }
        }
        Ok(())
    }

    /// A durable queue by its name, perhaps with the time that it may be unused, or one of the broker's naming for this connection alone.
    fn declare(&mut self, out: &mut Output) {
        self.step = Step::Declaring;
        let (name, flags) = match &self.subscription.queue {
            Queue::Durable(name) | Queue::Own { name, .. } => {
                (&**name, if self.passive { 0b11 } else { 0b10 })
            }
            Queue::Transient => ("", 0b1100),
        };
        let unused_for = match self.subscription.queue {
            Queue::Own { unused_for, .. } if !self.passive => Some(unused_for),
            _ => None,
        };
        out.write(|bytes| {
            let frame = FrameWriter::method(bytes, self.channel, wire::QUEUE_DECLARE);
            let frame = frame.u16(0).short(name).u8(flags);
            frame
                .table(|table| {
                    if let Some(unused_for) = unused_for {
                        wire::write_expires(table, unused_for);
                    }
                })
                .end();
        });
    }

    fn bind(&mut self, settings: &AmqpSettings, out: &mut Output) {
        self.step = Step::Binding;
        out.write(|bytes| {
            FrameWriter::method(bytes, self.channel, wire::QUEUE_BIND)
                .u16(0)
                .short(&self.queue)
                .short(&settings.exchange)
                .short(&self.subscription.key)
                .u8(0)
                .u32(0)
                .end();
        });
    }

    fn consume(&mut self, out: &mut Output) {
        self.step = Step::Beginning;
        out.write(|bytes| {
            let frame = FrameWriter::method(bytes, self.channel, wire::BASIC_CONSUME);
            frame.u16(0).short(&self.queue).short("").u8(0).u32(0).end();
        });
    }

    /// The broker closed the channel.
    fn closed(&mut self, code: u16, text: &str, out: &mut Output, now: Instant) {
        out.write(|bytes| FrameWriter::method(bytes, self.channel, wire::CHANNEL_CLOSE_OK).end());
        if self.step == Step::Closing {
            // Both closed at once: the answer to ours is still on its way.
            return;
        }
        let may_look =
            self.step == Step::Declaring && !self.passive && !self.subscription.is_transient();
        if may_look && [ACCESS_REFUSED, PRECONDITION_FAILED].contains(&code) {
            self.passive = true;
            return self.open(out);
        }
        self.forget();
        self.subscription.refuse(&format!("{code} {text}"));
        self.step = Step::Refused(now + self.retry);
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }

    /// The queue is gone: the channel is closed and another one declares it again.
    fn cancelled(&mut self, out: &mut Output) {
        self.subscription
            .state
            .send_replace(SubscriptionState::Pending);
        self.leave(out);
    }

    fn deliver(
        &mut self,
        tag: u64,
        redelivered: bool,
        key: &[u8],
        settings: &AmqpSettings,
    ) -> Result<(), End> {
        if self.incomplete.is_some() {
            return Err(End::lost("it began a message within another one"));
        }
        if !self.window.delivered(tag) {
            return Err(End::lost(format!(
                "it numbered a message {tag} out of order"
            )));
        }
        if self.window.waiting() > usize::from(settings.prefetch()) {
            return Err(End::lost("it sent more messages than were asked for"));
        }
        self.incomplete = Some(Incomplete {
            tag,
            redelivered,
            topic: self.subscription.topic(key),
            content: None,
            body: BytesMut::new(),
            come: 0,
        });
        Ok(())
    }

    /// The header or a part of the body.
    pub(crate) fn content(
        &mut self,
        frame: Frame<'_>,
        settings: &AmqpSettings,
        counters: &Counters,
    ) -> Result<(), End> {
        if matches!(self.step, Step::Closing | Step::Refused(_)) {
            return Ok(());
        }
        let body_max = settings.body_max as u64;
        let Some(message) = &mut self.incomplete else {
            return Err(End::lost("it sent a part of a message where none was due"));
        };
        let size = match (&message.content, frame.kind) {
            (None, Kind::Header) => {
                let content = wire::read_content(frame.payload)
                    .map_err(|_| End::lost("it sent the head of a message cut short"))?;
                counters.ignored(content.ignored);
                let size = content.size;
                message.content = Some(content);
                size
            }
            (Some(content), Kind::Body) => {
                let size = content.size;
                message.come += frame.payload.len() as u64;
                if size <= body_max {
                    if message.body.is_empty() {
                        message.body.reserve(size.min(RESERVED_MAX) as usize);
                    }
                    message.body.extend_from_slice(frame.payload);
                }
                size
            }
            _ => return Err(End::lost("it sent the parts of a message out of order")),
        };
        let come = message.come;
        if come > size {
            return Err(End::lost("it sent more of a message than it said"));
        }
        if come < size {
            return Ok(());
        }
        match size > body_max {
            true => self.drop_too_large(size, counters),
            false => self.complete(counters),
        }
        Ok(())
    }

    /// The broker would give it again on every connection.
    fn drop_too_large(&mut self, size: u64, counters: &Counters) {
        let Some(message) = self.incomplete.take() else {
            return;
        };
        counters.large_body();
        tracing::warn!(key = %self.subscription.key, size, "a message is too large and was dropped");
        self.scratch.push(message.tag);
    }

    fn complete(&mut self, counters: &Counters) {
        let Some(message) = self.incomplete.take() else {
            return;
        };
        let (Some(topic), Some(content)) = (message.topic, message.content) else {
            // Nobody in INTERSECT can have sent it, and nobody could answer it.
            counters.strange_topic();
            self.scratch.push(message.tag);
            return;
        };
        let acknowledgement = match self.subscription.is_transient() {
            true => None,
            false => Some(Box::new(Ack {
                queue: Arc::clone(&self.acks),
                tag: message.tag,
            }) as Box<_>),
        };
        let delivery = Delivery {
            topic,
            content_type: content.content_type,
            headers: content.headers,
            body: Bytes::from(message.body),
            redelivered: message.redelivered,
            acknowledgement,
        };
        self.backlog.push_back((message.tag, delivery));
        self.pump();
    }

    /// Hands on as much as there is room for. What nobody acknowledges by itself counts as taken then.
    fn pump(&mut self) {
        while let Some((tag, delivery)) = self.backlog.pop_front() {
            match self.subscription.sender.try_send(delivery) {
                Ok(()) if self.subscription.is_transient() => self.scratch.push(tag),
                Ok(()) | Err(TrySendError::Closed(_)) => {}
                Err(TrySendError::Full(delivery)) => {
                    self.backlog.push_front((tag, delivery));
                    return;
                }
            }
        }
    }

    /// See [`Session::tend`](super::Session::tend).
    pub(crate) fn tend(&mut self, out: &mut Output, now: Instant) {
        match self.step {
            Step::Closing | Step::Over => return,
            Step::Refused(_) if self.subscription.is_left() => self.step = Step::Over,
            Step::Refused(then) if now >= then => self.open(out),
            _ => {}
        }
        self.pump();
        self.send_acks(out);
        if self.step == Step::Active && self.subscription.is_left() {
            self.leave(out);
        }
    }

    /// Closes the channel, which gives back what was not acknowledged.
    fn leave(&mut self, out: &mut Output) {
        self.send_acks(out);
        self.forget();
        self.step = Step::Closing;
        out.write(|bytes| {
            let frame = FrameWriter::method(bytes, self.channel, wire::CHANNEL_CLOSE);
            frame.u16(200).short("").u16(0).u16(0).end();
        });
    }

    pub(crate) fn send_acks(&mut self, out: &mut Output) {
        if self.step != Step::Active {
            return;
        }
        self.acks.take_into(&mut self.scratch);
        if self.scratch.is_empty() {
            return;
        }
        let channel = self.channel;
        self.window.acknowledge(&mut self.scratch, |tag, multiple| {
            out.write(|bytes| {
                let frame = FrameWriter::method(bytes, channel, wire::BASIC_ACK);
                frame.u64(tag).u8(multiple.into()).end();
            });
        });
        self.scratch.clear();
    }

    /// The connection is over.
    pub(crate) fn lose(self) {
        self.acks.close();
        self.subscription
            .state
            .send_replace(SubscriptionState::Pending);
    }
}
