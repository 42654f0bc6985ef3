//! Encryption of the listener by rustls: files are read at the start, at a reload and when they change; one
//! that cannot be used leaves the former in force.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use mainstay_config::{Configuration, Problem as ConfigurationProblem, ServerTls};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::paced::Socket;

/// How often it is looked whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A longer file is no certificate.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("server.tls.{key}: {}: {message}; {hint}", path.display())]
pub struct TlsError {
    key: &'static str,
    path: PathBuf,
    message: String,
    hint: &'static str,
}

/// What is wrong with the files of `[server.tls]`; `None`: nothing, or there is no encryption. Reads them.
pub fn check_tls(configuration: &Configuration) -> Option<ConfigurationProblem> {
    let error = read(configuration.server.tls.as_ref()?).err()?;
    let message = format!("{}: {}", error.path.display(), error.message);
    configuration.tls_problem(error.key, message, error.hint)
}

/// The certificate in force. New handshakes use it; connections that are open stay as they are.
pub(super) struct Tls {
    current: ArcSwap<ServerConfig>,
    /// The files, and what they looked like when they were read.
    seen: Mutex<(ServerTls, Stamp)>,
}

/// Tells a file that was changed or replaced.
type Stamp = [Option<(u64, SystemTime)>; 2];

/// A certificate that is read and not in force yet.
pub(super) struct Fresh {
    config: ServerConfig,
    seen: (ServerTls, Stamp),
}

impl Tls {
    pub(super) fn new(fresh: Fresh) -> Self {
        Tls {
            current: ArcSwap::from_pointee(fresh.config),
            seen: Mutex::new(fresh.seen),
        }
    }

    /// Puts another certificate in force.
    pub(super) fn exchange(&self, fresh: Fresh) {
        let mut seen = self.seen.lock();
        self.current.store(Arc::new(fresh.config));
        *seen = fresh.seen;
    }

    /// The same for files that were in force when they were read again: a reload may have named others
    /// meanwhile. Says whether they still are.
    fn renew(&self, fresh: Fresh) -> bool {
        let mut seen = self.seen.lock();
        let is_of_these = seen.0 == fresh.seen.0;
        if is_of_these {
            self.current.store(Arc::new(fresh.config));
            *seen = fresh.seen;
        }
        is_of_these
    }

    /// Makes a connection an encrypted one. Cancel safe: the connection is closed.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.current.load_full());
        acceptor.accept(stream).await
    }

    /// Takes over files that change, until it is dropped.
    pub(super) async fn follow(tls: Arc<Tls>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (files, known) = tls.seen.lock().clone();
            let looked = files.clone();
            let Ok(now) = tokio::task::spawn_blocking(move || stamp(&looked)).await else {
                return;
            };
            if now == known {
                continue;
            }
            match load(&files).await {
                Ok(fresh) => {
                    if tls.renew(fresh) {
                        tracing::info!("the certificate was read again");
                    }
                }
                Err(error) => {
                    let mut seen = tls.seen.lock();
                    if seen.0 == files {
                        // Told once: what changes next is looked at again.
                        seen.1 = now;
                        tracing::warn!(%error, "the former certificate stays");
                    }
                }
            }
        }
    }
}

/// Reads the files, off the threads that serve.
pub(super) async fn load(files: &ServerTls) -> Result<Fresh, TlsError> {
    let wanted = files.clone();
    let read = tokio::task::spawn_blocking(move || read(&wanted)).await;
    read.unwrap_or_else(|error| {
        let message = format!("cannot be read: {error}");
        Err(wrong("cert", &files.cert, message, "try again"))
    })
}

fn read(files: &ServerTls) -> Result<Fresh, TlsError> {
    // Before the files: what changes meanwhile is seen at the next look.
    let seen = (files.clone(), stamp(files));
    let certificates = certificates(&files.cert)?;
    let key = private_key(&files.key)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_no_client_auth())
        .and_then(|builder| builder.with_single_cert(certificates, key));
    let mut config = config.map_err(|error| unfit(files, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Fresh { config, seen })
}

fn unfit(files: &ServerTls, error: &rustls::Error) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => wrong(
            "key",
            &files.key,
            format!("is not the key of {}", files.cert.display()),
            "name the key that the certificate was made for; the certificate itself comes first in its file",
        ),
        rustls::Error::InvalidCertificate(_) => wrong(
            "cert",
            &files.cert,
            format!("the certificate cannot be used: {error}"),
            "name a file with an X.509 certificate in PEM",
        ),
        _ => wrong(
            "key",
            &files.key,
            format!("the key cannot be used: {error}"),
            "use an ECDSA (P-256, P-384), Ed25519 or RSA key of 2048 bits or more, without a passphrase",
        ),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let hint = "name a file with a certificate in PEM (BEGIN CERTIFICATE)";
    let pem = text(path).map_err(|error| unreadable("cert", path, &error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| wrong("cert", path, format!("is no PEM: {error}"), hint))?;
    match found.is_empty() {
        true => Err(wrong("cert", path, "holds no certificate", hint)),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let hint = "name a file with a key in PEM (BEGIN PRIVATE KEY) without a passphrase";
    let pem = text(path).map_err(|error| unreadable("key", path, &error))?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
        // The words of the reader could repeat what is in the file.
        let _ = error;
        let is_locked = String::from_utf8_lossy(&pem).contains("ENCRYPTED PRIVATE KEY");
        let message = match is_locked {
            true => "the key has a passphrase",
            false => "holds no private key",
        };
        wrong("key", path, message, hint)
    })
}

fn text(path: &Path) -> io::Result<Vec<u8>> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    std::fs::read(path)
}

fn unreadable(key: &'static str, path: &Path, error: &io::Error) -> TlsError {
    let hint = "check the path and its permissions";
    wrong(key, path, format!("cannot be read: {error}"), hint)
}

fn wrong(
    key: &'static str,
    path: &Path,
    message: impl Into<String>,
    hint: &'static str,
) -> TlsError {
    TlsError {
        key,
        path: path.to_path_buf(),
        message: message.into(),
        hint,
    }
}

fn stamp(files: &ServerTls) -> Stamp {
    [&files.cert, &files.key].map(|path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.len(), found.modified().ok()?))
    })
}

impl Socket for TlsStream<TcpStream> {
    fn is_gone(&self) -> bool {
        self.get_ref().0.is_gone()
    }
}
