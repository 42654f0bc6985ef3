//! What waiting and streaming cost in memory. Each measurement runs in a process of its own: a test
//! starts its own program once more for itself alone, so that nothing else is measured with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay::policy::Settings;
use mainstay::sql::{Dialect, Options, TransactionLimits, Value, Verbs};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::tasks::Tasks;
use mainstay_testkit::cases;
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use mainstay_testkit::scripted::{Point, Reply, ScriptedDriver};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::lone::{self, Lone};

/// Set in the process that measures.
const MEASURES: &str = "MAINSTAY_MEASURES";

const CALLERS: usize = 10_000;
/// One waiting caller with everything that is kept for it.
const CALLER_BYTES_MAX: u64 = 20_000;
/// A whole stream, however long.
const STREAM_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of text in a row: kept, even the rows of a short run would be more than a stream may cost.
const ROW_BYTES: usize = 250;
/// Everybody waits within this, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the test of this name alone in a new process, or `measure` if this is that process.
fn alone(name: &str, measure: impl AsyncFnOnce()) {
    if std::env::var_os(MEASURES).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(measure());
    }
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("stories::footprint::{name}")])
        .args(["--nocapture", "--test-threads=1"])
        .env(MEASURES, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{told}\n{complained}");
    assert!(
        told.contains("1 passed"),
        "no test is called {name}: {told}"
    );
}

/// A line of this process's status, in bytes: `VmRSS` is what it holds, `VmHWM` the most that it held.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|all| all.strip_prefix(line));
    let text = found.unwrap_or_else(|| panic!("no {line} in {status}"));
    let kilobytes = text.trim_matches(|c: char| !c.is_ascii_digit());
    kilobytes.parse::<u64>().unwrap() * 1024
}

/// The most that the process held since, beyond what it held then.
fn grown_since(before: u64) -> u64 {
    memory("VmHWM:").saturating_sub(before)
}

/// Long limits: nobody gives up while it is counted.
fn patient() -> Settings {
    let mut settings = lone::settings(PATIENCE * 2);
    settings.retry.deadline = Some(PATIENCE * 4);
    settings.pool.wait_max = PATIENCE * 2;
    settings.limits.queue_wait = PATIENCE * 2;
    settings
}

/// A source over a back end that never answers.
fn silent(settings: Settings) -> (Lone, ScriptedDriver) {
    let driver = ScriptedDriver::new(Dialect::Postgres);
    driver.always(Point::Run, Reply::hangs());
    let limits = TransactionLimits::default();
    let lone = Lone::over(Arc::new(driver.clone()), settings, Tasks::new(), limits);
    (lone, driver)
}

/// Lets so many callers in and measures when `wait` says that all of them wait where they should.
async fn crowd(lone: &Lone, wait: impl Fn(usize) -> bool) {
    let started = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    let before = memory("VmRSS:");
    for number in 0..CALLERS {
        let (proxy, started) = (lone.proxy.clone(), Arc::clone(&started));
        callers.spawn(async move {
            started.fetch_add(1, Ordering::Relaxed);
            let params = vec![Value::I64(i64::try_from(number).unwrap())];
            let sql = "SELECT v FROM fixed WHERE id = $1";
            proxy.query(sql, params, Options::default()).await
        });
    }
    let all_wait = async {
        while !wait(started.load(Ordering::Relaxed)) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all_wait).await.expect("all callers wait");
    let each = grown_since(before) / u64::try_from(CALLERS).unwrap();
    println!("a waiting caller costs {each} bytes");
    assert_eq!(callers.len(), CALLERS);
    assert!(callers.try_join_next().is_none(), "a caller did not wait");
    assert!(
        each < CALLER_BYTES_MAX,
        "a waiting caller costs {each} bytes"
    );
    callers.shutdown().await;
}

#[test]
fn ten_thousand_callers_that_wait_for_a_back_end_cost_under_20_kb_each() {
    let name = "ten_thousand_callers_that_wait_for_a_back_end_cost_under_20_kb_each";
    alone(name, async || {
        let mut settings = patient();
        settings.pool.active_max = u32::try_from(CALLERS).unwrap();
        let (lone, driver) = silent(settings);
        crowd(&lone, |_| {
            driver.counts().handed_over == u64::try_from(CALLERS).unwrap()
        })
        .await;
    });
}

#[test]
fn ten_thousand_callers_that_wait_for_a_connection_cost_under_20_kb_each() {
    let name = "ten_thousand_callers_that_wait_for_a_connection_cost_under_20_kb_each";
    alone(name, async || {
        let settings = patient();
        let active = u64::from(settings.pool.active_max);
        let (lone, driver) = silent(settings);
        let waiting = u64::try_from(CALLERS).unwrap() - active;
        crowd(&lone, |_| {
            driver.counts().handed_over == active
                && u64::from(lone.plain.pool_stats().waiting) == waiting
        })
        .await;
    });
}

#[test]
fn ten_thousand_callers_that_wait_in_the_queue_cost_under_20_kb_each() {
    let name = "ten_thousand_callers_that_wait_in_the_queue_cost_under_20_kb_each";
    alone(name, async || {
        let mut settings = patient();
        settings.limits.concurrency = Some(10);
        settings.limits.queue_depth = u32::try_from(CALLERS).unwrap();
        let (lone, driver) = silent(settings);
        // On one thread a caller that has started has come as far as it can.
        crowd(&lone, |started| {
            started == CALLERS && driver.counts().handed_over == 10
        })
        .await;
    });
}

/// Reads a statement of so many rows, whose first column counts from 1, and measures.
async fn stream(lone: &Lone, sql: &str, rows: usize) {
    let before = memory("VmRSS:");
    let read = lone.proxy.stream_query(sql, Vec::new(), Options::default());
    let mut stream = read.await.unwrap();
    let mut seen = 0;
    while let Some(batch) = stream.next().await.unwrap() {
        for row in &batch.rows {
            seen += 1;
            assert_eq!(row[0], Value::I64(seen));
        }
    }
    assert_eq!(usize::try_from(seen).unwrap(), rows);
    let grown = grown_since(before);
    println!("a stream of {rows} rows costs {grown} bytes");
    assert!(
        grown < STREAM_BYTES_MAX,
        "a stream of {rows} rows costs {grown} bytes"
    );
}

#[test]
fn a_stream_of_any_length_from_postgresql_stays_under_64_mb() {
    let name = "a_stream_of_any_length_from_postgresql_stays_under_64_mb";
    alone(name, async || {
        let rows = cases(300_000, 10_000_000);
        let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
        let lone = Lone::postgres(server.port(), patient());
        let sql = format!("SELECT generate_series(1::bigint, {rows}), repeat('x', {ROW_BYTES})");
        stream(&lone, &sql, rows).await;
        lone.shut_down().await;
    });
}

#[test]
fn a_stream_of_any_length_from_sqlite_stays_under_64_mb() {
    let name = "a_stream_of_any_length_from_sqlite_stays_under_64_mb";
    alone(name, async || {
        let rows = cases(300_000, 10_000_000);
        let folder = tempfile::tempdir().unwrap();
        let mut settings = SqliteSettings::new(folder.path().join("stream.db"));
        settings.create = true;
        let driver = SqliteDriver::new(settings).unwrap();
        let limits = TransactionLimits::default();
        let lone = Lone::over(Arc::new(driver), patient(), Tasks::new(), limits);
        let sql = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
             SELECT i, printf('%.{ROW_BYTES}c', 'x') FROM n"
        );
        stream(&lone, &sql, rows).await;
        lone.shut_down().await;
    });
}
