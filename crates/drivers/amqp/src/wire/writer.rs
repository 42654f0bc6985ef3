//! Methods that we send.

use bytes::{BufMut, BytesMut};

use super::frame::{END, Kind};

type Number = (u16, u16);

pub(crate) const START_OK: Number = (10, 11);
pub(crate) const TUNE_OK: Number = (10, 31);
pub(crate) const CONNECTION_OPEN: Number = (10, 40);
pub(crate) const CONNECTION_CLOSE: Number = (10, 50);
pub(crate) const CONNECTION_CLOSE_OK: Number = (10, 51);
pub(crate) const CHANNEL_OPEN: Number = (20, 10);
pub(crate) const CHANNEL_CLOSE: Number = (20, 40);
pub(crate) const CHANNEL_CLOSE_OK: Number = (20, 41);
pub(crate) const EXCHANGE_DECLARE: Number = (40, 10);
pub(crate) const QUEUE_DECLARE: Number = (50, 10);
pub(crate) const QUEUE_BIND: Number = (50, 20);
pub(crate) const BASIC_QOS: Number = (60, 10);
pub(crate) const BASIC_CONSUME: Number = (60, 20);
pub(crate) const BASIC_PUBLISH: Number = (60, 40);
pub(crate) const BASIC_ACK: Number = (60, 80);
pub(crate) const CONFIRM_SELECT: Number = (85, 10);

/// Writes one frame; [`FrameWriter::end`] closes it.
#[derive(Debug)]
pub(crate) struct FrameWriter<'a> {
    into: &'a mut BytesMut,
    /// Where its length stands.
    length_at: usize,
}

impl<'a> FrameWriter<'a> {
    pub(crate) fn begin(into: &'a mut BytesMut, kind: Kind, channel: u16) -> Self {
        into.put_u8(kind.octet());
        into.put_u16(channel);
        let length_at = into.len();
        into.put_u32(0);
        FrameWriter { into, length_at }
    }

    /// Goes on with the last frame, which begins at `at`.
    pub(crate) fn again(into: &'a mut BytesMut, at: usize) -> Self {
        into.truncate(into.len() - 1);
        FrameWriter {
            into,
            length_at: at + 3,
        }
    }

    pub(crate) fn method(into: &'a mut BytesMut, channel: u16, (class, method): Number) -> Self {
        let frame = Self::begin(into, Kind::Method, channel);
        frame.u16(class).u16(method)
    }

    pub(crate) fn u8(self, value: u8) -> Self {
        self.into.put_u8(value);
        self
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.into.put_u16(value);
        self
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.into.put_u32(value);
        self
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.into.put_u64(value);
        self
    }

    /// A text of at most 255 bytes; what is longer is cut.
    pub(crate) fn short(self, text: &str) -> Self {
        let bytes = &text.as_bytes()[..text.len().min(255)];
        self.into.put_u8(bytes.len() as u8);
        self.into.put_slice(bytes);
        self
    }

    pub(crate) fn long(self, bytes: &[u8]) -> Self {
        self.into.put_u32(bytes.len() as u32);
        self.into.put_slice(bytes);
        self
    }

    /// A table whose fields `fill` writes.
    pub(crate) fn table(self, fill: impl FnOnce(&mut BytesMut)) -> Self {
        let at = self.into.len();
        self.into.put_u32(0);
        fill(self.into);
        measure(self.into, at);
        self
    }

    pub(crate) fn end(self) {
        measure(self.into, self.length_at);
        self.into.put_u8(END);
    }
}

/// Writes at `at` how many bytes came after the four there.
fn measure(into: &mut BytesMut, at: usize) {
    let length = (into.len() - at - 4) as u32;
    into[at..at + 4].copy_from_slice(&length.to_be_bytes());
}
