//! From the first byte to an open connection, and channel 0 after that.

use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;

use super::{End, FRAME_MAX, FRAME_MIN, Phase, Session};
use crate::wire::{self, FrameWriter, Incoming, Output};

/// What a client says first.
const PROTOCOL: &[u8] = b"AMQP\0\0\x09\x01";
/// Channels that we ask for at most; RabbitMQ's own default.
const CHANNEL_MAX: u16 = 2047;

/// Codes of a close that somebody has to do something about: access refused, no such virtual host, not allowed.
const REFUSALS: [u16; 3] = [402, 403, 530];

/// As whom to log in.
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Session {
    /// Begins to speak.
    pub(crate) fn greet(out: &mut Output) {
        out.write(|bytes| bytes.put_slice(PROTOCOL));
    }

    /// A method on channel 0.
    pub(super) fn connection(
        &mut self,
        method: Incoming<'_>,
        login: &Login,
        out: &mut Output,
    ) -> Result<(), End> {
        match (self.phase, method) {
            (Phase::Start, Incoming::Start { mechanisms }) => self.log_in(mechanisms, login, out),
            (
                Phase::Tune,
                Incoming::Tune {
                    channel_max,
                    frame_max,
                    heartbeat,
                },
            ) => self.tune(channel_max, frame_max, heartbeat, out),
            (Phase::Open, Incoming::ConnectionOpenOk) => {
                self.phase = Phase::Prepare;
                self.publisher.open(out);
                Ok(())
            }
            (_, Incoming::ConnectionClose { code, text }) => {
                out.write(|bytes| FrameWriter::method(bytes, 0, wire::CONNECTION_CLOSE_OK).end());
                let reason = format!("the broker ended the connection: {code} {text}");
                match REFUSALS.contains(&code) {
                    true => Err(End::refused(reason)),
                    false => Err(End::lost(reason)),
                }
            }
            (_, Incoming::ConnectionCloseOk) => {
                self.phase = Phase::Closed;
                Ok(())
            }
            (_, Incoming::Blocked { reason }) => {
                self.blocked = Some(reason.into());
                Ok(())
            }
            (_, Incoming::Unblocked) => {
                self.blocked = None;
                Ok(())
            }
            (Phase::Closing | Phase::Closed, _) => Ok(()),
            (phase, method) => Err(End::lost(format!(
                "it sent {method:?} in the phase {phase:?}"
            ))),
        }
    }

    fn log_in(&mut self, mechanisms: &[u8], login: &Login, out: &mut Output) -> Result<(), End> {
        if !mechanisms
            .split(|byte| *byte == b' ')
            .any(|name| name == b"PLAIN")
        {
            let offered = String::from_utf8_lossy(mechanisms);
            return Err(End::refused(format!(
                "the broker offers the logins {offered}, and only PLAIN is spoken; switch it on there"
            )));
        }
        let response = [
            b"\0",
            login.user.as_bytes(),
            b"\0",
            login.password.as_bytes(),
        ]
        .concat();
        let name = &self.settings.connection_name;
        out.write(|bytes| {
            FrameWriter::method(bytes, 0, wire::START_OK)
                .table(|table| write_client(table, name))
                .short("PLAIN")
                .long(&response)
                .short("en_US")
                .end();
        });
        self.phase = Phase::Tune;
        Ok(())
    }

    fn tune(
        &mut self,
        channel_max: u16,
        frame_max: u32,
        heartbeat: u16,
        out: &mut Output,
    ) -> Result<(), End> {
        // Zero: no limit there.
        let frame_max = match frame_max as usize {
            0 => FRAME_MAX,
            given if given < FRAME_MIN => {
                return Err(End::lost(format!(
                    "it takes frames of {given} bytes, and {FRAME_MIN} are the least"
                )));
            }
            given => given.min(FRAME_MAX),
        };
        let channel_max = if channel_max == 0 {
            CHANNEL_MAX
        } else {
            channel_max.min(CHANNEL_MAX)
        };
        let ours = self.settings.heartbeat_seconds();
        let heartbeat = if heartbeat == 0 {
            ours
        } else {
            heartbeat.min(ours)
        };
        self.limits = super::Limits {
            frame_max,
            channel_max,
            heartbeat: Duration::from_secs(heartbeat.into()),
        };
        let vhost = Arc::clone(&self.settings);
        out.write(|bytes| {
            FrameWriter::method(bytes, 0, wire::TUNE_OK)
                .u16(channel_max)
                .u32(frame_max as u32)
                .u16(heartbeat)
                .end();
            FrameWriter::method(bytes, 0, wire::CONNECTION_OPEN)
                .short(&vhost.vhost)
                .u8(0)
                .u8(0)
                .end();
        });
        self.phase = Phase::Open;
        Ok(())
    }
}

/// Who we are, and what of RabbitMQ's own we know.
fn write_client(table: &mut bytes::BytesMut, connection_name: &str) {
    let texts = [
        ("product", "Mainstay"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("connection_name", connection_name),
    ];
    for (name, value) in texts {
        put_name(table, name);
        table.put_u8(b'S');
        table.put_u32(value.len() as u32);
        table.put_slice(value.as_bytes());
    }
    put_name(table, "capabilities");
    table.put_u8(b'F');
    let mut capabilities = bytes::BytesMut::new();
    for name in [
        "authentication_failure_close",
        "basic.nack",
        "connection.blocked",
        "consumer_cancel_notify",
        "publisher_confirms",
    ] {
        put_name(&mut capabilities, name);
        capabilities.put_slice(b"t\x01");
    }
    table.put_u32(capabilities.len() as u32);
    table.put_slice(&capabilities);
}

fn put_name(table: &mut bytes::BytesMut, name: &str) {
    table.put_u8(name.len() as u8);
    table.put_slice(name.as_bytes());
}
