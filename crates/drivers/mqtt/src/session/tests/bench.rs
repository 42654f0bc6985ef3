//! A session with its broker's end in the hands of a test.

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use mainstay_message::{
    Deliveries, Delivery, Publication, PublishError, Queue, Subscription, SubscriptionState, Topic,
    TopicFilter,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Duration, Instant};

use crate::acknowledgement::Returns;
use crate::end::End;
use crate::session::{Session, Slot};
use crate::settings::MqttSettings;
use crate::wire::{Outgoing, Output, Packet, Qos, Reason, frame, kind, write_ack};

pub(super) struct Bench {
    pub(super) session: Session,
    pub(super) now: Instant,
    returns: Arc<Returns>,
}

pub(super) type Answer = oneshot::Receiver<Result<(), PublishError>>;

/// What a broker says of itself.
#[derive(Clone, Copy)]
pub(super) struct Greeting {
    pub(super) session_present: bool,
    pub(super) receive_max: u16,
    pub(super) qos_max: u8,
    pub(super) packet_max: u32,
}

pub(super) const NEW: Greeting = Greeting {
    session_present: false,
    receive_max: 20,
    qos_max: 2,
    packet_max: 1 << 20,
};

pub(super) const KNOWN: Greeting = Greeting {
    session_present: true,
    ..NEW
};

impl Bench {
    /// A session that no broker knows yet.
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut MqttSettings)) -> Self {
        let mut settings = MqttSettings::new("nowhere", "bench");
        settings.receive_max = 10;
        change(&mut settings);
        let returns = Arc::new(Returns::default());
        Bench {
            session: Session::new(Arc::new(settings), Arc::clone(&returns)),
            now: Instant::now(),
            returns,
        }
    }

    /// A session that is up.
    pub(super) fn up() -> Self {
        let mut bench = Self::new();
        bench.connect(NEW);
        bench
    }

    pub(super) fn connect(&mut self, greeting: Greeting) {
        self.session.greet(None);
        let sent = self.sent();
        assert_eq!(
            sent.first().map(|(first, _)| first >> 4),
            Some(kind::CONNECT)
        );
        let mut packet = vec![0x20, 0, u8::from(greeting.session_present), 0, 0];
        packet.extend([0x21]);
        packet.extend(greeting.receive_max.to_be_bytes());
        if greeting.qos_max < 2 {
            packet.extend([0x24, greeting.qos_max]);
        }
        packet.extend([0x27]);
        packet.extend(greeting.packet_max.to_be_bytes());
        packet[1] = (packet.len() - 2) as u8;
        packet[4] = (packet.len() - 5) as u8;
        self.give(&packet).unwrap();
    }

    pub(super) fn lose(&mut self) {
        self.session.lose(&"cut".into());
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Everything that waits to be written is, by kind: the first byte and the content of each.
    pub(super) fn sent(&mut self) -> Vec<(u8, Vec<u8>)> {
        let length = self.session.out.remaining();
        let mut buffer = BytesMut::from(&self.session.out.copy_to_bytes(length)[..]);
        self.session.wrote(self.now);
        let mut packets = Vec::new();
        while let Ok(Ok(found)) = frame(&buffer, usize::MAX) {
            let first = found.first;
            let content = found.take(&mut buffer, |content, _| content.to_vec());
            packets.push((first, content));
        }
        assert!(buffer.is_empty());
        packets
    }

    /// The kinds of what was sent and the identifiers that acknowledgements name.
    pub(super) fn acks(&mut self) -> Vec<(u8, u16)> {
        let sent = self.sent();
        let id = |content: &[u8]| u16::from_be_bytes([content[0], content[1]]);
        sent.iter()
            .filter(|(_, content)| content.len() >= 2)
            .map(|(first, content)| (first >> 4, id(content)))
            .collect()
    }

    /// The broker sends these bytes, which are whole packets.
    pub(super) fn give(&mut self, packets: &[u8]) -> Result<(), End> {
        let mut buffer = BytesMut::from(packets);
        let now = self.now;
        self.session.heard(now);
        while let Ok(found) = frame(&buffer, usize::MAX)? {
            found.take(&mut buffer, |content, keep| {
                let packet = Packet::read(found.first, content, keep)?;
                self.session.packet(packet, now)
            })?;
        }
        Ok(())
    }

    pub(super) fn give_ack(&mut self, kind: u8, id: u16, reason: u8) {
        let mut out = Output::default();
        write_ack(&mut out, kind, id, Reason(reason));
        let length = out.remaining();
        self.give(&out.copy_to_bytes(length)).unwrap();
    }

    /// A message from the broker.
    pub(super) fn give_message(&mut self, id: u16, qos: Qos, again: bool, body: &str) {
        self.try_message(id, qos, again, body).unwrap();
    }

    pub(super) fn try_message(
        &mut self,
        id: u16,
        qos: Qos,
        again: bool,
        body: &str,
    ) -> Result<(), End> {
        let message = message("in", body);
        let packet = Outgoing {
            message: &message,
            qos,
            id,
            again,
            expiry: None,
        };
        let mut out = Output::default();
        packet.write(&mut out, usize::MAX).unwrap();
        let length = out.remaining();
        self.give(&out.copy_to_bytes(length))
    }

    pub(super) fn publish(&mut self, message: Publication) -> Answer {
        self.publish_late(message, Duration::ZERO)
    }

    /// One that has waited for so long.
    pub(super) fn publish_late(&mut self, message: Publication, waited: Duration) -> Answer {
        assert!(self.session.can_take());
        let (reply, answer) = oneshot::channel();
        let since = self.now - waited;
        self.session.publish(message, reply, since, self.now);
        answer
    }

    /// Takes what receivers did.
    pub(super) fn settle(&mut self) {
        let mut returned = Vec::new();
        self.returns.take(&mut returned);
        for one in returned {
            self.session.settle(one);
        }
    }

    /// A subscription to `in`; its SUBSCRIBE is answered if a connection stands.
    pub(super) fn subscribe(&mut self, queue: Queue, capacity: usize) -> Inbox {
        let (sender, receiver) = mpsc::channel(capacity);
        let (state, watched) = watch::channel(SubscriptionState::Pending);
        let subscription = Subscription {
            filter: TopicFilter::parse("in").unwrap(),
            queue,
            backlog_max: capacity,
        };
        let slot = Slot::new(&subscription, sender, state);
        let number = self.session.subscribe(slot, self.now);
        Inbox {
            deliveries: Deliveries::new(receiver),
            state: watched,
            number,
        }
    }

    pub(super) fn durable(&mut self) -> Inbox {
        self.subscribe(Queue::Durable("in".into()), 100)
    }
}

pub(super) struct Inbox {
    pub(super) deliveries: Deliveries,
    pub(super) state: watch::Receiver<SubscriptionState>,
    pub(super) number: u64,
}

impl Inbox {
    /// The bodies of what is there, kept with what they are acknowledged by.
    pub(super) fn take(&mut self) -> Vec<Delivery> {
        std::iter::from_fn(|| self.deliveries.try_next()).collect()
    }
}

pub(super) fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    let bodies = deliveries.iter().map(|it| std::str::from_utf8(&it.body));
    bodies.map(Result::unwrap).collect()
}

pub(super) fn acknowledge(delivery: Delivery) {
    delivery.acknowledgement.unwrap().acknowledge();
}

pub(super) fn message(topic: &str, body: &str) -> Publication {
    Publication::new(Topic::parse(topic).unwrap(), body.to_owned())
}
