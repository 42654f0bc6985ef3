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
    /// Signs of life between both ends at least so often. Default 30 s.
    pub keep_alive: Duration,
    /// How long connecting and logging in may take. Default 5 s.
    pub connect_timeout: Duration,
    /// Deliveries that may be unacknowledged at once (AMQP: prefetch, MQTT: receive maximum).
    /// Default 256.
    pub prefetch: u16,
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
    keep_alive: Duration,
    connect_timeout: Duration,
    prefetch: u16,
    session_expiry: Duration,
}

/// A connection that is lost is noticed within the time in which people get impatient.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Longer than a broker on another continent needs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// More than one, so that a slow handler holds up no other delivery.
const PREFETCH: u16 = 256;
/// Long enough for a restart of either end, short enough not to fill a broker for ever.
const SESSION_EXPIRY: Duration = Duration::from_secs(3600);

const KEEP_ALIVES: &str = "from 1s to 10min";
const CONNECTS: &str = "from 10ms to 5min";
const PREFETCHES: &str = "from 2 to 65535";
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
        "client_id",
        "\"compute-proxy\"",
        "the client id (mqtt5), one for each connection to a broker; default made from caller",
        |draft, value| some(&mut draft.client_id, client_id(value.node)),
    ),
    Field::<BrokerDraft>::new(
        "keep_alive",
        "\"30s\"",
        "a connection without a sign of life is lost",
        |draft, value| put(&mut draft.keep_alive, keep_alive(value)),
    )
    .bounds(KEEP_ALIVES),
    Field::<BrokerDraft>::new(
        "connect_timeout",
        "\"5s\"",
        "for connecting and logging in",
        |draft, value| {
            let bounds = Duration::from_millis(10)..=Duration::from_secs(300);
            let read = scalar::time(value.node).and_then(|time| within(time, bounds, CONNECTS));
            put(&mut draft.connect_timeout, read)
        },
    )
    .bounds(CONNECTS),
    Field::<BrokerDraft>::new(
        "prefetch",
        "256",
        "deliveries without an acknowledgement at once",
        |draft, value| put(&mut draft.prefetch, prefetch(value.node)),
    )
    .bounds(PREFETCHES),
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
const OF_AMQP: &[&str] = &["vhost"];

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

fn client_id(node: &Node) -> Result<String, Wrong> {
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

fn prefetch(node: &Node) -> Result<u16, Wrong> {
    let count = within(scalar::count(node)?, 2..=65_535, PREFETCHES)?;
    u16::try_from(count).map_err(|_| Wrong::new("is out of bounds").hint(PREFETCHES))
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
            keep_alive: KEEP_ALIVE,
            connect_timeout: CONNECT_TIMEOUT,
            prefetch: PREFETCH,
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
            keep_alive: self.keep_alive,
            connect_timeout: self.connect_timeout,
            prefetch: self.prefetch,
            session_expiry: self.session_expiry,
        })
    }
}
