//! How do I put several databases behind one?
//!
//! Two connections to one SQLite file stand for a primary and a replica; with PostgreSQL only the
//! driver differs.
//!
//! `cargo run -p mainstay --example databases`

use std::sync::Arc;

use mainstay::policy::ReadFrom;
use mainstay::sql::{Database, Options, Plain, Value, Verbs};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::tasks::Tasks;
use mainstay::{Chance, DataProxy, EndpointSpec, Policy, Preset, Role};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("mainstay-example-{}.db", std::process::id()));
    let (tasks, chance) = (Tasks::new(), Chance::from_entropy());
    let policy = Policy::preset(Preset::Balanced);
    let member = || -> Result<Arc<dyn Database>, Box<dyn std::error::Error>> {
        let mut settings = SqliteSettings::new(&file);
        settings.create = true;
        let driver = Arc::new(SqliteDriver::new(settings)?);
        Ok(Arc::new(Plain::new(
            driver,
            &policy,
            tasks.clone(),
            chance.clone(),
        )))
    };
    let orders = DataProxy::builder("orders", Arc::clone(&policy))
        .tasks(tasks.clone())
        .endpoint(EndpointSpec::new("a", member()?).role(Role::Primary))
        .endpoint(EndpointSpec::new("b", member()?).role(Role::Replica))
        .build()?;

    let create = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)";
    orders.execute(create, vec![], Options::default()).await?;
    let insert = "INSERT INTO orders (item) VALUES (?)";
    let item = vec![Value::Text("rope".into())];
    let written = orders.execute(insert, item, Options::default()).await?;
    println!("written on endpoint {:?}", written.meta.endpoint);
    // Any endpoint may answer a read, unless it is told from where.
    let select = "SELECT id, item FROM orders";
    let anywhere = orders.query(select, vec![], Options::default()).await?;
    println!("{:?}", anywhere.rows);
    let from_primary = Options {
        read_from: Some(ReadFrom::Primary),
        ..Options::default()
    };
    let read = orders.query(select, vec![], from_primary).await?;
    println!("the same from endpoint {:?}", read.meta.endpoint);

    orders.close(std::time::Duration::from_secs(5)).await;
    tasks.shutdown(std::time::Duration::from_secs(5)).await;
    std::fs::remove_file(&file)?;
    Ok(())
}
