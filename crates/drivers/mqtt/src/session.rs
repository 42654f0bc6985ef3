//! The client's side of an MQTT 5 session, as a machine: packets and times go in, packets to write and
//! deliveries come out. It reads no clock and no socket.
//!
//! What it keeps over connections: publications that are not done (`flights`), messages that came and
//! are not settled (`receipts`), and subscriptions. Messages are acknowledged in the order in which their
//! receivers do so. MQTT asks for the order in which they came, so that a broker may count on it; none
//! that is known does, and one long job would hold up every message behind it.

mod flights;
mod limits;
mod lost;
mod receipts;
mod subscriptions;
#[cfg(test)]
mod tests;
mod unclaimed;
mod vigil;

use std::sync::Arc;

use mainstay_message::{Acknowledge, Delivery, Publication, PublishError, PublishErrorKind};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::flights::{Call, Flights};
use self::limits::Limits;
use self::lost::Lost;
use self::receipts::{Arrival, Receipts};
use self::subscriptions::Subscriptions;
use self::unclaimed::{Unclaimed, Waiting};
use self::vigil::{Vigil, Watch};
use crate::acknowledgement::{Acknowledgement, Return, Returns};
use crate::end::End;
use crate::settings::MqttSettings;
use crate::wire::{
    Connect, Fault, Incoming, Output, Packet, Qos, Reason, Welcome, disconnect, kind, ping,
};

pub(crate) use self::flights::Reply;
pub(crate) use self::subscriptions::Slot;

/// Packets wait to be written up to this size before another publication is taken, and answers before anything is read.
const OUTPUT_MAX: usize = 1024 * 1024;

/// The client's side of a session.
#[derive(Debug)]
pub(crate) struct Session {
    settings: Arc<MqttSettings>,
    returns: Arc<Returns>,
    pub(crate) out: Output,
    /// While the broker has welcomed us.
    limits: Option<Limits>,
    vigil: Option<Vigil>,
    flights: Flights,
    receipts: Receipts,
    subscriptions: Subscriptions,
    unclaimed: Unclaimed,
    lost: Lost,
    /// A message that must not be lost, whose receiver has no room, and its subscription. Nothing is read meanwhile.
    /// Brokers that keep to the window do not let it come to this.
    stalled: Option<(u64, Delivery)>,
}

impl Session {
    pub(crate) fn new(settings: Arc<MqttSettings>, returns: Arc<Returns>) -> Self {
        Session {
            receipts: Receipts::new(settings.receive_max),
            settings,
            returns,
            out: Output::default(),
            limits: None,
            vigil: None,
            flights: Flights::default(),
            subscriptions: Subscriptions::default(),
            unclaimed: Unclaimed::default(),
            lost: Lost::default(),
            stalled: None,
        }
    }

    /// Begins a connection.
    pub(crate) fn greet(&mut self, password: Option<&str>) {
        self.out.clear();
        let packet_max = u32::try_from(self.settings.packet_max);
        let connect = Connect {
            client_id: &self.settings.client_id,
            user: self.settings.user.as_deref(),
            password,
            keep_alive: self.settings.keep_alive_seconds(),
            clean_start: false,
            session_expiry: self.settings.session_expiry_seconds(),
            receive_max: self.settings.receive_max,
            packet_max: packet_max.ok(),
        };
        connect.write(&mut self.out);
    }

    /// Whether the broker has welcomed us.
    pub(crate) fn is_up(&self) -> bool {
        self.limits.is_some()
    }

    /// Whether another publication may be handed in.
    pub(crate) fn can_take(&self) -> bool {
        self.is_up() && self.flights.can_take() && self.out.waiting() < OUTPUT_MAX
    }

    /// Whether packets may be handed in. Publications that wait do not hold it up, or a slow link would take a large one
    /// for the end of the broker.
    pub(crate) fn can_read(&self) -> bool {
        let has_room = self.out.waiting() < OUTPUT_MAX || self.out.waiting_besides() < OUTPUT_MAX;
        self.stalled.is_none() && has_room
    }

    /// Whether every publication is done and written.
    pub(crate) fn is_settled(&self) -> bool {
        self.flights.is_empty() && self.out.waiting() == 0
    }

    /// Publishes what was called for at a time; [`can_take`](Self::can_take) was true. What its caller has given up is
    /// forgotten.
    pub(crate) fn publish(
        &mut self,
        message: Publication,
        reply: Reply,
        since: Instant,
        now: Instant,
    ) {
        if reply.is_closed() {
            return;
        }
        let Some(limits) = &self.limits else {
            let reason = None;
            let kind = PublishErrorKind::NotConnected { reason };
            let _ = reply.send(Err(PublishError::unsent(kind)));
            return;
        };
        let subscriptions = &self.subscriptions;
        let id = self.flights.free_id(|id| subscriptions.has_asked(id));
        let out = &mut self.out;
        let call = Call {
            message,
            reply,
            since,
        };
        self.flights.publish(call, id, limits, now, out);
        self.expect(now);
    }

    /// Takes a subscription in; its number.
    pub(crate) fn subscribe(&mut self, slot: Slot, now: Instant) -> u64 {
        let link = match self.limits {
            Some(_) => Some((&mut self.flights, &mut self.out)),
            None => None,
        };
        let number = self.subscriptions.add(slot, link);
        if let Some(slot) = self.subscriptions.get(number) {
            self.unclaimed.claim(slot);
        }
        self.expect(now);
        number
    }

    /// The deliveries of a subscription were dropped.
    pub(crate) fn unsubscribe(&mut self, number: u64, now: Instant) {
        self.subscriptions.dropped(number, now);
        if self
            .stalled
            .as_ref()
            .is_some_and(|(held, _)| *held == number)
        {
            // Unacknowledged, it comes again to whoever subscribes.
            self.stalled = None;
            self.listen(now);
        }
    }

    /// What a receiver did with a delivery.
    pub(crate) fn settle(&mut self, returned: Return) {
        self.receipts.settle(returned, &mut self.out);
    }

    /// Where the delivery that holds everything up wants to go.
    pub(crate) fn stalled_at(&self) -> Option<mpsc::Sender<Delivery>> {
        let (number, _) = self.stalled.as_ref()?;
        Some(self.subscriptions.get(*number)?.deliveries().clone())
    }

    /// Tries to go on with it.
    pub(crate) fn unstall(&mut self, now: Instant) {
        if let Some((number, delivery)) = self.stalled.take() {
            self.hand_over(number, delivery, now);
        }
        self.listen(now);
    }

    /// So many bytes were written.
    pub(crate) fn wrote(&mut self, now: Instant) {
        let written = self.out.written();
        self.flights.written(written);
        if let Some(vigil) = &mut self.vigil {
            vigil.sent(written, now);
        }
    }

    /// Bytes have come, be it less than a packet.
    pub(crate) fn heard(&mut self, now: Instant) {
        if let Some(vigil) = &mut self.vigil {
            vigil.received(now);
        }
    }

    /// A packet has come.
    pub(crate) fn packet(&mut self, packet: Packet<'_>, now: Instant) -> Result<(), End> {
        match (packet, self.is_up()) {
            (Packet::Welcome(welcome), false) => self.welcome(&welcome, now)?,
            (Packet::Goodbye(goodbye), _) => {
                let what = "the broker ended the connection";
                return Err(End::said(what, goodbye.reason, goodbye.words));
            }
            (Packet::Welcome(_), true) => return Err(Fault::Protocol("a second CONNACK").into()),
            (_, false) => return Err(Fault::Protocol("a packet before CONNACK").into()),
            (Packet::Publish(message), true) => self.arrive(message, now)?,
            (Packet::Ack(kind::PUBREL, ack), true) => self.receipts.release(ack.id, &mut self.out),
            (Packet::Ack(kind, ack), true) => {
                self.flights.acknowledge(kind, ack, &mut self.out);
                self.pump(now);
            }
            (Packet::Subscribed(verdicts), true) => self.subscriptions.answered(verdicts),
            (Packet::Unsubscribed, true) => {}
            (Packet::Pong, true) => {
                if let Some(vigil) = &mut self.vigil {
                    vigil.answered();
                }
            }
        }
        self.expect(now);
        Ok(())
    }

    fn welcome(&mut self, welcome: &Welcome, now: Instant) -> Result<(), End> {
        if welcome.reason.is_failure() {
            let what = "the broker refused the connection";
            return Err(End::said(what, welcome.reason, welcome.words.as_deref()));
        }
        let limits = Limits::of(welcome, &self.settings);
        self.vigil = Some(Vigil::new(
            limits.keep_alive,
            self.settings.answer_timeout,
            now,
        ));
        self.listen(now);
        if !welcome.session_present {
            self.receipts.clear();
        }
        self.flights.resume(welcome.session_present, limits.quota);
        self.limits = Some(limits);
        self.subscriptions.ask_all(&mut self.flights, &mut self.out);
        self.pump(now);
        Ok(())
    }

    fn pump(&mut self, now: Instant) {
        if let Some(limits) = &self.limits {
            self.flights.pump(limits, now, &mut self.out);
        }
    }

    fn expect(&mut self, now: Instant) {
        if let Some(vigil) = &mut self.vigil {
            let is_due = self.flights.expects() || self.subscriptions.expects();
            vigil.expect(is_due, now);
        }
    }

    fn listen(&mut self, now: Instant) {
        if let Some(vigil) = &mut self.vigil {
            vigil.listen(self.stalled.is_none(), now);
        }
    }

    fn arrive(&mut self, message: Incoming<'_>, now: Instant) -> Result<(), End> {
        if message.is_unfit {
            return self.refuse(&message);
        }
        let serial = match message.qos {
            Qos::Zero => None,
            Qos::One | Qos::Two => match self.receipts.arrive(&message, &mut self.out)? {
                Arrival::Known => return Ok(()),
                Arrival::New { serial } => Some(serial),
            },
        };
        let Ok((number, topic)) = self.subscriptions.route(message.topic) else {
            let topic = message.topic;
            tracing::warn!(topic, "a message of a topic that no service has is refused");
            if let Some(serial) = serial {
                self.receipts.refuse(message.id, serial, &mut self.out);
            }
            return Ok(());
        };
        let acknowledgement = serial.map(|serial| {
            let acknowledgement = Acknowledgement::new(&self.returns, message.id, serial);
            Box::new(acknowledgement) as Box<dyn Acknowledge>
        });
        let delivery = Delivery {
            topic,
            content_type: message.content_type,
            headers: message.headers,
            body: message.body,
            redelivered: message.again,
            acknowledgement,
        };
        match (number, serial) {
            (Some(number), _) => self.hand_over(number, delivery, now),
            (None, Some(serial)) => self.unclaimed.add(Waiting {
                since: now,
                id: message.id,
                serial,
                delivery,
            }),
            // Nobody listens any more, and nobody would have kept it.
            (None, None) => {}
        }
        self.listen(now);
        Ok(())
    }

    /// Refuses a message that MQTT forbids, so that it holds nothing up and does not come again.
    fn refuse(&mut self, message: &Incoming<'_>) -> Result<(), End> {
        let topic = message.topic;
        tracing::warn!(
            topic,
            "a message with a NUL in a text, or twice the same property, is refused"
        );
        if message.qos == Qos::Zero {
            return Ok(());
        }
        if let Arrival::New { serial } = self.receipts.arrive(message, &mut self.out)? {
            self.receipts.refuse(message.id, serial, &mut self.out);
        }
        Ok(())
    }

    fn hand_over(&mut self, number: u64, delivery: Delivery, now: Instant) {
        let Some(slot) = self.subscriptions.get(number) else {
            return;
        };
        if delivery.acknowledgement.is_none() && !slot.has_room(self.settings.receive_max) {
            if let Some(count) = self.lost.one(now) {
                let topic = delivery.topic.as_str();
                tracing::warn!(
                    topic,
                    count,
                    "transient messages found no room and are lost: their receiver is slower than they come"
                );
            }
            return;
        }
        match slot.deliveries().try_send(delivery) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(delivery)) => {
                self.stalled = Some((number, delivery));
            }
            // Dropped unacknowledged: it comes again.
            Err(mpsc::error::TrySendError::Closed(_)) => {}
        }
    }

    /// Whether [`tick`](Self::tick) is due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.is_choked() || self.next_tick().is_some_and(|at| at <= now)
    }

    /// Whether messages that were dropped unacknowledged hold up others. Where the program may be about to end they are
    /// left to the next run.
    fn is_choked(&self) -> bool {
        self.receipts.is_choked() && !self.subscriptions.has_abandoned()
    }

    /// When [`tick`](Self::tick) is due by the clock.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let times = [
            self.vigil.as_ref().and_then(Vigil::next),
            self.subscriptions.next(),
            self.unclaimed.next(),
        ];
        times.into_iter().flatten().min()
    }

    /// Does what its time has come for.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), End> {
        if self.is_choked() {
            return Err(End::of(
                "many messages were dropped unacknowledged; they come again with the next connection",
            ));
        }
        while let Some(mut unwanted) = self.unclaimed.expired(now) {
            if self.subscriptions.abandoned(&unwanted.delivery.topic) {
                unwanted.since = now;
                self.unclaimed.add(unwanted);
                continue;
            }
            let topic = unwanted.delivery.topic.as_str();
            tracing::warn!(topic, "a message that nobody subscribed to is refused");
            let (id, serial) = (unwanted.id, unwanted.serial);
            self.receipts.refuse(id, serial, &mut self.out);
        }
        let link = match self.limits {
            Some(_) => Some((&mut self.flights, &mut self.out)),
            None => None,
        };
        self.subscriptions.tick(now, link);
        match self.vigil.as_mut().map(|vigil| vigil.watch(now)) {
            Some(Watch::Ask) => {
                ping(&mut self.out);
                let end = self.out.end();
                if let Some(vigil) = &mut self.vigil {
                    vigil.asks(end);
                }
            }
            Some(Watch::Gone) => {
                let limit = self.settings.answer_timeout;
                return Err(End::of(format!(
                    "the broker has not answered within {limit:?}"
                )));
            }
            Some(Watch::Nothing) | None => {}
        }
        Ok(())
    }

    /// Says goodbye.
    pub(crate) fn leave(&mut self, reason: Reason) {
        disconnect(&mut self.out, reason);
    }

    /// The connection has ended.
    pub(crate) fn lose(&mut self, reason: &Arc<str>) {
        self.limits = None;
        self.vigil = None;
        self.flights.lose(self.out.written(), reason);
        self.receipts.lose();
        self.unclaimed.clear();
        // It comes again, or is of those that end with their connection.
        self.stalled = None;
        self.subscriptions.lose();
        self.out.clear();
    }

    /// No connection follows.
    pub(crate) fn give_up(&mut self, reason: &str) {
        self.flights.give_up(reason);
    }
}
