//! Frames of at most 16 MiB over TCP or TLS. What was half read or half written stays here, whoever
//! waited for it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use mainstay_transport::TlsStream;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

use super::Broken;

/// A payload of exactly this length goes on in the next frame.
const FRAME_MAX: usize = 0xff_ffff;
const HEADER: usize = 4;
/// The longest packet that is read: a row beyond it ends the session.
const PACKET_MAX: usize = 256 << 20;
/// A buffer that has grown beyond this is given back once it is empty.
const KEPT_MAX: usize = 1 << 20;

/// A connection to a server.
pub(crate) enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Stream::Encrypted(_))
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Encrypted(stream) => stream.get_ref().0,
        }
    }

    /// Whether nothing has come in while nothing was asked for: an end, or last words of the server.
    fn is_quiet(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::new(0)];
        let peeked = SockRef::from(self.socket()).peek(&mut byte);
        matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Packets in and out.
pub(super) struct Frames {
    pub(super) stream: Stream,
    incoming: BytesMut,
    outgoing: BytesMut,
    /// The number that the next frame carries, in either direction.
    number: u8,
    /// A packet whose first frames have come.
    partial: BytesMut,
}

impl Frames {
    pub(super) fn new(stream: Stream) -> Self {
        Frames {
            stream,
            incoming: BytesMut::with_capacity(8 << 10),
            outgoing: BytesMut::with_capacity(1 << 10),
            number: 0,
            partial: BytesMut::new(),
        }
    }

    /// Whether the server has said nothing that nobody has read.
    pub(super) fn is_quiet(&self) -> bool {
        self.incoming.is_empty() && self.stream.is_quiet()
    }

    /// Goes on with this number after another has spoken on the stream.
    pub(super) fn resume(&mut self, number: u8) {
        self.number = number;
    }

    /// The next packet begins a new exchange.
    pub(super) fn begin(&mut self) {
        self.number = 0;
    }

    /// Puts a packet behind what is to be sent.
    pub(super) fn push(&mut self, payload: &[u8]) {
        let mut rest = payload;
        loop {
            let (part, behind) = rest.split_at(rest.len().min(FRAME_MAX));
            let header = (part.len() as u32).to_le_bytes();
            self.outgoing.extend_from_slice(&header[..3]);
            self.outgoing.extend_from_slice(&[self.number]);
            self.outgoing.extend_from_slice(part);
            self.number = self.number.wrapping_add(1);
            rest = behind;
            if part.len() < FRAME_MAX {
                return;
            }
        }
    }

    /// Sends what was pushed. A dropped future leaves the rest to the next one.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while self.outgoing.has_remaining() {
            if self.stream.write_buf(&mut self.outgoing).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        if self.outgoing.capacity() > KEPT_MAX {
            self.outgoing = BytesMut::new();
        }
        self.stream.flush().await
    }

    /// Sends as much of what was pushed as can be sent now; nothing on an encrypted stream.
    pub(super) fn try_flush(&mut self) {
        if let Stream::Plain(stream) = &self.stream {
            let _ = stream.try_write(&self.outgoing);
        }
    }

    /// The next packet. A dropped future loses nothing.
    pub(super) async fn packet(&mut self) -> Result<Bytes, Broken> {
        loop {
            while let Some((payload, is_last)) = self.frame()? {
                if is_last && self.partial.is_empty() {
                    return Ok(payload.freeze());
                }
                if self.partial.len() + payload.len() > PACKET_MAX {
                    return Err(too_long());
                }
                self.partial.extend_from_slice(&payload);
                if is_last {
                    return Ok(self.partial.split().freeze());
                }
            }
            if self.stream.read_buf(&mut self.incoming).await? == 0 {
                return Err(Broken::Io(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server closed the connection",
                )));
            }
        }
    }

    /// A whole frame that has come, and whether its packet ends with it.
    fn frame(&mut self) -> Result<Option<(BytesMut, bool)>, Broken> {
        let Some(header) = self.incoming.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize;
        let number = header[3];
        if self.incoming.len() < HEADER + length {
            self.incoming.reserve(HEADER + length - self.incoming.len());
            return Ok(None);
        }
        if number != self.number {
            return Err(Broken::Protocol(format!(
                "packet {number} came where packet {} was due",
                self.number
            )));
        }
        self.number = self.number.wrapping_add(1);
        self.incoming.advance(HEADER);
        let payload = self.incoming.split_to(length);
        Ok(Some((payload, length < FRAME_MAX)))
    }
}

fn too_long() -> Broken {
    Broken::Protocol(format!("a row or value of more than {PACKET_MAX} bytes"))
}
