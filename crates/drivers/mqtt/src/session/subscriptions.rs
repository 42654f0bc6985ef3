//! Subscriptions and the way of a message to one of them.

use std::collections::HashMap;

use mainstay_message::{Delivery, Queue, Subscription, SubscriptionState, Topic, TopicFilter};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant};

use super::flights::Flights;
use crate::wire::{Output, Qos, Reason, Retained, Verdicts, subscribe, unsubscribe};

/// A durable subscription whose deliveries were dropped is ended after this time, longer than any stop takes: one that
/// is dropped because the program ends must keep its messages.
const ABANDONED_AFTER: Duration = Duration::from_secs(600);

/// A subscription as it is handed to the session.
#[derive(Debug)]
pub(crate) struct Slot {
    filter: TopicFilter,
    qos: Qos,
    deliveries: mpsc::Sender<Delivery>,
    state: watch::Sender<SubscriptionState>,
    /// The identifier of a SUBSCRIBE that is not answered.
    asked: Option<u16>,
    /// When its deliveries were found dropped.
    dropped: Option<Instant>,
}

impl Slot {
    pub(crate) fn new(
        subscription: &Subscription,
        deliveries: mpsc::Sender<Delivery>,
        state: watch::Sender<SubscriptionState>,
    ) -> Self {
        Slot {
            filter: subscription.filter.clone(),
            qos: match subscription.queue {
                Queue::Transient => Qos::Zero,
                Queue::Durable(_) | Queue::Own { .. } => Qos::Two,
            },
            deliveries,
            state,
            asked: None,
            dropped: None,
        }
    }

    /// Where its messages go.
    pub(crate) fn deliveries(&self) -> &mpsc::Sender<Delivery> {
        &self.deliveries
    }

    /// Whether there is room for a message beside the window of those that must not be lost.
    pub(crate) fn has_room(&self, window: u16) -> bool {
        let window = match self.qos {
            Qos::Zero => 0,
            Qos::One | Qos::Two => usize::from(window),
        };
        // Nobody listens to a closed one, which is not full.
        self.deliveries.capacity() > window || self.deliveries.is_closed()
    }

    pub(crate) fn fits(&self, topic: &Topic) -> bool {
        self.dropped.is_none() && self.filter.fits(topic)
    }

    fn ask(&mut self, flights: &mut Flights, ids: &[u16], out: &mut Output) {
        let id = flights.free_id(|id| ids.contains(&id));
        self.asked = Some(id);
        subscribe(out, id, &self.filter.mqtt(), self.qos, Retained::IfNew);
    }
}

/// All subscriptions, by number.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    slots: Vec<(u64, Slot)>,
    /// Those without wildcards by their topic.
    exact: HashMap<Box<str>, (u64, Topic), foldhash::fast::RandomState>,
    last: u64,
}

impl Subscriptions {
    /// Takes one in and, where a connection stands, asks the broker for it.
    pub(crate) fn add(&mut self, slot: Slot, link: Option<(&mut Flights, &mut Output)>) -> u64 {
        self.last += 1;
        if let Ok(topic) = Topic::parse(slot.filter.as_str()) {
            let entry = (self.last, topic);
            self.exact.insert(slot.filter.as_str().into(), entry);
        }
        self.slots.push((self.last, slot));
        if let Some((flights, out)) = link {
            let ids = self.asked();
            if let Some((_, slot)) = self.slots.last_mut() {
                slot.ask(flights, &ids, out);
            }
        }
        self.last
    }

    /// Asks for all of them. A broker that knows the session may still not know the last of them: one that
    /// was killed goes on from what it had written.
    pub(crate) fn ask_all(&mut self, flights: &mut Flights, out: &mut Output) {
        let mut ids = Vec::new();
        for (_, slot) in &mut self.slots {
            slot.ask(flights, &ids, out);
            ids.extend(slot.asked);
        }
    }

    fn asked(&self) -> Vec<u16> {
        let slots = self.slots.iter();
        slots.filter_map(|(_, slot)| slot.asked).collect()
    }

    /// Whether a SUBSCRIBE with this identifier is not answered.
    pub(crate) fn has_asked(&self, id: u16) -> bool {
        self.slots.iter().any(|(_, slot)| slot.asked == Some(id))
    }

    /// Whether the broker owes an answer.
    pub(crate) fn expects(&self) -> bool {
        self.slots.iter().any(|(_, slot)| slot.asked.is_some())
    }

    /// The broker's answer to one.
    pub(crate) fn answered(&mut self, verdicts: Verdicts<'_>) {
        let asked = |(_, slot): &&mut (u64, Slot)| slot.asked == Some(verdicts.id);
        let Some((_, slot)) = self.slots.iter_mut().find(asked) else {
            return;
        };
        slot.asked = None;
        let reason = verdicts
            .reasons
            .first()
            .map_or(Reason(0x80), |it| Reason(*it));
        let state = match reason.is_failure() {
            false => SubscriptionState::Active,
            true => {
                let words = verdicts.words.map(|words| format!(", {words:?}"));
                let text = format!("{reason}{}", words.unwrap_or_default());
                SubscriptionState::Refused(text.into())
            }
        };
        slot.state.send_replace(state);
    }

    /// The connection has ended.
    pub(crate) fn lose(&mut self) {
        for (_, slot) in &mut self.slots {
            slot.asked = None;
            slot.state.send_replace(SubscriptionState::Pending);
        }
    }

    /// The subscription that a message goes to, and its topic. `Err`: no topic of the port.
    pub(crate) fn route(&self, topic: &str) -> Result<(Option<u64>, Topic), ()> {
        if let Some((number, topic)) = self.exact.get(topic) {
            return Ok((Some(*number), topic.clone()));
        }
        let topic = Topic::parse(topic).map_err(drop)?;
        let fitting = self.slots.iter().find(|(_, slot)| slot.fits(&topic));
        Ok((fitting.map(|(number, _)| *number), topic))
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Slot> {
        let found = self.slots.iter().find(|(known, _)| *known == number);
        found.map(|(_, slot)| slot)
    }

    /// The deliveries of one were found dropped.
    pub(crate) fn dropped(&mut self, number: u64, now: Instant) {
        let at = |known: &(u64, Slot)| known.0 == number;
        let Some(place) = self.slots.iter().position(at) else {
            return;
        };
        let (_, slot) = &mut self.slots[place];
        slot.dropped = Some(now);
        let text = slot.filter.as_str();
        if self
            .exact
            .get(text)
            .is_some_and(|(known, _)| *known == number)
        {
            self.exact.remove(text);
        }
    }

    /// Whether there are dropped ones that are not ended: the program may be about to end.
    pub(crate) fn has_abandoned(&self) -> bool {
        self.slots
            .iter()
            .any(|(_, slot)| slot.deliveries.is_closed())
    }

    /// Whether a message of this topic belongs to one of them.
    pub(crate) fn abandoned(&self, topic: &Topic) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|(_, slot)| slot.dropped.is_some() && slot.filter.fits(topic))
    }

    /// When the next one is to be ended.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.slots
            .iter()
            .filter_map(|(_, slot)| slot.end_at())
            .min()
    }

    /// Ends those that were dropped long enough ago.
    pub(crate) fn tick(&mut self, now: Instant, mut link: Option<(&mut Flights, &mut Output)>) {
        let is_over = |(_, slot): &mut (u64, Slot)| slot.end_at().is_some_and(|at| at <= now);
        let over: Vec<_> = self.slots.extract_if(.., is_over).collect();
        for (_, slot) in over {
            let is_shared = self.slots.iter().any(|(_, it)| it.filter == slot.filter);
            if let (Some((flights, out)), false) = (&mut link, is_shared) {
                let ids = self.asked();
                let id = flights.free_id(|id| ids.contains(&id));
                unsubscribe(out, id, &slot.filter.mqtt());
            }
        }
    }
}

impl Slot {
    fn end_at(&self) -> Option<Instant> {
        let grace = match self.qos {
            Qos::Zero => Duration::ZERO,
            Qos::One | Qos::Two => ABANDONED_AFTER,
        };
        self.dropped.map(|at| at + grace)
    }
}
