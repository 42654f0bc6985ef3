//! The state of the connection to a broker.

use std::sync::Arc;

/// The state of the connection to a broker. It is kept up for ever: every state but [`Link::Closed`]
/// leads back to [`Link::Up`] as soon as the broker lets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Not connected; a connection is being made or waited for.
    Down {
        /// Connections tried since the last that stood.
        attempts: u64,
        /// Why the last one failed or ended; `None`: none was tried yet.
        reason: Option<Arc<str>>,
        /// Whether the broker answered and refused (login, protocol, another client of the same name):
        /// somebody has to change something, here or there.
        refused: bool,
    },
    /// Connected.
    Up {
        /// Counts the connections, from 1.
        number: u64,
        /// The broker takes no publications for now (AMQP's memory or disk alarm), and why.
        blocked: Option<Arc<str>>,
    },
    /// Closed by us, for good.
    Closed,
}

impl Link {
    /// Before the first connection.
    pub const BEGINNING: Link = Link::Down {
        attempts: 0,
        reason: None,
        refused: false,
    };

    /// Whether messages can go and come.
    pub fn is_up(&self) -> bool {
        matches!(self, Link::Up { .. })
    }
}
