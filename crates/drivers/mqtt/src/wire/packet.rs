//! Everything that is neither a greeting nor a message.

use super::cursor::{Cursor, Value};
use super::frame::Keep;
use super::{Fault, Incoming, Output, Qos, Reason, Welcome, kind, property};

/// A packet that a broker may send.
#[derive(Debug)]
pub(crate) enum Packet<'a> {
    Welcome(Welcome),
    Publish(Incoming<'a>),
    /// PUBACK, PUBREC, PUBREL or PUBCOMP, by its kind.
    Ack(u8, Ack<'a>),
    Subscribed(Verdicts<'a>),
    Unsubscribed,
    Pong,
    Goodbye(Goodbye<'a>),
}

/// The next step of the delivery of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack<'a> {
    pub(crate) id: u16,
    pub(crate) reason: Reason,
    /// The broker's own words.
    pub(crate) words: Option<&'a str>,
}

/// SUBACK: one reason for each filter asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdicts<'a> {
    pub(crate) id: u16,
    pub(crate) words: Option<&'a str>,
    pub(crate) reasons: &'a [u8],
}

/// DISCONNECT by the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Goodbye<'a> {
    pub(crate) reason: Reason,
    pub(crate) words: Option<&'a str>,
}

impl<'a> Packet<'a> {
    /// Reads a packet from its first byte and its content.
    pub(crate) fn read(first: u8, content: &'a [u8], keep: &Keep<'_>) -> Result<Self, Fault> {
        let (kind, flags) = (first >> 4, first & 0x0f);
        let wanted = match kind {
            kind::PUBLISH => flags,
            kind::PUBREL => 0b0010,
            _ => 0,
        };
        if flags != wanted {
            return Err(Fault::Malformed("unknown flags"));
        }
        match kind {
            kind::CONNACK => Welcome::read(content).map(Packet::Welcome),
            kind::PUBLISH => Incoming::read(flags, content, keep).map(Packet::Publish),
            kind::PUBACK | kind::PUBREC | kind::PUBREL | kind::PUBCOMP => {
                Ack::read(content).map(|ack| Packet::Ack(kind, ack))
            }
            kind::SUBACK => Verdicts::read(content).map(Packet::Subscribed),
            kind::UNSUBACK => Ok(Packet::Unsubscribed),
            kind::PINGRESP => Ok(Packet::Pong),
            kind::DISCONNECT => Goodbye::read(content).map(Packet::Goodbye),
            _ => Err(Fault::Malformed("a kind of packet that no broker sends")),
        }
    }
}

impl<'a> Ack<'a> {
    fn read(content: &'a [u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(content);
        let id = cursor.identifier()?;
        let (reason, words) = reason_and_words(&mut cursor)?;
        Ok(Ack { id, reason, words })
    }
}

impl<'a> Verdicts<'a> {
    fn read(content: &'a [u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(content);
        let id = cursor.identifier()?;
        let words = words(&mut cursor)?;
        Ok(Verdicts {
            id,
            words,
            reasons: cursor.rest(),
        })
    }
}

impl<'a> Goodbye<'a> {
    fn read(content: &'a [u8]) -> Result<Self, Fault> {
        let (reason, words) = reason_and_words(&mut Cursor::new(content))?;
        Ok(Goodbye { reason, words })
    }
}

/// A reason and properties, both of which may be missing.
fn reason_and_words<'a>(cursor: &mut Cursor<'a>) -> Result<(Reason, Option<&'a str>), Fault> {
    if cursor.is_empty() {
        return Ok((Reason::SUCCESS, None));
    }
    let reason = Reason(cursor.u8()?);
    match cursor.is_empty() {
        true => Ok((reason, None)),
        false => Ok((reason, words(cursor)?)),
    }
}

/// What the properties say in words.
fn words<'a>(cursor: &mut Cursor<'a>) -> Result<Option<&'a str>, Fault> {
    let mut found = None;
    let mut properties = cursor.properties()?;
    while let Some((id, value)) = properties.property()? {
        if let (property::REASON_STRING | property::SERVER_REFERENCE, Value::Text(text)) =
            (id, value)
        {
            found = Some(text);
        }
    }
    Ok(found)
}

/// Writes PUBACK, PUBREC, PUBREL or PUBCOMP.
pub(crate) fn write_ack(out: &mut Output, kind: u8, id: u16, reason: Reason) {
    let flags = if kind == kind::PUBREL { 0b0010 } else { 0 };
    out.u8(kind << 4 | flags);
    if reason == Reason::SUCCESS {
        out.u8(2);
        return out.u16(id);
    }
    out.u8(3);
    out.u16(id);
    out.u8(reason.0);
}

/// Writes SUBSCRIBE for one filter, without what the broker retained for it if it was subscribed before.
pub(crate) fn subscribe(out: &mut Output, id: u16, filter: &str, qos: Qos, retained: Retained) {
    out.u8(kind::SUBSCRIBE << 4 | 0b0010);
    out.variable(2 + 1 + 2 + filter.len() + 1);
    out.u16(id);
    out.u8(0);
    out.binary(filter.as_bytes());
    out.u8(qos.bits() | (retained as u8) << 4);
}

/// When messages that the broker retained come with a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "the captured packets have the first")]
pub(crate) enum Retained {
    Always,
    IfNew,
}

/// Writes UNSUBSCRIBE for one filter.
pub(crate) fn unsubscribe(out: &mut Output, id: u16, filter: &str) {
    out.u8(kind::UNSUBSCRIBE << 4 | 0b0010);
    out.variable(2 + 1 + 2 + filter.len());
    out.u16(id);
    out.u8(0);
    out.binary(filter.as_bytes());
}

/// Writes PINGREQ.
pub(crate) fn ping(out: &mut Output) {
    out.slice(&[kind::PINGREQ << 4, 0]);
}

/// Writes DISCONNECT.
pub(crate) fn disconnect(out: &mut Output, reason: Reason) {
    match reason {
        Reason::SUCCESS => out.slice(&[kind::DISCONNECT << 4, 0]),
        Reason(code) => out.slice(&[kind::DISCONNECT << 4, 1, code]),
    }
}
