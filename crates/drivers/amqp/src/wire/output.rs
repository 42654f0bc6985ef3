//! Bytes on their way to the socket.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::frame::{END, Kind};

/// Bodies below this are copied next to their heads: one piece is cheaper to write than three.
const COPIED_MAX: usize = 16 * 1024;

/// What is still to be written, in order. Large bodies are kept as they are, everything else is copied into one
/// piece.
#[derive(Debug, Default)]
pub(crate) struct Output {
    whole: VecDeque<Bytes>,
    tail: BytesMut,
    waiting: usize,
    /// Bytes that were ever put in.
    put: u64,
    /// Bytes that the socket has taken.
    taken: u64,
}

impl Output {
    /// Appends what `write` writes.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        write(&mut self.tail);
        self.count(self.tail.len() - before);
    }

    /// Appends frames of a body, none longer than `frame_max` as a whole.
    pub(crate) fn write_body(&mut self, channel: u16, body: &Bytes, frame_max: usize) {
        let part_max = frame_max - super::OVERHEAD;
        let mut from = 0;
        while from < body.len() {
            let part = body.slice(from..body.len().min(from + part_max));
            from += part.len();
            let length = part.len() as u32;
            self.write(|tail| {
                tail.put_u8(Kind::Body.octet());
                tail.put_u16(channel);
                tail.put_u32(length);
            });
            self.append(part);
            self.write(|tail| tail.put_u8(END));
        }
    }

    fn append(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_MAX {
            return self.write(|tail| tail.put_slice(&bytes));
        }
        if !self.tail.is_empty() {
            self.whole.push_back(self.tail.split().freeze());
        }
        self.count(bytes.len());
        self.whole.push_back(bytes);
    }

    fn count(&mut self, bytes: usize) {
        self.waiting += bytes;
        self.put += bytes as u64;
    }

    /// How many bytes were ever put in: the place where the next ones begin.
    pub(crate) fn place(&self) -> u64 {
        self.put
    }

    /// Whether the socket has taken anything from this place on.
    pub(crate) fn has_left(&self, place: u64) -> bool {
        self.taken > place
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.waiting
    }

    fn chunk(&self) -> &[u8] {
        self.whole.front().map_or(&self.tail, |first| first)
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let pieces = self
            .whole
            .iter()
            .map(|piece| &piece[..])
            .chain([&self.tail[..]]);
        let mut count = 0;
        for (slot, piece) in into
            .iter_mut()
            .zip(pieces.filter(|piece| !piece.is_empty()))
        {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        self.waiting -= count;
        self.taken += count as u64;
        while let Some(first) = self.whole.front_mut() {
            if count < first.len() {
                return first.advance(count);
            }
            count -= first.len();
            self.whole.pop_front();
        }
        self.tail.advance(count);
        if self.tail.is_empty() {
            // What it holds is used again from its beginning.
            self.tail.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_leave_in_order_and_are_counted() {
        let mut output = Output::default();
        output.write(|tail| tail.put_slice(b"head"));
        let body = Bytes::from(vec![7; COPIED_MAX + 10]);
        output.write_body(1, &body, COPIED_MAX + 8 + 9);
        let mut expected = b"head".to_vec();
        for part in body.chunks(COPIED_MAX + 9) {
            expected.extend([3, 0, 1]);
            expected.extend((part.len() as u32).to_be_bytes());
            expected.extend(part);
            expected.push(END);
        }
        assert_eq!(
            (output.remaining(), output.place()),
            (expected.len(), expected.len() as u64)
        );
        let mut written: Vec<u8> = Vec::new();
        while output.has_remaining() {
            let mut slices = [IoSlice::new(&[]); 8];
            let count = output.chunks_vectored(&mut slices);
            let seen: usize = slices[..count].iter().map(|slice| slice.len()).sum();
            assert_eq!(seen, output.remaining());
            let step = output.chunk().len().min(1000);
            written.extend(&output.chunk()[..step]);
            output.advance(step);
        }
        assert_eq!(written, expected);
        assert!(output.has_left(0) && !output.has_left(expected.len() as u64));
    }
}
