//! AMQP 0-9-1 (RabbitMQ) for Mainstay's message face.
//!
//! The protocol is spoken here and not by a library: those that there are run threads or tasks of their own, and
//! queue without a bound. What is decided
//! is decided by `session`, a machine without sockets; `connection` moves its bytes, `keeper` connects again.

mod broker;
mod connection;
mod keeper;
mod session;
mod settings;
mod shared;
mod waiting;
mod wire;

pub use broker::AmqpBroker;
pub use settings::AmqpSettings;
pub use shared::Oddities;
