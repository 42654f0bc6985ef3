//! Where and how to connect.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainstay_transport::{Secret, SocketSettings, TlsSettings};

use crate::wire::Flavour;

/// One MySQL or MariaDB server, and as whom to log in.
#[derive(Clone)]
pub struct MysqlSettings {
    /// Name or address; a name is resolved at each connect and all its addresses are tried in turn.
    pub host: String,
    /// Port; 3306 by default.
    pub port: u16,
    /// Database; may be empty.
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
    /// System variables of each session, such as `sql_mode` or `max_statement_time`; they survive
    /// [`reset`](mainstay_sql::Connection::reset).
    pub options: Vec<(String, String)>,
    /// How TCP notices that the peer is gone.
    pub socket: SocketSettings,
    /// Prepared statements that a session keeps; 256 by default, at least 1.
    pub statements_max: usize,
    /// The GTID domain whose transactions tell how far a server has come (MariaDB), where there is more
    /// than one; `None`: the server's own.
    pub gtid_domain: Option<u32>,
}

impl MysqlSettings {
    /// Settings with defaults.
    pub fn new(
        host: impl Into<String>,
        database: impl Into<String>,
        user: impl Into<String>,
    ) -> Self {
        MysqlSettings {
            host: host.into(),
            port: 3306,
            database: database.into(),
            user: user.into(),
            password: None,
            tls: TlsSettings::default(),
            connect_timeout: Duration::from_secs(5),
            application_name: "mainstay".into(),
            options: Vec::new(),
            socket: SocketSettings::default(),
            statements_max: 256,
            gtid_domain: None,
        }
    }

    fn has(&self, name: &str) -> bool {
        let names = self.options.iter().map(|(name, _)| name.as_str());
        names
            .into_iter()
            .any(|given| given.eq_ignore_ascii_case(name))
    }

    /// Whether points in time travel in UTC. An option may say otherwise, and then they have no zone.
    pub(crate) fn is_utc(&self) -> bool {
        !self.has("time_zone")
    }

    /// The statement that makes a fresh session ours. What the database cannot hold is refused in strict
    /// mode; otherwise it would be bent.
    pub(crate) fn session_text(&self, flavour: Flavour, is_read_only: bool) -> String {
        let mut text = String::from("SET NAMES utf8mb4");
        if !self.has("autocommit") {
            text.push_str(", @@session.autocommit = 1");
        }
        if self.is_utc() {
            text.push_str(", @@session.time_zone = '+00:00'");
        }
        if !self.has("sql_mode") {
            text.push_str(", @@session.sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')");
        }
        for (name, value) in &self.options {
            text.push_str(", @@session.");
            text.extend(
                name.chars()
                    .filter(|c| c.is_ascii_alphanumeric() || *c == '_'),
            );
            text.push_str(" = ");
            text.push_str(&literal(value));
        }
        if is_read_only {
            let access = match flavour {
                Flavour::Mariadb => "tx_read_only",
                Flavour::Mysql => "transaction_read_only",
            };
            // What is tracked is told with the answer of the statement that changes it.
            text.push_str(&format!(
                ", @@session.session_track_schema = OFF, \
                 @@session.session_track_system_variables = '{access}', @@session.{access} = ON"
            ));
        }
        text
    }
}

/// A number or a bare word as it is, anything else as a string.
fn literal(value: &str) -> String {
    let is_number = value.parse::<f64>().is_ok_and(f64::is_finite);
    let words = ["ON", "OFF", "TRUE", "FALSE", "DEFAULT", "NULL"];
    if is_number || words.iter().any(|word| value.eq_ignore_ascii_case(word)) {
        return value.to_owned();
    }
    quoted(value)
}

/// A string literal that no sql_mode reads in another way.
pub(crate) fn quoted(text: &str) -> String {
    let bytes: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    match text.is_empty() {
        true => "''".to_owned(),
        false => format!("_utf8mb4 0x{bytes}"),
    }
}

impl fmt::Debug for MysqlSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlSettings")
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
    fn a_sessions_text_holds_the_options_and_ends_with_the_access() {
        let mut settings = MysqlSettings::new("h", "d", "u");
        settings.options = vec![
            ("max_statement_time".into(), "1.5".into()),
            ("default_storage_engine".into(), "a'b".into()),
        ];
        assert_eq!(
            settings.session_text(Flavour::Mariadb, true),
            "SET NAMES utf8mb4, @@session.autocommit = 1, @@session.time_zone = '+00:00', \
             @@session.sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES'), \
             @@session.max_statement_time = 1.5, \
             @@session.default_storage_engine = _utf8mb4 0x612762, \
             @@session.session_track_schema = OFF, \
             @@session.session_track_system_variables = 'tx_read_only', @@session.tx_read_only = ON"
        );
        let writer = settings.session_text(Flavour::Mysql, false);
        assert!(!writer.contains("read_only"), "{writer}");
    }

    #[test]
    fn a_zone_of_the_users_own_is_kept() {
        let mut settings = MysqlSettings::new("h", "d", "u");
        settings.options = vec![("TIME_ZONE".into(), "Europe/Berlin".into())];
        assert!(!settings.is_utc());
        assert!(
            !settings
                .session_text(Flavour::Mysql, false)
                .contains("+00:00")
        );
    }
}
