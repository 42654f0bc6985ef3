//! A point read through the driver beside the same read through tokio-postgres with a prepared statement.
//!
//! Both sides take turns on two sessions of one server, so that what disturbs the machine disturbs both.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion};
use mainstay_engine::tasks::Tasks;
use mainstay_postgres::{PostgresDriver, PostgresSettings, TlsMode};
use mainstay_sql::{Access, AnswerMax, Connection, Driver, Value};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls, Statement};

const TEXT: &str = "SELECT id, name, price FROM item WHERE id = $1";
const ROWS: i64 = 1000;

/// Two sessions and what they read.
struct Pair {
    session: Box<dyn Connection>,
    client: Client,
    statement: Statement,
}

async fn fill(server: &PostgresServer) -> anyhow::Result<()> {
    server
        .sql("CREATE TABLE item (id int8 PRIMARY KEY, name text NOT NULL, price float8 NOT NULL)")
        .await?;
    let fill = format!(
        "INSERT INTO item SELECT n, 'item ' || n, n / 7.0 FROM generate_series(1, {ROWS}) n"
    );
    server.sql(&fill).await?;
    server.sql("VACUUM ANALYZE item").await?;
    Ok(())
}

async fn pair(server: &PostgresServer, tasks: &Tasks) -> anyhow::Result<Pair> {
    let mut settings = PostgresSettings::new("127.0.0.1", "postgres", "postgres");
    settings.port = server.port();
    settings.tls.mode = TlsMode::Off;
    let driver = PostgresDriver::new(settings, tasks.clone());
    let session = driver.connect(Access::ReadWrite).await?;
    let (client, connection) = tokio_postgres::connect(&server.url("postgres"), NoTls).await?;
    tasks.spawn(async move {
        let _ = connection.await;
    });
    let statement = client.prepare(TEXT).await?;
    Ok(Pair {
        session,
        client,
        statement,
    })
}

async fn raw(pair: &Pair, id: i64) -> anyhow::Result<(i64, String, f64)> {
    let rows = pair.client.query(&pair.statement, &[&id]).await?;
    Ok((rows[0].get(0), rows[0].get(1), rows[0].get(2)))
}

async fn driven(pair: &mut Pair, id: i64) -> anyhow::Result<Vec<Value>> {
    let params = [Value::I64(id)];
    let mut answer = pair
        .session
        .run(TEXT, &params, AnswerMax::default(), &|| {})
        .await?;
    Ok(answer.rows.remove(0))
}

/// Interleaved pairs; the medians of both sides in nanoseconds.
async fn compare(pair: &mut Pair, pairs: usize) -> anyhow::Result<(u128, u128)> {
    let (mut raw_times, mut driven_times) = (Vec::with_capacity(pairs), Vec::with_capacity(pairs));
    for n in 0..pairs as i64 {
        let id = 1 + n * 7919 % ROWS;
        // Who goes first changes, as the second finds warmer caches.
        for raw_turn in [n % 2 == 0, n % 2 != 0] {
            let begin = Instant::now();
            if raw_turn {
                black_box(raw(pair, id).await?);
                raw_times.push(begin.elapsed().as_nanos());
            } else {
                black_box(driven(pair, id).await?);
                driven_times.push(begin.elapsed().as_nanos());
            }
        }
    }
    raw_times.sort_unstable();
    driven_times.sort_unstable();
    Ok((raw_times[pairs / 2], driven_times[pairs / 2]))
}

fn main() -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let tasks = Tasks::new();
    let server = runtime.block_on(PostgresServer::start(PostgresOptions::new()))?;
    runtime.block_on(fill(&server))?;
    let mut pair = runtime.block_on(pair(&server, &tasks))?;
    // `cargo test --benches` only wants to see it run.
    let is_smoke = !std::env::args().any(|arg| arg == "--bench");
    let pairs = if is_smoke { 20 } else { 20_000 };
    let (raw_median, driven_median) = runtime.block_on(compare(&mut pair, pairs))?;
    let ratio = driven_median as f64 / raw_median as f64;
    println!(
        "point read: tokio-postgres {raw_median} ns, driver {driven_median} ns, ratio {ratio:.3} (medians of {pairs} interleaved pairs)"
    );

    let mut criterion = Criterion::default()
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut group = criterion.benchmark_group("point_read");
    group.bench_function("tokio-postgres", |b| {
        b.iter_batched(
            || 7,
            |id| runtime.block_on(raw(&pair, id)),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("driver", |b| {
        b.iter_batched(
            || 7,
            |id| runtime.block_on(driven(&mut pair, id)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
    criterion.final_summary();
    runtime.block_on(tasks.shutdown(Duration::from_secs(1)));
    Ok(())
}
