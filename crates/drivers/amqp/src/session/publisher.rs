//! The channel that publishes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use mainstay_message::{PublishError, PublishErrorKind, Topic};
use tokio::time::Instant;

use super::confirms::{Confirms, Pending, Reply};
use super::{End, PUBLISHING};
use crate::settings::AmqpSettings;
use crate::wire::{self, Frame, FrameWriter, Incoming, Kind, Output};

const ACCESS_REFUSED: u16 = 403;

/// A publication, written as far as it can be without a connection.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The frames before the body.
    pub(crate) head: BytesMut,
    /// Where the last of them begins, which says what the message is.
    pub(crate) properties: usize,
    /// When nobody wants it any more: how long that is still is written at the end of the last frame.
    pub(crate) expires: Option<Instant>,
    pub(crate) body: Bytes,
    pub(crate) topic: Topic,
    /// It comes back with a message that no queue takes.
    pub(crate) number: Option<u64>,
    pub(crate) reply: Reply,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Closed,
    Opening,
    Declaring,
    Selecting,
    Ready,
}

/// A message that comes back: how much of it is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returned {
    Header,
    Body(u64),
}

#[derive(Debug)]
pub(crate) struct Publisher {
    settings: Arc<AmqpSettings>,
    step: Step,
    /// We may not declare the exchange, and only look whether it is there.
    passive: bool,
    returned: Option<Returned>,
    confirms: Confirms,
    /// So many more publications go one at a time: one of them is refused, and it has to be found.
    alone: usize,
}

impl Publisher {
    pub(crate) fn new(settings: Arc<AmqpSettings>) -> Self {
        Publisher {
            settings,
            step: Step::Closed,
            passive: false,
            returned: None,
            confirms: Confirms::new(),
            alone: 0,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.step == Step::Ready
    }

    pub(crate) fn can_take(&self) -> bool {
        let window = match self.alone {
            0 => usize::from(self.settings.in_flight_max.max(1)),
            _ => 1,
        };
        self.is_ready() && self.confirms.len() < window
    }

    pub(crate) fn open(&mut self, out: &mut Output) {
        self.step = Step::Opening;
        self.returned = None;
        out.write(|bytes| {
            FrameWriter::method(bytes, PUBLISHING, wire::CHANNEL_OPEN)
                .u8(0)
                .end()
        });
    }

    pub(crate) fn method(&mut self, method: Incoming<'_>, out: &mut Output) -> Result<(), End> {
        match (self.step, method) {
            (Step::Opening, Incoming::ChannelOpenOk) => self.declare(out),
            (Step::Declaring, Incoming::ExchangeDeclareOk) => {
                self.step = Step::Selecting;
                out.write(|bytes| {
                    FrameWriter::method(bytes, PUBLISHING, wire::CONFIRM_SELECT)
                        .u8(0)
                        .end()
                });
            }
            (Step::Selecting, Incoming::SelectOk) => self.step = Step::Ready,
            (_, Incoming::ChannelClose { code, text }) => return self.closed(code, &text, out),
            (_, Incoming::Ack { tag, multiple }) => return self.settle(tag, multiple, false),
            (_, Incoming::Nack { tag, multiple }) => return self.settle(tag, multiple, true),
            (Step::Ready, Incoming::Return { .. }) => self.returned = Some(Returned::Header),
            (step, method) => {
                return Err(End::lost(format!(
                    "it sent {method:?} to the publishing channel, which is {step:?}"
                )));
            }
        }
        Ok(())
    }

    fn declare(&mut self, out: &mut Output) {
        self.step = Step::Declaring;
        let flags = if self.passive { 0b11 } else { 0b10 };
        out.write(|bytes| {
            FrameWriter::method(bytes, PUBLISHING, wire::EXCHANGE_DECLARE)
                .u16(0)
                .short(&self.settings.exchange)
                .short("topic")
                .u8(flags)
                .u32(0)
                .end();
        });
    }

    fn settle(&mut self, tag: u64, multiple: bool, nacked: bool) -> Result<(), End> {
        let before = self.confirms.len();
        match self.confirms.settle(tag, multiple, nacked) {
            true => {
                let settled = before - self.confirms.len();
                self.alone = self.alone.saturating_sub(settled);
                Ok(())
            }
            false => Err(End::lost(format!(
                "it confirmed message {tag}, which was never published"
            ))),
        }
    }

    /// The broker closed the channel: what it has not confirmed is lost, and the channel is opened again.
    fn closed(&mut self, code: u16, text: &str, out: &mut Output) -> Result<(), End> {
        out.write(|bytes| FrameWriter::method(bytes, PUBLISHING, wire::CHANNEL_CLOSE_OK).end());
        if self.step != Step::Ready {
            let may_look = self.step == Step::Declaring && code == ACCESS_REFUSED && !self.passive;
            if !may_look {
                let exchange = &self.settings.exchange;
                return Err(End::refused(format!(
                    "the broker refuses the exchange {exchange}: {code} {text}"
                )));
            }
            self.passive = true;
        }
        self.refuse(&format!("{code} {text}").into(), out);
        self.open(out);
        Ok(())
    }

    /// Which of several was refused is not said, and those before it may have been taken. Only one that was alone is
    /// told that it was refused; the others are lost, and whoever publishes them again does it one at a time.
    fn refuse(&mut self, reason: &Arc<str>, out: &Output) {
        let mut pending: Vec<_> = self.confirms.take().collect();
        if pending.len() > 1 {
            self.alone = pending.len();
            return lose(pending, out, reason);
        }
        self.alone = self.alone.saturating_sub(pending.len());
        if let Some(culprit) = pending.pop() {
            let kind = PublishErrorKind::Refused {
                reason: Arc::clone(reason),
            };
            let _ = culprit.reply.send(Err(PublishError::unprocessed(kind)));
        }
    }

    pub(crate) fn publish(
        &mut self,
        message: Outgoing,
        frame_max: usize,
        out: &mut Output,
        now: Instant,
    ) {
        let Outgoing {
            mut head,
            properties,
            expires,
            body,
            topic,
            number,
            reply,
        } = message;
        if reply.is_closed() {
            return;
        }
        if let Some(expires) = expires {
            wire::write_expiration(&mut head, properties, expires.duration_since(now));
        }
        let frame_length = properties.max(head.len() - properties);
        if frame_length > frame_max {
            let kind = PublishErrorKind::TooLarge {
                length: frame_length,
                length_max: frame_max,
            };
            let _ = reply.send(Err(PublishError::unsent(kind)));
            return;
        }
        let place = out.place();
        out.write(|bytes| bytes.extend_from_slice(&head));
        out.write_body(PUBLISHING, &body, frame_max);
        self.confirms.push(Pending {
            topic,
            number,
            place,
            reply,
        });
    }

    /// The header and the body of a message that comes back.
    pub(crate) fn content(&mut self, frame: Frame<'_>) -> Result<(), End> {
        let left = match (self.returned, frame.kind) {
            (Some(Returned::Header), Kind::Header) => {
                let returned = wire::read_correlation(frame.payload)
                    .map_err(|_| End::lost("it sent the head of a message cut short"))?;
                if let Some(number) = returned.number {
                    self.confirms.give_back(number);
                }
                Some(returned.size)
            }
            (Some(Returned::Body(left)), Kind::Body) => {
                left.checked_sub(frame.payload.len() as u64)
            }
            _ => None,
        };
        let Some(left) = left else {
            return Err(End::lost("it sent a part of a message where none was due"));
        };
        self.returned = (left > 0).then_some(Returned::Body(left));
        Ok(())
    }

    /// The connection is over.
    pub(crate) fn lose(&mut self, out: &Output, reason: &Arc<str>) {
        lose(self.confirms.take(), out, reason);
    }
}

/// What of these has left is not known; the rest has not been seen by anybody.
fn lose(all: impl IntoIterator<Item = Pending>, out: &Output, reason: &Arc<str>) {
    for pending in all {
        let kind = PublishErrorKind::Lost {
            reason: Arc::clone(reason),
        };
        let error = match out.has_left(pending.place) {
            true => PublishError::unknown(kind),
            false => PublishError::unsent(kind),
        };
        let _ = pending.reply.send(Err(error));
    }
}
