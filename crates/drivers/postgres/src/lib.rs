//! PostgreSQL behind the driver port of Mainstay's data face.
//!
//! A [`PostgresDriver`] opens sessions to one server. Statements are prepared once per session, values
//! travel in binary and come back exactly, a read-only session is kept read-only by the server itself,
//! and each error says whether the statement may have taken effect.

mod cancel;
mod catalog;
mod decode;
mod driver;
mod encode;
mod errors;
mod link;
mod probe;
mod session;
mod settings;
mod statement;
mod text;
mod tls;
mod verb;
mod watched;

pub use driver::PostgresDriver;
pub use mainstay_transport::{Keepalive, Secret, SocketSettings, TlsMode, TlsSettings};
pub use settings::PostgresSettings;
