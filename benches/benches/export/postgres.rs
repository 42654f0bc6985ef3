//! Beside tokio-postgres, both from one private server.

use std::hint::black_box;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use mainstay::tasks::Tasks;
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls};

use crate::{lines_on, mainstay, pairs};

const TEXT: &str = "SELECT id, name, amount, at FROM export";

/// Reads every row and throws it away. How long it took.
async fn raw(client: &Client, rows: u64) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let none: [&(dyn tokio_postgres::types::ToSql + Sync); 0] = [];
    let mut stream = pin!(client.query_raw(TEXT, none).await?);
    let mut read = 0;
    while let Some(row) = stream.try_next().await? {
        black_box(&row);
        read += 1;
    }
    anyhow::ensure!(read == rows, "{read} rows");
    Ok(began.elapsed())
}

pub(crate) fn compare(runtime: &Runtime, count: usize, rows: u64) -> anyhow::Result<f64> {
    let tasks = Tasks::new();
    let server = runtime.block_on(PostgresServer::start(PostgresOptions::new()))?;
    let table = format!(
        "CREATE TABLE export AS SELECT n AS id, 'name ' || n AS name, (n / 7.0)::float8 AS amount, \
         timestamptz '2026-01-01' + n * interval '1 s' AS at FROM generate_series(1, {rows}) AS n"
    );
    runtime.block_on(server.sql(&table))?;
    runtime.block_on(server.sql("VACUUM ANALYZE export"))?;
    let folder = tempfile::tempdir()?;
    let source = format!(
        "[sources.s]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\nport = {}\ndatabase = \"postgres\"\n\
         user = \"postgres\"\ntls = \"off\"\n[sources.s.endpoints.a]\nrole = \"primary\"\n",
        server.port()
    );
    let running = runtime.block_on(mainstay(folder.path(), &source))?;
    let url = server.url("postgres");
    let client = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tasks.spawn(async move {
            let _ = connection.await;
        });
        Ok::<_, tokio_postgres::Error>(client)
    })?;
    let share = pairs(
        "PostgreSQL",
        count,
        rows,
        &mut || runtime.block_on(raw(&client, rows)),
        &mut || lines_on(runtime, &running, TEXT, rows),
    );
    drop(client);
    runtime.block_on(running.shutdown(Duration::from_secs(5)));
    runtime.block_on(tasks.shutdown(Duration::from_secs(1)));
    share
}
