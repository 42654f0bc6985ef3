//! MQTT 5 behind the broker port of Mainstay's message face.
//!
//! An [`MqttBroker`] keeps one connection up for ever, under one client id whose session the broker
//! keeps. Persistent messages go and come with quality of service 2, transient ones with 0, each lowered
//! to what the broker can do. A message that came is acknowledged when its [`Delivery`] is, and not
//! before; a publication is done when the broker has completed it (PUBCOMP, PUBACK), and is sent again
//! as MQTT demands when the connection breaks in between.
//!
//! It speaks the protocol itself. Of the clients that there are, each lacks something that the port
//! promises: rumqttc 0.25 forgets at a reconnect which messages it has taken (each comes twice), sends
//! unfinished publications into a new session, and tells nobody when one is done; its successor
//! rumqttc-v5-next gives repeated messages out again; mqtt5 0.49 acknowledges before anybody has seen
//! a message; mqtt-protocol-core 0.7 acknowledges a repeated message that nobody has acknowledged;
//! ntex-mqtt brings a runtime of its own. Their codecs make two strings of each header and copy each body.
//!
//! - `wire`: packets, to and from bytes.
//! - `session`: what MQTT remembers and answers, without sockets and clocks.
//! - `driver`: the one task that moves bytes between a socket and the session, and connects again.

mod acknowledgement;
mod broker;
mod driver;
mod end;
mod session;
mod settings;
mod wire;

pub use broker::MqttBroker;
pub use mainstay_transport::{Secret, SocketSettings};
pub use settings::{MqttSettings, SettingsError};

#[allow(unused_imports, reason = "named in the documentation")]
use mainstay_message::Delivery;
