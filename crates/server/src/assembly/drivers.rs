//! The registry of drivers: from the settings of an endpoint to what stands behind it.

use std::sync::Arc;
use std::time::Duration;

use mainstay_config::{
    Address, Driver as Family, EndpointSettings, ServerAddress, TlsMode as Mode,
};
use mainstay_engine::tasks::Tasks;
use mainstay_mysql::{MysqlDriver, MysqlSettings, Secret};
use mainstay_postgres::{PostgresDriver, PostgresSettings, TlsMode, TlsSettings};
use mainstay_sql::Driver;
use mainstay_sqlite::{SqliteDriver, SqliteSettings};

/// The driver of an endpoint. Nothing is connected yet. `own_file`: an SQLite endpoint has a file of its
/// own, which something outside keeps like those of the others.
///
/// # Errors
/// What is wrong with the settings and what would be right.
pub(super) fn driver(
    settings: &EndpointSettings,
    own_file: bool,
    tasks: &Tasks,
) -> Result<Arc<dyn Driver>, String> {
    match (settings.driver, &settings.address) {
        (Family::Sqlite, Address::File(path)) => {
            let mut sqlite = SqliteSettings::new(path).own_file(own_file);
            for (name, value) in &settings.options {
                sqlite = sqlite_option(sqlite, name, value)?;
            }
            let driver = SqliteDriver::new(sqlite).map_err(|problem| problem.to_string())?;
            Ok(Arc::new(driver))
        }
        (Family::Postgres, Address::Server(server)) => {
            let driver = PostgresDriver::new(postgres(settings, server)?, tasks.clone());
            Ok(Arc::new(driver))
        }
        (Family::Mysql, Address::Server(server)) => {
            let driver = MysqlDriver::new(mysql(settings, server)?, tasks.clone());
            Ok(Arc::new(driver))
        }
        (family, _) => Err(format!("the driver {family} does not fit its address")),
    }
}

/// Options that are not the driver's own are settings of the session, such as `search_path`; the server
/// refuses those that it does not know.
fn postgres(
    settings: &EndpointSettings,
    server: &ServerAddress,
) -> Result<PostgresSettings, String> {
    let mut postgres = PostgresSettings::new(&server.host, &server.database, &server.user);
    postgres.port = server.port;
    postgres.connect_timeout = settings.policy.retry.connect_timeout;
    postgres.password = password(server);
    postgres.tls = tls(server);
    for (name, value) in &settings.options {
        match name.as_str() {
            "application_name" => postgres.application_name.clone_from(value),
            "statements_max" => postgres.statements_max = count(name, value)?,
            _ => postgres.options.push((name.clone(), value.clone())),
        }
    }
    Ok(postgres)
}

/// Options that are not the driver's own are system variables of the session, such as `sql_mode`.
fn mysql(settings: &EndpointSettings, server: &ServerAddress) -> Result<MysqlSettings, String> {
    let mut mysql = MysqlSettings::new(&server.host, &server.database, &server.user);
    mysql.port = server.port;
    mysql.connect_timeout = settings.policy.retry.connect_timeout;
    mysql.password = password(server);
    mysql.tls = tls(server);
    for (name, value) in &settings.options {
        match name.as_str() {
            "application_name" => mysql.application_name.clone_from(value),
            "statements_max" => mysql.statements_max = count(name, value)?,
            "gtid_domain" => {
                let domain = u32::try_from(number(name, value)?);
                let wrong = |_| format!("option {name}: {value:?} is no domain");
                mysql.gtid_domain = Some(domain.map_err(wrong)?);
            }
            _ => mysql.options.push((name.clone(), value.clone())),
        }
    }
    Ok(mysql)
}

fn password(server: &ServerAddress) -> Option<Arc<dyn Secret>> {
    let password = server.password.clone()?;
    Some(Arc::new(move || {
        password.read().map_err(std::io::Error::other)
    }))
}

fn tls(server: &ServerAddress) -> TlsSettings {
    let client = server.tls.client.as_ref();
    TlsSettings {
        mode: match server.tls.mode {
            Mode::Off => TlsMode::Off,
            Mode::Prefer => TlsMode::Prefer,
            Mode::Require => TlsMode::Require,
            Mode::VerifyCa => TlsMode::VerifyCa,
            Mode::VerifyFull => TlsMode::VerifyFull,
        },
        ca: server.tls.ca.clone(),
        certificate: client.map(|client| client.cert.clone()),
        key: client.map(|client| client.key.clone()),
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
        "value_max_bytes" => {
            let bytes = u32::try_from(number(name, value)?).unwrap_or(u32::MAX);
            Ok(settings.value_max_bytes(bytes))
        }
        _ => match name.strip_prefix("pragma.") {
            Some(pragma) => Ok(settings.pragma(pragma, value)),
            None => Err(format!(
                "SQLite has no option {name:?}; options: create, read_only, busy_timeout_ms, statements_max, value_max_bytes, pragma.<name>"
            )),
        },
    }
}

fn yes_or_no(name: &str, value: &str) -> Result<bool, String> {
    value
        .parse()
        .map_err(|_| format!("option {name}: {value:?} is neither true nor false"))
}

/// At least one.
fn count(name: &str, value: &str) -> Result<usize, String> {
    let count = usize::try_from(number(name, value)?).unwrap_or(usize::MAX);
    Ok(count.max(1))
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("option {name}: {value:?} is not a whole number"))
}

#[cfg(test)]
mod tests {
    use mainstay_config::{Configuration, Input, LoadOptions, OptionKind};

    use super::*;

    /// An endpoint with every option that the configuration knows of that family.
    fn endpoint(family: Family) -> EndpointSettings {
        let place = match family {
            Family::Sqlite => "path = \"a.db\"",
            _ => "host = \"h\"\ndatabase = \"d\"\nuser = \"u\"",
        };
        let mut text = format!(
            "[sources.s]\ndriver = {:?}\n{place}\n[sources.s.endpoints.a.options]\n",
            family.as_str()
        );
        for option in family.options() {
            let value = match option.kind {
                OptionKind::Flag => "true",
                OptionKind::Bytes => "2048",
                OptionKind::Text => "\"seven\"",
                _ => "7",
            };
            text.push_str(&format!("{} = {value}\n", option.name));
        }
        let name = "a.toml".to_owned();
        let options = LoadOptions {
            files: vec![Input::Text { name, text }],
            ..LoadOptions::default()
        };
        let loaded = Configuration::load(options).unwrap();
        loaded.configuration.sources["s"].endpoints["a"].clone()
    }

    #[test]
    fn pragmas_that_the_driver_refuses_are_refused_by_the_configuration_too() {
        for (name, value) in [
            ("query_only", "on"),
            ("busy_timeout", "1"),
            ("hard_heap_limit", "1"),
            ("soft_heap_limit", "1"),
            ("temp_store_directory", "/"),
            ("data_store_directory", "/"),
            ("writable_schema", "on"),
            ("schema_version", "1"),
            ("mmap_size", "1073741825"),
            ("cache_size", "-2000"),
            ("mmap_size", "1073741824"),
        ] {
            let driver = SqliteDriver::new(SqliteSettings::new("a.db").pragma(name, value));
            let text = format!(
                "[sources.s]\ndriver = \"sqlite\"\npath = \"a.db\"\n[sources.s.endpoints.a.options]\n\"pragma.{name}\" = {value:?}\n"
            );
            let file = "a.toml".to_owned();
            let loaded = Configuration::load(LoadOptions {
                files: vec![Input::Text { name: file, text }],
                ..LoadOptions::default()
            });
            assert_eq!(loaded.is_ok(), driver.is_ok(), "{name} = {value}");
        }
    }

    #[test]
    fn every_option_that_the_configuration_knows_reaches_its_driver() {
        let sqlite = endpoint(Family::Sqlite);
        assert_eq!(sqlite.options.len(), Family::Sqlite.options().len());
        for (name, value) in &sqlite.options {
            let plain = SqliteSettings::new("a.db");
            let set = sqlite_option(plain.clone(), name, value).unwrap();
            assert_ne!(set, plain, "{name}");
        }
        let settings = endpoint(Family::Postgres);
        let Address::Server(server) = &settings.address else {
            panic!("no server");
        };
        // What the driver did not know would go to the server.
        let postgres = postgres(&settings, server).unwrap();
        assert_eq!(postgres.options, []);
        assert_eq!(
            (postgres.application_name.as_str(), postgres.statements_max),
            ("seven", 7)
        );
        let settings = endpoint(Family::Mysql);
        let mysql = mysql(&settings, server).unwrap();
        assert_eq!(mysql.options, []);
        assert_eq!((mysql.statements_max, mysql.gtid_domain), (7, Some(7)));
    }
}
