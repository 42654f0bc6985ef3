//! One connection's conversation in PostgreSQL's protocol, on bytes alone: which statement a message runs, and whose answer
//! comes back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::ledger::{Answer, Place};
use super::plan::{Fault, Kind, Moment};
use super::wire::{self, Bind, FRAME_MAX, Frame, Greeting, Parameter};

/// Names of prepared statements, and of portals, remembered for a connection. The text of one beyond
/// that is not known to the plan.
const NAMES_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing has been said yet, or encryption was refused.
    Greeting,
    /// The client asked for encryption; the server's answer is one byte.
    Negotiating,
    Messages,
    /// Encrypted, or not this protocol: bytes pass unread.
    Opaque,
}

/// A statement without its place in the world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) kind: Kind,
    pub(super) text: Arc<str>,
    pub(super) parameters: Vec<Parameter>,
}

/// Client messages that leave together: up to a Sync, or a whole simple query.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) bytes: Bytes,
    pub(super) statements: Vec<Statement>,
    pub(super) awaits: Awaits,
}

/// What the server says last about a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaits {
    /// Nothing of its own.
    Nothing,
    /// Something, but not yet that it is ready: a Flush, or messages without a Sync.
    Part,
    /// ReadyForQuery after a simple query or the start.
    Ready,
    /// ReadyForQuery after a Sync.
    ReadyAfterSync,
}

/// A unit that was handed to the server and is not answered yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) awaits: Awaits,
    /// Its statements, and where each is in the ledger if it was struck.
    pub(super) moments: Vec<(Moment, Place)>,
    pub(super) fault: Option<Fault>,
    /// The answer is held until then.
    pub(super) not_before: Option<Instant>,
    /// Whether any byte of the answer has come.
    begun: bool,
}

impl Pending {
    pub(super) fn new(awaits: Awaits) -> Self {
        Self {
            awaits,
            moments: Vec::new(),
            fault: None,
            not_before: None,
            begun: false,
        }
    }

    /// Whether this is the first byte of its answer.
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.begun, true)
    }
}

/// Bytes from the server, and what they are part of.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// The fault of the unit that it answers.
    pub(super) fault: Option<Fault>,
    /// Whether it is the first of the unit's answer, and until when that is held.
    pub(super) first: bool,
    pub(super) not_before: Option<Instant>,
    /// The server has done all it does by itself: it is ready again, or waits for the client's COPY.
    pub(super) ran: bool,
    /// The units that are answered with it, and how.
    pub(super) answered: Option<(Vec<Pending>, Answer)>,
}

#[derive(Debug)]
pub(super) struct Conversation {
    stage: Stage,
    unit: BytesMut,
    statements: Vec<Statement>,
    preparing: Vec<Statement>,
    prepared: HashMap<String, Arc<str>>,
    portals: HashMap<String, (Arc<str>, Vec<Parameter>)>,
    pending: VecDeque<Pending>,
    answer: Option<Answer>,
    /// What is left of a server message that is passed on unread.
    passing: usize,
}

impl Conversation {
    pub(super) fn new(opaque: bool) -> Self {
        Self {
            stage: if opaque {
                Stage::Opaque
            } else {
                Stage::Greeting
            },
            unit: BytesMut::new(),
            statements: Vec::new(),
            preparing: Vec::new(),
            prepared: HashMap::new(),
            portals: HashMap::new(),
            pending: VecDeque::new(),
            answer: None,
            passing: 0,
        }
    }

    /// Takes the next unit off what the client sent; `None` if none is whole yet.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<Unit>> {
        match self.stage {
            Stage::Opaque | Stage::Negotiating if buffer.is_empty() => Ok(None),
            Stage::Opaque | Stage::Negotiating => {
                Ok(Some(plain(buffer.split().freeze(), Awaits::Nothing)))
            }
            Stage::Greeting => Ok(wire::greeting(buffer)?.map(|(kind, bytes)| {
                let (stage, awaits) = match kind {
                    Greeting::Encryption => (Stage::Negotiating, Awaits::Nothing),
                    Greeting::Cancel => (Stage::Opaque, Awaits::Nothing),
                    Greeting::Startup => (Stage::Messages, Awaits::Ready),
                };
                self.stage = stage;
                plain(bytes, awaits)
            })),
            Stage::Messages => {
                while let Some(frame) = wire::frame(buffer)? {
                    if let Some(unit) = self.add(&frame)? {
                        return Ok(Some(unit));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Adds a client message to the unit, and gives the unit if that ends it.
    fn add(&mut self, frame: &Frame) -> Result<Option<Unit>> {
        if self.unit.len() + frame.bytes.len() > FRAME_MAX {
            bail!("messages of more than {FRAME_MAX} bytes without a Sync");
        }
        self.unit.extend_from_slice(&frame.bytes);
        let awaits = match frame.tag {
            b'P' | b'B' | b'E' | b'D' | b'C' => {
                self.note(frame);
                return Ok(None);
            }
            b'Q' => {
                let text: Arc<str> = wire::text(frame.body()).map_or("", |(text, _)| text).into();
                let kind = Kind::of(&text);
                self.statements.push(Statement {
                    kind,
                    text,
                    parameters: Vec::new(),
                });
                Awaits::Ready
            }
            b'F' => Awaits::Ready,
            b'S' => Awaits::ReadyAfterSync,
            _ if frame.bytes.len() == self.unit.len() => Awaits::Nothing,
            _ => Awaits::Part,
        };
        let (mut statements, prepared) = (
            std::mem::take(&mut self.statements),
            std::mem::take(&mut self.preparing),
        );
        if statements.is_empty() {
            statements = prepared;
        }
        Ok(Some(Unit {
            bytes: self.unit.split().freeze(),
            statements,
            awaits,
        }))
    }

    /// Keeps what a message of the extended protocol says about statements.
    fn note(&mut self, frame: &Frame) {
        let body = frame.body();
        match frame.tag {
            b'P' => {
                let Some((name, rest)) = wire::text(body) else {
                    return;
                };
                let text: Arc<str> = wire::text(rest).map_or("", |(text, _)| text).into();
                remember(&mut self.prepared, name, text.clone());
                let parameters = Vec::new();
                self.preparing.push(Statement {
                    kind: Kind::Prepare,
                    text,
                    parameters,
                });
            }
            b'B' => {
                let Some(bind) = Bind::read(body) else { return };
                let text = self
                    .prepared
                    .get(bind.statement)
                    .cloned()
                    .unwrap_or_default();
                remember(&mut self.portals, bind.portal, (text, bind.parameters));
            }
            b'E' => {
                let name = wire::text(body).map_or("", |(name, _)| name);
                let (text, parameters) = self.portals.get(name).cloned().unwrap_or_default();
                self.statements.push(Statement {
                    kind: Kind::of(&text),
                    text,
                    parameters,
                });
            }
            b'C' => match (body.first(), body.get(1..).and_then(wire::text)) {
                (Some(b'S'), Some((name, _))) => drop(self.prepared.remove(name)),
                (Some(b'P'), Some((name, _))) => drop(self.portals.remove(name)),
                _ => {}
            },
            _ => {}
        }
    }

    /// Notes that a unit is handed to the server.
    pub(super) fn sent(&mut self, pending: Pending) {
        if pending.awaits != Awaits::Nothing {
            self.pending.push_back(pending);
        }
    }

    /// The units that wait for their answers.
    pub(super) fn pending(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.pending.iter_mut()
    }

    /// Takes the next piece off what the server sent; `None` if more must come first.
    pub(super) fn piece(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>> {
        if buffer.is_empty() {
            return Ok(None);
        }
        match self.stage {
            Stage::Opaque => Ok(Some(Piece {
                bytes: buffer.split().freeze(),
                ..Piece::default()
            })),
            Stage::Negotiating => {
                // `N`: it goes on in the clear. An error message ends the connection.
                let refused = matches!(buffer[0], b'N' | b'E');
                self.stage = if refused {
                    Stage::Greeting
                } else {
                    Stage::Opaque
                };
                let taken = if buffer[0] == b'E' { buffer.len() } else { 1 };
                let bytes = buffer.split_to(taken).freeze();
                Ok(Some(Piece {
                    bytes,
                    ..Piece::default()
                }))
            }
            Stage::Greeting | Stage::Messages => self.answer(buffer),
        }
    }

    fn answer(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>> {
        if self.passing > 0 {
            let taken = self.passing.min(buffer.len());
            self.passing -= taken;
            return Ok(Some(self.part(buffer.split_to(taken).freeze())));
        }
        let Some((tag, length)) = wire::header(buffer)? else {
            return Ok(None);
        };
        if !matches!(tag, b'C' | b'E' | b'G' | b'W' | b'Z') {
            self.passing = length;
            return self.answer(buffer);
        }
        let Some(frame) = wire::frame(buffer)? else {
            return Ok(None);
        };
        let mut piece = self.part(frame.bytes.clone());
        match tag {
            b'C' => {
                let tag = wire::text(frame.body())
                    .map_or("", |(text, _)| text)
                    .to_owned();
                if !matches!(self.answer, Some(Answer::Failed(_))) {
                    self.answer = Some(Answer::Completed(tag));
                }
            }
            b'E' => {
                let code = wire::sqlstate(frame.body()).unwrap_or_default();
                self.answer = Some(Answer::Failed(code));
            }
            b'Z' => {
                piece.ran = true;
                piece.answered = Some(self.ready());
            }
            _ => {
                piece.ran = true;
                self.copying();
            }
        }
        Ok(Some(piece))
    }

    fn part(&mut self, bytes: Bytes) -> Piece {
        let mut piece = Piece {
            bytes,
            ..Piece::default()
        };
        if let Some(front) = self.pending.front_mut() {
            piece.fault = front.fault;
            piece.first = front.begin();
            piece.not_before = front.not_before;
        }
        piece
    }

    /// The units up to the one that is answered now, and the answer.
    fn ready(&mut self) -> (Vec<Pending>, Answer) {
        let last = self
            .pending
            .iter()
            .position(|unit| unit.awaits != Awaits::Part);
        let count = last.map_or(self.pending.len(), |at| at + 1);
        let answer = self
            .answer
            .take()
            .unwrap_or_else(|| Answer::Completed(String::new()));
        (self.pending.drain(..count).collect(), answer)
    }

    /// The server waits for the client's COPY data and skips the Sync that came with its statement:
    /// a later one is answered.
    fn copying(&mut self) {
        if let Some(front) = self.pending.front_mut()
            && front.awaits == Awaits::ReadyAfterSync
        {
            front.awaits = Awaits::Part;
        }
    }
}

pub(super) fn plain(bytes: Bytes, awaits: Awaits) -> Unit {
    Unit {
        bytes,
        statements: Vec::new(),
        awaits,
    }
}

fn remember<V>(names: &mut HashMap<String, V>, name: &str, value: V) {
    if names.len() < NAMES_MAX || names.contains_key(name) {
        names.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
