//! Messages.

use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;
use mainstay_message::{Headers, Publication};
use smol_str::SmolStr;

use super::cursor::{Cursor, Value};
use super::frame::Keep;
use super::output::variable_length;
use super::{Fault, Output, Qos, kind, property};

/// Headers that are read of a message: one more than it may have, so that whoever gets it sees that there are too many.
const HEADERS_MAX: usize = Headers::COUNT_MAX + 1;
/// What a message of INTERSECT has at most.
const HEADERS_USUAL: usize = 12;
/// The longest text that MQTT can write.
const TEXT_MAX: usize = u16::MAX as usize;
/// The largest number that MQTT can write as a length.
const LENGTH_MAX: usize = 0x0fff_ffff;

/// A message that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incoming<'a> {
    pub(crate) qos: Qos,
    /// 0 where the quality of service is 0.
    pub(crate) id: u16,
    /// It has a text with a NUL, or twice what may stand once: no fault of the broker's, which passes on what it gets.
    pub(crate) is_unfit: bool,
    pub(crate) topic: &'a str,
    pub(crate) content_type: Option<SmolStr>,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
    /// It may have come before.
    pub(crate) again: bool,
}

impl<'a> Incoming<'a> {
    pub(super) fn read(flags: u8, content: &'a [u8], keep: &Keep<'_>) -> Result<Self, Fault> {
        let qos = Qos::from_bits(flags >> 1 & 0b11)?;
        let mut cursor = Cursor::new(content);
        let topic = cursor.text()?;
        let id = match qos {
            Qos::Zero => 0,
            Qos::One | Qos::Two => cursor.identifier()?,
        };
        let mut properties = cursor.properties()?;
        let mut message = Incoming {
            qos,
            id,
            is_unfit: has_nul(topic),
            topic,
            content_type: None,
            headers: match properties.is_empty() {
                true => Headers::new(),
                false => Headers::with_capacity(HEADERS_USUAL),
            },
            body: keep.part(cursor.rest()),
            again: flags & 0b1000 != 0,
        };
        let mut seen = 0_u64;
        while let Some((id, value)) = properties.property()? {
            let stands_twice = seen & 1 << id != 0;
            if !matches!(id, property::USER | property::SUBSCRIPTION) {
                seen |= 1 << id;
            }
            message.is_unfit |= stands_twice || value.has_nul();
            match (id, value) {
                (property::CONTENT_TYPE, Value::Text(text)) => {
                    message.content_type = Some(text.into());
                }
                (property::USER, _) if message.headers.len() == HEADERS_MAX => {}
                (property::USER, Value::Pair(name, value)) => message.headers.push(name, value),
                (property::TOPIC_ALIAS, _) => {
                    return Err(Fault::Protocol("a topic alias, of which we allow none"));
                }
                // The rest has no place in the port.
                _ => {}
            }
        }
        match topic.is_empty() {
            true => Err(Fault::Protocol("a message without a topic")),
            false => Ok(message),
        }
    }

    /// A number that is the same for the same message sent again, and hardly for another.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = foldhash::quality::FixedState::default().build_hasher();
        let mut add = |bytes: &[u8]| {
            hasher.write_usize(bytes.len());
            hasher.write(bytes);
        };
        add(self.topic.as_bytes());
        add(self.content_type.as_deref().unwrap_or_default().as_bytes());
        for (name, value) in self.headers.iter() {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        add(&self.body);
        hasher.finish()
    }
}

fn has_nul(text: &str) -> bool {
    text.as_bytes().contains(&0)
}

impl Value<'_> {
    /// Whether a text of it has a character that MQTT refuses.
    fn has_nul(self) -> bool {
        match self {
            Value::Text(text) => has_nul(text),
            Value::Pair(name, value) => has_nul(name) || has_nul(value),
            Value::Number(_) | Value::Binary(_) => false,
        }
    }
}

/// A message that goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) message: &'a Publication,
    pub(crate) qos: Qos,
    /// 0 where the quality of service is 0.
    pub(crate) id: u16,
    /// It may have arrived before.
    pub(crate) again: bool,
    /// Seconds, in place of the message's own.
    pub(crate) expiry: Option<u32>,
}

/// Why a message cannot be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Bytes, and how many there may be.
    TooLarge { length: usize, length_max: usize },
    /// A text with a character that MQTT refuses.
    Nul,
}

impl Outgoing<'_> {
    /// Writes it, unless it has more bytes than a packet may have.
    pub(crate) fn write(&self, out: &mut Output, packet_max: usize) -> Result<(), Unfit> {
        self.check_texts()?;
        let properties = self.properties_length();
        let identifier = if self.qos == Qos::Zero { 0 } else { 2 };
        let topic = self.message.topic.as_str();
        let length = 2 + topic.len() + identifier;
        let length = length + variable_length(properties) + properties + self.message.body.len();
        let total = 1 + variable_length(length) + length;
        let length_max = packet_max.min(1 + 4 + LENGTH_MAX);
        if total > length_max {
            return Err(Unfit::TooLarge {
                length: total,
                length_max,
            });
        }
        let start = out.end();
        let again = u8::from(self.again) << 3;
        out.u8(kind::PUBLISH << 4 | again | self.qos.bits() << 1);
        out.variable(length);
        out.binary(topic.as_bytes());
        if self.qos != Qos::Zero {
            out.u16(self.id);
        }
        self.write_properties(out, properties);
        out.body(&self.message.body);
        out.publication(start);
        Ok(())
    }

    fn check_texts(&self) -> Result<(), Unfit> {
        let headers = self.message.headers.iter();
        let texts = headers.flat_map(|(name, value)| [name, value]);
        for text in texts.chain(self.message.content_type.as_deref()) {
            if text.len() > TEXT_MAX {
                return Err(Unfit::TooLarge {
                    length: text.len(),
                    length_max: TEXT_MAX,
                });
            }
            if has_nul(text) {
                return Err(Unfit::Nul);
            }
        }
        Ok(())
    }

    fn properties_length(&self) -> usize {
        let content_type = self.message.content_type.as_ref();
        let content_type = content_type.map_or(0, |text| 3 + text.len());
        let expiry = self.expiry.map_or(0, |_| 5);
        content_type + expiry + 5 * self.message.headers.len() + self.message.headers.bytes()
    }

    fn write_properties(&self, out: &mut Output, length: usize) {
        out.variable(length);
        if let Some(seconds) = self.expiry {
            out.u8(property::MESSAGE_EXPIRY);
            out.u32(seconds);
        }
        if let Some(text) = &self.message.content_type {
            out.u8(property::CONTENT_TYPE);
            out.binary(text.as_bytes());
        }
        for (name, value) in self.message.headers.iter() {
            out.u8(property::USER);
            out.binary(name.as_bytes());
            out.binary(value.as_bytes());
        }
    }
}
