//! How a private server is set up.

use std::fmt::Write;

/// Settings of a private server. The defaults start fast and are for tests only: `fsync` is off,
/// everyone on loopback is trusted, small buffers.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    settings: Vec<(String, String)>,
    access: Vec<String>,
    tls: bool,
    own_identity: bool,
}

/// What every private server starts from; a caller's setting of the same name comes later and wins.
const DEFAULTS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("shared_buffers", "16MB"),
    ("max_connections", "100"),
    // Shared memory in the data folder: it goes with the folder, also after a kill.
    ("dynamic_shared_memory_type", "mmap"),
    ("wal_level", "replica"),
    ("wal_keep_size", "256MB"),
    // The log's files are of 1 MB, so that a new server is small: keep as much as usual.
    ("min_wal_size", "80MB"),
    ("max_wal_size", "512MB"),
    // What no test needs and each server would pay for.
    ("max_logical_replication_workers", "0"),
    ("jit", "off"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    ("log_line_prefix", "%m [%p] %u@%d %a "),
];

impl PostgresOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of `postgresql.conf`. A later one of the same name wins.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// How many clients may be connected at once; 100 if not set.
    #[must_use]
    pub fn max_connections(self, count: u32) -> Self {
        self.setting("max_connections", count)
    }

    /// Writes through to the disk as a production server does, for measuring honest commit times.
    #[must_use]
    pub fn durable(self) -> Self {
        self.setting("fsync", "on")
            .setting("full_page_writes", "on")
    }

    /// A line of `pg_hba.conf`, before the closing line that trusts everyone on loopback; the first
    /// line that fits a client decides. Example: `host all app 127.0.0.1/32 scram-sha-256`.
    #[must_use]
    pub fn access(mut self, line: impl Into<String>) -> Self {
        self.access.push(line.into());
        self
    }

    /// Offers TLS with a certificate for `localhost` and 127.0.0.1 from a private authority, see
    /// [`PostgresServer::tls_files`](super::PostgresServer::tls_files).
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// A system identifier of its own, which costs an `initdb` (a second or two). Without it all
    /// private servers of one machine are copies with one identifier, as members of one cluster are.
    #[must_use]
    pub fn own_identity(mut self) -> Self {
        self.own_identity = true;
        self
    }

    /// Puts settings below the caller's own, above the defaults.
    pub(crate) fn beneath(mut self, settings: Vec<(&str, String)>) -> Self {
        let settings = settings
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        self.settings.splice(0..0, settings);
        self
    }

    pub(crate) fn wants_tls(&self) -> bool {
        self.tls
    }

    pub(crate) fn wants_own_identity(&self) -> bool {
        self.own_identity
    }

    /// The text of `postgresql.conf`: defaults, then the machine's own lines, then the caller's.
    pub(crate) fn configuration(&self, own: &[(&str, String)]) -> String {
        let defaults = DEFAULTS.iter().map(|(name, value)| (*name, *value));
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let set = self
            .settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let mut text = String::new();
        for (name, value) in defaults.chain(own).chain(set) {
            let _ = writeln!(text, "{name} = '{}'", value.replace('\'', "''"));
        }
        text
    }

    /// The text of `pg_hba.conf`.
    pub(crate) fn access_rules(&self) -> String {
        let mut text = String::new();
        for line in &self.access {
            let _ = writeln!(text, "{line}");
        }
        text.push_str("local all all trust\n");
        for databases in ["all", "replication"] {
            let _ = writeln!(text, "host {databases} all 127.0.0.1/32 trust");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_setting_comes_last_and_is_quoted() {
        let text = PostgresOptions::new()
            .max_connections(7)
            .setting("application_name", "it's")
            .configuration(&[("port", "1234".to_owned())]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.contains(&"max_connections = '100'"));
        assert_eq!(
            lines[lines.len() - 3..],
            [
                "port = '1234'",
                "max_connections = '7'",
                "application_name = 'it''s'"
            ]
        );
    }

    #[test]
    fn the_callers_access_line_comes_before_trust() {
        let text = PostgresOptions::new()
            .access("host all app all reject")
            .access_rules();
        assert!(text.starts_with("host all app all reject\nlocal all all trust\n"));
        assert!(text.contains("\nhost replication all 127.0.0.1/32 trust\n"));
    }
}
