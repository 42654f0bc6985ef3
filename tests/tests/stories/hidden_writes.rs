//! Statements that look like reads and write, and sessions that read what they wrote.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainstay::sql::{Options, Value, Verbs};
use mainstay::tasks::Tasks;
use mainstay::{DataProxy, Database, EventKind, Preset};
use mainstay_testkit::mariadb::MariadbCluster;
use mainstay_testkit::postgres::PostgresCluster;
use tokio::task::JoinSet;

use super::chronicle::{Chronicle, is_long};
use super::servers::{Cluster, Server};
use super::world;

/// What writes without a word of it in the text of the reader: `bump` inserts a row and says how many
/// there are.
const IN_POSTGRES: &str = "
    CREATE TABLE bumps (id bigserial PRIMARY KEY, why text NOT NULL);
    CREATE FUNCTION bump(why text) RETURNS bigint VOLATILE LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO bumps (why) VALUES (why); RETURN (SELECT count(*) FROM bumps); END $$;
    CREATE FUNCTION calm(why text) RETURNS bigint STABLE LANGUAGE plpgsql AS
        $$ BEGIN RETURN bump(why); END $$;
    CREATE VIEW numbered AS SELECT bump('view') AS n;
    CREATE VIEW deeper AS SELECT n + 0 AS n FROM numbered;
    CREATE FUNCTION noted(a text, b text) RETURNS bigint VOLATILE LANGUAGE plpgsql AS
        $$ BEGIN RETURN bump(a || b); END $$;
    CREATE OPERATOR public.* (LEFTARG = text, RIGHTARG = text, FUNCTION = noted);
    CREATE FUNCTION as_number(t bumps) RETURNS bigint VOLATILE LANGUAGE plpgsql AS
        $$ BEGIN RETURN bump('cast'); END $$;
    CREATE CAST (bumps AS bigint) WITH FUNCTION as_number(bumps);
    CREATE VIEW orders AS SELECT id, why FROM bumps;
    CREATE FUNCTION take_order() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO bumps (why) VALUES (NEW.why); RETURN NEW; END $$;
    CREATE TRIGGER take INSTEAD OF INSERT ON orders
        FOR EACH ROW EXECUTE FUNCTION take_order();
    CREATE TABLE ruled (why text);
    CREATE RULE instead AS ON INSERT TO ruled DO INSTEAD INSERT INTO bumps (why) VALUES (NEW.why);";

const IN_MARIADB: &str = "
    CREATE TABLE bumps (id bigint AUTO_INCREMENT PRIMARY KEY, why text NOT NULL);
    CREATE FUNCTION bump(why text) RETURNS bigint MODIFIES SQL DATA
        BEGIN INSERT INTO bumps (why) VALUES (why); RETURN (SELECT count(*) FROM bumps); END;
    CREATE FUNCTION calm(why text) RETURNS bigint READS SQL DATA RETURN bump(why);
    CREATE FUNCTION still(why text) RETURNS bigint NO SQL DETERMINISTIC RETURN bump(why);
    CREATE VIEW numbered AS SELECT bump('view') AS n;
    CREATE VIEW deeper AS SELECT n + 0 AS n FROM numbered;
    CREATE TABLE orders (why text);
    CREATE TRIGGER take AFTER INSERT ON orders FOR EACH ROW INSERT INTO bumps (why) VALUES (NEW.why);";

/// Reads by their looks.
const LOOK_LIKE_READS: [&str; 5] = [
    "SELECT n FROM numbered",
    "SELECT n FROM deeper WHERE n > 0",
    "SELECT calm('stable wrapper')",
    "SELECT 'an ' * 'operator'",
    "SELECT CAST(ROW(1, 'x')::bumps AS bigint)",
];
const LOOK_LIKE_READS_OF_MARIADB: [&str; 4] = [
    "SELECT n FROM numbered",
    "SELECT n FROM deeper WHERE n > 0",
    "SELECT calm('says that it reads')",
    "SELECT still('says that it does nothing')",
];

/// What each database hides, which statements look like reads, and which writes do not.
trait Hides: Cluster {
    const PLACES: &str;
    const READS: &[&str];
    const WRITES: &[&str];
}

impl Hides for PostgresCluster {
    const PLACES: &str = IN_POSTGRES;
    const READS: &[&str] = &LOOK_LIKE_READS;
    const WRITES: &[&str] = &[
        "INSERT INTO orders (why) VALUES ('trigger')",
        "INSERT INTO ruled (why) VALUES ('rule')",
        "SELECT bump('volatile')",
    ];
}

impl Hides for MariadbCluster {
    const PLACES: &str = IN_MARIADB;
    const READS: &[&str] = &LOOK_LIKE_READS_OF_MARIADB;
    const WRITES: &[&str] = &[
        "INSERT INTO orders (why) VALUES ('trigger')",
        "SELECT bump('modifies')",
    ];
}

struct World<C> {
    cluster: C,
    proxy: DataProxy,
    chronicle: Chronicle,
    tasks: Tasks,
}

impl<C: Cluster> World<C> {
    async fn new(replicas: usize, tables: &str) -> Self {
        let cluster = C::start(replicas, &[]).await;
        cluster.primary().sql(tables).await.unwrap();
        cluster.wait_caught_up().await;
        let tasks = Tasks::new();
        let proxy = instance(&cluster, &tasks).await;
        let chronicle = Chronicle::of(&proxy);
        World {
            cluster,
            proxy,
            chronicle,
            tasks,
        }
    }

    async fn bumps(&self) -> u64 {
        let count = self.cluster.primary().value("SELECT count(*) FROM bumps");
        count.await.unwrap().parse().unwrap()
    }

    fn learned(&self) -> usize {
        let learned = |event: &EventKind| matches!(event, EventKind::LearnedWrite { .. });
        self.chronicle.moments(learned).len()
    }

    /// Runs one and says how many rows that has written, how many writes were learned from it, where it
    /// ran, and in how many attempts.
    async fn ask(&self, sql: &str) -> (u64, usize, String, u32) {
        let (bumps, learned) = (self.bumps().await, self.learned());
        let answer = self.proxy.query(sql, Vec::new(), Options::default()).await;
        let answer = answer.unwrap_or_else(|error| panic!("{sql}: {}", world::describe(&error)));
        let endpoint = answer
            .meta
            .endpoint
            .as_deref()
            .unwrap_or_default()
            .to_owned();
        let wrote = self.bumps().await - bumps;
        (
            wrote,
            self.learned() - learned,
            endpoint,
            answer.meta.attempts,
        )
    }

    async fn end(self) {
        assert_eq!(self.tasks.shutdown(Duration::from_secs(5)).await, 0);
    }
}

/// One instance of Mainstay over a cluster; all its endpoints are known to it.
async fn instance<C: Cluster>(cluster: &C, tasks: &Tasks) -> DataProxy {
    let mut settings = Preset::Balanced.settings();
    // Callers on one hot row deadlock with each other, each time with a proof that nothing was done. How
    // often that is tried again is not what is told here.
    settings.retry.attempts_max = 20;
    settings.retry.budget = None;
    let proxy = world::source_over(cluster, settings, tasks, |_: &_| {});
    world::wait_for_primary(&proxy).await;
    proxy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_looks_like_a_read_runs_once_on_the_primary_and_is_remembered() {
    run_hidden_writes::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_looks_like_a_read_runs_once_on_the_primary_and_is_remembered_on_mariadb() {
    run_hidden_writes::<MariadbCluster>().await;
}

async fn run_hidden_writes<C: Hides>() {
    let world = World::<C>::new(1, C::PLACES).await;
    for sql in C::READS.iter().copied() {
        let (wrote, learned, endpoint, _) = world.ask(sql).await;
        assert_eq!(
            (wrote, endpoint.as_str()),
            (1, "a"),
            "the first time: {sql}"
        );
        assert_eq!(learned, 1, "{sql}");
        for _ in 0..2 {
            let again = world.ask(sql).await;
            assert_eq!(again, (1, 0, "a".to_owned(), 1), "another time: {sql}");
        }
    }
    // These never looked like reads.
    for sql in C::WRITES.iter().copied() {
        assert_eq!(world.ask(sql).await, (1, 0, "a".to_owned(), 1), "{sql}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_meet_a_hidden_write_together_run_it_once_each_and_it_is_learned_once() {
    meet_a_hidden_write::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_meet_a_hidden_write_together_run_it_once_each_and_it_is_learned_once_on_mariadb()
 {
    meet_a_hidden_write::<MariadbCluster>().await;
}

async fn meet_a_hidden_write<C: Hides>() {
    let world = World::<C>::new(1, C::PLACES).await;
    let mut callers = JoinSet::new();
    for _ in 0..40 {
        let proxy = world.proxy.clone();
        callers.spawn(async move {
            let sql = "SELECT n FROM numbered";
            proxy.scalar(sql, Vec::new(), Options::default()).await
        });
    }
    let mut seen = Vec::new();
    while let Some(ended) = callers.join_next().await {
        let value = ended
            .unwrap()
            .unwrap_or_else(|error| panic!("{}", world::describe(&error)));
        let Some(Value::I64(number)) = value else {
            panic!("{value:?}");
        };
        seen.push(number);
    }
    assert_eq!(world.bumps().await, 40, "once for each caller");
    assert_eq!(seen.len(), 40);
    assert_eq!(world.learned(), 1, "{}", world.chronicle.text());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_read_that_writes_is_refused_and_never_run() {
    declare_reads::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_read_that_writes_is_refused_and_never_run_on_mariadb() {
    declare_reads::<MariadbCluster>().await;
}

async fn declare_reads<C: Hides>() {
    let world = World::<C>::new(1, C::PLACES).await;
    for sql in C::READS.iter().copied() {
        let options = Options {
            safety: Some(mainstay::Safety::Read),
            ..Options::default()
        };
        let refused = world.proxy.query(sql, Vec::new(), options).await;
        let error = refused.expect_err(sql);
        assert!(error.sent().is_proven_harmless(), "{sql}: {error}");
    }
    assert_eq!(world.bumps().await, 0);
    assert_eq!(world.learned(), 0);
    world.end().await;
}

/// How the replicas are held back, so that whoever reads there right after a write reads the past.
const HELD_BACK: Duration = Duration::from_secs(1);
const SESSIONS: u64 = 20;

fn pairs() -> u64 {
    if is_long() { 10_000 } else { 1_000 }
}

async fn held_back<C: Cluster>() -> World<C> {
    let world = World::<C>::new(
        2,
        "CREATE TABLE ryw (id bigint PRIMARY KEY, v bigint NOT NULL);
         INSERT INTO ryw WITH RECURSIVE g(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM g WHERE n < 99) \
         SELECT n, 0 FROM g",
    )
    .await;
    for number in world.cluster.replica_numbers() {
        world.cluster.hold_back(number, HELD_BACK).await;
    }
    world
}

fn session(key: &str) -> Options {
    Options {
        session: Some(Arc::from(key)),
        ..Options::default()
    }
}

async fn write(proxy: &DataProxy, id: u64, v: u64, options: Options) {
    let params = vec![Value::I64(v as i64), Value::I64(id as i64)];
    let place = |number| proxy.dialect().placeholder(number);
    let update = format!("UPDATE ryw SET v = {} WHERE id = {}", place(1), place(2));
    let written = proxy.execute(&update, params, options).await;
    assert_eq!(written.unwrap().affected, Some(1));
}

async fn read(proxy: &DataProxy, id: u64, options: Options) -> (u64, String) {
    let params = vec![Value::I64(id as i64)];
    let place = proxy.dialect().placeholder(1);
    let select = format!("SELECT v FROM ryw WHERE id = {place}");
    let read = proxy.query(&select, params, options).await;
    let answer = read.unwrap_or_else(|error| panic!("{}", world::describe(&error)));
    let Value::I64(v) = answer.rows[0][0] else {
        panic!("{:?}", answer.rows);
    };
    (v as u64, answer.meta.endpoint.unwrap().to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_never_reads_the_time_before_its_own_write() {
    read_own_writes::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_never_reads_the_time_before_its_own_write_on_mariadb() {
    read_own_writes::<MariadbCluster>().await;
}

async fn read_own_writes<C: Cluster>() {
    let world = held_back::<C>().await;
    let (past, elsewhere) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for id in 0..SESSIONS {
        let proxy = world.proxy.clone();
        let (past, elsewhere) = (Arc::clone(&past), Arc::clone(&elsewhere));
        callers.spawn(async move {
            let options = session(&format!("caller {id}"));
            for v in 1..=pairs() / SESSIONS {
                write(&proxy, id, v, options.clone()).await;
                let (seen, endpoint) = read(&proxy, id, options.clone()).await;
                past.fetch_add(u64::from(seen != v), Ordering::Relaxed);
                elsewhere.fetch_add(u64::from(endpoint != "a"), Ordering::Relaxed);
            }
            // With nothing new for as long as the replicas are held back, they serve it as well.
            tokio::time::sleep(2 * HELD_BACK).await;
            let last = pairs() / SESSIONS;
            for _ in 0..20 {
                let (seen, endpoint) = read(&proxy, id, options.clone()).await;
                past.fetch_add(u64::from(seen != last), Ordering::Relaxed);
                elsewhere.fetch_add(u64::from(endpoint != "a"), Ordering::Relaxed);
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    println!(
        "{} pairs, {} reads on replicas",
        pairs(),
        elsewhere.load(Ordering::Relaxed)
    );
    assert_eq!(past.load(Ordering::Relaxed), 0, "reads of the past");
    assert!(elsewhere.load(Ordering::Relaxed) > 0, "replicas are used");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_another_instance_served_never_reads_the_past_here() {
    walk_between_instances::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_another_instance_served_never_reads_the_past_here_on_mariadb() {
    walk_between_instances::<MariadbCluster>().await;
}

async fn walk_between_instances<C: Cluster>() {
    let world = held_back::<C>().await;
    let other = instance(&world.cluster, &world.tasks).await;
    let mut without_a_session = 0;
    for v in 1..=50 {
        let key = session(&format!("walker {v}"));
        write(&other, 50, v, key.clone()).await;
        // Not the first read only: until the replicas must have caught up.
        for _ in 0..3 {
            let (seen, _) = read(&world.proxy, 50, key.clone()).await;
            assert_eq!(
                seen, v,
                "a session that is unknown here reads from the primary"
            );
        }
        let (seen, _) = read(&world.proxy, 50, Options::default()).await;
        without_a_session += u32::from(seen != v);
    }
    assert!(
        without_a_session > 0,
        "replicas that are not behind would prove nothing"
    );
    world.end().await;
}
