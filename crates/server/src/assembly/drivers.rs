//! The registry of drivers: from the settings of an endpoint to what stands behind it.

use std::sync::Arc;
use std::time::Duration;

use mainstay_config::{Address, Driver as Family, EndpointSettings};
use mainstay_sql::Driver;
use mainstay_sqlite::{SqliteDriver, SqliteSettings};

/// The driver of an endpoint. Nothing is connected yet.
///
/// # Errors
/// What is wrong with the settings and what would be right.
pub(super) fn driver(settings: &EndpointSettings) -> Result<Arc<dyn Driver>, String> {
    match (settings.driver, &settings.address) {
        (Family::Sqlite, Address::File(path)) => {
            let mut sqlite = SqliteSettings::new(path);
            for (name, value) in &settings.options {
                sqlite = sqlite_option(sqlite, name, value)?;
            }
            let driver = SqliteDriver::new(sqlite).map_err(|problem| problem.to_string())?;
            Ok(Arc::new(driver))
        }
        (family, _) => Err(format!("the driver {family} does not fit its address")),
    }
}

/// Options of SQLite endpoints, and `pragma.<name>` for everything that SQLite itself knows.
fn sqlite_option(
    settings: SqliteSettings,
    name: &str,
    value: &str,
) -> Result<SqliteSettings, String> {
    match name {
        "create" => Ok(settings.create(yes_or_no(name, value)?)),
        "read_only" => Ok(settings.read_only_endpoint(yes_or_no(name, value)?)),
        "busy_timeout_ms" => Ok(settings.busy_timeout(Duration::from_millis(number(name, value)?))),
        "statements_max" => {
            let count = usize::try_from(number(name, value)?).unwrap_or(usize::MAX);
            Ok(settings.statements_max(count))
        }
        _ => match name.strip_prefix("pragma.") {
            Some(pragma) => Ok(settings.pragma(pragma, value)),
            None => Err(format!(
                "SQLite has no option {name:?}; options: create, read_only, busy_timeout_ms, statements_max, pragma.<name>"
            )),
        },
    }
}

fn yes_or_no(name: &str, value: &str) -> Result<bool, String> {
    value
        .parse()
        .map_err(|_| format!("option {name}: {value:?} is neither true nor false"))
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("option {name}: {value:?} is not a whole number"))
}
