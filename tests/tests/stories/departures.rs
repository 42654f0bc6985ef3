//! Callers that leave in the middle of a call, at every await point that it has: afterwards all
//! counters, permits and places are as before, over real databases.

use std::sync::Arc;
use std::time::Duration;

use mainstay::policy::Settings;
use mainstay::sql::{
    Access, Begin, BoxFuture, Find, Options, Record, Scope, SqlError, Transaction,
    TransactionLimits, Value, Verbs,
};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::tasks::Tasks;
use mainstay::{DataProxy, Database, Safety};
use mainstay_testkit::cut::cut_at;
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};

use super::lone::{self, Lone};

/// A call that was never left half way is made anew so often.
const ROUNDS_MAX: usize = 100;
/// No call has more await points.
const POLLS_MAX: usize = 2_000;
/// Open at once; one leaked would be missed soon.
const LIMITS: TransactionLimits = TransactionLimits {
    idle: Duration::from_secs(60),
    count: 2,
};
const ROWS: i64 = 3_000;

/// Without idle connections every call opens its own.
fn settings(idle_max: u32) -> Settings {
    let mut settings = lone::settings(Duration::from_secs(20));
    settings.retry.attempts_max = 1;
    settings.pool.active_max = 2;
    settings.pool.idle_max = idle_max;
    settings.limits.concurrency = Some(2);
    settings
}

type Called<'a> = BoxFuture<'a, Result<(), SqlError>>;
/// A call that can be left.
type Call = fn(&DataProxy) -> Called<'_>;

/// Every way to use a source, by name.
fn calls() -> Vec<(&'static str, Call)> {
    vec![
        ("query", |proxy| Box::pin(query(proxy))),
        ("execute", |proxy| Box::pin(execute(proxy))),
        ("insert", |proxy| Box::pin(insert(proxy))),
        ("insert_many", |proxy| Box::pin(insert_many(proxy))),
        ("find a page", |proxy| Box::pin(find(proxy))),
        ("entities", |proxy| Box::pin(entities(proxy))),
        ("script", |proxy| Box::pin(script(proxy))),
        ("stream", |proxy| Box::pin(stream(proxy))),
        ("begin", |proxy| Box::pin(begin_and_drop(proxy))),
        ("commit", |proxy| Box::pin(commit(proxy))),
        ("rollback", |proxy| Box::pin(roll_back(proxy))),
        ("transaction", |proxy| Box::pin(closure(proxy))),
    ]
}

fn options() -> Options {
    Options::default()
}

async fn query(proxy: &DataProxy) -> Result<(), SqlError> {
    let sql = "SELECT id, v FROM marks WHERE id < 50";
    proxy.query(sql, Vec::new(), options()).await.map(drop)
}

async fn execute(proxy: &DataProxy) -> Result<(), SqlError> {
    let sql = "UPDATE marks SET v = 'other' WHERE id = 7";
    proxy.execute(sql, Vec::new(), options()).await.map(drop)
}

fn record(id: i64) -> Record {
    vec![
        ("id".to_owned(), Value::I64(id)),
        ("v".to_owned(), Value::Text("new".into())),
    ]
}

async fn insert(proxy: &DataProxy) -> Result<(), SqlError> {
    let record = record(ROWS + 1);
    proxy.insert("marks", &record, options()).await.map(drop)
}

async fn insert_many(proxy: &DataProxy) -> Result<(), SqlError> {
    let records = [record(ROWS + 2), record(ROWS + 3)];
    let inserted = proxy.insert_many("marks", &records, options(), None);
    inserted.await.map(drop)
}

async fn find(proxy: &DataProxy) -> Result<(), SqlError> {
    let find = Find::all("marks").page(2, 10);
    proxy.find(&find, options()).await.map(drop)
}

async fn entities(proxy: &DataProxy) -> Result<(), SqlError> {
    proxy.entities().await.map(drop)
}

async fn script(proxy: &DataProxy) -> Result<(), SqlError> {
    let text = "INSERT INTO marks VALUES (5000, 'a'); DELETE FROM marks WHERE id = 5000";
    proxy.script(text, options()).await.map(drop)
}

async fn stream(proxy: &DataProxy) -> Result<(), SqlError> {
    let sql = "SELECT id, v FROM marks ORDER BY id";
    let mut stream = proxy.stream_query(sql, Vec::new(), options()).await?;
    while stream.next().await?.is_some() {}
    Ok(())
}

async fn begin(proxy: &DataProxy) -> Result<Box<dyn Transaction>, SqlError> {
    proxy.begin(&Begin::default(), Scope::default()).await
}

async fn begin_and_drop(proxy: &DataProxy) -> Result<(), SqlError> {
    begin(proxy).await.map(drop)
}

/// Both rows or none.
async fn write_pair(transaction: &mut dyn Transaction) -> Result<(), SqlError> {
    for step in [1, 2] {
        let params = vec![Value::I64(step)];
        let sql = "INSERT INTO pairs (step) VALUES ($1)";
        let request = lone::statement(sql, params, Safety::Write);
        transaction.run(&request).await?;
    }
    Ok(())
}

async fn commit(proxy: &DataProxy) -> Result<(), SqlError> {
    let mut transaction = begin(proxy).await?;
    transaction.savepoint("start").await?;
    write_pair(transaction.as_mut()).await?;
    transaction.release("start").await?;
    transaction.commit().await.map(drop)
}

async fn roll_back(proxy: &DataProxy) -> Result<(), SqlError> {
    let mut transaction = begin(proxy).await?;
    write_pair(transaction.as_mut()).await?;
    transaction.rollback().await
}

async fn closure(proxy: &DataProxy) -> Result<(), SqlError> {
    let work = proxy.transaction(Begin::default(), 1, |transaction| {
        Box::pin(write_pair(transaction))
    });
    work.await
}

async fn number(lone: &Lone, sql: &str) -> i64 {
    let value = lone.proxy.scalar(sql, Vec::new(), options()).await.unwrap();
    match value {
        Some(Value::I64(number)) => number,
        other => panic!("{sql}: {other:?}"),
    }
}

/// What a departure must leave behind: everything free, all calls accounted for, no half transaction.
async fn check(lone: &Lone, after: &str) {
    lone.check_whole(after).await;
    let counts = lone.proxy.source().counts().read();
    let ended = counts.succeeded + counts.failed + counts.rejected + counts.cancelled;
    assert_eq!(counts.calls, ended, "{after}: {counts:?}");
    assert_eq!(
        (counts.failed, counts.rejected),
        (0, 0),
        "{after}: {counts:?}"
    );
    let pairs = number(lone, "SELECT count(*) FROM pairs").await;
    assert_eq!(pairs % 2, 0, "half a transaction {after}");
    let sql = "UPDATE marks SET v = 'free' WHERE id = 7";
    let wrote = lone.proxy.execute(sql, Vec::new(), options()).await;
    wrote.unwrap_or_else(|error| panic!("a lock or permit is left {after}: {error}"));
    lone.check_whole(after).await;
}

/// As many transactions as allowed can be open.
async fn check_transactions(lone: &Lone) {
    let read_only = Begin {
        access: Access::ReadOnly,
        ..Begin::default()
    };
    let open = async || lone.proxy.begin(&read_only, Scope::default()).await;
    let (first, second) = (open().await.unwrap(), open().await.unwrap());
    assert_eq!(open().await.err().unwrap().code().as_str(), "queue_full");
    first.rollback().await.unwrap();
    drop(second);
}

/// Leaves one call at each of its await points in turn. Returns how many there were.
async fn leave_everywhere(lone: &Lone, name: &str, call: Call) -> usize {
    for pendings in 1..POLLS_MAX {
        let tidy = "DELETE FROM marks WHERE id > 3000";
        lone.proxy
            .execute(tidy, Vec::new(), options())
            .await
            .unwrap();
        let ended = cut_at(pendings, call(&lone.proxy)).await;
        let after = format!("after {name} was left at poll {pendings}");
        check(lone, &after).await;
        if let Some(ended) = ended {
            ended.unwrap_or_else(|error| panic!("{name}: {error}"));
            return pendings;
        }
    }
    panic!("{name} does not end");
}

async fn leave_all(lone: &Lone) {
    for (name, call) in calls() {
        let mut left = Vec::new();
        // A fast answer may be there before anybody could leave.
        while left.len() < ROUNDS_MAX && left.iter().sum::<usize>() == 0 {
            left.push(leave_everywhere(lone, name, call).await - 1);
        }
        println!("{name}: left {left:?} times");
        assert!(left.iter().sum::<usize>() > 0, "nobody could leave {name}");
    }
    check_transactions(lone).await;
    lone.check_whole("in the end").await;
}

async fn fill(lone: &Lone, integer: &str) {
    for sql in [
        format!("CREATE TABLE marks (id {integer} PRIMARY KEY, v text NOT NULL)"),
        format!("CREATE TABLE pairs (step {integer} NOT NULL)"),
        format!(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) \
             INSERT INTO marks SELECT i, 'value' FROM n"
        ),
    ] {
        lone.proxy
            .execute(&sql, Vec::new(), options())
            .await
            .unwrap();
    }
}

async fn leave_postgresql(idle_max: u32) {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let tasks = Tasks::new();
    let driver = Arc::new(super::world::postgres(server.port(), &tasks));
    let lone = Lone::over(driver, settings(idle_max), tasks, LIMITS);
    fill(&lone, "bigint").await;
    leave_all(&lone).await;
    lone::wait_without_transactions(&server).await;
    lone.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_may_leave_postgresql_at_any_await_point() {
    leave_postgresql(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_may_leave_postgresql_while_it_is_connecting() {
    leave_postgresql(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_may_leave_sqlite_at_any_await_point() {
    for idle_max in [10, 0] {
        let folder = tempfile::tempdir().unwrap();
        let mut file = SqliteSettings::new(folder.path().join("left.db"));
        file.create = true;
        let driver = Arc::new(SqliteDriver::new(file).unwrap());
        let lone = Lone::over(driver, settings(idle_max), Tasks::new(), LIMITS);
        fill(&lone, "integer").await;
        leave_all(&lone).await;
        lone.shut_down().await;
    }
}
