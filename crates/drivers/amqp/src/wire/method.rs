//! Methods that a broker sends.

use super::reader::{Cut, Reader, words};

/// A method that came. Of what a driver does not use nothing but the number is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Incoming<'a> {
    Start {
        mechanisms: &'a [u8],
    },
    Tune {
        channel_max: u16,
        frame_max: u32,
        heartbeat: u16,
    },
    ConnectionOpenOk,
    ConnectionClose {
        code: u16,
        text: String,
    },
    ConnectionCloseOk,
    Blocked {
        reason: String,
    },
    Unblocked,
    ChannelOpenOk,
    ChannelClose {
        code: u16,
        text: String,
    },
    ChannelCloseOk,
    ExchangeDeclareOk,
    QueueDeclareOk {
        queue: &'a [u8],
    },
    QueueBindOk,
    QosOk,
    ConsumeOk,
    /// The broker ended a consumer: its queue is gone.
    Cancel,
    Return {
        code: u16,
        text: String,
    },
    Deliver {
        tag: u64,
        redelivered: bool,
        key: &'a [u8],
    },
    Ack {
        tag: u64,
        multiple: bool,
    },
    Nack {
        tag: u64,
        multiple: bool,
    },
    SelectOk,
    Other(u16, u16),
}

/// A method whose arguments do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it sent the method {class}.{method} cut short")]
pub(crate) struct MethodError {
    class: u16,
    method: u16,
}

impl<'a> Incoming<'a> {
    pub(crate) fn read(payload: &'a [u8]) -> Result<Self, MethodError> {
        let mut reader = Reader::new(payload);
        let number = reader.u16().and_then(|class| Ok((class, reader.u16()?)));
        let (class, method) = number.unwrap_or((0, 0));
        if number.is_err() {
            return Err(MethodError { class, method });
        }
        Self::arguments(class, method, &mut reader).map_err(|Cut| MethodError { class, method })
    }

    fn arguments(class: u16, method: u16, reader: &mut Reader<'a>) -> Result<Self, Cut> {
        Ok(match (class, method) {
            (10, 10) => {
                reader.take(2)?;
                reader.long()?;
                Incoming::Start {
                    mechanisms: reader.long()?,
                }
            }
            (10, 30) => Incoming::Tune {
                channel_max: reader.u16()?,
                frame_max: reader.u32()?,
                heartbeat: reader.u16()?,
            },
            (10, 41) => Incoming::ConnectionOpenOk,
            (10, 50) => {
                let (code, text) = (reader.u16()?, words(reader.short()?));
                Incoming::ConnectionClose { code, text }
            }
            (10, 51) => Incoming::ConnectionCloseOk,
            (10, 60) => Incoming::Blocked {
                reason: words(reader.short()?),
            },
            (10, 61) => Incoming::Unblocked,
            (20, 11) => Incoming::ChannelOpenOk,
            (20, 40) => {
                let (code, text) = (reader.u16()?, words(reader.short()?));
                Incoming::ChannelClose { code, text }
            }
            (20, 41) => Incoming::ChannelCloseOk,
            (40, 11) => Incoming::ExchangeDeclareOk,
            (50, 11) => Incoming::QueueDeclareOk {
                queue: reader.short()?,
            },
            (50, 21) => Incoming::QueueBindOk,
            (60, _) => return Self::basic(method, reader),
            (85, 11) => Incoming::SelectOk,
            _ => Incoming::Other(class, method),
        })
    }

    fn basic(method: u16, reader: &mut Reader<'a>) -> Result<Self, Cut> {
        Ok(match method {
            11 => Incoming::QosOk,
            21 => Incoming::ConsumeOk,
            30 => Incoming::Cancel,
            50 => {
                let (code, text) = (reader.u16()?, words(reader.short()?));
                Incoming::Return { code, text }
            }
            60 => {
                reader.short()?;
                let (tag, redelivered) = (reader.u64()?, reader.u8()? != 0);
                reader.short()?;
                Incoming::Deliver {
                    tag,
                    redelivered,
                    key: reader.short()?,
                }
            }
            80 => Incoming::Ack {
                tag: reader.u64()?,
                multiple: reader.u8()? & 1 != 0,
            },
            120 => Incoming::Nack {
                tag: reader.u64()?,
                multiple: reader.u8()? & 1 != 0,
            },
            _ => Incoming::Other(60, method),
        })
    }
}
