//! How to reach a server and what to check there.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A secret that is read anew at each connect, so that a rotated one is found without a restart.
pub trait Secret: Send + Sync + 'static {
    /// The secret as it is now.
    ///
    /// # Errors
    /// When it cannot be read; the connect fails with `sent: no` and says so.
    fn read(&self) -> io::Result<String>;
}

impl<F> Secret for F
where
    F: Fn() -> io::Result<String> + Send + Sync + 'static,
{
    fn read(&self) -> io::Result<String> {
        self()
    }
}

/// Whether the connection is encrypted and what is checked, in the words of libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Never encrypted.
    Off,
    /// Encrypted if the server offers it; nothing is checked.
    #[default]
    Prefer,
    /// Always encrypted; the certificate is checked only if a CA is given.
    Require,
    /// Always encrypted, the certificate must come from the given CA.
    VerifyCa,
    /// As [`TlsMode::VerifyCa`], and the certificate must name the host.
    VerifyFull,
}

/// Encryption of the connection. Files are PEM and read at each connect.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// What is required.
    pub mode: TlsMode,
    /// Certificates that sign the server's.
    pub ca: Option<PathBuf>,
    /// The client's certificate chain.
    pub certificate: Option<PathBuf>,
    /// The client's private key.
    pub key: Option<PathBuf>,
}

/// When the kernel asks whether an idle peer is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first question.
    pub idle: Duration,
    /// Time between questions.
    pub interval: Duration,
    /// Unanswered questions until the connection counts as lost.
    pub retries: u32,
}

impl Default for Keepalive {
    /// A dead peer is noticed after about 25 s.
    fn default() -> Self {
        Keepalive {
            idle: Duration::from_secs(10),
            interval: Duration::from_secs(5),
            retries: 3,
        }
    }
}

/// How TCP notices that the peer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketSettings {
    /// Keepalive; `None`: off.
    pub keepalive: Option<Keepalive>,
    /// How long sent bytes may stay unacknowledged before the connection counts as lost (Linux);
    /// 30 s by default, `None`: the kernel's default.
    pub user_timeout: Option<Duration>,
}

impl Default for SocketSettings {
    fn default() -> Self {
        SocketSettings {
            keepalive: Some(Keepalive::default()),
            user_timeout: Some(Duration::from_secs(30)),
        }
    }
}
