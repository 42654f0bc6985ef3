//! Cutting packets out of what has come.

use bytes::{Buf, Bytes, BytesMut};

use super::Fault;

/// Bodies of packets up to this size are copied out, so that the buffer they came in is used again;
/// larger ones are cut out of it.
const COPIED_MAX: usize = 16 * 1024;

/// The first bytes of a packet: what it is and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The first byte.
    pub(crate) first: u8,
    /// Bytes before the content.
    head: usize,
    /// Bytes of all.
    total: usize,
}

/// Reads the head of the packet at the beginning of the buffer. `Ok(Err(n))`: it is not all there, and
/// at least `n` more bytes are needed.
pub(crate) fn frame(buffer: &[u8], max: usize) -> Result<Result<Frame, usize>, Fault> {
    let Some((&first, rest)) = buffer.split_first() else {
        return Ok(Err(2));
    };
    let mut length = 0;
    for (place, &byte) in rest.iter().take(4).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let head = place + 2;
            let total = head + length;
            return match total {
                _ if total > max => Err(Fault::TooLarge(total)),
                _ if buffer.len() < total => Ok(Err(total - buffer.len())),
                _ => Ok(Ok(Frame { first, head, total })),
            };
        }
    }
    match rest.len() {
        0..=3 => Ok(Err(1)),
        _ => Err(Fault::Malformed("a length of more than four bytes")),
    }
}

impl Frame {
    /// Takes the packet out of the buffer and hands its content on, with the means to keep a part of it.
    pub(crate) fn take<T>(
        self,
        buffer: &mut BytesMut,
        read: impl FnOnce(&[u8], &Keep<'_>) -> T,
    ) -> T {
        if self.total <= COPIED_MAX {
            let read = read(&buffer[self.head..self.total], &Keep(None));
            buffer.advance(self.total);
            return read;
        }
        let whole = buffer.split_to(self.total).freeze();
        read(&whole[self.head..], &Keep(Some(&whole)))
    }
}

/// Keeps a part of a packet beyond its reading.
#[derive(Debug)]
pub(crate) struct Keep<'a>(Option<&'a Bytes>);

impl Keep<'_> {
    /// For a packet that lies by itself: parts are copied.
    #[cfg(test)]
    pub(crate) fn nothing() -> Self {
        Keep(None)
    }

    /// The part, which is one of the packet being read.
    pub(crate) fn part(&self, part: &[u8]) -> Bytes {
        match self.0 {
            // An empty part may lie beyond the packet.
            Some(whole) if !part.is_empty() => whole.slice_ref(part),
            _ => Bytes::copy_from_slice(part),
        }
    }
}
