//! One connection in the hands of a check.

use std::sync::Arc;
use std::time::Duration;

use mainstay_message::{
    Broker, Deliveries, Delivery, Headers, Link, Publication, Queue, Registration, Subscription,
    SubscriptionState, Topic, TopicFilter,
};
use tokio::time::timeout;

use super::BrokerFixture;

/// Nothing here takes that long.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for a message that should not come to have come.
pub(super) const SILENCE: Duration = Duration::from_millis(400);

pub(super) struct Bench(pub(super) Arc<dyn Broker>);

impl Bench {
    /// A connection that is up.
    pub(super) async fn up(fixture: &dyn BrokerFixture, name: &str) -> Self {
        let bench = Bench(fixture.open(name));
        bench.await_up().await;
        bench
    }

    pub(super) async fn await_link(&self, what: &str, holds: impl Fn(&Link) -> bool) -> Link {
        let mut link = self.0.link();
        let waited = timeout(PATIENCE, link.wait_for(|link| holds(link))).await;
        match waited {
            Ok(link) => link.unwrap().clone(),
            Err(_) => panic!("the link is not {what}: {:?}", *self.0.link().borrow()),
        }
    }

    pub(super) async fn await_up(&self) -> Link {
        self.await_link("up", Link::is_up).await
    }

    pub(super) async fn await_down(&self) -> Link {
        self.await_link("down", |link| matches!(link, Link::Down { .. }))
            .await
    }

    /// A durable subscription whose messages come.
    pub(super) async fn durable(&self, filter: &str, queue: &str) -> Inbox {
        self.subscribed(filter, Queue::Durable(queue.into())).await
    }

    pub(super) async fn transient(&self, filter: &str) -> Inbox {
        self.subscribed(filter, Queue::Transient).await
    }

    async fn subscribed(&self, filter: &str, queue: Queue) -> Inbox {
        let inbox = self.subscribe(filter, queue, 64);
        inbox.await_active().await;
        inbox
    }

    pub(super) fn subscribe(&self, filter: &str, queue: Queue, backlog_max: usize) -> Inbox {
        Inbox::of(self.0.subscribe(Subscription {
            filter: TopicFilter::parse(filter).unwrap(),
            queue,
            backlog_max,
        }))
    }

    /// Publishes within the patience.
    pub(super) async fn publish(&self, message: Publication) {
        let published = timeout(PATIENCE, self.0.publish(message)).await;
        published.expect("it is confirmed soon").unwrap();
    }

    pub(super) async fn close(self) {
        timeout(PATIENCE, self.0.close()).await.unwrap();
    }
}

pub(super) struct Inbox {
    deliveries: Deliveries,
    state: tokio::sync::watch::Receiver<SubscriptionState>,
}

impl Inbox {
    fn of(registration: Registration) -> Self {
        Inbox {
            deliveries: registration.deliveries,
            state: registration.state,
        }
    }

    pub(super) async fn await_active(&self) {
        let mut state = self.state.clone();
        let active = state.wait_for(|state| *state == SubscriptionState::Active);
        timeout(PATIENCE, active)
            .await
            .unwrap_or_else(|_| panic!("not subscribed: {:?}", *self.state.borrow()))
            .unwrap();
    }

    /// The next message, which is there soon.
    pub(super) async fn next(&mut self) -> Delivery {
        let next = timeout(PATIENCE, self.deliveries.next()).await;
        next.expect("a message comes").expect("it is not closed")
    }

    /// The next message, acknowledged.
    pub(super) async fn take(&mut self) -> Delivery {
        let mut delivery = self.next().await;
        acknowledge(&mut delivery);
        delivery
    }

    /// Nothing comes for a while.
    pub(super) async fn assert_silent(&mut self) {
        let next = timeout(SILENCE, self.deliveries.next()).await;
        assert!(next.is_err(), "nothing should come: {next:?}");
    }

    /// It ends because the connection was closed.
    pub(super) async fn assert_ended(&mut self) {
        while let Some(left) = timeout(PATIENCE, self.deliveries.next()).await.unwrap() {
            drop(left);
        }
    }
}

pub(super) fn acknowledge(delivery: &mut Delivery) {
    let acknowledgement = delivery.acknowledgement.take();
    acknowledgement
        .expect("it waits to be acknowledged")
        .acknowledge();
}

/// A persistent message to a topic.
pub(super) fn message(topic: &str, body: impl Into<bytes::Bytes>) -> Publication {
    Publication::new(Topic::parse(topic).unwrap(), body)
}

pub(super) fn pairs(headers: &Headers) -> Vec<(String, String)> {
    let pairs = headers.iter();
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
