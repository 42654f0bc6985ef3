//! Encryption by rustls with ring, for sessions and for cancel requests alike.

mod binding;
mod verify;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::settings::{TlsMode, TlsSettings};

/// How one session and its cancel requests are encrypted. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tls {
    mode: SslMode,
    config: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Tls {
    /// Reads the files as they are now.
    pub(crate) async fn load(settings: &TlsSettings, host: &str) -> io::Result<Tls> {
        if settings.mode == TlsMode::Off {
            return Ok(Tls {
                mode: SslMode::Disable,
                config: None,
            });
        }
        let name = match ServerName::try_from(host.to_owned()) {
            Ok(name) => name,
            Err(_) if settings.mode == TlsMode::VerifyFull => {
                let problem = format!("`{host}` is no name that a certificate can carry");
                return Err(invalid(problem));
            }
            // Nobody looks at it.
            Err(_) => ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        };
        let provider = Arc::new(ring::default_provider());
        let roots = match &settings.ca {
            Some(path) => Some(roots(path).await?),
            None => None,
        };
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(invalid)?
            .dangerous()
            .with_custom_certificate_verifier(verifier(settings.mode, roots, provider)?);
        let config = match (&settings.certificate, &settings.key) {
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_slice(&read(key).await?).map_err(invalid)?;
                builder
                    .with_client_auth_cert(certificates(certificate).await?, key)
                    .map_err(invalid)?
            }
            (None, None) => builder.with_no_client_auth(),
            _ => {
                return Err(invalid(
                    "a client certificate needs both `certificate` and `key`",
                ));
            }
        };
        let mode = match settings.mode {
            TlsMode::Prefer => SslMode::Prefer,
            _ => SslMode::Require,
        };
        Ok(Tls {
            mode,
            config: Some((Arc::new(config), name)),
        })
    }

    /// For tokio-postgres's configuration.
    pub(crate) fn mode(&self) -> SslMode {
        self.mode
    }
}

/// What checks the server's certificate.
fn verifier(
    mode: TlsMode,
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
) -> io::Result<Arc<dyn ServerCertVerifier>> {
    let must_check = matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyFull);
    let Some(roots) = roots.filter(|_| mode != TlsMode::Prefer) else {
        return match must_check {
            true => Err(invalid("checking the server's certificate needs `ca`")),
            false => Ok(Arc::new(verify::Unchecked::new(provider))),
        };
    };
    let full = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(invalid)?;
    match mode {
        TlsMode::VerifyFull => Ok(full),
        _ => Ok(Arc::new(verify::AnyName::new(full))),
    }
}

fn invalid(problem: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    tokio::fs::read(path).await.map_err(named)
}

async fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let pem = read(path).await?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(invalid)?;
    if found.is_empty() {
        return Err(invalid(format!("{}: holds no certificate", path.display())));
    }
    Ok(found)
}

async fn roots(path: &Path) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path).await? {
        store.add(certificate).map_err(invalid)?;
    }
    Ok(store)
}

impl<S> TlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Handshake<S>;

    fn connect(self, stream: S) -> Handshake<S> {
        let connect = self
            .config
            .map(|(config, name)| TlsConnector::from(config).connect(name, stream));
        Handshake(connect)
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
            None => Poll::Ready(Err(invalid("encryption is off"))),
        }
    }
}

/// An encrypted stream.
pub(crate) struct Encrypted<S>(Box<tokio_rustls::client::TlsStream<S>>);

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
