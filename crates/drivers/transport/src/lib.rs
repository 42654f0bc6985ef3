//! What the drivers of database servers share: secrets that are read at each connect, TCP with its
//! options, and encryption with the checks that database users know by name.

mod reach;
mod settings;
mod socket;
mod tls;

pub use reach::reach;
pub use settings::{Keepalive, Secret, SocketSettings, TlsMode, TlsSettings};
pub use socket::open;
pub use tls::{Tls, TlsStream};
