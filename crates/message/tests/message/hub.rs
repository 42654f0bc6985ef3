//! A broker in memory: queues with filters, expiry, acknowledgements, and connections that can be cut.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use mainstay_engine::BoxFuture;
use mainstay_message::{
    Acknowledge, Broker, Deliveries, Delivery, Link, Persistence, Publication, PublishError,
    PublishErrorKind, Queue, Registration, Subscription, SubscriptionState, TopicFilter,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Messages of a connection that the broker gives before the first is acknowledged, as mosquitto does.
const WINDOW: usize = 20;
/// More than any test sends.
const BACKLOG: usize = 100_000;

/// The broker. Copies share it.
#[derive(Clone, Default)]
pub(crate) struct Hub {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<String, Kept>,
    next: u64,
    log: Vec<Publication>,
}

struct Kept {
    filter: TopicFilter,
    durable: bool,
    waiting: VecDeque<Message>,
    unacknowledged: BTreeMap<u64, Message>,
    consumer: Option<mpsc::Sender<Delivery>>,
    /// The connection that the consumer is on is up.
    up: Arc<AtomicBool>,
}

#[derive(Clone)]
struct Message {
    publication: Publication,
    expires: Option<Instant>,
    redelivered: bool,
}

impl Hub {
    /// A connection of its own.
    pub(crate) fn connect(&self) -> Arc<Connection> {
        Arc::new(Connection {
            hub: self.clone(),
            link: watch::Sender::new(Link::Up {
                number: 1,
                blocked: None,
            }),
            up: Arc::new(AtomicBool::new(true)),
            loses_confirmations: AtomicBool::new(false),
            number: AtomicU64::new(1),
        })
    }

    /// Everything that was ever published to a topic.
    pub(crate) fn published(&self, topic: &str) -> Vec<Publication> {
        let state = self.state.lock().unwrap();
        state
            .log
            .iter()
            .filter(|it| it.topic.as_str() == topic)
            .cloned()
            .collect()
    }

    /// Messages to topics with that end that were published more than once under one message id.
    pub(crate) fn doubled(&self, end: &str) -> usize {
        let state = self.state.lock().unwrap();
        let mut seen = BTreeMap::<String, u32>::new();
        for it in state
            .log
            .iter()
            .filter(|it| it.topic.as_str().ends_with(end))
        {
            let id = it.headers.get("message_id").unwrap_or_default();
            *seen.entry(id.to_owned()).or_default() += 1;
        }
        seen.values().filter(|count| **count > 1).count()
    }

    /// Messages that nobody has acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        let state = self.state.lock().unwrap();
        state
            .queues
            .values()
            .map(|queue| queue.unacknowledged.len())
            .sum()
    }

    fn publish(&self, publication: Publication) -> Result<(), PublishErrorKind> {
        let mut state = self.state.lock().unwrap();
        state.log.push(publication.clone());
        let names: Vec<String> = state
            .queues
            .iter()
            .filter(|(_, queue)| queue.filter.fits(&publication.topic))
            .map(|(name, _)| name.clone())
            .collect();
        if names.is_empty() && publication.mandatory {
            return Err(PublishErrorKind::Unroutable {
                topic: publication.topic,
            });
        }
        for name in names {
            let message = Message {
                publication: publication.clone(),
                expires: publication.expiry.map(|expiry| Instant::now() + expiry),
                redelivered: false,
            };
            state
                .queues
                .get_mut(&name)
                .unwrap()
                .waiting
                .push_back(message);
            self.deliver(&mut state, &name);
        }
        Ok(())
    }

    fn deliver(&self, state: &mut State, name: &str) {
        let Some(up) = state.queues.get(name).map(|queue| Arc::clone(&queue.up)) else {
            return;
        };
        let mut given: usize = state
            .queues
            .values()
            .filter(|queue| Arc::ptr_eq(&queue.up, &up))
            .map(|queue| queue.unacknowledged.len())
            .sum();
        let next = &mut state.next;
        let queue = state.queues.get_mut(name).unwrap();
        if !queue.up.load(Ordering::SeqCst) {
            return;
        }
        let Some(consumer) = queue.consumer.clone() else {
            return;
        };
        while let Some(message) = queue.waiting.pop_front() {
            if given >= WINDOW {
                queue.waiting.push_front(message);
                return;
            }
            if message
                .expires
                .is_some_and(|expires| Instant::now() >= expires)
            {
                continue;
            }
            *next += 1;
            let tag = *next;
            // As on MQTT: what is not to be kept is not acknowledged.
            let is_kept = message.publication.persistence == Persistence::Persistent;
            let acknowledgement = (queue.durable && is_kept).then(|| {
                queue.unacknowledged.insert(tag, message.clone());
                given += 1;
                Box::new(Tag {
                    hub: self.clone(),
                    queue: name.to_owned(),
                    tag,
                }) as Box<dyn Acknowledge>
            });
            let delivery = Delivery {
                topic: message.publication.topic.clone(),
                content_type: message.publication.content_type.clone(),
                headers: message.publication.headers.clone(),
                body: message.publication.body.clone(),
                redelivered: message.redelivered,
                acknowledgement,
            };
            if consumer.try_send(delivery).is_err() {
                queue.unacknowledged.remove(&tag);
                queue.waiting.push_front(message);
                queue.consumer = None;
                return;
            }
        }
    }

    /// What a connection had not acknowledged comes again.
    fn give_back(&self, up: &Arc<AtomicBool>) {
        let mut state = self.state.lock().unwrap();
        for queue in state
            .queues
            .values_mut()
            .filter(|queue| Arc::ptr_eq(&queue.up, up))
        {
            let unacknowledged = std::mem::take(&mut queue.unacknowledged);
            for (_, mut message) in unacknowledged.into_iter().rev() {
                message.redelivered = true;
                queue.waiting.push_front(message);
            }
        }
    }
}

struct Tag {
    hub: Hub,
    queue: String,
    tag: u64,
}

impl Acknowledge for Tag {
    fn acknowledge(self: Box<Self>) {
        let mut state = self.hub.state.lock().unwrap();
        let Some(queue) = state.queues.get_mut(&self.queue) else {
            return;
        };
        queue.unacknowledged.remove(&self.tag);
        // There is room for one more, whichever of the connection's queues has it.
        let up = Arc::clone(&queue.up);
        let of_connection = |(_, queue): &(&String, &Kept)| Arc::ptr_eq(&queue.up, &up);
        let names: Vec<String> = state
            .queues
            .iter()
            .filter(of_connection)
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.hub.deliver(&mut state, &name);
        }
    }
}

pub(crate) struct Connection {
    hub: Hub,
    link: watch::Sender<Link>,
    up: Arc<AtomicBool>,
    loses_confirmations: AtomicBool,
    number: AtomicU64,
}

impl Connection {
    /// Cuts it: nothing goes or comes.
    pub(crate) fn cut(&self) {
        self.up.store(false, Ordering::SeqCst);
        let reason = Some("cut".into());
        self.link.send_replace(Link::Down {
            attempts: 1,
            reason,
            refused: false,
        });
    }

    /// It stands again; what was not acknowledged comes again.
    pub(crate) fn mend(&self) {
        self.hub.give_back(&self.up);
        self.up.store(true, Ordering::SeqCst);
        let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        self.link.send_replace(Link::Up {
            number,
            blocked: None,
        });
        let mut state = self.hub.state.lock().unwrap();
        let names: Vec<String> = state.queues.keys().cloned().collect();
        for name in names {
            self.hub.deliver(&mut state, &name);
        }
    }

    /// As if the process had been killed: its consumers are gone, its unacknowledged messages come again
    /// to whoever consumes next.
    pub(crate) fn kill(&self) {
        self.cut();
        self.hub.give_back(&self.up);
        let mut state = self.hub.state.lock().unwrap();
        for queue in state
            .queues
            .values_mut()
            .filter(|queue| Arc::ptr_eq(&queue.up, &self.up))
        {
            queue.consumer = None;
        }
        state
            .queues
            .retain(|_, queue| queue.durable || queue.consumer.is_some());
    }

    /// From now on messages arrive and their confirmations do not.
    pub(crate) fn lose_confirmations(&self, loses: bool) {
        self.loses_confirmations.store(loses, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Broker for Connection {
    fn publish(&self, message: Publication) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async move {
            if !self.up.load(Ordering::SeqCst) {
                let kind = PublishErrorKind::NotConnected { reason: None };
                return Err(PublishError::unsent(kind));
            }
            let taken = self.hub.publish(message);
            let loses = self.loses_confirmations.load(Ordering::SeqCst);
            // The confirmation comes later.
            tokio::task::yield_now().await;
            match taken {
                Ok(()) if loses => {
                    let reason = "lost".into();
                    Err(PublishError::unknown(PublishErrorKind::Lost { reason }))
                }
                Ok(()) => Ok(()),
                Err(kind) => Err(PublishError::unprocessed(kind)),
            }
        })
    }

    fn subscribe(&self, subscription: Subscription) -> Registration {
        let (to, from) = mpsc::channel(BACKLOG);
        let mut state = self.hub.state.lock().unwrap();
        let (name, durable) = match &subscription.queue {
            Queue::Durable(name) | Queue::Own { name, .. } => (name.to_string(), true),
            Queue::Transient => {
                state.next += 1;
                (format!("transient-{}", state.next), false)
            }
        };
        let kept = state.queues.entry(name.clone()).or_insert_with(|| Kept {
            filter: subscription.filter.clone(),
            durable,
            waiting: VecDeque::new(),
            unacknowledged: BTreeMap::new(),
            consumer: None,
            up: Arc::clone(&self.up),
        });
        kept.consumer = Some(to);
        kept.up = Arc::clone(&self.up);
        self.hub.deliver(&mut state, &name);
        Registration {
            deliveries: Deliveries::new(from),
            state: watch::Sender::new(SubscriptionState::Active).subscribe(),
        }
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.kill();
            self.link.send_replace(Link::Closed);
        })
    }
}
