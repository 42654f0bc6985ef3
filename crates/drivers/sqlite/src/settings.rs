//! What a SQLite endpoint needs to know.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long a statement waits for a lock inside SQLite. Small, because the engine repeats contention by
/// itself and there knows deadline, budget and cancellation; long enough to sit out one ordinary commit of
/// another connection, which is cheaper than a repetition.
pub const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_millis(100);

/// How many prepared statements a connection keeps. A service has few distinct texts, and each kept one
/// costs a few kilobytes.
pub const STATEMENTS_MAX_DEFAULT: usize = 64;

/// Bytes that one text, blob, row or statement may have: 64 MiB. SQLite's own bound is a gigabyte, and it
/// takes several times that while it works.
pub const VALUE_MAX_BYTES_DEFAULT: u32 = 64 * 1024 * 1024;

/// Bytes of its file that a connection may map: a gigabyte. A mapped file that is cut from outside ends the
/// process, and every connection maps for itself.
pub const MMAP_MAX_BYTES: u64 = 1 << 30;

/// Settings of one SQLite endpoint. All endpoints of a source are connections to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteSettings {
    /// The database file. Neither `:memory:` nor a `file:` URI.
    pub path: PathBuf,
    /// The endpoint never writes, whatever access is asked for; default: no.
    pub read_only_endpoint: bool,
    /// Make the file if it is missing; default: no, since a lost file must be an error of the endpoint and
    /// not a new empty database.
    pub create: bool,
    /// How long a statement waits for a lock before it fails as contention; default
    /// [`BUSY_TIMEOUT_DEFAULT`].
    pub busy_timeout: Duration,
    /// Prepared statements kept per connection; default [`STATEMENTS_MAX_DEFAULT`].
    pub statements_max: usize,
    /// Bytes of one text, blob, row or statement; default [`VALUE_MAX_BYTES_DEFAULT`], at most a billion.
    /// Stored ones that are larger cannot be read.
    pub value_max_bytes: u32,
    /// The endpoint has a file of its own, which something outside keeps like those of the others; default:
    /// no. Endpoints of one file are equally slow, so that a statement which takes too long is not tried
    /// at another one and weighs on no circuit.
    pub own_file: bool,
    /// Pragmas set on each new connection, over the defaults `journal_mode = wal`, `synchronous = normal`,
    /// `foreign_keys = on`. Names are lower-case.
    pub pragmas: BTreeMap<String, String>,
}

/// Why settings were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A database in memory belongs to one connection, and an endpoint has several.
    #[error("a SQLite endpoint cannot be in memory; give the path of a file")]
    InMemory,
    /// A URI may carry settings that contradict ours.
    #[error("`{path}` is a URI; give the plain path of the file, and settings as options")]
    Uri {
        /// What was given.
        path: String,
    },
    /// SQLite takes paths as UTF-8 without a NUL.
    #[error("the path `{path}` is not UTF-8 or has a NUL byte; rename the file")]
    Path {
        /// What was given, as far as it can be shown.
        path: String,
    },
    /// Not the name of a pragma.
    #[error("`{name}` is not the name of a pragma; use letters, digits and `_`")]
    PragmaName {
        /// What was given.
        name: String,
    },
    /// A pragma that no endpoint may set.
    #[error("the pragma `{name}` {why}")]
    PragmaRefused {
        /// The pragma.
        name: String,
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// More of the file would be mapped than an endpoint may.
    #[error("the pragma `mmap_size` is not a number from 0 to {most}; a mapped file that is cut from outside ends the process: give less, or leave it out", most = MMAP_MAX_BYTES)]
    MmapSize,
    /// A value that cannot be part of a statement.
    #[error("the value of pragma `{name}` has a NUL byte; remove it")]
    PragmaValue {
        /// The pragma.
        name: String,
    },
    /// No statement would be kept.
    #[error("statements_max is 0; give at least 1")]
    NoStatements,
    /// Hardly a statement would fit.
    #[error("value_max_bytes is {given}; give at least 1024")]
    ValueMax {
        /// What was given.
        given: u32,
    },
}

impl SqliteSettings {
    /// Settings with defaults for this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        SqliteSettings {
            path: path.into(),
            read_only_endpoint: false,
            create: false,
            busy_timeout: BUSY_TIMEOUT_DEFAULT,
            statements_max: STATEMENTS_MAX_DEFAULT,
            value_max_bytes: VALUE_MAX_BYTES_DEFAULT,
            own_file: false,
            pragmas: BTreeMap::new(),
        }
    }

    /// Sets whether the endpoint never writes.
    #[must_use]
    pub fn read_only_endpoint(mut self, on: bool) -> Self {
        self.read_only_endpoint = on;
        self
    }

    /// Sets whether a missing file is made.
    #[must_use]
    pub fn create(mut self, on: bool) -> Self {
        self.create = on;
        self
    }

    /// Sets how long a statement waits for a lock.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Sets how many prepared statements a connection keeps.
    #[must_use]
    pub fn statements_max(mut self, statements_max: usize) -> Self {
        self.statements_max = statements_max;
        self
    }

    /// Sets how many bytes one text, blob, row or statement may have.
    #[must_use]
    pub fn value_max_bytes(mut self, value_max_bytes: u32) -> Self {
        self.value_max_bytes = value_max_bytes;
        self
    }

    /// Sets whether the endpoint has a file of its own.
    #[must_use]
    pub fn own_file(mut self, on: bool) -> Self {
        self.own_file = on;
        self
    }

    /// Adds a pragma that is set on each new connection.
    #[must_use]
    pub fn pragma(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.pragmas
            .insert(name.into().to_ascii_lowercase(), value.into());
        self
    }

    /// Finds the first thing that cannot work.
    ///
    /// # Errors
    /// Says what and what to use instead.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.check_path()?;
        if self.statements_max == 0 {
            return Err(SettingsError::NoStatements);
        }
        if self.value_max_bytes < 1024 {
            let given = self.value_max_bytes;
            return Err(SettingsError::ValueMax { given });
        }
        self.pragmas
            .iter()
            .try_for_each(|(name, value)| check_pragma(name, value))
    }

    fn check_path(&self) -> Result<(), SettingsError> {
        let shown = self.path.display().to_string();
        let Some(path) = self.path.to_str().filter(|path| !path.contains('\0')) else {
            return Err(SettingsError::Path { path: shown });
        };
        if path.is_empty() || path.starts_with(":memory:") {
            return Err(SettingsError::InMemory);
        }
        if path.starts_with("file:") {
            return Err(SettingsError::Uri { path: shown });
        }
        Ok(())
    }
}

fn check_pragma(name: &str, value: &str) -> Result<(), SettingsError> {
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !is_name {
        return Err(SettingsError::PragmaName { name: name.into() });
    }
    if let Some(why) = refused_pragma(name) {
        let name = name.into();
        return Err(SettingsError::PragmaRefused { name, why });
    }
    let is_small = |bytes: u64| bytes <= MMAP_MAX_BYTES;
    if name == "mmap_size" && !value.parse().is_ok_and(is_small) {
        return Err(SettingsError::MmapSize);
    }
    if value.contains('\0') {
        return Err(SettingsError::PragmaValue { name: name.into() });
    }
    Ok(())
}

/// Why an endpoint may not set a pragma, and what to do instead; `None`: it may.
fn refused_pragma(name: &str) -> Option<&'static str> {
    Some(match name {
        "query_only" => "is set by the driver; use the option `read_only`",
        "busy_timeout" => "is set by the driver; use the option `busy_timeout_ms`",
        "hard_heap_limit" | "soft_heap_limit" => {
            "holds for the whole process and every source in it; limit the memory where the process is started"
        }
        "temp_store_directory" | "data_store_directory" => {
            "holds for the whole process and every source in it; set SQLITE_TMPDIR in the environment of the process"
        }
        "writable_schema" | "schema_version" => {
            "can damage the file; change the schema with CREATE, ALTER and DROP"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        let plain = || SqliteSettings::new("a.db");
        let table = [
            (SqliteSettings::new(":memory:"), "cannot be in memory"),
            (SqliteSettings::new(""), "cannot be in memory"),
            (SqliteSettings::new("file:a.db?mode=memory"), "is a URI"),
            (SqliteSettings::new("a\0b"), "NUL byte"),
            (plain().pragma("a;b", "1"), "not the name of a pragma"),
            (plain().pragma("", "1"), "not the name of a pragma"),
            (plain().pragma("Query_Only", "off"), "`read_only`"),
            (plain().pragma("busy_timeout", "1"), "`busy_timeout_ms`"),
            (plain().pragma("cache_size", "\0"), "NUL byte"),
            (plain().pragma("hard_heap_limit", "1"), "whole process"),
            (plain().pragma("SOFT_HEAP_LIMIT", "1"), "whole process"),
            (plain().pragma("temp_store_directory", "/"), "SQLITE_TMPDIR"),
            (plain().pragma("data_store_directory", "/"), "SQLITE_TMPDIR"),
            (plain().pragma("writable_schema", "on"), "damage"),
            (plain().pragma("schema_version", "1"), "damage"),
            (
                plain().pragma("mmap_size", "1073741825"),
                "from 0 to 1073741824",
            ),
            (plain().pragma("mmap_size", "-1"), "from 0 to 1073741824"),
            (plain().pragma("mmap_size", "much"), "from 0 to 1073741824"),
            (plain().statements_max(0), "at least 1"),
            (plain().value_max_bytes(7), "at least 1024"),
        ];
        for (settings, expected) in table {
            let problem = settings.check().unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
        for (name, value) in [("cache_size", "-2000"), ("mmap_size", "1073741824")] {
            assert_eq!(plain().pragma(name, value).check(), Ok(()));
        }
    }
}
