//! Reading the fields of one packet, none beyond its end.

use super::{Fault, property};

const SHORT: Fault = Fault::Malformed("it ends within a field");

/// What is left of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor(bytes)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Fault> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }

    /// A number of one to four bytes.
    pub(crate) fn variable(&mut self) -> Result<usize, Fault> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.u8()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Malformed("a length of more than four bytes"))
    }

    /// Bytes behind their length.
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// A text behind its length.
    pub(crate) fn text(&mut self) -> Result<&'a str, Fault> {
        let text = std::str::from_utf8(self.binary()?);
        text.map_err(|_| Fault::Malformed("a text that is not UTF-8"))
    }

    /// A packet identifier, never 0.
    pub(crate) fn identifier(&mut self) -> Result<u16, Fault> {
        match self.u16()? {
            0 => Err(Fault::Malformed("packet identifier 0")),
            id => Ok(id),
        }
    }

    /// The section of properties, apart from what follows it.
    pub(crate) fn properties(&mut self) -> Result<Cursor<'a>, Fault> {
        let length = self.variable()?;
        self.take(length).map(Cursor)
    }

    /// The next property of a section: its identifier and value.
    pub(crate) fn property(&mut self) -> Result<Option<(u8, Value<'a>)>, Fault> {
        if self.is_empty() {
            return Ok(None);
        }
        let id = self.u8()?;
        let value = match id {
            property::PAYLOAD_FORMAT
            | property::MAXIMUM_QOS
            | property::RETAIN_AVAILABLE
            | property::WILDCARDS
            | property::IDENTIFIERS
            | property::SHARED => Value::Number(u32::from(self.u8()?)),
            property::SERVER_KEEP_ALIVE
            | property::RECEIVE_MAXIMUM
            | property::TOPIC_ALIAS_MAXIMUM
            | property::TOPIC_ALIAS => Value::Number(u32::from(self.u16()?)),
            property::MESSAGE_EXPIRY | property::SESSION_EXPIRY | property::MAXIMUM_PACKET => {
                Value::Number(self.u32()?)
            }
            // At most 28 bits.
            property::SUBSCRIPTION => Value::Number(self.variable()? as u32),
            property::CONTENT_TYPE
            | property::RESPONSE_TOPIC
            | property::ASSIGNED_CLIENT
            | property::AUTH_METHOD
            | property::RESPONSE_INFORMATION
            | property::SERVER_REFERENCE
            | property::REASON_STRING => Value::Text(self.text()?),
            property::CORRELATION | property::AUTH_DATA => Value::Binary(self.binary()?),
            property::USER => Value::Pair(self.text()?, self.text()?),
            _ => return Err(Fault::Malformed("an unknown property")),
        };
        Ok(Some((id, value)))
    }
}

/// The value of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u32),
    Text(&'a str),
    Binary(#[cfg_attr(not(test), allow(dead_code, reason = "read over"))] &'a [u8]),
    Pair(&'a str, &'a str),
}
