//! What each driver takes in `options`: one table for checks, for the reference and for whoever makes
//! the drivers.

use super::Driver;
use crate::connection::{Connection, Given};
use crate::problem::{Findings, Wrong};
use crate::suggestion;

/// What an option of a driver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionKind {
    /// `true` or `false`.
    Flag,
    /// A whole number of milliseconds, from 0 to an hour.
    Millis,
    /// A whole number from 1 to a million.
    Count,
    /// A whole number of bytes, from 1024 to a billion.
    Bytes,
    /// A whole number up to `u32::MAX`.
    Id,
    /// Any text.
    Text,
}

/// One option of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverOption {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: OptionKind,
    /// What holds without it, as a person reads it.
    pub default: &'static str,
    /// What it is for.
    pub doc: &'static str,
}

const fn of(
    name: &'static str,
    kind: OptionKind,
    default: &'static str,
    doc: &'static str,
) -> DriverOption {
    DriverOption {
        name,
        kind,
        default,
        doc,
    }
}

const fn statements(default: &'static str) -> DriverOption {
    of(
        "statements_max",
        OptionKind::Count,
        default,
        "prepared statements that a connection keeps",
    )
}

const NAME: DriverOption = of(
    "application_name",
    OptionKind::Text,
    "mainstay",
    "what the server shows for its sessions",
);

const SQLITE: &[DriverOption] = &[
    of(
        "create",
        OptionKind::Flag,
        "false",
        "make the file if it is missing",
    ),
    of(
        "read_only",
        OptionKind::Flag,
        "false",
        "the endpoint never writes, whatever is asked for",
    ),
    of(
        "busy_timeout_ms",
        OptionKind::Millis,
        "100",
        "how long a statement waits for a lock inside SQLite",
    ),
    statements("64"),
    of(
        "value_max_bytes",
        OptionKind::Bytes,
        "67108864",
        "bytes that one text, blob, row or statement may have",
    ),
];

const POSTGRES: &[DriverOption] = &[NAME, statements("256")];

const MYSQL: &[DriverOption] = &[
    NAME,
    statements("256"),
    of(
        "gtid_domain",
        OptionKind::Id,
        "the server's",
        "the domain whose positions are compared (MariaDB)",
    ),
];

/// Begins the name of a pragma of SQLite.
const PRAGMA: &str = "pragma.";

/// Pragmas that no endpoint may set: why, and what to do instead.
const PRAGMAS_REFUSED: &[(&str, &str, &str)] = &[
    ("query_only", BY_DRIVER, "use the option read_only"),
    ("busy_timeout", BY_DRIVER, "use the option busy_timeout_ms"),
    ("hard_heap_limit", OF_PROCESS, OF_MEMORY),
    ("soft_heap_limit", OF_PROCESS, OF_MEMORY),
    ("temp_store_directory", OF_PROCESS, OF_FOLDER),
    ("data_store_directory", OF_PROCESS, OF_FOLDER),
    ("writable_schema", DAMAGES, OF_SCHEMA),
    ("schema_version", DAMAGES, OF_SCHEMA),
];

const BY_DRIVER: &str = "is set by the driver";
const OF_PROCESS: &str = "holds for the whole process and every source in it";
const OF_MEMORY: &str = "limit the memory where the process is started";
const OF_FOLDER: &str = "set SQLITE_TMPDIR in the environment of the process";
const DAMAGES: &str = "can damage the file";
const OF_SCHEMA: &str = "change the schema with CREATE, ALTER and DROP";

/// Bytes of a file that one connection may map. A mapped file that is cut from outside ends the process,
/// and every connection maps for itself.
const MMAP_MAX: u64 = 1 << 30;

/// A slip of so many characters at most is taken for one: what no driver knows may be a setting of the
/// server's.
const SLIP_MAX: usize = 2;

impl Driver {
    /// The options that the driver itself knows.
    pub fn options(self) -> &'static [DriverOption] {
        match self {
            Driver::Sqlite => SQLITE,
            Driver::Postgres => POSTGRES,
            Driver::Mysql => MYSQL,
        }
    }

    /// What other names in `options` are, for a reader.
    pub(crate) fn other_options(self) -> (&'static str, &'static str) {
        match self {
            Driver::Sqlite => (
                "pragma.NAME",
                "a pragma that is set on each connection, such as `pragma.cache_size`",
            ),
            Driver::Postgres => (
                "any other name",
                "a setting of the session, such as `search_path`",
            ),
            Driver::Mysql => (
                "any other name",
                "a system variable of the session, such as `sql_mode`",
            ),
        }
    }
}

/// Tells every option that the driver does not take.
pub(super) fn check(connection: &Connection<'_>, driver: Driver, findings: &mut Findings) {
    for (name, _, given) in connection.iter() {
        let Some(name) = name.strip_prefix("options.") else {
            continue;
        };
        let value = given.value.to_string();
        match driver.options().iter().find(|option| option.name == name) {
            Some(option) => {
                if let Err(wrong) = fits(option, &value, given.is_secret) {
                    findings.error(&given.mark, given.path.as_str(), wrong);
                }
            }
            None => other(name, driver, given, findings),
        }
    }
}

fn other(name: &str, driver: Driver, given: &Given, findings: &mut Findings) {
    let known = driver.options().iter().map(|option| option.name);
    match driver {
        Driver::Sqlite => match name.strip_prefix(PRAGMA) {
            Some(pragma) => {
                if let Err(wrong) = check_pragma(pragma, given) {
                    findings.error(&given.mark, given.path.as_str(), wrong);
                }
            }
            None => {
                let known = known.chain(["pragma.NAME"]);
                findings.unknown(&given.mark, given.path.clone(), name, known);
            }
        },
        // The server alone knows its settings, and refuses those that it does not have.
        Driver::Postgres | Driver::Mysql => {
            let meant = suggestion::nearest(name, known);
            if let Some(meant) = meant.filter(|meant| strsim::osa_distance(name, meant) <= SLIP_MAX)
            {
                let wrong = Wrong::new("goes to the server, as a setting of the session");
                let hint = format!("did you mean {meant}?");
                findings.warning(&given.mark, given.path.as_str(), wrong.hint(hint));
            }
        }
    }
}

fn fits(option: &DriverOption, value: &str, is_secret: bool) -> Result<(), Wrong> {
    let within = |least: u64, most: u64| {
        let number = value.parse::<u64>();
        number.is_ok_and(|number| (least..=most).contains(&number))
    };
    let expected = match option.kind {
        OptionKind::Flag if value.parse::<bool>().is_err() => "true or false",
        OptionKind::Millis if !within(0, 3_600_000) => {
            "a whole number of milliseconds from 0 to 3600000"
        }
        OptionKind::Count if !within(1, 1_000_000) => "a whole number from 1 to 1000000",
        OptionKind::Bytes if !within(1024, 1_000_000_000) => {
            "a whole number from 1024 to 1000000000"
        }
        OptionKind::Id if value.parse::<u32>().is_err() => "a whole number from 0 to 4294967295",
        _ => return Ok(()),
    };
    Err(Wrong::new(format!("expected {expected}{}", got(value, is_secret))).hint(option.doc))
}

/// A wrong value, unless it comes from where secrets are kept.
fn got(value: &str, is_secret: bool) -> String {
    let shown: String = value.chars().take(60).collect();
    match is_secret {
        true => String::new(),
        false => format!(", got {shown:?}"),
    }
}

/// Names are taken in any case.
fn check_pragma(name: &str, given: &Given) -> Result<(), Wrong> {
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name {
        return Err(Wrong::new("not the name of a pragma").hint("letters, digits and _"));
    }
    let mut refused = PRAGMAS_REFUSED.iter();
    if let Some((_, why, instead)) = refused.find(|(known, ..)| name.eq_ignore_ascii_case(known)) {
        return Err(Wrong::new(*why).hint(*instead));
    }
    let value = given.value.to_string();
    let is_small = || value.parse::<u64>().is_ok_and(|bytes| bytes <= MMAP_MAX);
    if name.eq_ignore_ascii_case("mmap_size") && !is_small() {
        let got = got(&value, given.is_secret);
        let wrong = Wrong::new(format!("expected bytes from 0 to {MMAP_MAX}{got}"));
        return Err(wrong.hint("a mapped file that is cut from outside ends the process"));
    }
    Ok(())
}
