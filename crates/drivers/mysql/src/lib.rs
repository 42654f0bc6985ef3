//! MySQL and MariaDB behind the driver port of Mainstay's data face.
//!
//! A [`MysqlDriver`] opens sessions to one server. Statements are prepared once per session, values
//! travel in binary and come back exactly, a read-only session is kept read-only by the server itself,
//! and each error says whether the statement may have taken effect.
//!
//! It speaks the protocol itself. A conversation is a value that outlives the futures which read it, so
//! that a statement whose caller has left is stopped and its answer read to the end, and the session is
//! used again.

mod cancel;
mod catalog;
mod driver;
mod errors;
mod link;
mod position;
mod probe;
mod relayed;
mod session;
mod settings;
mod statement;
mod value;
mod verb;
mod wire;

pub use driver::MysqlDriver;
pub use mainstay_transport::{Keepalive, Secret, SocketSettings, TlsMode, TlsSettings};
pub use settings::MysqlSettings;
