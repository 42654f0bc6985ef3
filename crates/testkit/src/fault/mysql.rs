//! One conversation in MySQL's protocol, on bytes alone: which statement a command runs, and whose answer
//! comes back. A connection that turns to encryption passes unread from then on.

mod command;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};

use super::conversation::{Awaits, Pending, Piece, Statement, Unit, plain};
use super::ledger::Answer;
use super::plan::Kind;
use super::wire::FRAME_MAX;

/// Statements remembered for a connection. The text of one beyond that is not known to the plan.
const STATEMENTS_MAX: usize = 10_000;
const HEADER: usize = 4;
/// A packet of this length goes on in the next frame.
const FRAME: usize = 0xff_ffff;

const SSL: u32 = 1 << 11;
const MYSQL: u32 = 1;
const DEPRECATE_EOF: u32 = 1 << 24;
const CACHE_METADATA: u32 = 1 << 4;
const MORE_RESULTS: u16 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Greeting and login: frames pass both ways.
    Login,
    Commands,
    /// Encrypted: bytes pass unread.
    Opaque,
}

/// What a command is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Ok,
    /// A number for this text, and definitions.
    Prepared(Arc<str>),
    Result,
}

/// Where an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Beginning,
    /// So many definitions, then rows or the end.
    Definitions {
        left: u64,
        rows: bool,
    },
    Rows,
}

#[derive(Debug)]
pub(super) struct Conversation {
    stage: Stage,
    has_markers: bool,
    caches_columns: bool,
    /// Texts and numbers of parameters by the server's number of the statement.
    prepared: HashMap<u32, (Arc<str>, usize)>,
    pending: VecDeque<Pending>,
    forms: VecDeque<Form>,
    /// The form of the command that was taken last.
    taken: Form,
    at: At,
    /// The last frame from the server was full, so that its packet goes on.
    continues: bool,
}

impl Conversation {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Login,
            has_markers: true,
            caches_columns: false,
            prepared: HashMap::new(),
            pending: VecDeque::new(),
            forms: VecDeque::new(),
            taken: Form::Ok,
            at: At::Beginning,
            continues: false,
        }
    }

    /// Takes the next command off what the client sent; `None` if none is whole yet.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<Option<Unit>> {
        match self.stage {
            _ if buffer.is_empty() => Ok(None),
            Stage::Opaque => Ok(Some(plain(buffer.split().freeze(), Awaits::Nothing))),
            Stage::Login => Ok(packet(buffer)?.map(|(bytes, _)| {
                self.note_login(&bytes[HEADER..]);
                plain(bytes, Awaits::Nothing)
            })),
            Stage::Commands => {
                let Some((bytes, body)) = packet(buffer)? else {
                    return Ok(None);
                };
                Ok(Some(self.command(bytes, &body)))
            }
        }
    }

    /// What the client is able to do decides how the server's answers look.
    fn note_login(&mut self, body: &[u8]) {
        let number = |at: usize| {
            let bytes = body.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let (Some(capabilities), Some(extended)) = (number(0), number(28)) else {
            return;
        };
        if capabilities & SSL != 0 {
            self.stage = Stage::Opaque;
        }
        self.has_markers = capabilities & DEPRECATE_EOF == 0;
        self.caches_columns = capabilities & MYSQL == 0 && extended & CACHE_METADATA != 0;
    }

    fn command(&mut self, bytes: Bytes, body: &[u8]) -> Unit {
        let mut statements = Vec::new();
        let text = || Arc::from(String::from_utf8_lossy(&body[1..]));
        let mut awaits = Awaits::Ready;
        match body.first() {
            Some(&command::QUERY) => {
                let text: Arc<str> = text();
                statements.push(Statement {
                    kind: Kind::of(&text),
                    text,
                    parameters: Vec::new(),
                });
                self.taken = Form::Result;
            }
            Some(&command::PREPARE) => {
                let text: Arc<str> = text();
                statements.push(Statement {
                    kind: Kind::Prepare,
                    text: text.clone(),
                    parameters: Vec::new(),
                });
                self.taken = Form::Prepared(text);
            }
            Some(&command::EXECUTE) => {
                let known = command::statement(body).and_then(|id| self.prepared.get(&id));
                let (text, count) = known.cloned().unwrap_or_default();
                statements.push(Statement {
                    kind: Kind::of(&text),
                    text,
                    parameters: command::parameters(body, count).unwrap_or_default(),
                });
                self.taken = Form::Result;
            }
            Some(&(command::CLOSE | command::QUIT | command::LONG_DATA)) => {
                awaits = Awaits::Nothing;
            }
            _ => self.taken = Form::Ok,
        }
        Unit {
            bytes,
            statements,
            awaits,
        }
    }

    /// Notes that a command is handed to the server.
    pub(super) fn sent(&mut self, pending: Pending) {
        if pending.awaits != Awaits::Nothing {
            self.pending.push_back(pending);
            self.forms.push_back(self.taken.clone());
        }
    }

    /// The commands that wait for their answers.
    pub(super) fn pending(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.pending.iter_mut()
    }

    /// Takes the next piece off what the server sent; `None` if more must come first.
    pub(super) fn piece(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>> {
        if buffer.is_empty() {
            return Ok(None);
        }
        if self.stage == Stage::Opaque {
            return Ok(Some(Piece {
                bytes: buffer.split().freeze(),
                ..Piece::default()
            }));
        }
        let Some(length) = length(buffer)? else {
            return Ok(None);
        };
        if buffer.len() < HEADER + length {
            return Ok(None);
        }
        let bytes = buffer.split_to(HEADER + length).freeze();
        let body = bytes.slice(HEADER..);
        let is_first = !std::mem::replace(&mut self.continues, length == FRAME);
        if self.stage == Stage::Login {
            // The login ends with an OK; the greeting begins with the protocol's version.
            if is_first && body.first() == Some(&0) {
                self.stage = Stage::Commands;
            }
            return Ok(Some(Piece {
                bytes,
                ..Piece::default()
            }));
        }
        let mut piece = Piece {
            bytes,
            ..Piece::default()
        };
        if let Some(front) = self.pending.front_mut() {
            piece.fault = front.fault;
            piece.first = front.begin();
            piece.not_before = front.not_before;
        }
        if is_first && let Some(answer) = self.read(&body) {
            piece.ran = true;
            self.at = At::Beginning;
            self.forms.pop_front();
            piece.answered = Some((self.pending.pop_front().into_iter().collect(), answer));
        }
        Ok(Some(piece))
    }

    /// Reads a packet of the answer that is due; the answer if it ends with it.
    fn read(&mut self, body: &[u8]) -> Option<Answer> {
        let form = self.forms.front()?.clone();
        let first = body.first().copied().unwrap_or(0);
        if first == 0xff {
            let number = body
                .get(1..3)
                .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
            return Some(Answer::Failed(number.to_string()));
        }
        match (self.at, form) {
            (At::Beginning, Form::Ok) => Some(command::completed(body)),
            (At::Beginning, Form::Prepared(text)) => self.prepared(body, text),
            (At::Beginning, Form::Result) if first == 0 => self.ended(body, command::status(body)),
            (At::Beginning, Form::Result) => {
                let (count, rest) = command::number(body)?;
                let follow = !(self.caches_columns && rest.first() == Some(&0));
                self.define(0, if follow { count } else { 0 }, true)
            }
            (At::Definitions { left, rows }, _) => self.defined(left - 1, rows),
            (At::Rows, _) if first == 0xfe && body.len() < FRAME && !self.has_markers => {
                self.ended(body, command::status(body))
            }
            (At::Rows, _) if first == 0xfe && body.len() < 9 && self.has_markers => {
                let status = body
                    .get(3..5)
                    .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
                self.ended(body, status)
            }
            (At::Rows, _) => None,
        }
    }

    fn prepared(&mut self, body: &[u8], text: Arc<str>) -> Option<Answer> {
        let id = body.get(1..5)?;
        let id = u32::from_le_bytes(id.try_into().ok()?);
        let count = |at: usize| {
            let bytes = body.get(at..at + 2)?;
            Some(u64::from(u16::from_le_bytes(bytes.try_into().ok()?)))
        };
        let (columns, params) = (count(5)?, count(7)?);
        if self.prepared.len() < STATEMENTS_MAX {
            self.prepared.insert(id, (text, params as usize));
        }
        self.define(params, columns, false)
    }

    /// Each group of definitions that is not empty ends with a marker where the protocol has them.
    fn define(&mut self, params: u64, columns: u64, rows: bool) -> Option<Answer> {
        let with_marker = |count: u64| match count {
            0 => 0,
            count => count + u64::from(self.has_markers),
        };
        self.defined(with_marker(params) + with_marker(columns), rows)
    }

    fn defined(&mut self, left: u64, rows: bool) -> Option<Answer> {
        self.at = match (left, rows) {
            (0, true) => At::Rows,
            (0, false) => return Some(Answer::Completed(String::new())),
            _ => At::Definitions { left, rows },
        };
        None
    }

    fn ended(&mut self, body: &[u8], status: u16) -> Option<Answer> {
        if status & MORE_RESULTS != 0 {
            self.at = At::Beginning;
            return None;
        }
        Some(command::completed(body))
    }
}

/// The length of the frame that begins the buffer, without its header.
fn length(buffer: &BytesMut) -> Result<Option<usize>> {
    let Some(header) = buffer.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    Ok(Some(
        u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize,
    ))
}

/// Takes a whole packet off the buffer: all its bytes, and its body.
fn packet(buffer: &mut BytesMut) -> Result<Option<(Bytes, BytesMut)>> {
    let mut end = 0;
    let mut body = BytesMut::new();
    loop {
        let Some(header) = buffer.get(end..end + HEADER) else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        if end + length > FRAME_MAX {
            bail!("a packet of more than {FRAME_MAX} bytes: the proxy looks at no longer ones");
        }
        let Some(part) = buffer.get(end + HEADER..end + HEADER + length) else {
            return Ok(None);
        };
        body.extend_from_slice(part);
        end += HEADER + length;
        if length < FRAME {
            return Ok(Some((buffer.split_to(end).freeze(), body)));
        }
    }
}
