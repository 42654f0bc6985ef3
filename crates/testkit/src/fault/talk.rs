//! A conversation in whichever protocol.

use anyhow::Result;
use bytes::BytesMut;

use super::conversation::{Conversation, Pending, Piece, Unit};
use super::{Protocol, mysql};

#[derive(Debug)]
pub(super) enum Talk {
    Postgres(Conversation),
    Mysql(mysql::Conversation),
}

impl Talk {
    pub(super) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Postgres => Self::Postgres(Conversation::new(false)),
            Protocol::Mysql => Self::Mysql(mysql::Conversation::new()),
            Protocol::Unknown => Self::Postgres(Conversation::new(true)),
        }
    }

    /// Takes the next unit off what the client sent; `None` if none is whole yet.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<Unit>> {
        match self {
            Self::Postgres(talk) => talk.take(buffer),
            Self::Mysql(talk) => talk.take(buffer),
        }
    }

    /// Notes that a unit is handed to the server.
    pub(super) fn sent(&mut self, pending: Pending) {
        match self {
            Self::Postgres(talk) => talk.sent(pending),
            Self::Mysql(talk) => talk.sent(pending),
        }
    }

    /// The units that wait for their answers.
    pub(super) fn pending(&mut self) -> Box<dyn Iterator<Item = &mut Pending> + Send + '_> {
        match self {
            Self::Postgres(talk) => Box::new(talk.pending()),
            Self::Mysql(talk) => Box::new(talk.pending()),
        }
    }

    /// Takes the next piece off what the server sent; `None` if more must come first.
    pub(super) fn piece(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>> {
        match self {
            Self::Postgres(talk) => talk.piece(buffer),
            Self::Mysql(talk) => talk.piece(buffer),
        }
    }
}
