//! A private broker and connections to it.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::chance::Chance;
use mainstay_engine::tasks::Tasks;
use mainstay_message::{
    Broker, Delivery, Link, Publication, Queue, Registration, Subscription, SubscriptionState,
    Topic, TopicFilter,
};
use mainstay_mqtt::{MqttBroker, MqttSettings};
use mainstay_testkit::mosquitto::{Mosquitto, MosquittoOptions, PASSWORD, USER};
use tokio::time::timeout;

/// Nothing here takes that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct World {
    pub(crate) broker: Mosquitto,
    pub(crate) tasks: Tasks,
}

impl World {
    pub(crate) async fn new(options: MosquittoOptions) -> Self {
        World {
            broker: Mosquitto::start(options).await.unwrap(),
            tasks: Tasks::new(),
        }
    }

    /// Settings whose waits are short.
    pub(crate) fn settings(&self, name: &str) -> MqttSettings {
        settings(self.broker.port(), name)
    }

    pub(crate) fn open(&self, name: &str) -> MqttBroker {
        self.open_with(self.settings(name))
    }

    pub(crate) fn open_with(&self, settings: MqttSettings) -> MqttBroker {
        open(settings, &self.tasks)
    }

    /// A connection that is up.
    pub(crate) async fn up(&self, name: &str) -> MqttBroker {
        let client = self.open(name);
        await_up(&client).await;
        client
    }
}

pub(crate) fn open(settings: MqttSettings, tasks: &Tasks) -> MqttBroker {
    MqttBroker::open(settings, tasks, &Chance::seeded(1)).unwrap()
}

/// Settings for a broker at this port whose waits are short.
pub(crate) fn settings(port: u16, name: &str) -> MqttSettings {
    let mut settings = MqttSettings::new("127.0.0.1", name);
    settings.port = port;
    settings.user = Some(USER.to_owned());
    settings.password = Some(Arc::new(|| Ok(PASSWORD.to_owned())));
    settings.answer_timeout = Duration::from_secs(1);
    settings.reconnect_max = Duration::from_millis(500);
    settings
}

/// Waits for a state of the connection.
pub(crate) async fn await_link(client: &MqttBroker, holds: impl Fn(&Link) -> bool) -> Link {
    let mut link = client.link();
    match timeout(PATIENCE, link.wait_for(|link| holds(link))).await {
        Ok(link) => link.unwrap().clone(),
        Err(_) => panic!("the link stays {:?}", *client.link().borrow()),
    }
}

pub(crate) async fn await_up(client: &MqttBroker) -> u64 {
    match await_link(client, Link::is_up).await {
        Link::Up { number, .. } => number,
        other => panic!("{other:?}"),
    }
}

/// A durable subscription whose messages come.
pub(crate) async fn durable(client: &MqttBroker, filter: &str) -> Registration {
    let registration = client.subscribe(Subscription {
        filter: TopicFilter::parse(filter).unwrap(),
        queue: Queue::Durable(filter.into()),
        backlog_max: 16,
    });
    let mut state = registration.state.clone();
    let active = state.wait_for(|state| *state == SubscriptionState::Active);
    timeout(PATIENCE, active).await.unwrap().unwrap();
    registration
}

/// The next message.
pub(crate) async fn next(inbox: &mut Registration) -> Delivery {
    let next = timeout(PATIENCE, inbox.deliveries.next()).await;
    next.expect("a message comes").unwrap()
}

/// The next message, acknowledged.
pub(crate) async fn take(inbox: &mut Registration) -> Delivery {
    let mut delivery = next(inbox).await;
    delivery.acknowledgement.take().unwrap().acknowledge();
    delivery
}

pub(crate) async fn assert_silent(inbox: &mut Registration) {
    let next = timeout(Duration::from_millis(300), inbox.deliveries.next()).await;
    assert!(next.is_err(), "nothing should come: {next:?}");
}

pub(crate) fn message(topic: &str, body: impl Into<bytes::Bytes>) -> Publication {
    Publication::new(Topic::parse(topic).unwrap(), body)
}

/// Publishes within the patience.
pub(crate) async fn publish(client: &MqttBroker, message: Publication) {
    let published = timeout(PATIENCE, client.publish(message)).await;
    published.expect("it is confirmed soon").unwrap();
}
