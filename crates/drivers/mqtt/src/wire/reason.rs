//! Reason codes in words.

use std::fmt;

/// A reason code of MQTT 5; from 0x80 on it is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reason(pub(crate) u8);

impl Reason {
    pub(crate) const SUCCESS: Reason = Reason(0);
    /// A message that nobody has subscribed to.
    pub(crate) const NOBODY: Reason = Reason(0x10);
    /// We cannot do anything with the message.
    pub(crate) const UNCLAIMED: Reason = Reason(0x83);
    pub(crate) const TAKEN_OVER: Reason = Reason(0x8e);
    pub(crate) const UNKNOWN_IDENTIFIER: Reason = Reason(0x92);
    pub(crate) const TOO_LARGE: Reason = Reason(0x95);

    pub(crate) fn is_failure(self) -> bool {
        self.0 >= 0x80
    }

    /// Whether the broker is short of something for now.
    pub(crate) fn is_shortage(self) -> bool {
        matches!(self.0, 0x89 | 0x96 | 0x97)
    }

    /// Whether somebody has to change something before a connection can stand.
    pub(crate) fn is_refusal(self) -> bool {
        self.is_failure() && !matches!(self.0, 0x80 | 0x88 | 0x89 | 0x8b | 0x8d | 0x97 | 0x9f)
    }

    fn words(self) -> &'static str {
        match self.0 {
            0x00 => "success",
            0x04 => "disconnected with the will",
            0x10 => "no matching subscribers",
            0x11 => "no subscription existed",
            0x80 => "unspecified error",
            0x81 => "malformed packet",
            0x82 => "protocol error",
            0x83 => "implementation specific error",
            0x84 => "the broker speaks no MQTT 5",
            0x85 => "client identifier not valid",
            0x86 => "bad user name or password",
            0x87 => "not authorized",
            0x88 => "server unavailable",
            0x89 => "server busy",
            0x8a => "banned",
            0x8b => "server shutting down",
            0x8c => "bad authentication method",
            0x8d => "keep alive timeout",
            0x8e => "session taken over: another client with the same identifier has connected",
            0x8f => "topic filter invalid",
            0x90 => "topic name invalid",
            0x91 => "packet identifier in use",
            0x92 => "packet identifier not found",
            0x93 => "receive maximum exceeded",
            0x94 => "topic alias invalid",
            0x95 => "packet too large",
            0x96 => "message rate too high",
            0x97 => "quota exceeded",
            0x98 => "administrative action",
            0x99 => "payload format invalid",
            0x9a => "retain not supported",
            0x9b => "quality of service not supported",
            0x9c => "use another server",
            0x9d => "server moved",
            0x9e => "shared subscriptions not supported",
            0x9f => "connection rate exceeded",
            0xa0 => "maximum connect time",
            0xa1 => "subscription identifiers not supported",
            0xa2 => "wildcard subscriptions not supported",
            _ => "unknown reason",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:02x})", self.words(), self.0)
    }
}
