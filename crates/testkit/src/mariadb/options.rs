//! How a private server is set up.

use std::fmt::Write;

/// Settings of a private server. The defaults start fast and are for tests only: nothing is synced to
/// the disk, small buffers.
#[derive(Debug, Clone, Default)]
pub struct MariadbOptions {
    settings: Vec<(String, String)>,
    tls: bool,
}

/// The sizes of the files that the template is made with, which a server must know again.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("innodb_log_file_size", "8M"),
    ("innodb_data_file_path", "ibdata1:2M:autoextend"),
    ("innodb_autoextend_increment", "1"),
    ("innodb_undo_tablespaces", "0"),
    ("aria_log_file_size", "8M"),
];

/// What a database folder says about its texts.
pub(crate) const DATABASE: &str =
    "default-character-set=utf8mb4\ndefault-collation=utf8mb4_general_ci\n";

/// What every private server starts from; a caller's setting of the same name comes later and wins.
const DEFAULTS: &[(&str, &str)] = &[
    ("bind_address", "127.0.0.1"),
    ("skip_name_resolve", "ON"),
    ("innodb_buffer_pool_size", "24M"),
    // Written at each commit, so that it survives a kill, and never synced.
    ("innodb_flush_log_at_trx_commit", "2"),
    ("innodb_flush_method", "nosync"),
    ("innodb_doublewrite", "OFF"),
    ("innodb_fast_shutdown", "2"),
    ("performance_schema", "OFF"),
    ("key_buffer_size", "1M"),
    ("aria_pagecache_buffer_size", "1M"),
    ("max_connections", "200"),
    ("character_set_server", "utf8mb4"),
    ("collation_server", "utf8mb4_general_ci"),
    ("log_bin", "binlog"),
    ("log_slave_updates", "ON"),
    ("gtid_strict_mode", "ON"),
    ("server_id", "1"),
    // A story's functions may write whatever they say of themselves.
    ("log_bin_trust_function_creators", "ON"),
    ("default_time_zone", "+00:00"),
];

impl MariadbOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of the configuration. A later one of the same name wins.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.set(name, value);
        self
    }

    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl ToString) {
        self.settings.push((name.into(), value.to_string()));
    }

    /// How many clients may be connected at once; 200 if not set.
    #[must_use]
    pub fn max_connections(self, count: u32) -> Self {
        self.setting("max_connections", count)
    }

    /// Writes through to the disk as a production server does, for measuring honest commit times.
    #[must_use]
    pub fn durable(self) -> Self {
        self.setting("innodb_flush_log_at_trx_commit", "1")
            .setting("innodb_flush_method", "O_DIRECT")
            .setting("innodb_doublewrite", "ON")
            .setting("sync_binlog", "1")
    }

    /// Offers TLS with a certificate for `localhost` and 127.0.0.1 from a private authority, see
    /// [`MariadbServer::tls_files`](super::MariadbServer::tls_files).
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
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

    /// The configuration's text: defaults, then the machine's own lines, then the caller's.
    pub(crate) fn configuration(&self, own: &[(&str, String)]) -> String {
        let defaults = FILES.iter().chain(DEFAULTS);
        let defaults = defaults.map(|(name, value)| (*name, *value));
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let set = self
            .settings
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let mut text = String::from("[mariadbd]\n");
        for (name, value) in defaults.chain(own).chain(set) {
            let _ = writeln!(text, "{name} = {value}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_setting_comes_last() {
        let text = MariadbOptions::new()
            .max_connections(7)
            .configuration(&[("port", "1234".to_owned())]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines.contains(&"max_connections = 200"));
        assert_eq!(
            lines[lines.len() - 2..],
            ["port = 1234", "max_connections = 7"]
        );
    }
}
