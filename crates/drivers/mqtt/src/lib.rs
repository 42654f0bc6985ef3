//! MQTT 5 behind the broker port of Mainstay's message face.
//!
//! An [`MqttBroker`] keeps one connection up for ever, under one client id whose session the broker
//! keeps. Persistent messages go and come with quality of service 2, transient ones with 0, each lowered
//! to what the broker can do. A message that came is acknowledged when its
//! [`Delivery`](mainstay_message::Delivery) is, and not before; a publication is done when the broker has completed it (PUBCOMP, PUBACK), and is sent again
//! as MQTT demands when the connection breaks in between.
//!
//! It speaks the protocol itself. Of the clients that there are, each lacks something that the port
//! promises:
//!
//! - rumqttc 0.25 forgets at a reconnect which messages it has taken, so that each comes twice; drops
//!   unfinished publications when the session is gone, and tells nobody what became of one;
//! - rumqttc-v5-next 0.34 gives a message that its receiver still holds out again, and swallows another one
//!   whose identifier a broker uses again that was killed and goes on from an older state;
//! - mqtt5 0.49 sends acknowledgements in the order in which the messages came only, so that one that is held
//!   holds up all; refuses, instead of getting again, what is dropped; starts tasks that nobody can end;
//! - mqtt-protocol-core 0.7 acknowledges by itself a repeated message that no receiver has acknowledged;
//! - ntex-mqtt brings a runtime of its own.
//!
//! Their codecs make two strings of each header, or copy each body, or both.
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
