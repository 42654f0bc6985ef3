//! What callers do wrong, and what callers do to each other, is no fault of a server.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mainstay::policy::Settings;
use mainstay::sql::{
    Access, AnswerMax, Begin, Code, Database, Isolation, Options, Request, Scope, Transaction,
    Value, Verbs, Work,
};
use mainstay::tasks::Tasks;
use mainstay::{DataProxy, EventKind, Preset, Safety, Sent, SqlError};
use mainstay_testkit::mariadb::{MariadbCluster, MariadbServer};
use mainstay_testkit::postgres::{PostgresCluster, PostgresServer};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::chronicle::{Chronicle, is_long, is_promoted};
use super::servers::{Cluster, Server, Setting};
use super::world;

const TABLES: &str = "
    CREATE TABLE fixed (id bigint PRIMARY KEY, v text NOT NULL);
    INSERT INTO fixed VALUES (1, 'one');
    CREATE TABLE hot (id bigint PRIMARY KEY, v bigint NOT NULL CHECK (v >= 0));
    INSERT INTO hot VALUES (0, 0), (1, 0), (2, 0);";

/// What goes wrong in each database, and how.
trait Blunders: Cluster {
    /// Statements that no server takes.
    const BAD: &[&str];
    /// Under which a lock is not waited for.
    const IMPATIENT: &[Setting];
    /// Takes the lock.
    const HOLD: &str;
    /// Under which deadlocks are found at once.
    const WATCHFUL: &[Setting];
    /// Under which a change of what has changed since the transaction began is refused.
    const STRICT: &[Setting];
    /// A read that takes a second.
    const SLEEP: &str;
    /// Under which `app` needs its password.
    const GUARDED: &[Setting];
    /// Makes `app`, whose password is `right`.
    const APP: &str;

    /// Ends one session of ours on a server, one that is busy if there is one.
    async fn terminate_one(node: &Self::Node);
}

impl Blunders for PostgresCluster {
    const BAD: &[&str] = &[
        "SELECT nothing FROM fixed",
        "SELEC v FROM fixed",
        "SELECT v FROM nowhere",
        "INSERT INTO hot (id, v) VALUES ('one', 1)",
        "SELECT 1 / 0",
        "UPDATE nowhere SET v = 1",
    ];
    const IMPATIENT: &[Setting] = &[("lock_timeout", "10ms")];
    // The table and not a row: an update of a hot row waits twice, and where its first wait ends with the
    // lock just as the timeout strikes, PostgreSQL says that a user cancelled it (57014).
    const HOLD: &str = "LOCK TABLE hot IN SHARE ROW EXCLUSIVE MODE";
    const WATCHFUL: &[Setting] = &[("deadlock_timeout", "10ms")];
    const STRICT: &[Setting] = &[];
    const SLEEP: &str = "SELECT pg_sleep(1), v FROM fixed";
    const GUARDED: &[Setting] = &[("access", "host all app 127.0.0.1/32 scram-sha-256")];
    const APP: &str =
        "CREATE ROLE app LOGIN PASSWORD 'right'; GRANT SELECT, UPDATE ON fixed, hot TO app";

    async fn terminate_one(node: &PostgresServer) {
        let one = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'mainstay' AND pid <> pg_backend_pid() \
                   ORDER BY state = 'active' DESC LIMIT 1";
        assert_eq!(node.value(one).await.unwrap(), "t");
    }
}

impl Blunders for MariadbCluster {
    const BAD: &[&str] = &[
        "SELECT nothing FROM fixed",
        "SELEC v FROM fixed",
        "SELECT v FROM nowhere",
        "INSERT INTO hot (id, v) VALUES ('one', 1)",
        "INSERT INTO hot (id, v) VALUES (99999999999999999999, 1)",
        "UPDATE nowhere SET v = 1",
    ];
    const IMPATIENT: &[Setting] = &[("innodb_lock_wait_timeout", "0")];
    const HOLD: &str = "SELECT v FROM hot WHERE id = 1 FOR UPDATE";
    const WATCHFUL: &[Setting] = &[];
    const STRICT: &[Setting] = &[("innodb_snapshot_isolation", "ON")];
    const SLEEP: &str = "SELECT SLEEP(1), v FROM fixed";
    const GUARDED: &[Setting] = &[];
    const APP: &str = "CREATE USER app@127.0.0.1 IDENTIFIED BY 'right'; \
        GRANT SELECT, UPDATE ON test.* TO app@127.0.0.1";

    async fn terminate_one(node: &MariadbServer) {
        let one = "SELECT ID FROM information_schema.PROCESSLIST \
                   WHERE USER = 'root' AND ID <> CONNECTION_ID() AND COMMAND IN ('Execute', 'Sleep') \
                   ORDER BY COMMAND LIMIT 1";
        let id = node.value(one).await.unwrap();
        node.sql(&format!("KILL {id}")).await.unwrap();
    }
}

struct World<C> {
    cluster: C,
    proxy: DataProxy,
    /// Its first event is the one by which the primary is found.
    chronicle: Chronicle,
    tasks: Tasks,
}

impl<C: Cluster> World<C> {
    async fn new(server: &[Setting]) -> Self {
        let cluster = C::start(1, server).await;
        cluster.primary().sql(TABLES).await.unwrap();
        cluster.wait_caught_up().await;
        let tasks = Tasks::new();
        let proxy = world::source_over(&cluster, settings(), &tasks, |_: &_| {});
        let chronicle = Chronicle::of(&proxy);
        let promoted = |event: &EventKind| is_promoted(event, "a");
        let limit = Duration::from_secs(20);
        let begun = Instant::now();
        chronicle.wait("a primary", begun, limit, promoted).await;
        World {
            cluster,
            proxy,
            chronicle,
            tasks,
        }
    }

    /// No circuit opened, no endpoint left and no role moved.
    fn assert_untouched(&self) {
        let touched = |event: &EventKind| {
            matches!(
                event,
                EventKind::Circuit { .. }
                    | EventKind::Down { .. }
                    | EventKind::RolePromoted { .. }
                    | EventKind::RoleDemoted { .. }
                    | EventKind::NoPrimary
            )
        };
        let count = self.chronicle.moments(touched).len();
        assert_eq!(count, 1, "{}", self.chronicle.text());
        for status in self.proxy.source().status() {
            assert_eq!(status.circuit, "closed");
            assert_eq!(status.stats.circuit_opened, 0);
        }
    }

    async fn end(self) {
        self.assert_untouched();
        let read = self.proxy.scalar(
            "SELECT v FROM fixed WHERE id = 1",
            Vec::new(),
            Options::default(),
        );
        assert_eq!(read.await.unwrap(), Some(Value::Text("one".into())));
        assert_eq!(self.tasks.shutdown(Duration::from_secs(5)).await, 0);
    }
}

/// Short waits between attempts, so that a story about thousands of them is short as well.
fn settings() -> Settings {
    let mut settings = Preset::Balanced.settings();
    settings.retry.delay = Duration::from_millis(2);
    settings
}

/// Runs `count` calls by 20 callers.
async fn flood<F, Fut>(proxy: &DataProxy, count: u32, call: F)
where
    F: Fn(DataProxy, u32) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let next = Arc::new(AtomicU32::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let (proxy, next, call) = (proxy.clone(), Arc::clone(&next), call.clone());
        callers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                call(proxy.clone(), number).await;
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
}

async fn run(proxy: &DataProxy, sql: &str) -> Result<(), SqlError> {
    let ran = proxy.query(sql, Vec::new(), Options::default()).await;
    ran.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_statements_and_a_flood_of_constraints_open_nothing() {
    flood_with_mistakes::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_statements_and_a_flood_of_constraints_open_nothing_on_mariadb() {
    flood_with_mistakes::<MariadbCluster>().await;
}

async fn flood_with_mistakes<C: Blunders>() {
    let world = World::<C>::new(&[]).await;
    let bad = C::BAD;
    for sql in bad.iter().copied() {
        let error = run(&world.proxy, sql).await.expect_err(sql);
        assert!(error.sent().is_proven_harmless(), "{sql}: {error}");
        assert_eq!(error.detail().attempts.len(), 1, "{sql}: tried once");
    }
    world.assert_untouched();
    flood(&world.proxy, 1_000, move |proxy, number| async move {
        let sql = bad[number as usize % bad.len()];
        run(&proxy, sql).await.expect_err(sql);
    })
    .await;
    flood(&world.proxy, 1_000, |proxy, number| async move {
        let sql = match number % 2 {
            0 => "INSERT INTO hot (id, v) VALUES (1, 1)",
            _ => "UPDATE hot SET v = -1 WHERE id = 1",
        };
        let error = run(&proxy, sql).await.expect_err(sql);
        assert_eq!(error.code(), Code::Constraint, "{error}");
        assert_eq!(error.sent(), Sent::YesUnprocessed);
    })
    .await;
    world.end().await;
}

fn statement(text: &str) -> Request {
    let is_read = text.starts_with("SELECT");
    Request {
        class: None,
        name: "query".into(),
        work: Work::Statement {
            text: text.into(),
            params: Vec::new(),
        },
        safety: if is_read { Safety::Read } else { Safety::Write },
        access: if is_read {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
        options: Options::default(),
        answer_max: AnswerMax::default(),
    }
}

/// Runs statements in one transaction of this isolation.
async fn transact(
    proxy: &DataProxy,
    isolation: Isolation,
    statements: &[&str],
    between: impl AsyncFn(),
) -> Result<(), SqlError> {
    let begin = Begin {
        isolation,
        ..Begin::default()
    };
    let mut transaction: Box<dyn Transaction> = proxy.begin(&begin, Scope::default()).await?;
    for (number, text) in statements.iter().enumerate() {
        if number > 0 {
            between().await;
        }
        let ran = transaction.run(&statement(text)).await;
        if let Err(error) = ran {
            let _ = transaction.rollback().await;
            return Err(error);
        }
    }
    transaction.commit().await.map(drop)
}

fn conflicts() -> u32 {
    if is_long() { 2_000 } else { 400 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_serialization_failures_open_nothing() {
    flood_with_conflicts::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_serialization_failures_open_nothing_on_mariadb() {
    flood_with_conflicts::<MariadbCluster>().await;
}

async fn flood_with_conflicts<C: Blunders>() {
    let world = World::<C>::new(C::STRICT).await;
    let failed = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&failed);
    flood(&world.proxy, 20, move |proxy, _| {
        let failed = Arc::clone(&counted);
        async move {
            while failed.load(Ordering::Relaxed) < conflicts() {
                let statements = [
                    "SELECT v FROM hot WHERE id = 1",
                    "UPDATE hot SET v = v + 1 WHERE id = 1",
                ];
                let ran = transact(
                    &proxy,
                    Isolation::RepeatableRead,
                    &statements,
                    tokio::task::yield_now,
                )
                .await;
                if let Err(error) = ran {
                    assert_eq!(error.code(), Code::Contention, "{error}");
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    })
    .await;
    assert!(failed.load(Ordering::Relaxed) >= conflicts());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_lock_timeouts_open_nothing() {
    flood_a_lock::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_lock_timeouts_open_nothing_on_mariadb() {
    flood_a_lock::<MariadbCluster>().await;
}

async fn flood_a_lock<C: Blunders>() {
    let world = World::<C>::new(C::IMPATIENT).await;
    let mut holder = world
        .proxy
        .begin(&Begin::default(), Scope::default())
        .await
        .unwrap();
    holder.run(&statement(C::HOLD)).await.unwrap();
    flood(&world.proxy, conflicts(), |proxy, _| async move {
        let sql = "UPDATE hot SET v = v + 1 WHERE id = 1";
        let error = run(&proxy, sql).await.expect_err(sql);
        assert_eq!(error.code(), Code::Contention, "{error}");
        assert_eq!(error.sent(), Sent::YesUnprocessed);
    })
    .await;
    holder.rollback().await.unwrap();
    let free = run(&world.proxy, "UPDATE hot SET v = 7 WHERE id = 1").await;
    assert!(free.is_ok(), "{free:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_deadlocks_on_one_hot_row_open_nothing() {
    deadlock_twenty_times::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_deadlocks_on_one_hot_row_open_nothing_on_mariadb() {
    deadlock_twenty_times::<MariadbCluster>().await;
}

async fn deadlock_twenty_times<C: Blunders>() {
    let world = World::<C>::new(C::WATCHFUL).await;
    let hot = "UPDATE hot SET v = v + 1 WHERE id = 1";
    let other = "UPDATE hot SET v = v + 1 WHERE id = 2";
    for round in 0..20 {
        let both = Barrier::new(2);
        let meet = async || {
            both.wait().await;
        };
        let proxy = &world.proxy;
        let (forth, back) = ([hot, other], [other, hot]);
        let (one, two) = tokio::join!(
            transact(proxy, Isolation::Default, &forth, meet),
            transact(proxy, Isolation::Default, &back, meet),
        );
        let ((Ok(()), Err(error)) | (Err(error), Ok(()))) = (one, two) else {
            panic!("round {round}: one of the two is the victim");
        };
        assert_eq!(error.code(), Code::Contention, "{error}");
    }
    let total = world.cluster.primary();
    let total = total.value("SELECT v FROM hot WHERE id = 1").await.unwrap();
    assert_eq!(total, "20", "the survivors' updates");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_terminated_backend_opens_nothing() {
    terminate_a_backend::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_terminated_backend_opens_nothing_on_mariadb() {
    terminate_a_backend::<MariadbCluster>().await;
}

async fn terminate_a_backend<C: Blunders>() {
    let world = World::<C>::new(&[]).await;
    flood(&world.proxy, 100, |proxy, _| async move {
        run(&proxy, "SELECT v FROM fixed").await.unwrap();
    })
    .await;
    let mut sleeping = JoinSet::new();
    let proxy = world.proxy.clone();
    sleeping.spawn(async move { run(&proxy, C::SLEEP).await });
    for node in world.cluster.nodes() {
        C::terminate_one(node).await;
    }
    flood(&world.proxy, 200, |proxy, _| async move {
        run(&proxy, "SELECT v FROM fixed").await.unwrap();
    })
    .await;
    sleeping.join_next().await.unwrap().unwrap().unwrap();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_on_one_replica_fails_no_read() {
    forget_a_password::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_on_one_replica_fails_no_read_on_mariadb() {
    forget_a_password::<MariadbCluster>().await;
}

async fn forget_a_password<C: Blunders>() {
    let cluster = C::start(2, C::GUARDED).await;
    cluster.primary().sql(TABLES).await.unwrap();
    cluster.primary().sql(C::APP).await.unwrap();
    cluster.wait_caught_up().await;
    let tasks = Tasks::new();
    let login = |(number, password): (usize, &'static str)| {
        let port = cluster.node(number).port();
        C::Node::driver(port, ("app", Some(password)), &tasks)
    };
    let servers = [(0, "right"), (1, "wrong"), (2, "right")].map(login);
    let proxy = world::source_of(servers.into(), settings(), &tasks, |_: &_| {});
    let chronicle = Chronicle::of(&proxy);
    world::wait_for_primary(&proxy).await;
    flood(&proxy, 1_000, |proxy, _| async move {
        let read = run(&proxy, "SELECT v FROM fixed").await;
        read.unwrap_or_else(|error| panic!("{}", world::describe(&error)));
    })
    .await;
    let written = run(&proxy, "UPDATE hot SET v = 1 WHERE id = 1").await;
    assert!(written.is_ok(), "{written:?}");
    let moved = |event: &EventKind| {
        matches!(
            event,
            EventKind::RolePromoted { .. } | EventKind::RoleDemoted { .. }
        )
    };
    let count = chronicle.moments(moved).len();
    assert_eq!(count, 1, "only the first: {}", chronicle.text());
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}
