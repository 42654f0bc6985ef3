//! Publications that are not done.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_message::{Persistence, Publication, PublishError, PublishErrorKind, Topic};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::limits::Limits;
use crate::wire::{Ack, Outgoing, Output, Qos, Reason, Unfit, kind, write_ack};

/// Who waits for a publication.
pub(crate) type Reply = oneshot::Sender<Result<(), PublishError>>;

/// A publication as it was called for.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) message: Publication,
    pub(crate) reply: Reply,
    /// What is left of its expiry counts from there.
    pub(crate) since: Instant,
}

/// A publication with quality of service 1 or 2 on its way.
#[derive(Debug)]
struct Flight {
    /// In the order of their calls.
    serial: u64,
    qos: Qos,
    stage: Stage,
    reply: Reply,
    /// Where its first byte stands in this connection's output.
    start: u64,
    /// It takes a part of this connection's quota. One that was released on an earlier connection does not.
    counted: bool,
    /// A byte of it has left on an earlier connection.
    left: bool,
    /// When it was called for: what is left of its expiry counts from there.
    since: Instant,
    /// Asked for, and nobody has subscribed.
    unroutable: Option<Topic>,
}

#[derive(Debug)]
enum Stage {
    /// PUBLISH was sent; kept to be sent again.
    Published(Box<Publication>),
    /// PUBREL was sent.
    Released,
}

/// A publication with quality of service 0 that is not written whole.
#[derive(Debug)]
struct Writing {
    start: u64,
    end: u64,
    reply: Reply,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    all: HashMap<u16, Flight, foldhash::fast::RandomState>,
    writing: VecDeque<Writing>,
    /// To be sent again, in their order.
    again: VecDeque<u16>,
    serial: u64,
    last_id: u16,
    /// How many more the broker takes on this connection.
    quota: u16,
}

impl Flights {
    /// Whether another one may be published now.
    pub(crate) fn can_take(&self) -> bool {
        self.quota > 0 && self.again.is_empty()
    }

    /// Whether nothing waits for the broker or the socket.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.writing.is_empty()
    }

    /// Whether the broker owes an answer.
    pub(crate) fn expects(&self) -> bool {
        !self.all.is_empty()
    }

    /// An identifier that no packet of ours has, for one that is answered once. At most a few thousand are
    /// in use.
    pub(crate) fn free_id(&mut self, is_used: impl Fn(u16) -> bool) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.all.contains_key(&self.last_id) && !is_used(self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Publishes. [`can_take`](Self::can_take) was true.
    pub(crate) fn publish(
        &mut self,
        call: Call,
        id: u16,
        limits: &Limits,
        now: Instant,
        out: &mut Output,
    ) {
        let Call {
            message,
            reply,
            since,
        } = call;
        let qos = match message.persistence {
            Persistence::Transient => Qos::Zero,
            Persistence::Persistent => Qos::Two.min(limits.qos_max),
        };
        let start = out.end();
        let outgoing = Outgoing {
            message: &message,
            qos,
            id,
            again: false,
            expiry: message.expiry.map(|it| left(it, since, now)),
        };
        if let Err(unfit) = outgoing.write(out, limits.packet_max) {
            // Nobody may wait any more.
            let _ = reply.send(Err(PublishError::unsent(unfit.into())));
            return;
        }
        if qos == Qos::Zero {
            let end = out.end();
            self.writing.push_back(Writing { start, end, reply });
            return;
        }
        self.quota -= 1;
        self.serial += 1;
        let flight = Flight {
            serial: self.serial,
            qos,
            stage: Stage::Published(Box::new(message)),
            reply,
            start,
            counted: true,
            left: false,
            since,
            unroutable: None,
        };
        self.all.insert(id, flight);
    }

    /// So many bytes of this connection's output have been written.
    pub(crate) fn written(&mut self, written: u64) {
        while self.writing.front().is_some_and(|one| one.end <= written) {
            if let Some(one) = self.writing.pop_front() {
                let _ = one.reply.send(Ok(()));
            }
        }
    }

    /// The broker's next word on a publication.
    pub(crate) fn acknowledge(&mut self, kind: u8, ack: Ack<'_>, out: &mut Output) {
        match (kind, self.all.get_mut(&ack.id)) {
            (kind::PUBREC, Some(flight)) if flight.qos == Qos::Two && !ack.reason.is_failure() => {
                flight.note(ack.reason);
                flight.stage = Stage::Released;
                write_ack(out, kind::PUBREL, ack.id, Reason::SUCCESS);
            }
            (kind::PUBREC, None) if !ack.reason.is_failure() => {
                write_ack(out, kind::PUBREL, ack.id, Reason::UNKNOWN_IDENTIFIER);
            }
            (_, Some(flight)) if flight.awaits(kind) => {
                flight.note(ack.reason);
                self.finish(ack);
            }
            // An answer to what was given up, or to nothing: there is nothing to be done about it.
            _ => {}
        }
    }

    fn finish(&mut self, ack: Ack<'_>) {
        let Some(flight) = self.all.remove(&ack.id) else {
            return;
        };
        self.quota += u16::from(flight.counted);
        let result = match flight.unroutable {
            _ if ack.reason.is_failure() => Err(refusal(&flight.stage, ack)),
            Some(topic) => Err(PublishError::unprocessed(PublishErrorKind::Unroutable {
                topic,
            })),
            None => Ok(()),
        };
        let _ = flight.reply.send(result);
    }

    /// Sends again what was unfinished at the end of the last connection, as far as the broker takes it.
    pub(crate) fn pump(&mut self, limits: &Limits, now: Instant, out: &mut Output) {
        while let Some(id) = self.again.front().copied() {
            let Some(flight) = self.all.get_mut(&id) else {
                self.again.pop_front();
                continue;
            };
            let start = out.end();
            let unfit = match &flight.stage {
                Stage::Released => {
                    write_ack(out, kind::PUBREL, id, Reason::SUCCESS);
                    None
                }
                Stage::Published(_) if self.quota == 0 => return,
                Stage::Published(message) => {
                    self.quota -= 1;
                    flight.counted = true;
                    flight.write_again(message, id, limits, now, out).err()
                }
            };
            flight.start = start;
            self.again.pop_front();
            if let Some(unfit) = unfit
                && let Some(flight) = self.all.remove(&id)
            {
                self.quota += 1;
                let _ = flight.reply.send(Err(PublishError::unknown(unfit.into())));
            }
        }
    }

    /// A connection stands, to a broker that knows the session or does not.
    pub(crate) fn resume(&mut self, session_present: bool, quota: u16) {
        self.quota = quota;
        for flight in self.all.values_mut() {
            flight.counted = false;
        }
        if session_present {
            let mut ids: Vec<_> = self.all.iter().map(|(id, it)| (it.serial, *id)).collect();
            ids.sort_unstable();
            self.again = ids.into_iter().map(|(_, id)| id).collect();
        } else {
            self.give_up("the broker has lost the session");
        }
    }

    /// Ends all of them, whose fate nobody knows.
    pub(crate) fn give_up(&mut self, reason: &str) {
        self.again.clear();
        let reason: Arc<str> = reason.into();
        for (_, flight) in self.all.drain() {
            let reason = Arc::clone(&reason);
            let lost = PublishError::unknown(PublishErrorKind::Lost { reason });
            let _ = flight.reply.send(Err(lost));
        }
    }

    /// The connection has ended with so many bytes written. Of what has not left it is known that it did
    /// not arrive; the rest waits for the next connection.
    pub(crate) fn lose(&mut self, written: u64, reason: &Arc<str>) {
        let lost = |sent| PublishError {
            kind: PublishErrorKind::Lost {
                reason: Arc::clone(reason),
            },
            sent,
        };
        for one in self.writing.drain(..) {
            let sent = if one.start >= written {
                Sent::No
            } else {
                Sent::Maybe
            };
            let _ = one.reply.send(Err(lost(sent)));
        }
        self.quota = 0;
        self.again.clear();
        let unsent = |_: &u16, flight: &mut Flight| {
            let has_left = flight.left || flight.start < written;
            flight.left = has_left;
            !has_left
        };
        for (_, flight) in self.all.extract_if(unsent) {
            let _ = flight.reply.send(Err(lost(Sent::No)));
        }
    }
}

impl Flight {
    /// Whether this kind of packet ends it.
    fn awaits(&self, kind: u8) -> bool {
        match (&self.stage, self.qos) {
            (Stage::Released, _) => kind == kind::PUBCOMP,
            (Stage::Published(_), Qos::Two) => kind == kind::PUBREC,
            (Stage::Published(_), _) => kind == kind::PUBACK,
        }
    }

    /// Remembers that nobody has subscribed, where that was asked for.
    fn note(&mut self, reason: Reason) {
        if let Stage::Published(message) = &self.stage
            && message.mandatory
            && reason == Reason::NOBODY
        {
            self.unroutable = Some(message.topic.clone());
        }
    }

    fn write_again(
        &self,
        message: &Publication,
        id: u16,
        limits: &Limits,
        now: Instant,
        out: &mut Output,
    ) -> Result<(), Unfit> {
        let outgoing = Outgoing {
            message,
            qos: self.qos,
            id,
            again: self.left,
            // It has to be sent, be it for the shortest time.
            expiry: message.expiry.map(|it| left(it, self.since, now)),
        };
        outgoing.write(out, limits.packet_max)
    }
}

/// What is left of an expiry since a time, in seconds.
fn left(expiry: Duration, since: Instant, now: Instant) -> u32 {
    whole_seconds(expiry.saturating_sub(now.saturating_duration_since(since)))
}

/// Rounded up, and at least 1: to brokers, 0 may mean for ever.
fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(seconds.max(1)).unwrap_or(u32::MAX)
}

/// What a failure that ends a publication says about it.
fn refusal(stage: &Stage, ack: Ack<'_>) -> PublishError {
    let reason: Arc<str> = match ack.words {
        Some(words) => format!("{}, {words:?}", ack.reason).into(),
        None => ack.reason.to_string().into(),
    };
    match stage {
        // The broker had it once; it may have passed it on before it forgot it.
        Stage::Released => PublishError::unknown(PublishErrorKind::Lost { reason }),
        Stage::Published(message) if ack.reason == Reason::TOO_LARGE => {
            let length = message.body.len();
            PublishError::unprocessed(PublishErrorKind::TooLarge {
                length,
                length_max: length.saturating_sub(1),
            })
        }
        Stage::Published(_) if ack.reason.is_shortage() => {
            PublishError::unprocessed(PublishErrorKind::Blocked { reason })
        }
        Stage::Published(_) => PublishError::unprocessed(PublishErrorKind::Refused { reason }),
    }
}

impl From<Unfit> for PublishErrorKind {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::TooLarge { length, length_max } => {
                PublishErrorKind::TooLarge { length, length_max }
            }
            Unfit::Nul => PublishErrorKind::Refused {
                reason: "a header or the content type holds a NUL, which MQTT forbids".into(),
            },
        }
    }
}
