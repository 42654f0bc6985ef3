//! How do I read more rows than fit in memory?
//!
//! `cargo run -p mainstay --example streams`

use std::sync::Arc;

use mainstay::sql::{Database as _, Options, Plain, Value, Verbs};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::{Chance, Policy, Preset, tasks::Tasks};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::temp_dir().join(format!("mainstay-streams-{}.db", std::process::id()));
    let mut settings = SqliteSettings::new(&file);
    settings.create = true;
    let driver = Arc::new(SqliteDriver::new(settings)?);
    let policy = Policy::preset(Preset::Balanced);
    let numbers = Plain::new(driver, &policy, Tasks::new(), Chance::from_entropy());

    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) \
               SELECT i FROM n";
    let params = vec![Value::I64(100_000)];
    let mut stream = numbers
        .stream_query(sql, params, Options::default())
        .await?;
    let (mut rows, mut largest, mut sum) = (0, 0, 0);
    // The rows are all there if `next` ends with `None`; an error says that some are missing.
    while let Some(batch) = stream.next().await? {
        rows += batch.rows.len();
        largest = largest.max(batch.rows.len());
        for row in batch.rows {
            if let Value::I64(number) = row[0] {
                sum += number;
            }
        }
    }
    println!("{rows} rows, sum {sum}, never more than {largest} in memory");

    // Dropping a stream in the middle cancels its statement and gives the connection back.
    let mut stream = numbers
        .stream_query(sql, vec![Value::I64(i64::MAX)], Options::default())
        .await?;
    let first = stream.next().await?.map(|batch| batch.rows[0].clone());
    drop(stream);
    println!("left after {first:?}");

    numbers.close(std::time::Duration::from_secs(5)).await;
    std::fs::remove_file(&file)?;
    Ok(())
}
