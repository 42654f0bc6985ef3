//! Where and how to connect.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainstay_transport::{Secret, SocketSettings};

/// The longest client id, user or password that MQTT can write.
const TEXT_MAX: usize = u16::MAX as usize;

/// One MQTT 5 broker, and as whom to connect.
#[derive(Clone)]
pub struct MqttSettings {
    /// Name or address; a name is resolved at each connect and all its addresses are tried in turn.
    pub host: String,
    /// Port; 1883 by default.
    pub port: u16,
    /// Client id: the name of the session at the broker. The same over restarts, and nobody else's: of
    /// two clients with one id the broker throws out the older. Never empty.
    pub client_id: String,
    /// User; `None`: anonymous.
    pub user: Option<String>,
    /// Password; read at each connect.
    pub password: Option<Arc<dyn Secret>>,
    /// Silence after which the broker is asked whether it is there; 30 s by default: a broker that is
    /// gone without a word is noticed after at most this and [`answer_timeout`](Self::answer_timeout),
    /// and sooner while an answer is due; the broker notices us after one and a half times it. A broker
    /// may set another. At most 65,535 s, in whole seconds; zero: never.
    pub keep_alive: Duration,
    /// How long the broker keeps the session, with its subscriptions and messages, while we are away; 1 h
    /// by default, in whole seconds. From `u32::MAX` seconds on: for ever. Zero: it ends with the
    /// connection.
    pub session_expiry: Duration,
    /// Persistent messages that the broker may give before the first of them is acknowledged; 256 by
    /// default, at least 1.
    pub receive_max: u16,
    /// Publications that may be unconfirmed at once, where the broker allows as many; 1,024 by default, 1
    /// to 32,767.
    pub in_flight_max: u16,
    /// The largest packet that is taken; 32 MiB by default. The broker is told, and drops what is larger.
    /// At least 1 KiB, at most 256 MiB.
    pub packet_max: usize,
    /// Limit of name and TCP of a connect; 5 s by default.
    pub connect_timeout: Duration,
    /// How long an answer that is due may take until the broker counts as gone; 10 s by default.
    pub answer_timeout: Duration,
    /// The longest wait before a connect is tried again; 5 s by default. The first is 100 ms, each twice
    /// the one before.
    pub reconnect_max: Duration,
    /// How TCP notices that the peer is gone.
    pub socket: SocketSettings,
}

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A text that is missing or too long.
    #[error("{setting} of a broker has {least} to {TEXT_MAX} bytes, not {got}")]
    Text {
        /// Which.
        setting: &'static str,
        /// The least length.
        least: usize,
        /// Its length.
        got: usize,
    },
    /// A number out of its bounds.
    #[error("{setting} of a broker is {least} to {most}, not {got}")]
    Number {
        /// Which.
        setting: &'static str,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
        /// What was given.
        got: u64,
    },
}

impl MqttSettings {
    /// Settings with defaults.
    pub fn new(host: impl Into<String>, client_id: impl Into<String>) -> Self {
        MqttSettings {
            host: host.into(),
            port: 1883,
            client_id: client_id.into(),
            user: None,
            password: None,
            keep_alive: Duration::from_secs(30),
            session_expiry: Duration::from_secs(3600),
            receive_max: 256,
            in_flight_max: 1024,
            packet_max: 32 * 1024 * 1024,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(10),
            reconnect_max: Duration::from_secs(5),
            socket: SocketSettings::default(),
        }
    }

    /// Checks what no broker would take.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn check(&self) -> Result<(), SettingsError> {
        let user = self.user.as_deref().unwrap_or_default();
        for (setting, text, least) in [
            ("client_id", self.client_id.as_str(), 1),
            ("user", user, 0),
            ("host", self.host.as_str(), 1),
        ] {
            if text.len() < least || text.len() > TEXT_MAX {
                return Err(SettingsError::Text {
                    setting,
                    least,
                    got: text.len(),
                });
            }
        }
        for (setting, got, least, most) in [
            (
                "keep_alive in seconds",
                self.keep_alive.as_secs(),
                0,
                65_535,
            ),
            ("receive_max", u64::from(self.receive_max), 1, 65_535),
            ("in_flight_max", u64::from(self.in_flight_max), 1, 32_767),
            ("packet_max", self.packet_max as u64, 1024, 256 << 20),
        ] {
            if got < least || got > most {
                return Err(SettingsError::Number {
                    setting,
                    least,
                    most,
                    got,
                });
            }
        }
        Ok(())
    }

    /// As MQTT writes it.
    pub(crate) fn session_expiry_seconds(&self) -> u32 {
        u32::try_from(self.session_expiry.as_secs()).unwrap_or(u32::MAX)
    }

    /// As MQTT writes it, after [`check`](Self::check).
    pub(crate) fn keep_alive_seconds(&self) -> u16 {
        u16::try_from(self.keep_alive.as_secs()).unwrap_or(u16::MAX)
    }
}

impl fmt::Debug for MqttSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("client_id", &self.client_id)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
