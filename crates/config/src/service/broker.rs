//! `[services.NAME.brokers.NAME]`: where a broker is and how to log in there.

use std::sync::Arc;
use std::time::Duration;

use super::field::{Field, Marks, Value, put, some};
use crate::connection::{filled, port, secret};
use crate::problem::{Findings, Wrong};
use crate::scalar::{self, within};
use crate::secret::Secret;
use crate::tree::{Node, join};
use crate::words::words;

words! {
    /// What a broker speaks.
    BrokerProtocol {
        /// MQTT 5.
        Mqtt5 = "mqtt5",
        /// AMQP 0-9-1.
        Amqp091 = "amqp091",
    }
}

impl BrokerProtocol {
    /// The port that its brokers usually listen at.
    pub fn port(self) -> u16 {
        match self {
            BrokerProtocol::Mqtt5 => 1883,
            BrokerProtocol::Amqp091 => 5672,
        }
    }

    /// MQTT asks after silence; AMQP counts two of its heartbeats.
    fn keep_alive(self) -> Duration {
        match self {
            BrokerProtocol::Mqtt5 => Duration::from_secs(30),
            BrokerProtocol::Amqp091 => Duration::from_secs(10),
        }
    }

    /// RabbitMQ may take seconds to answer a login while it starts.
    fn connect_timeout(self) -> Duration {
        match self {
            BrokerProtocol::Mqtt5 => Duration::from_secs(5),
            BrokerProtocol::Amqp091 => Duration::from_secs(10),
        }
    }
}

/// A broker, and how to log in there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerSettings {
    /// What it speaks.
    pub protocol: BrokerProtocol,
    /// Its name or address.
    pub host: String,
    /// Its port. Default that of the protocol.
    pub port: u16,
    /// Whom to log in as; `None`: nobody in particular.
    pub user: Option<String>,
    /// Read anew at each connect.
    pub password: Option<Secret>,
    /// The virtual host (AMQP). Default `/`.
    pub vhost: String,
    /// The client id (MQTT), the same after every start, so that the broker keeps what came meanwhile;
    /// `None`: made from the service's `caller`.
    pub client_id: Option<String>,
    /// The durable topic exchange that everything goes through (AMQP). Default `intersect-messages`.
    pub exchange: String,
    /// Signs of life between both ends at least so often. Default 30 s for MQTT, 10 s for AMQP.
    pub keep_alive: Duration,
    /// How long connecting and logging in may take. Default 5 s for MQTT, 10 s for AMQP.
    pub connect_timeout: Duration,
    /// The longest wait before a connection is tried again. Default 5 s.
    pub reconnect_max: Duration,
    /// Deliveries that may be unacknowledged at once (AMQP: prefetch, MQTT: receive maximum).
    /// Default 256.
    pub prefetch: u16,
    /// Publications that may be unconfirmed at once (MQTT). Default 1,024.
    pub in_flight_max: u16,
    /// How long the broker keeps what comes while the connection is gone (MQTT). Default 1 h.
    pub session_expiry: Duration,
}

/// A broker as it is written.
#[derive(Debug, Clone)]
pub(crate) struct BrokerDraft {
    pub(crate) name: Arc<str>,
    protocol: Option<BrokerProtocol>,
    host: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    password: Option<Secret>,
    vhost: Option<String>,
    client_id: Option<String>,
    exchange: Option<String>,
    keep_alive: Option<Duration>,
    connect_timeout: Option<Duration>,
    reconnect_max: Duration,
    prefetch: u16,
    in_flight_max: u16,
    session_expiry: Duration,
}

/// What the SDK calls it.
const EXCHANGE: &str = "intersect-messages";
/// A broker that comes back is found soon, and one that is down is not hammered.
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// More than a broker confirms in the time of a round trip.
const IN_FLIGHT_MAX: u16 = 1024;
/// More than one, so that a slow handler holds up no other delivery.
const PREFETCH: u16 = 256;
/// Long enough for a restart of either end, short enough not to fill a broker for ever.
const SESSION_EXPIRY: Duration = Duration::from_secs(3600);

const KEEP_ALIVES: &str = "from 1s to 10min";
const CONNECTS: &str = "from 10ms to 5min";
const PREFETCHES: &str = "from 2 to 65535";
const RECONNECTS: &str = "from 100ms to 5min";
const IN_FLIGHT: &str = "from 1 to 32767";
const EXPIRIES: &str = "from 1s to 30d";

/// Every key of a broker.
pub(crate) const FIELDS: &[Field<BrokerDraft>] = &[
    Field::<BrokerDraft>::new(
        "protocol",
        "\"mqtt5\"",
        "mqtt5 or amqp091; the SDK's words mqtt5.0 and amqp0.9.1 do too",
        |draft, value| some(&mut draft.protocol, protocol(value.node)),
    ),
    Field::<BrokerDraft>::new(
        "host",
        "\"broker.internal\"",
        "name or address of the broker",
        |draft, value| some(&mut draft.host, filled(value.node)),
    ),
    Field::<BrokerDraft>::new(
        "port",
        "1883",
        "its port; default 1883 for mqtt5, 5672 for amqp091",
        |draft, value| some(&mut draft.port, port(value.node)),
    )
    .bounds("from 1 to 65535"),
    Field::<BrokerDraft>::new(
        "user",
        "\"mainstay\"",
        "whom to log in as; default nobody",
        |draft, value| some(&mut draft.user, filled(value.node)),
    ),
    Field::<BrokerDraft>::new(
        "password",
        "\"env:BROKER_PASSWORD\"",
        "env:NAME or file:PATH",
        |draft, value| some(&mut draft.password, secret(value.node, value.secrets)),
    ),
    Field::<BrokerDraft>::new(
        "vhost",
        "\"/\"",
        "the virtual host (amqp091)",
        |draft, value| some(&mut draft.vhost, filled(value.node)),
    ),
    Field::<BrokerDraft>::new(
        "exchange",
        "\"intersect-messages\"",
        "the durable topic exchange that everything goes through (amqp091)",
        |draft, value| some(&mut draft.exchange, short(value.node)),
    ),
    Field::<BrokerDraft>::new(
        "client_id",
        "\"compute-proxy\"",
        "the client id (mqtt5), one for each connection to a broker; default made from caller",
        |draft, value| some(&mut draft.client_id, short(value.node)),
    ),
    Field::<BrokerDraft>::new(
        "keep_alive",
        "\"30s\"",
        "a connection without a sign of life is lost; default 30s for mqtt5, 10s for amqp091",
        |draft, value| some(&mut draft.keep_alive, keep_alive(value)),
    )
    .bounds(KEEP_ALIVES),
    Field::<BrokerDraft>::new(
        "connect_timeout",
        "\"5s\"",
        "for connecting and logging in; default 5s for mqtt5, 10s for amqp091",
        |draft, value| {
            let bounds = Duration::from_millis(10)..=Duration::from_secs(300);
            let read = scalar::time(value.node).and_then(|time| within(time, bounds, CONNECTS));
            some(&mut draft.connect_timeout, read)
        },
    )
    .bounds(CONNECTS),
    Field::<BrokerDraft>::new(
        "reconnect_max",
        "\"5s\"",
        "the longest wait before a connection is tried again",
        |draft, value| {
            let bounds = Duration::from_millis(100)..=Duration::from_secs(300);
            let read = scalar::time(value.node).and_then(|time| within(time, bounds, RECONNECTS));
            put(&mut draft.reconnect_max, read)
        },
    )
    .bounds(RECONNECTS),
    Field::<BrokerDraft>::new(
        "prefetch",
        "256",
        "deliveries without an acknowledgement at once",
        |draft, value| {
            put(
                &mut draft.prefetch,
                number(value.node, 2, u16::MAX, PREFETCHES),
            )
        },
    )
    .bounds(PREFETCHES),
    Field::<BrokerDraft>::new(
        "in_flight_max",
        "1024",
        "publications without a confirmation at once (mqtt5)",
        |draft, value| {
            put(
                &mut draft.in_flight_max,
                number(value.node, 1, 32_767, IN_FLIGHT),
            )
        },
    )
    .bounds(IN_FLIGHT),
    Field::<BrokerDraft>::new(
        "session_expiry",
        "\"1h\"",
        "how long the broker keeps what comes while the connection is gone (mqtt5)",
        |draft, value| {
            let bounds = Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600);
            let read = scalar::time(value.node).and_then(|time| within(time, bounds, EXPIRIES));
            put(&mut draft.session_expiry, read)
        },
    )
    .bounds(EXPIRIES),
];

/// Keys that say something to one protocol alone.
const OF_MQTT: &[&str] = &["client_id", "session_expiry"];
const OF_AMQP: &[&str] = &["vhost", "exchange"];

fn protocol(node: &Node) -> Result<BrokerProtocol, Wrong> {
    let word = scalar::text(node)?;
    match word.as_str() {
        // What the SDK calls them.
        "mqtt5.0" => return Ok(BrokerProtocol::Mqtt5),
        "amqp0.9.1" => return Ok(BrokerProtocol::Amqp091),
        "mqtt3.1.1" | "mqtt" => {
            return Err(Wrong::new(format!("{word} is not spoken")).hint("mqtt5 or amqp091"));
        }
        _ => {}
    }
    let words: Vec<&str> = BrokerProtocol::ALL.iter().map(|one| one.as_str()).collect();
    let word = scalar::choice("protocol", &words, node)?;
    BrokerProtocol::parse(&word).ok_or_else(|| "mqtt5 or amqp091".into())
}

/// A name as both protocols take it.
fn short(node: &Node) -> Result<String, Wrong> {
    let text = filled(node)?;
    match text.len() <= 128 {
        true => Ok(text),
        false => Err(Wrong::new("is longer than 128 bytes").hint("a shorter one")),
    }
}

fn keep_alive(value: Value<'_>) -> Result<Duration, Wrong> {
    let bounds = Duration::from_secs(1)..=Duration::from_secs(600);
    within(scalar::time(value.node)?, bounds, KEEP_ALIVES)
}

fn number(node: &Node, least: u16, most: u16, hint: &str) -> Result<u16, Wrong> {
    let count = within(scalar::count(node)?, least.into()..=most.into(), hint)?;
    u16::try_from(count).map_err(|_| Wrong::new("is out of bounds").hint(hint))
}

impl BrokerDraft {
    pub(super) fn new(name: &str) -> Self {
        BrokerDraft {
            name: name.into(),
            protocol: None,
            host: None,
            port: None,
            user: None,
            password: None,
            vhost: None,
            client_id: None,
            exchange: None,
            keep_alive: None,
            connect_timeout: None,
            reconnect_max: RECONNECT_MAX,
            prefetch: PREFETCH,
            in_flight_max: IN_FLIGHT_MAX,
            session_expiry: SESSION_EXPIRY,
        }
    }

    pub(super) fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// The settings; what is missing or says nothing to the protocol is told.
    pub(super) fn settings(
        &self,
        (marks, base, whole): (&Marks, &str, &crate::mark::Mark),
        findings: &mut Findings,
    ) -> Option<BrokerSettings> {
        let at = format!("brokers.{}", self.name);
        let mark = marks.near(&at, whole);
        for (name, hint) in [
            ("protocol", "protocol = \"mqtt5\" or \"amqp091\""),
            ("host", "host = \"127.0.0.1\""),
        ] {
            if !marks.has(&join(&at, name)) {
                let wrong = Wrong::new(format!("no {name}")).hint(hint);
                findings.error(mark, join(base, &at), wrong);
            }
        }
        let protocol = self.protocol?;
        if protocol == BrokerProtocol::Amqp091 && !marks.has(&join(&at, "user")) {
            let wrong = Wrong::new("no user, and amqp091 has no login without one");
            findings.error(mark, join(base, &at), wrong.hint("user = \"mainstay\""));
        }
        let foreign = match protocol {
            BrokerProtocol::Mqtt5 => OF_AMQP,
            BrokerProtocol::Amqp091 => OF_MQTT,
        };
        for name in foreign {
            let at = join(&at, name);
            if let Some(mark) = marks.get(&at) {
                let wrong = Wrong::new(format!("says nothing to {protocol}"));
                findings.error(mark, join(base, &at), wrong.hint("leave the key out"));
            }
        }
        Some(BrokerSettings {
            protocol,
            host: self.host.clone()?,
            port: self.port.unwrap_or(protocol.port()),
            user: self.user.clone(),
            password: self.password.clone(),
            vhost: self.vhost.clone().unwrap_or_else(|| "/".to_owned()),
            client_id: self.client_id.clone(),
            exchange: self.exchange.clone().unwrap_or_else(|| EXCHANGE.to_owned()),
            keep_alive: self.keep_alive.unwrap_or(protocol.keep_alive()),
            connect_timeout: self.connect_timeout.unwrap_or(protocol.connect_timeout()),
            reconnect_max: self.reconnect_max,
            prefetch: self.prefetch,
            in_flight_max: self.in_flight_max,
            session_expiry: self.session_expiry,
        })
    }
}
