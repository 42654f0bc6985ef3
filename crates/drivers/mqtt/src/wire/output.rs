//! What waits to be written: small packets together, large bodies by themselves and uncopied.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bodies from this size on are not copied into the buffer.
const LARGE: usize = 16 * 1024;

/// Bytes on their way to the socket, counted from the connection's beginning.
#[derive(Debug, Default)]
pub(crate) struct Output {
    parts: VecDeque<Bytes>,
    tail: BytesMut,
    waiting: usize,
    written: u64,
    /// Where publications that are not written whole begin and end; those that follow each other are one.
    publications: VecDeque<(u64, u64)>,
}

impl Output {
    /// Forgets everything: another connection begins.
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.tail.clear();
        self.waiting = 0;
        self.written = 0;
        self.publications.clear();
    }

    /// How many bytes wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many of them are no publications: questions and answers.
    pub(crate) fn waiting_besides(&self) -> usize {
        let publications = self.publications.iter();
        let lengths = publications.map(|(start, end)| end - self.written.max(*start));
        self.waiting - lengths.sum::<u64>() as usize
    }

    /// What was put in since this place is a publication.
    pub(crate) fn publication(&mut self, start: u64) {
        let end = self.end();
        match self.publications.back_mut() {
            Some((_, last)) if *last == start => *last = end,
            _ => self.publications.push_back((start, end)),
        }
    }

    /// How many bytes were written on this connection.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Where the next byte will stand.
    pub(crate) fn end(&self) -> u64 {
        self.written + self.waiting as u64
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.tail.put_u8(value);
        self.waiting += 1;
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.slice(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.slice(&value.to_be_bytes());
    }

    /// A number of one to four bytes.
    pub(crate) fn variable(&mut self, mut value: usize) {
        loop {
            let byte = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                return self.u8(byte);
            }
            self.u8(byte | 0x80);
        }
    }

    pub(crate) fn slice(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.waiting += bytes.len();
    }

    /// Bytes behind their length, of which two bytes must be enough.
    pub(crate) fn binary(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= usize::from(u16::MAX));
        self.u16(bytes.len() as u16);
        self.slice(bytes);
    }

    /// A body.
    pub(crate) fn body(&mut self, body: &Bytes) {
        if body.len() < LARGE {
            return self.slice(body);
        }
        if !self.tail.is_empty() {
            self.parts.push_back(self.tail.split().freeze());
        }
        self.waiting += body.len();
        self.parts.push_back(body.clone());
    }
}

/// How many bytes a number takes that [`Output::variable`] writes.
pub(crate) fn variable_length(value: usize) -> usize {
    match value {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    }
}

impl Buf for Output {
    fn remaining(&self) -> usize {
        self.waiting
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map_or(&self.tail[..], |part| &part[..])
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts = self.parts.iter().map(Bytes::as_ref);
        let tail = Some(self.tail.as_ref()).filter(|tail| !tail.is_empty());
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(parts.chain(tail)) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        self.written += count as u64;
        self.waiting -= count;
        while self
            .publications
            .front()
            .is_some_and(|(_, end)| *end <= self.written)
        {
            self.publications.pop_front();
        }
        while count > 0 {
            match self.parts.front_mut() {
                Some(part) if part.len() <= count => {
                    count -= part.len();
                    self.parts.pop_front();
                }
                Some(part) => return part.advance(count),
                None => return self.tail.advance(count),
            }
        }
    }
}
