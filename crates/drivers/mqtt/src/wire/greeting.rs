//! The first packet of each side.

use super::cursor::{Cursor, Value};
use super::output::variable_length;
use super::{Fault, Output, Qos, Reason, kind, property};

/// CONNECT: who we are and what we can take.
#[derive(Debug, Clone)]
pub(crate) struct Connect<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) user: Option<&'a str>,
    pub(crate) password: Option<&'a str>,
    /// Seconds.
    pub(crate) keep_alive: u16,
    /// Whether the session of this client id is thrown away.
    pub(crate) clean_start: bool,
    /// Seconds that the session outlives the connection.
    pub(crate) session_expiry: u32,
    /// Messages that may be unacknowledged; 65,535 is what a broker assumes.
    pub(crate) receive_max: u16,
    /// Bytes of a packet; `None`: without a limit.
    pub(crate) packet_max: Option<u32>,
}

impl Connect<'_> {
    pub(crate) fn write(&self, out: &mut Output) {
        let properties = self.properties_length();
        let texts = [Some(self.client_id), self.user, self.password];
        let texts = texts.into_iter().flatten();
        let length = 10 + variable_length(properties) + properties;
        let length = length + texts.clone().map(|text| 2 + text.len()).sum::<usize>();
        out.u8(kind::CONNECT << 4);
        out.variable(length);
        out.binary(b"MQTT");
        out.u8(5);
        let flag = |is_set: bool, bit: u8| u8::from(is_set) << bit;
        out.u8(flag(self.user.is_some(), 7)
            | flag(self.password.is_some(), 6)
            | flag(self.clean_start, 1));
        out.u16(self.keep_alive);
        out.variable(properties);
        if self.session_expiry > 0 {
            out.u8(property::SESSION_EXPIRY);
            out.u32(self.session_expiry);
        }
        if self.receive_max < u16::MAX {
            out.u8(property::RECEIVE_MAXIMUM);
            out.u16(self.receive_max);
        }
        if let Some(max) = self.packet_max {
            out.u8(property::MAXIMUM_PACKET);
            out.u32(max);
        }
        texts.for_each(|text| out.binary(text.as_bytes()));
    }

    fn properties_length(&self) -> usize {
        let expiry = if self.session_expiry > 0 { 5 } else { 0 };
        let receive = if self.receive_max < u16::MAX { 3 } else { 0 };
        let packet = if self.packet_max.is_some() { 5 } else { 0 };
        expiry + receive + packet
    }
}

/// CONNACK: whether we are welcome, and what the broker can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) session_present: bool,
    pub(crate) reason: Reason,
    /// The broker's own words, or the server that it refers to.
    pub(crate) words: Option<String>,
    pub(crate) receive_max: u16,
    pub(crate) qos_max: Qos,
    /// Bytes of a packet; `None`: without a limit.
    pub(crate) packet_max: Option<u32>,
    /// Seconds, in place of those that we wished for.
    pub(crate) keep_alive: Option<u16>,
    /// Seconds, in place of those that we wished for.
    pub(crate) session_expiry: Option<u32>,
}

impl Welcome {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut cursor = Cursor::new(bytes);
        let flags = cursor.u8()?;
        if flags > 1 {
            return Err(Fault::Malformed("unknown flags in CONNACK"));
        }
        let mut welcome = Welcome {
            session_present: flags == 1,
            reason: Reason(cursor.u8()?),
            words: None,
            receive_max: u16::MAX,
            qos_max: Qos::Two,
            packet_max: None,
            keep_alive: None,
            session_expiry: None,
        };
        // A broker of an older version answers without properties.
        if cursor.is_empty() {
            return Ok(welcome);
        }
        let mut properties = cursor.properties()?;
        while let Some((id, value)) = properties.property()? {
            welcome.take(id, value)?;
        }
        Ok(welcome)
    }

    fn take(&mut self, id: u8, value: Value<'_>) -> Result<(), Fault> {
        match (id, value) {
            (property::RECEIVE_MAXIMUM, Value::Number(max)) if max > 0 => {
                self.receive_max = max as u16;
            }
            (property::MAXIMUM_QOS, Value::Number(max @ 0..=1)) => {
                self.qos_max = Qos::from_bits(max as u8)?;
            }
            (property::MAXIMUM_PACKET, Value::Number(max)) if max > 0 => {
                self.packet_max = Some(max);
            }
            (
                property::RECEIVE_MAXIMUM | property::MAXIMUM_QOS | property::MAXIMUM_PACKET,
                Value::Number(_),
            ) => return Err(Fault::Protocol("a limit that allows nothing")),
            (property::SERVER_KEEP_ALIVE, Value::Number(seconds)) => {
                self.keep_alive = Some(seconds as u16);
            }
            (property::SESSION_EXPIRY, Value::Number(seconds)) => {
                self.session_expiry = Some(seconds);
            }
            (property::REASON_STRING | property::SERVER_REFERENCE, Value::Text(words)) => {
                self.words = Some(words.to_owned());
            }
            // What else a broker tells does not change what we do.
            _ => {}
        }
        Ok(())
    }
}
