//! What MQTT 5 puts on the wire: the packets that a client sends and receives, and nothing of what they
//! lead to. Texts are borrowed from the packet and bodies are cut out of it, so that a message costs no
//! copy beyond those that it is kept in.

mod cursor;
mod frame;
mod greeting;
mod output;
mod packet;
mod publish;
mod reason;
#[cfg(test)]
mod tests;

pub(crate) use frame::frame;
pub(crate) use greeting::{Connect, Welcome};
pub(crate) use output::Output;
pub(crate) use packet::{
    Ack, Packet, Retained, Verdicts, disconnect, ping, subscribe, unsubscribe, write_ack,
};
pub(crate) use publish::{Incoming, Outgoing, Unfit};
pub(crate) use reason::Reason;

/// The first half of a packet's first byte.
pub(crate) mod kind {
    pub(crate) const CONNECT: u8 = 1;
    pub(crate) const CONNACK: u8 = 2;
    pub(crate) const PUBLISH: u8 = 3;
    pub(crate) const PUBACK: u8 = 4;
    pub(crate) const PUBREC: u8 = 5;
    pub(crate) const PUBREL: u8 = 6;
    pub(crate) const PUBCOMP: u8 = 7;
    pub(crate) const SUBSCRIBE: u8 = 8;
    pub(crate) const SUBACK: u8 = 9;
    pub(crate) const UNSUBSCRIBE: u8 = 10;
    pub(crate) const UNSUBACK: u8 = 11;
    pub(crate) const PINGREQ: u8 = 12;
    pub(crate) const PINGRESP: u8 = 13;
    pub(crate) const DISCONNECT: u8 = 14;
}

/// Identifiers of properties.
pub(crate) mod property {
    pub(crate) const PAYLOAD_FORMAT: u8 = 0x01;
    pub(crate) const MESSAGE_EXPIRY: u8 = 0x02;
    pub(crate) const CONTENT_TYPE: u8 = 0x03;
    pub(crate) const RESPONSE_TOPIC: u8 = 0x08;
    pub(crate) const CORRELATION: u8 = 0x09;
    pub(crate) const SUBSCRIPTION: u8 = 0x0b;
    pub(crate) const SESSION_EXPIRY: u8 = 0x11;
    pub(crate) const ASSIGNED_CLIENT: u8 = 0x12;
    pub(crate) const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub(crate) const AUTH_METHOD: u8 = 0x15;
    pub(crate) const AUTH_DATA: u8 = 0x16;
    pub(crate) const RESPONSE_INFORMATION: u8 = 0x1a;
    pub(crate) const SERVER_REFERENCE: u8 = 0x1c;
    pub(crate) const REASON_STRING: u8 = 0x1f;
    pub(crate) const RECEIVE_MAXIMUM: u8 = 0x21;
    pub(crate) const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
    pub(crate) const TOPIC_ALIAS: u8 = 0x23;
    pub(crate) const MAXIMUM_QOS: u8 = 0x24;
    pub(crate) const RETAIN_AVAILABLE: u8 = 0x25;
    pub(crate) const USER: u8 = 0x26;
    pub(crate) const MAXIMUM_PACKET: u8 = 0x27;
    pub(crate) const WILDCARDS: u8 = 0x28;
    pub(crate) const IDENTIFIERS: u8 = 0x29;
    pub(crate) const SHARED: u8 = 0x2a;
}

/// Quality of service: how often a message may arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Qos {
    /// At most once.
    Zero,
    /// At least once.
    One,
    /// Exactly once.
    Two,
}

impl Qos {
    pub(crate) fn from_bits(bits: u8) -> Result<Self, Fault> {
        match bits {
            0 => Ok(Qos::Zero),
            1 => Ok(Qos::One),
            2 => Ok(Qos::Two),
            _ => Err(Fault::Malformed("a quality of service above 2")),
        }
    }

    pub(crate) fn bits(self) -> u8 {
        self as u8
    }
}

/// What a broker did that no broker may do; the connection ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("the broker sent a malformed packet ({0}); is it an MQTT 5 broker?")]
    Malformed(&'static str),
    #[error("the broker broke the protocol: {0}")]
    Protocol(&'static str),
    #[error("the broker sent a packet of {0} bytes, more than the maximum that it was told")]
    TooLarge(usize),
    #[error("the broker sent far more unacknowledged messages than the receive maximum")]
    TooMany,
}

impl Fault {
    /// What the broker is told on leaving.
    pub(crate) fn reason(self) -> Reason {
        Reason(match self {
            Fault::Malformed(_) => 0x81,
            Fault::Protocol(_) => 0x82,
            Fault::TooLarge(_) => 0x95,
            Fault::TooMany => 0x93,
        })
    }
}
