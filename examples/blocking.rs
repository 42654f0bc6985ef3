//! How do I use databases from code without async?
//!
//! `cargo run -p mainstay --example blocking`

use std::sync::Arc;
use std::time::Duration;

use mainstay::blocking::Database;
use mainstay::sql::{Begin, Options, Plain, Value};
use mainstay::sqlite::{SettingsError, SqliteDriver, SqliteSettings};
use mainstay::{Chance, Policy, Preset, tasks::Tasks};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("mainstay-blocking-{}.db", std::process::id()));
    let parts = Database::start(|| {
        let mut settings = SqliteSettings::new(&file);
        settings.create = true;
        let driver = Arc::new(SqliteDriver::new(settings)?);
        let policy = Policy::preset(Preset::Balanced);
        let parts = Plain::new(driver, &policy, Tasks::new(), Chance::from_entropy());
        Ok::<_, SettingsError>(parts)
    })?;

    let create = "CREATE TABLE parts (id INTEGER PRIMARY KEY, name TEXT NOT NULL)";
    parts.execute(create, vec![], Options::default())?;
    let count = parts.transaction(Begin::default(), 1, |transaction| {
        let name = vec![Value::Text("rope".into())];
        transaction.execute("INSERT INTO parts (name) VALUES (?)", name)?;
        transaction.scalar("SELECT count(*) FROM parts", vec![])
    })?;
    println!("{count:?}");

    parts.close(Duration::from_secs(5));
    std::fs::remove_file(&file)?;
    Ok(())
}
