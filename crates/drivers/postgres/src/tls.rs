//! Encryption of sessions and cancel requests, as tokio-postgres asks for it.

mod binding;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use mainstay_transport::{TlsMode, TlsSettings};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use crate::watched::{ServerStatus, Watched};

/// How one session and its cancel requests are encrypted. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tls(mainstay_transport::Tls);

impl Tls {
    /// Reads the files as they are now.
    pub(crate) async fn load(settings: &TlsSettings, host: &str) -> io::Result<Tls> {
        mainstay_transport::Tls::load(settings, host).await.map(Tls)
    }

    /// For tokio-postgres's configuration.
    pub(crate) fn mode(&self) -> SslMode {
        match self.0.mode() {
            TlsMode::Off => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        }
    }
}

impl<S> TlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Handshake<S>;

    fn connect(self, stream: S) -> Handshake<S> {
        Handshake(self.0.connect(stream))
    }
}

/// Encryption of a session, whose messages are watched: below the handshake none has come yet, above it they
/// come in the clear.
pub(crate) struct Watching(pub(crate) Tls);

impl<S> TlsConnect<Watched<S>> for Watching
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    type Stream = Watched<Encrypted<S>>;
    type Error = io::Error;
    type Future = WatchedHandshake<S>;

    fn connect(self, stream: Watched<S>) -> WatchedHandshake<S> {
        let (stream, status) = stream.into_parts();
        WatchedHandshake {
            handshake: self.0.connect(stream),
            status,
        }
    }
}

/// A handshake of a session under way.
pub(crate) struct WatchedHandshake<S> {
    handshake: Handshake<S>,
    status: Arc<ServerStatus>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for WatchedHandshake<S> {
    type Output = io::Result<Watched<Encrypted<S>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let encrypted = std::task::ready!(Pin::new(&mut self.handshake).poll(cx));
        Poll::Ready(encrypted.map(|stream| Watched::new(stream, self.status.clone(), false)))
    }
}

/// A handshake under way; `None`: encryption is off, which nobody should have asked for.
pub(crate) struct Handshake<S>(Option<tokio_rustls::Connect<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Handshake<S> {
    type Output = io::Result<Encrypted<S>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Some(connect) => Pin::new(connect)
                .poll(cx)
                .map_ok(|stream| Encrypted(Box::new(stream))),
            None => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "encryption is off",
            ))),
        }
    }
}

/// An encrypted stream.
pub(crate) struct Encrypted<S>(Box<mainstay_transport::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, session) = self.0.get_ref();
        let certificate = session.peer_certificates().and_then(|c| c.first());
        match certificate.and_then(|c| binding::server_end_point(c)) {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
