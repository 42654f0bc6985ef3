//! The client's side of the protocol: frames, login, and the conversation about one command at a time.

mod auth;
mod channel;
mod frame;
mod handshake;
mod packet;
mod reader;

pub(crate) use channel::{Channel, Said};

pub(crate) use handshake::{Flavour, Greeting, Login, greet, log_in};
pub(crate) use packet::{Definition, Finished, ServerError};
pub(crate) use reader::{Malformed, Reader, put_bytes};

use std::io;

/// Why nothing more can be said to a server.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The network failed, or the server closed the connection.
    Io(io::Error),
    /// The server's bytes make no sense.
    Protocol(String),
    /// The server refused, and has closed the connection or is about to.
    Refused(ServerError),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Io(error)
    }
}

impl From<Malformed> for Broken {
    fn from(_: Malformed) -> Self {
        Broken::Protocol("a packet of the server is cut short or malformed".to_owned())
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Io(error) => write!(f, "{error}"),
            Broken::Protocol(problem) => f.write_str(problem),
            Broken::Refused(error) => f.write_str(&error.message),
        }
    }
}

/// What client and server agree on. Names and numbers are the protocol's own.
pub(crate) mod capability {
    /// MySQL itself; a server without it is MariaDB and has [`extended`](super::extended) ones.
    pub(crate) const LONG_PASSWORD: u32 = 1;
    /// UPDATE counts the rows that were found, also those that already had their new values.
    pub(crate) const FOUND_ROWS: u32 = 1 << 1;
    pub(crate) const LONG_FLAG: u32 = 1 << 2;
    pub(crate) const CONNECT_WITH_DB: u32 = 1 << 3;
    pub(crate) const PROTOCOL_41: u32 = 1 << 9;
    pub(crate) const SSL: u32 = 1 << 11;
    pub(crate) const TRANSACTIONS: u32 = 1 << 13;
    pub(crate) const SECURE_CONNECTION: u32 = 1 << 15;
    pub(crate) const MULTI_RESULTS: u32 = 1 << 17;
    pub(crate) const PS_MULTI_RESULTS: u32 = 1 << 18;
    pub(crate) const PLUGIN_AUTH: u32 = 1 << 19;
    pub(crate) const CONNECT_ATTRS: u32 = 1 << 20;
    pub(crate) const PLUGIN_AUTH_LENENC: u32 = 1 << 21;
    /// An answer says by a flag that a tracked variable was changed.
    pub(crate) const SESSION_TRACK: u32 = 1 << 23;
    pub(crate) const DEPRECATE_EOF: u32 = 1 << 24;
}

/// MariaDB's own capabilities.
pub(crate) mod extended {
    /// Columns say that they are JSON, UUID, INET6 …
    pub(crate) const METADATA: u32 = 1 << 3;
    /// Columns of a prepared statement are described again only when they change.
    pub(crate) const CACHE_METADATA: u32 = 1 << 4;
}
