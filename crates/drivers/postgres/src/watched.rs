//! A stream whose bytes are looked at on their way in: the server ends every answer with ReadyForQuery, which
//! says whether a transaction is open, and tokio-postgres keeps that to itself.
//!
//! Only the heads of messages are looked at. The stream lies above encryption.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsStream};

/// Tag and length of a message.
const HEAD: usize = 5;
const READY_FOR_QUERY: u8 = b'Z';
const IDLE: u8 = b'I';

/// What the server said last about its transaction.
#[derive(Debug)]
pub(crate) struct ServerStatus(AtomicU8);

impl Default for ServerStatus {
    fn default() -> Self {
        ServerStatus(AtomicU8::new(IDLE))
    }
}

impl ServerStatus {
    /// Whether a transaction is open, be it one that an error has ended.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.0.load(Ordering::Acquire) != IDLE
    }
}

/// A stream of the server's messages.
pub(crate) struct Watched<S> {
    stream: S,
    messages: Messages,
    status: Arc<ServerStatus>,
}

impl<S> Watched<S> {
    /// Watches from the first byte; `asks`: the answer of one byte to a request for encryption comes first.
    pub(crate) fn new(stream: S, status: Arc<ServerStatus>, asks: bool) -> Self {
        Watched {
            stream,
            messages: Messages {
                left: usize::from(asks),
                ..Messages::default()
            },
            status,
        }
    }

    /// Watches no more.
    pub(crate) fn into_parts(self) -> (S, Arc<ServerStatus>) {
        (self.stream, self.status)
    }
}

/// Where one message ends and the next begins.
#[derive(Debug, Default)]
struct Messages {
    /// Bytes of the present message that are still to come.
    left: usize,
    /// The present message is ReadyForQuery, whose one byte is the status.
    is_ready: bool,
    /// The beginning of a head that was cut by the end of a read.
    head: [u8; HEAD],
    known: usize,
}

impl Messages {
    /// Takes the next bytes; gives the last status among them.
    fn take(&mut self, mut bytes: &[u8]) -> Option<u8> {
        let mut status = None;
        loop {
            if self.left > 0 {
                let Some(first) = bytes.first() else {
                    return status;
                };
                if std::mem::take(&mut self.is_ready) {
                    status = Some(*first);
                }
                let now = self.left.min(bytes.len());
                self.left -= now;
                bytes = &bytes[now..];
            }
            if self.left > 0 {
                return status;
            }
            match bytes.split_first_chunk::<HEAD>() {
                Some((head, rest)) if self.known == 0 => {
                    self.begin(*head);
                    bytes = rest;
                }
                _ => {
                    let missing = (HEAD - self.known).min(bytes.len());
                    let (now, rest) = bytes.split_at(missing);
                    self.head[self.known..self.known + missing].copy_from_slice(now);
                    self.known += missing;
                    if self.known < HEAD {
                        return status;
                    }
                    self.known = 0;
                    self.begin(self.head);
                    bytes = rest;
                }
            }
        }
    }

    fn begin(&mut self, head: [u8; HEAD]) {
        let [tag, length @ ..] = head;
        // The length counts itself. A smaller one is the library's to refuse.
        self.left = (u32::from_be_bytes(length) as usize).saturating_sub(4);
        self.is_ready = tag == READY_FOR_QUERY;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready()
            && let Some(status) = self.messages.take(&buf.filled()[before..])
        {
            self.status.0.store(status, Ordering::Release);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Watched<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut message = vec![tag];
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(body);
        message
    }

    /// What a conversation says, cut into pieces of so many bytes.
    fn read(bytes: &[u8], piece: usize, asks: bool) -> Vec<u8> {
        let mut messages = Messages {
            left: usize::from(asks),
            ..Messages::default()
        };
        bytes
            .chunks(piece)
            .filter_map(|bytes| messages.take(bytes))
            .collect()
    }

    #[test]
    fn the_last_status_is_found_however_the_bytes_are_cut() {
        let mut bytes = vec![b'N'];
        for (tag, body) in [
            (b'R', &b"\0\0\0\0"[..]),
            (b'Z', b"I"),
            (b'C', b"BEGIN\0"),
            (b'Z', b"T"),
            // A row that looks like the end of an answer, and messages without a body.
            (b'D', b"Z\0\0\0\x05I"),
            (b'n', b""),
            (b'2', b""),
            (b'Z', b"E"),
            (b'N', b"SWARNING\0\0"),
        ] {
            bytes.extend(message(tag, body));
        }
        for piece in 1..=bytes.len() {
            let found = read(&bytes, piece, true);
            assert_eq!(found.last(), Some(&b'E'), "{piece}");
            if piece < HEAD {
                assert_eq!(found, [b'I', b'T', b'E'], "{piece}");
            }
        }
    }

    #[test]
    fn without_a_request_for_encryption_the_first_byte_is_a_messages() {
        assert_eq!(read(&message(b'Z', b"T"), 100, false), [b'T']);
        assert!(read(&message(b'Z', b"T"), 100, true).is_empty());
    }

    #[test]
    fn a_length_that_makes_no_sense_ends_nothing() {
        let mut bytes = vec![b'Z', 0, 0, 0, 0];
        bytes.extend(message(b'Z', b"T"));
        assert_eq!(read(&bytes, 3, false), [b'T']);
        let huge = [b'D', 0xff, 0xff, 0xff, 0xff, 1, 2, 3];
        assert!(read(&huge, 2, false).is_empty());
    }
}
