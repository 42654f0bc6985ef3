//! Where and how to connect.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
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

/// One PostgreSQL server, and as whom to log in.
#[derive(Clone)]
pub struct PostgresSettings {
    /// Name or address; a name is resolved at each connect and all its addresses are tried in turn.
    pub host: String,
    /// Port; 5432 by default.
    pub port: u16,
    /// Database.
    pub database: String,
    /// User.
    pub user: String,
    /// Password; read at each connect.
    pub password: Option<Arc<dyn Secret>>,
    /// Encryption.
    pub tls: TlsSettings,
    /// Limit of the whole connect: name, TCP, TLS and login; 5 s by default.
    pub connect_timeout: Duration,
    /// How the session calls itself at the server; `mainstay` by default.
    pub application_name: String,
    /// Server settings of each session, such as `search_path` or `statement_timeout`; they survive
    /// [`reset`](mainstay_sql::Connection::reset).
    pub options: Vec<(String, String)>,
    /// TCP keepalive; `None`: off.
    pub keepalive: Option<Keepalive>,
    /// How long sent bytes may stay unacknowledged before the connection counts as lost (Linux);
    /// 30 s by default, `None`: the kernel's default.
    pub tcp_user_timeout: Option<Duration>,
    /// Prepared statements that a session keeps; 256 by default, at least 1.
    pub statements_max: usize,
}

impl PostgresSettings {
    /// Settings with defaults.
    pub fn new(
        host: impl Into<String>,
        database: impl Into<String>,
        user: impl Into<String>,
    ) -> Self {
        PostgresSettings {
            host: host.into(),
            port: 5432,
            database: database.into(),
            user: user.into(),
            password: None,
            tls: TlsSettings::default(),
            connect_timeout: Duration::from_secs(5),
            application_name: "mainstay".into(),
            options: Vec::new(),
            keepalive: Some(Keepalive::default()),
            tcp_user_timeout: Some(Duration::from_secs(30)),
            statements_max: 256,
        }
    }

    /// The session settings as the startup message carries them. What is given here is what the server's
    /// `RESET` goes back to. Ours come first, so that a configured one wins, but for the access.
    pub(crate) fn startup_options(&self, read_only: bool) -> String {
        let mut text =
            String::from("-c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=1");
        let access = read_only.then_some(("default_transaction_read_only", "on"));
        let configured = self.options.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        for (key, value) in configured.chain(access) {
            text.push_str(" -c ");
            escape(key, &mut text);
            text.push('=');
            escape(value, &mut text);
        }
        text
    }
}

/// Blanks and backslashes would end a word of the startup options.
fn escape(word: &str, out: &mut String) {
    for c in word.chars() {
        if c == '\\' || c.is_whitespace() {
            out.push('\\');
        }
        out.push(c);
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("database", &self.database)
            .field("user", &self.user)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_options_are_escaped_and_end_with_the_access() {
        let mut settings = PostgresSettings::new("h", "d", "u");
        settings.options = vec![("search_path".into(), "a, b\\c".into())];
        let text = settings.startup_options(true);
        assert!(
            text.ends_with("-c search_path=a,\\ b\\\\c -c default_transaction_read_only=on"),
            "{text}"
        );
        assert!(!settings.startup_options(false).contains("read_only"));
    }
}
