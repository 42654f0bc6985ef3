//! Where and how to connect.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainstay_transport::{Secret, SocketSettings};

/// One AMQP 0-9-1 broker, and as whom to log in.
#[derive(Clone)]
pub struct AmqpSettings {
    /// Name or address; a name is resolved at each connect and all its addresses are tried in turn.
    pub host: String,
    /// Port; 5672 by default.
    pub port: u16,
    /// Virtual host; `/` by default.
    pub vhost: String,
    /// User.
    pub user: String,
    /// Password; read at each connect. `None`: an empty one.
    pub password: Option<Arc<dyn Secret>>,
    /// The durable topic exchange that everything goes through; `intersect-messages` by default. It is declared where
    /// this user may, and must be there otherwise.
    pub exchange: String,
    /// How many messages of a subscription the broker gives before the first is acknowledged; 256 by default, at
    /// least 1.
    pub prefetch: u16,
    /// How many publications may be on their way without a confirmation; further ones wait. 1,024 by default, at
    /// least 1.
    pub in_flight_max: u16,
    /// A peer that says nothing for twice this time is gone; 10 s by default, whole seconds, at least 1 s.
    pub heartbeat: Duration,
    /// Limit of the whole connect: name, TCP and login; 10 s by default.
    pub connect_timeout: Duration,
    /// The first wait before another connection is tried; 100 ms by default. It doubles with each failure.
    pub backoff_min: Duration,
    /// The longest such wait; 5 s by default. Up to a fifth less is waited, by chance, so that many do not come at
    /// once.
    pub backoff_max: Duration,
    /// A message with a larger body is acknowledged, dropped and counted; 128 MiB by default, which is what RabbitMQ
    /// takes at most.
    pub body_max: usize,
    /// How the connection calls itself at the broker; `mainstay` by default.
    pub connection_name: String,
    /// How TCP notices that the peer is gone. No limit for unacknowledged bytes by default: a broker with an alarm
    /// reads nothing for as long as that lasts, and heartbeats tell it from one that is gone.
    pub socket: SocketSettings,
}

impl AmqpSettings {
    /// Settings with defaults.
    pub fn new(host: impl Into<String>, user: impl Into<String>) -> Self {
        AmqpSettings {
            host: host.into(),
            port: 5672,
            vhost: "/".into(),
            user: user.into(),
            password: None,
            exchange: "intersect-messages".into(),
            prefetch: 256,
            in_flight_max: 1024,
            heartbeat: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            body_max: 128 << 20,
            connection_name: "mainstay".into(),
            socket: SocketSettings {
                user_timeout: None,
                ..SocketSettings::default()
            },
        }
    }

    /// As the protocol counts it.
    pub(crate) fn heartbeat_seconds(&self) -> u16 {
        u16::try_from(self.heartbeat.as_secs())
            .unwrap_or(u16::MAX)
            .max(1)
    }

    pub(crate) fn prefetch(&self) -> u16 {
        self.prefetch.max(1)
    }
}

impl fmt::Debug for AmqpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("vhost", &self.vhost)
            .field("user", &self.user)
            .field("exchange", &self.exchange)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_reads_nothing_for_long_keeps_its_connection() {
        let socket = AmqpSettings::new("host", "user").socket;
        assert_eq!(socket.user_timeout, None);
    }
}
