//! What a point read by key costs through the facade, beside the raw driver: PostgreSQL and MariaDB with
//! the same prepared statement, SQLite behind the same hand-off to a thread. Mainstay's own driver stands beside
//! the raw one too, so that a slow facade can be told from a slow driver.
//!
//! Both sides take turns in one run, so that what disturbs the machine disturbs both.

mod mariadb;
mod postgres;
mod sqlite;

use std::sync::Arc;

use mainstay::sql::{Database, Driver, Options, Plain, Value, Verbs};
use mainstay::tasks::Tasks;
use mainstay::{Chance, DataProxy, EndpointSpec, Policy, Preset, Role};

type Compare = fn() -> anyhow::Result<()>;

/// `cargo bench --bench point_read -- sqlite` measures that database only.
fn main() -> anyhow::Result<()> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |name: &str| {
        let mut names = chosen.iter().filter(|word| !word.starts_with('-'));
        names.clone().next().is_none() || names.any(|word| word == name)
    };
    let mut problems = Vec::new();
    let all: [(&str, Compare); 3] = [
        ("sqlite", sqlite::compare),
        ("postgres", postgres::compare),
        ("mariadb", mariadb::compare),
    ];
    for (name, compare) in all {
        // A bound that one database exceeds hides nothing about the others.
        if is_chosen(name)
            && let Err(problem) = compare()
        {
            problems.push(format!("{name}: {problem:#}"));
        }
    }
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// A source of one endpoint, as a user makes it: the preset's policy, health checks on.
fn facade(driver: Arc<dyn Driver>, tasks: &Tasks) -> anyhow::Result<DataProxy> {
    let policy = Policy::preset(Preset::Balanced);
    let chance = Chance::seeded(1);
    let plain = Plain::new(driver, &policy, tasks.clone(), chance.clone());
    let member: Arc<dyn Database> = Arc::new(plain);
    let proxy = DataProxy::builder("bench", policy)
        .tasks(tasks.clone())
        .chance(chance)
        .endpoint(EndpointSpec::new("a", member).role(Role::Primary))
        .build()?;
    Ok(proxy)
}

/// The row of this key through the facade.
async fn read(proxy: &DataProxy, text: &str, id: i64) -> anyhow::Result<Vec<Value>> {
    let mut answer = proxy
        .query(text, vec![Value::I64(id)], Options::default())
        .await?;
    Ok(answer.rows.remove(0))
}

/// So many keys, spread over a table of `keys` rows.
fn ids(times: u64, keys: u64) -> impl Iterator<Item = i64> {
    (0..times).map(move |n| i64::try_from(1 + n * 7919 % keys).expect("tables are small"))
}
