//! Peers that speak as the SDK does, over the drivers themselves: fast enough to load the program, gone in an
//! instant, and free to send what the SDK would not.

#[path = "peers/client.rs"]
mod client;
#[path = "peers/worker.rs"]
mod worker;

use std::sync::Arc;
use std::time::Duration;

use mainstay_amqp::{AmqpBroker, AmqpSettings};
use mainstay_engine::Chance;
use mainstay_engine::tasks::Tasks;
use mainstay_message::Broker;
use mainstay_message::envelope::fresh_id;
use mainstay_mqtt::{MqttBroker, MqttSettings};
use mainstay_testkit::mosquitto;

pub(super) use client::{Client, Ledger};
pub(super) use worker::{Work, Worker, answer};

use super::world;

/// The version of the wire that they speak.
pub(super) const VERSION: &str = "0.9.6";

/// One connection of a peer.
pub(super) struct Line {
    pub(super) broker: Arc<dyn Broker>,
    pub(super) tasks: Tasks,
}

impl Line {
    /// Connects. On MQTT what comes while the connection is lost is kept for so long; workers of the SDK have no
    /// time of that.
    pub(super) fn open(broker: &world::Broker, kept: Duration) -> Self {
        Self::open_as(broker, &format!("peer-{}", fresh_id()), kept)
    }

    /// Connects under a client id.
    pub(super) fn open_as(broker: &world::Broker, client_id: &str, kept: Duration) -> Self {
        let tasks = Tasks::new();
        let connected: Arc<dyn Broker> = match broker {
            world::Broker::Mqtt(broker) => {
                let mut settings = MqttSettings::new("127.0.0.1", client_id);
                settings.port = broker.port();
                settings.user = Some(mosquitto::USER.into());
                settings.password = Some(Arc::new(|| Ok(mosquitto::PASSWORD.to_owned())));
                // As much as comes: what a broker keeps back it may drop.
                settings.receive_max = 20_000;
                settings.session_expiry = kept;
                settings.reconnect_max = Duration::from_millis(500);
                let opened = MqttBroker::open(settings, &tasks, &Chance::from_entropy());
                Arc::new(opened.unwrap())
            }
            world::Broker::Amqp(broker) => {
                let mut settings = AmqpSettings::new("127.0.0.1", "guest");
                settings.port = broker.port();
                settings.password = Some(Arc::new(|| Ok("guest".to_owned())));
                settings.backoff_max = Duration::from_millis(500);
                Arc::new(AmqpBroker::connect(settings, &tasks))
            }
        };
        Line {
            broker: connected,
            tasks,
        }
    }
}

impl Drop for Line {
    /// Without a goodbye, as after `kill -9`.
    fn drop(&mut self) {
        self.tasks.stop();
    }
}
