//! The same prepared statement over mysql_async, our driver and the facade, on a private server.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use mainstay::mysql::{MysqlDriver, MysqlSettings, TlsMode};
use mainstay::sql::{Access, AnswerMax, Connection, Driver, Value};
use mainstay::tasks::Tasks;
use mainstay_benches::{is_measuring, report};
use mainstay_testkit::mariadb::{MariadbOptions, MariadbServer};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Statement};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::{facade, ids, read};

const TEXT: &str = "SELECT id, name, price FROM item WHERE id = ?";
const ROWS: u64 = 1000;

/// The facade costs at most this many times the raw driver; a measured run fails where it adds twice
/// as much.
const RATIO_MAX: f64 = 1.05;

/// The least that any use of the server must do.
struct Raw {
    conn: Conn,
    statement: Statement,
}

impl Raw {
    async fn connect(server: &MariadbServer) -> anyhow::Result<Self> {
        let options = OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(server.port())
            .user(Some("root"))
            .db_name(Some("test"))
            .prefer_socket(false);
        let mut conn = Conn::new(options).await?;
        let statement = conn.prep(TEXT).await?;
        Ok(Raw { conn, statement })
    }

    async fn read(&mut self, id: i64) -> anyhow::Result<(i64, String, f64)> {
        let row = self.conn.exec_first(&self.statement, (id,)).await?;
        Ok(row.expect("the key is there"))
    }
}

async fn driven(session: &mut dyn Connection, id: i64) -> anyhow::Result<Vec<Value>> {
    let params = [Value::I64(id)];
    let mut answer = session
        .run(TEXT, &params, AnswerMax::default(), &|| {})
        .await?;
    Ok(answer.rows.remove(0))
}

async fn fill(server: &MariadbServer) -> anyhow::Result<()> {
    let create =
        "CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL, price double NOT NULL)";
    server.sql(create).await?;
    let fill = format!(
        "INSERT INTO item SELECT seq, CONCAT('item ', seq), seq / 7e0 FROM seq_1_to_{ROWS}"
    );
    server.sql(&fill).await?;
    Ok(())
}

pub(crate) fn compare() -> anyhow::Result<()> {
    // One thread: a hop between threads costs as much as the whole read and would hide what is measured.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tasks = Tasks::new();
    let server = runtime.block_on(MariadbServer::start(MariadbOptions::new()))?;
    runtime.block_on(fill(&server))?;
    let ratio = compare_on(&runtime, &server, &tasks)?;
    println!("point read, MariaDB: the facade's bound is {RATIO_MAX} x the raw driver");
    runtime.block_on(tasks.shutdown(Duration::from_secs(1)));
    let ratio_worst = 1.0 + 2.0 * (RATIO_MAX - 1.0);
    anyhow::ensure!(
        !is_measuring() || ratio <= ratio_worst,
        "a point read through the facade costs {ratio:.3} x the raw driver"
    );
    Ok(())
}

/// Facade ÷ raw driver.
fn compare_on(runtime: &Runtime, server: &MariadbServer, tasks: &Tasks) -> anyhow::Result<f64> {
    let mut settings = MysqlSettings::new("127.0.0.1", "test", "root");
    settings.port = server.port();
    settings.tls.mode = TlsMode::Off;
    let driver = Arc::new(MysqlDriver::new(settings, tasks.clone()));
    let mut session = runtime.block_on(driver.connect(Access::ReadOnly))?;
    let proxy = {
        let _inside = runtime.enter();
        facade(driver, tasks)?
    };
    let mut raw = runtime.block_on(Raw::connect(server))?;

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
    report("point read, MariaDB driver", "mysql_async", driver);
    let facade = mainstay_benches::compare(&mut of_facade, &mut of_raw);
    report("point read, MariaDB facade", "mysql_async", facade);
    Ok(facade.ratio.median)
}
