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
    /// A whole number of milliseconds, also 0.
    Millis,
    /// A whole number from 1.
    Count,
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

/// Pragmas that the driver sets itself, and what stands for them.
const PRAGMAS_RESERVED: &[(&str, &str)] = &[
    ("query_only", "read_only"),
    ("busy_timeout", "busy_timeout_ms"),
];

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
                if let Err(wrong) = fits(option, &value) {
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
                if let Err(wrong) = check_pragma(pragma) {
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

fn fits(option: &DriverOption, value: &str) -> Result<(), Wrong> {
    let expected = match option.kind {
        OptionKind::Flag if value.parse::<bool>().is_err() => "true or false",
        OptionKind::Millis if value.parse::<u64>().is_err() => "a whole number of milliseconds",
        OptionKind::Count if !value.parse::<u64>().is_ok_and(|count| count > 0) => {
            "a whole number from 1"
        }
        OptionKind::Id if value.parse::<u32>().is_err() => "a whole number from 0 to 4294967295",
        _ => return Ok(()),
    };
    let shown: String = value.chars().take(60).collect();
    Err(Wrong::new(format!("expected {expected}, got {shown:?}")).hint(option.doc))
}

/// Names are taken in any case.
fn check_pragma(name: &str) -> Result<(), Wrong> {
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name {
        return Err(Wrong::new("not the name of a pragma").hint("letters, digits and _"));
    }
    let mut reserved = PRAGMAS_RESERVED.iter();
    match reserved.find(|(reserved, _)| name.eq_ignore_ascii_case(reserved)) {
        Some((_, instead)) => {
            Err(Wrong::new("is set by the driver").hint(format!("use the option {instead}")))
        }
        None => Ok(()),
    }
}
