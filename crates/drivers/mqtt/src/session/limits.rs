//! What the broker of this connection can take.

use std::time::Duration;

use crate::settings::MqttSettings;
use crate::wire::{Qos, Welcome};

/// What the broker of this connection can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) qos_max: Qos,
    /// Bytes of a packet.
    pub(crate) packet_max: usize,
    /// Publications that are not done.
    pub(crate) quota: u16,
    /// Silence that the broker bears; `None`: any.
    pub(crate) keep_alive: Option<Duration>,
}

impl Limits {
    pub(crate) fn of(welcome: &Welcome, settings: &MqttSettings) -> Self {
        let packet_max = welcome.packet_max.and_then(|max| usize::try_from(max).ok());
        let keep_alive = welcome.keep_alive.unwrap_or(settings.keep_alive_seconds());
        Limits {
            qos_max: welcome.qos_max,
            packet_max: packet_max.unwrap_or(usize::MAX),
            quota: welcome.receive_max.min(settings.in_flight_max),
            keep_alive: (keep_alive > 0).then(|| Duration::from_secs(keep_alive.into())),
        }
    }
}
