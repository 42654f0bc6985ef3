//! Private brokers, and connections to them.

use std::fmt;
use std::sync::Arc;

use mainstay_amqp::{AmqpBroker, AmqpSettings};
use mainstay_engine::Chance;
use mainstay_engine::tasks::Tasks;
use mainstay_message::Broker;
use mainstay_mqtt::{MqttBroker, MqttSettings};
use mainstay_testkit::mosquitto::{self, Mosquitto, MosquittoOptions};
use mainstay_testkit::rabbitmq::{RabbitmqOptions, RabbitmqServer};

/// How the process that plays the proxy is told where its broker is.
pub(crate) const PLACE: &str = "MAINSTAY_BENCH_BROKER";

/// What a broker speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mqtt,
    Amqp,
}

impl Kind {
    pub(crate) const ALL: [Kind; 2] = [Kind::Mqtt, Kind::Amqp];

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.to_string() == word)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Mqtt => "mqtt",
            Kind::Amqp => "amqp",
        })
    }
}

/// A private broker; ends with its drop.
pub(crate) enum Private {
    Mqtt(Mosquitto),
    Amqp(RabbitmqServer),
}

pub(crate) async fn start(kind: Kind) -> Private {
    match kind {
        Kind::Mqtt => Private::Mqtt(Mosquitto::start(MosquittoOptions::new()).await.unwrap()),
        Kind::Amqp => {
            let broker = RabbitmqServer::start(RabbitmqOptions::new()).await.unwrap();
            broker.declare_exchange().await.unwrap();
            Private::Amqp(broker)
        }
    }
}

impl Private {
    pub(crate) fn place(&self) -> Place {
        match self {
            Private::Mqtt(broker) => Place {
                kind: Kind::Mqtt,
                port: broker.port(),
            },
            Private::Amqp(broker) => Place {
                kind: Kind::Amqp,
                port: broker.port(),
            },
        }
    }
}

/// Where a private broker is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    pub(crate) port: u16,
}

impl Place {
    pub(crate) fn from_environment() -> Option<Self> {
        let text = std::env::var(PLACE).ok()?;
        let (kind, port) = text.split_once(':')?;
        Some(Place {
            kind: Kind::parse(kind)?,
            port: port.parse().ok()?,
        })
    }

    /// A connection of its own.
    pub(crate) fn connect(self, name: &str, tasks: &Tasks) -> Arc<dyn Broker> {
        match self.kind {
            Kind::Mqtt => {
                let mut settings = MqttSettings::new("127.0.0.1", name);
                settings.port = self.port;
                settings.user = Some(mosquitto::USER.to_owned());
                settings.password = Some(Arc::new(|| Ok(mosquitto::PASSWORD.to_owned())));
                Arc::new(MqttBroker::open(settings, tasks, &Chance::seeded(1)).unwrap())
            }
            Kind::Amqp => {
                let mut settings = AmqpSettings::new("127.0.0.1", "guest");
                settings.port = self.port;
                settings.password = Some(Arc::new(|| Ok("guest".to_owned())));
                Arc::new(AmqpBroker::connect(settings, tasks))
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.port)
    }
}
