//! The conversation about one command: what the server still has to say is known at every moment, so
//! that an answer whose reader has left can be read to its end.

use bytes::Bytes;

use super::frame::Frames;
use super::packet::{Definition, Finished, ServerError};
use super::reader::Reader;
use super::{Broken, capability as can, extended};

const QUERY: u8 = 0x03;
const PING: u8 = 0x0e;
const PREPARE: u8 = 0x16;
const CLOSE: u8 = 0x19;
const QUIT: u8 = 0x01;
const RESET: u8 = 0x1f;

/// What the server still has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Nothing,
    /// One OK or error.
    Ok,
    /// The answer to a prepare.
    Prepared,
    /// So many definitions, each group with its end marker where the protocol has one.
    Definitions {
        params: u16,
        columns: u16,
        markers: bool,
        then: Then,
    },
    /// The beginning of a result.
    Result {
        is_binary: bool,
    },
    Rows {
        is_binary: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    End,
    Rows { is_binary: bool },
}

/// What the server said.
#[derive(Debug)]
pub(crate) enum Said {
    /// The statement, or its whole answer, ended well.
    Finished(Finished),
    /// It failed, which ends it.
    Failed(ServerError),
    /// A text was prepared.
    Prepared {
        id: u32,
        params: u16,
        columns: u16,
    },
    /// A parameter or its end marker: nobody looks at it.
    Aside,
    /// Rows follow; their columns are described before them, or are those of the last time.
    Columns {
        count: usize,
        follow: bool,
    },
    /// One of the columns, as it came.
    Column(Bytes),
    Row(Bytes),
}

/// A session's channel to its server.
pub(crate) struct Channel {
    frames: Frames,
    awaits: Awaits,
    has_markers: bool,
    is_extended: bool,
    caches_columns: bool,
}

impl Channel {
    pub(super) fn new(frames: Frames, capabilities: u32, its_own: u32) -> Self {
        Channel {
            frames,
            awaits: Awaits::Nothing,
            has_markers: capabilities & can::DEPRECATE_EOF == 0,
            is_extended: its_own & extended::METADATA != 0,
            caches_columns: its_own & extended::CACHE_METADATA != 0,
        }
    }

    /// Whether everything that was asked for has been answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.awaits == Awaits::Nothing
    }

    /// Whether an idle session has heard nothing: its server is still there.
    pub(crate) fn is_quiet(&self) -> bool {
        self.frames.is_quiet()
    }

    /// Reads a column's definition.
    pub(crate) fn definition(&self, packet: &[u8]) -> Result<Definition, Broken> {
        Ok(Definition::read(packet, self.is_extended)?)
    }

    /// Runs a text; its rows come as text.
    pub(crate) fn query(&mut self, text: &str) {
        let result = Awaits::Result { is_binary: false };
        self.command(QUERY, text.as_bytes(), result);
    }

    pub(crate) fn prepare(&mut self, text: &str) {
        self.command(PREPARE, text.as_bytes(), Awaits::Prepared);
    }

    /// Runs a prepared statement; `packet` is the whole command.
    pub(crate) fn execute(&mut self, packet: &[u8]) {
        self.frames.begin();
        self.frames.push(packet);
        self.awaits = Awaits::Result { is_binary: true };
    }

    /// Forgets a prepared statement; leaves with the next command and is not answered.
    pub(crate) fn close_statement(&mut self, id: u32) {
        self.command(CLOSE, &id.to_le_bytes(), Awaits::Nothing);
    }

    pub(crate) fn ping(&mut self) {
        self.command(PING, &[], Awaits::Ok);
    }

    pub(crate) fn reset(&mut self) {
        self.command(RESET, &[], Awaits::Ok);
    }

    fn command(&mut self, command: u8, body: &[u8], awaits: Awaits) {
        let mut packet = Vec::with_capacity(1 + body.len());
        packet.push(command);
        packet.extend_from_slice(body);
        self.frames.begin();
        self.frames.push(&packet);
        self.awaits = awaits;
    }

    /// Says goodbye.
    pub(crate) async fn quit(&mut self) {
        self.command(QUIT, &[], Awaits::Nothing);
        // A server that is gone needs no goodbye.
        let _ = self.frames.flush().await;
    }

    /// Says goodbye without waiting, if that can be said at once.
    pub(crate) fn say_goodbye(&mut self) {
        self.command(QUIT, &[], Awaits::Nothing);
        self.frames.try_flush();
    }

    /// Sends what is left to send, then waits for the server. A dropped future loses nothing.
    pub(crate) async fn next(&mut self) -> Result<Said, Broken> {
        self.frames.flush().await?;
        let packet = self.frames.packet().await?;
        let said = self.understand(packet)?;
        if let Said::Failed(_) = said {
            self.awaits = Awaits::Nothing;
        }
        Ok(said)
    }

    fn understand(&mut self, packet: Bytes) -> Result<Said, Broken> {
        match self.awaits {
            Awaits::Nothing => Err(unexpected(&packet)),
            Awaits::Ok => match packet.first() {
                Some(0x00) => self.finish(Finished::read(&packet)?),
                Some(0xff) => Ok(Said::Failed(ServerError::read(&packet)?)),
                _ => Err(unexpected(&packet)),
            },
            Awaits::Prepared => self.prepared(&packet),
            Awaits::Definitions {
                params,
                columns,
                markers,
                then,
            } => Ok(self.defined(packet, params, columns, markers, then)),
            Awaits::Result { is_binary } => self.began(&packet, is_binary),
            Awaits::Rows { .. } => self.row(packet),
        }
    }

    fn finish(&mut self, finished: Finished) -> Result<Said, Broken> {
        self.awaits = match (finished.has_more(), self.awaits) {
            (true, Awaits::Result { is_binary } | Awaits::Rows { is_binary }) => {
                Awaits::Result { is_binary }
            }
            _ => Awaits::Nothing,
        };
        Ok(Said::Finished(finished))
    }

    fn prepared(&mut self, packet: &[u8]) -> Result<Said, Broken> {
        let mut reader = Reader(packet);
        match reader.u8()? {
            0x00 => {}
            0xff => return Ok(Said::Failed(ServerError::read(packet)?)),
            _ => return Err(unexpected(packet)),
        }
        let id = reader.u32()?;
        let (columns, params) = (reader.u16()?, reader.u16()?);
        self.await_definitions(params, columns, Then::End);
        Ok(Said::Prepared {
            id,
            params,
            columns,
        })
    }

    /// Each group that is not empty ends with a marker where the protocol has them.
    fn await_definitions(&mut self, params: u16, columns: u16, then: Then) {
        let with_marker = |count: u16| match count {
            0 => 0,
            count => count.saturating_add(self.has_markers.into()),
        };
        let (params, columns) = (with_marker(params), with_marker(columns));
        self.awaits = match (params, columns, then) {
            (0, 0, Then::End) => Awaits::Nothing,
            (0, 0, Then::Rows { is_binary }) => Awaits::Rows { is_binary },
            _ => Awaits::Definitions {
                params,
                columns,
                markers: self.has_markers,
                then,
            },
        };
    }

    fn defined(
        &mut self,
        packet: Bytes,
        mut params: u16,
        mut columns: u16,
        markers: bool,
        then: Then,
    ) -> Said {
        let said = if params > 0 {
            params -= 1;
            Said::Aside
        } else {
            columns -= 1;
            match markers && columns == 0 {
                true => Said::Aside,
                false => Said::Column(packet),
            }
        };
        self.awaits = match (params, columns, then) {
            (0, 0, Then::End) => Awaits::Nothing,
            (0, 0, Then::Rows { is_binary }) => Awaits::Rows { is_binary },
            _ => Awaits::Definitions {
                params,
                columns,
                markers,
                then,
            },
        };
        said
    }

    fn began(&mut self, packet: &[u8], is_binary: bool) -> Result<Said, Broken> {
        let mut reader = Reader(packet);
        match packet.first() {
            Some(0x00) => return self.finish(Finished::read(packet)?),
            Some(0xff) => return Ok(Said::Failed(ServerError::read(packet)?)),
            _ => {}
        }
        let count = reader.number()?.and_then(|count| u16::try_from(count).ok());
        // NULL would ask for a file of ours, which was never offered.
        let Some(count) = count else {
            return Err(unexpected(packet));
        };
        let follow = !(self.caches_columns && reader.0.first() == Some(&0));
        let then = Then::Rows { is_binary };
        self.await_definitions(0, if follow { count } else { 0 }, then);
        Ok(Said::Columns {
            count: count.into(),
            follow,
        })
    }

    fn row(&mut self, packet: Bytes) -> Result<Said, Broken> {
        match packet.first() {
            Some(0xff) => Ok(Said::Failed(ServerError::read(&packet)?)),
            Some(0xfe) if self.has_markers && packet.len() < 9 => {
                self.finish(Finished::read_eof(&packet)?)
            }
            // A row of text may begin with this byte as well, but is then longer than a frame.
            Some(0xfe) if !self.has_markers && packet.len() < 0xff_ffff => {
                self.finish(Finished::read(&packet)?)
            }
            Some(_) => Ok(Said::Row(packet)),
            None => Err(unexpected(&packet)),
        }
    }
}

fn unexpected(packet: &[u8]) -> Broken {
    let first = packet.first().copied().unwrap_or(0);
    Broken::Protocol(format!(
        "a packet that begins with {first:#04x} was not due"
    ))
}
