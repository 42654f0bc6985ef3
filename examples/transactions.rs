//! How do I run several statements that belong together, again if another transaction was in the way?
//!
//! `cargo run -p mainstay --example transactions`

use std::sync::Arc;

use mainstay::sql::{Begin, Database as _, Options, Plain, Value, Verbs};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::{Chance, DataProxy, EndpointSpec, Policy, Preset, Role, SqlError, tasks::Tasks};

/// Moves money, or does nothing at all.
async fn transfer(bank: &DataProxy, from: &str, to: &str, cents: i64) -> Result<(), SqlError> {
    let steps = [(from.to_owned(), -cents), (to.to_owned(), cents)];
    // Up to three times once more, after a deadlock and its kin. It changes nothing outside of the
    // transaction, so that it can be run again; each run has what it needs for itself.
    bank.transaction(Begin::default(), 3, |transaction| {
        let (bank, steps) = (bank.clone(), steps.clone());
        Box::pin(async move {
            for (name, cents) in steps {
                let sql = "UPDATE accounts SET cents = cents + ? WHERE name = ?";
                let params = vec![Value::I64(cents), Value::Text(name)];
                bank.within(transaction, sql, params).await?;
            }
            Ok(())
        })
    })
    .await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("mainstay-transfer-{}.db", std::process::id()));
    let mut settings = SqliteSettings::new(&file);
    settings.create = true;
    let driver = Arc::new(SqliteDriver::new(settings)?);
    let policy = Policy::preset(Preset::Balanced);
    let file_of_bank = Plain::new(driver, &policy, Tasks::new(), Chance::from_entropy());
    let bank = DataProxy::builder("bank", policy)
        .endpoint(EndpointSpec::new("a", Arc::new(file_of_bank) as _).role(Role::Primary))
        .build()?;
    let none = Options::default;
    let create = "CREATE TABLE accounts (name TEXT PRIMARY KEY, cents INTEGER CHECK (cents >= 0))";
    bank.execute(create, vec![], none()).await?;
    let fill = "INSERT INTO accounts VALUES ('ada', 100), ('bob', 0)";
    bank.execute(fill, vec![], none()).await?;

    transfer(&bank, "ada", "bob", 70).await?;
    match transfer(&bank, "ada", "bob", 70).await {
        Err(error) => println!("refused: {}", error.code()),
        Ok(()) => println!("overdrawn"),
    }
    let rows = bank.query(
        "SELECT name, cents FROM accounts ORDER BY name",
        vec![],
        none(),
    );
    for row in rows.await?.rows {
        println!("{row:?}");
    }

    bank.close(std::time::Duration::from_secs(5)).await;
    std::fs::remove_file(&file)?;
    Ok(())
}
