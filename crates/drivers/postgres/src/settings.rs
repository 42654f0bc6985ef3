//! Where and how to connect.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainstay_transport::{Secret, SocketSettings, TlsSettings};

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
    /// How TCP notices that the peer is gone.
    pub socket: SocketSettings,
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
            socket: SocketSettings::default(),
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
