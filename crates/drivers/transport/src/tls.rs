//! Encryption by rustls with ring, for sessions and for cancel requests alike.

mod verify;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{Connect, TlsConnector};

use crate::settings::{TlsMode, TlsSettings};

/// An encrypted stream.
pub type TlsStream<S> = tokio_rustls::client::TlsStream<S>;

/// How one session and its cancel requests are encrypted. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    mode: TlsMode,
    config: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl Tls {
    /// Reads the files as they are now.
    ///
    /// # Errors
    /// A file cannot be read or holds something else, or the settings contradict each other.
    pub async fn load(settings: &TlsSettings, host: &str) -> io::Result<Tls> {
        if settings.mode == TlsMode::Off {
            return Ok(Tls {
                mode: settings.mode,
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
        Ok(Tls {
            mode: settings.mode,
            config: Some((Arc::new(config), name)),
        })
    }

    /// What is required.
    pub fn mode(&self) -> TlsMode {
        self.mode
    }

    /// A handshake on a stream whose server is ready for one; `None`: encryption is off.
    pub fn connect<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Option<Connect<S>> {
        let (config, name) = self.config.clone()?;
        Some(TlsConnector::from(config).connect(name, stream))
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
