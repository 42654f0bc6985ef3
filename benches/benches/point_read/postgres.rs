//! The same prepared statement over tokio-postgres, our driver and the facade, on a private server.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use mainstay::postgres::{PostgresDriver, PostgresSettings, TlsMode};
use mainstay::sql::{Access, AnswerMax, Connection, Driver, Value};
use mainstay::tasks::Tasks;
use mainstay_benches::{is_measuring, report};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls, Statement};

use crate::{facade, ids, read};

const TEXT: &str = "SELECT id, name, price FROM item WHERE id = $1";
const ROWS: u64 = 1000;

/// The facade costs at most this many times the raw driver; a measured run fails where it adds twice
/// as much.
const RATIO_MAX: f64 = 1.05;

/// The least that any use of the server must do.
struct Raw {
    client: Client,
    statement: Statement,
}

impl Raw {
    async fn connect(server: &PostgresServer, tasks: &Tasks) -> anyhow::Result<Self> {
        let (client, connection) = tokio_postgres::connect(&server.url("postgres"), NoTls).await?;
        tasks.spawn(async move {
            let _ = connection.await;
        });
        let statement = client.prepare(TEXT).await?;
        Ok(Raw { client, statement })
    }

    async fn read(&self, id: i64) -> anyhow::Result<(i64, String, f64)> {
        let rows = self.client.query(&self.statement, &[&id]).await?;
        let row = rows.first().expect("the key is there");
        Ok((row.get(0), row.get(1), row.get(2)))
    }
}

async fn driven(session: &mut dyn Connection, id: i64) -> anyhow::Result<Vec<Value>> {
    let params = [Value::I64(id)];
    let mut answer = session
        .run(TEXT, &params, AnswerMax::default(), &|| {})
        .await?;
    Ok(answer.rows.remove(0))
}

async fn fill(server: &PostgresServer) -> anyhow::Result<()> {
    let create =
        "CREATE TABLE item (id int8 PRIMARY KEY, name text NOT NULL, price float8 NOT NULL)";
    server.sql(create).await?;
    let fill = format!(
        "INSERT INTO item SELECT n, 'item ' || n, n / 7.0 FROM generate_series(1, {ROWS}) n"
    );
    server.sql(&fill).await?;
    server.sql("VACUUM ANALYZE item").await?;
    Ok(())
}

pub(crate) fn compare() -> anyhow::Result<()> {
    // One thread: a hop between threads costs as much as the whole read and would hide what is measured.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tasks = Tasks::new();
    let server = runtime.block_on(PostgresServer::start(PostgresOptions::new()))?;
    runtime.block_on(fill(&server))?;
    let ratio = compare_on(&runtime, &server, &tasks)?;
    println!("point read, PostgreSQL: the facade's bound is {RATIO_MAX} x the raw driver");
    runtime.block_on(tasks.shutdown(Duration::from_secs(1)));
    let ratio_worst = 1.0 + 2.0 * (RATIO_MAX - 1.0);
    anyhow::ensure!(
        !is_measuring() || ratio <= ratio_worst,
        "a point read through the facade costs {ratio:.3} x the raw driver"
    );
    Ok(())
}

/// Facade ÷ raw driver.
fn compare_on(runtime: &Runtime, server: &PostgresServer, tasks: &Tasks) -> anyhow::Result<f64> {
    let mut settings = PostgresSettings::new("127.0.0.1", "postgres", "postgres");
    settings.port = server.port();
    settings.tls.mode = TlsMode::Off;
    let driver = Arc::new(PostgresDriver::new(settings, tasks.clone()));
    let mut session = runtime.block_on(driver.connect(Access::ReadOnly))?;
    let proxy = {
        let _inside = runtime.enter();
        facade(driver, tasks)?
    };
    let raw = runtime.block_on(Raw::connect(server, tasks))?;

    let (id, name, price) = runtime.block_on(raw.read(7))?;
    let expected = vec![Value::I64(id), Value::Text(name), Value::F64(price)];
    assert_eq!(runtime.block_on(read(&proxy, TEXT, 7))?, expected);
    assert_eq!(runtime.block_on(driven(session.as_mut(), 7))?, expected);

    let mut of_raw = |times| {
        runtime.block_on(async {
            let began = Instant::now();
            for id in ids(times, ROWS) {
                black_box(raw.read(id).await.expect("the server answers"));
            }
            began.elapsed()
        })
    };
    let mut of_driver = |times| {
        runtime.block_on(async {
            let began = Instant::now();
            for id in ids(times, ROWS) {
                let row = driven(session.as_mut(), id).await;
                black_box(row.expect("the server answers"));
            }
            began.elapsed()
        })
    };
    let mut of_facade = |times| {
        runtime.block_on(async {
            let began = Instant::now();
            for id in ids(times, ROWS) {
                let row = read(&proxy, TEXT, id).await;
                black_box(row.expect("the server answers"));
            }
            began.elapsed()
        })
    };
    let driver = mainstay_benches::compare(&mut of_driver, &mut of_raw);
    report("point read, PostgreSQL driver", "tokio-postgres", driver);
    let facade = mainstay_benches::compare(&mut of_facade, &mut of_raw);
    report("point read, PostgreSQL facade", "tokio-postgres", facade);
    Ok(facade.ratio.median)
}
