//! One private broker and connections to it.

use std::sync::Arc;
use std::time::Duration;

use mainstay_amqp::{AmqpBroker, AmqpSettings};
use mainstay_engine::BoxFuture;
use mainstay_engine::tasks::Tasks;
use mainstay_message::{
    Broker, Delivery, Link, Publication, Queue, Registration, Subscription, SubscriptionState,
    Topic, TopicFilter,
};
use mainstay_testkit::conformance::broker::BrokerFixture;
use mainstay_testkit::rabbitmq::{RabbitmqOptions, RabbitmqServer};
use tokio::time::timeout;

/// Nothing here takes that long.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Fixture {
    pub(super) server: RabbitmqServer,
    pub(super) tasks: Tasks,
}

impl Fixture {
    pub(super) async fn start() -> Self {
        Self::with(RabbitmqOptions::new()).await
    }

    pub(super) async fn with(options: RabbitmqOptions) -> Self {
        Fixture {
            server: RabbitmqServer::start(options).await.unwrap(),
            tasks: Tasks::new(),
        }
    }

    pub(super) fn connect(&self, settings: AmqpSettings) -> AmqpBroker {
        AmqpBroker::connect(settings, &self.tasks)
    }

    pub(super) fn settings(&self) -> AmqpSettings {
        settings(self.server.port(), "guest", "guest")
    }

    pub(super) async fn up(&self) -> AmqpBroker {
        let broker = self.connect(self.settings());
        await_link(&broker, "up", Link::is_up).await;
        broker
    }
}

pub(super) fn settings(port: u16, user: &str, password: &'static str) -> AmqpSettings {
    AmqpSettings {
        port,
        password: Some(Arc::new(move || Ok(password.to_owned()))),
        // A broker that falls silent is left after two seconds.
        heartbeat: Duration::from_secs(1),
        backoff_max: Duration::from_millis(400),
        ..AmqpSettings::new("127.0.0.1", user)
    }
}

pub(super) async fn await_link(
    broker: &AmqpBroker,
    what: &str,
    holds: impl Fn(&Link) -> bool,
) -> Link {
    let mut link = broker.link();
    let waited = timeout(PATIENCE, link.wait_for(|link| holds(link))).await;
    match waited {
        Ok(link) => link.unwrap().clone(),
        Err(_) => panic!("the link is not {what}: {broker:?}"),
    }
}

pub(super) fn durable(
    broker: &AmqpBroker,
    filter: &str,
    queue: &str,
    backlog_max: usize,
) -> Registration {
    broker.subscribe(Subscription {
        filter: TopicFilter::parse(filter).unwrap(),
        queue: Queue::Durable(queue.into()),
        backlog_max,
    })
}

pub(super) async fn await_state(
    registration: &Registration,
    holds: impl Fn(&SubscriptionState) -> bool,
) -> SubscriptionState {
    let mut state = registration.state.clone();
    let waited = timeout(PATIENCE, state.wait_for(|state| holds(state))).await;
    match waited {
        Ok(state) => state.unwrap().clone(),
        Err(_) => panic!(
            "the subscription is still {:?}",
            *registration.state.borrow()
        ),
    }
}

pub(super) async fn await_active(registration: &Registration) {
    await_state(registration, |state| *state == SubscriptionState::Active).await;
}

pub(super) async fn next(registration: &mut Registration) -> Delivery {
    let next = timeout(PATIENCE, registration.deliveries.next()).await;
    next.expect("a message comes").expect("it is not closed")
}

pub(super) fn acknowledge(delivery: Delivery) {
    delivery
        .acknowledgement
        .expect("it waits to be acknowledged")
        .acknowledge();
}

pub(super) fn message(topic: &str, body: impl Into<bytes::Bytes>) -> Publication {
    Publication::new(Topic::parse(topic).unwrap(), body)
}

impl BrokerFixture for Fixture {
    fn open(&self, _name: &str) -> Arc<dyn Broker> {
        Arc::new(self.connect(self.settings()))
    }

    fn open_unwelcome(&self) -> Arc<dyn Broker> {
        Arc::new(self.connect(settings(self.server.port(), "guest", "wrong")))
    }

    fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.server.kill9().await.unwrap() })
    }

    fn start(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.server.start_again().await.unwrap() })
    }

    fn freeze(&self) {
        self.server.sigstop().unwrap();
    }

    fn thaw(&self) {
        self.server.sigcont().unwrap();
    }
}
