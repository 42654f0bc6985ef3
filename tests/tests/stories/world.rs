//! A source over real servers, and callers that keep books.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mainstay::policy::Settings;
use mainstay::postgres::{PostgresDriver, PostgresSettings, TlsMode};
use mainstay::sql::Verbs;
use mainstay::sql::{Database, Driver, Options, Plain, Value};
use mainstay::tasks::Tasks;
use mainstay::{Chance, DataProxy, EndpointSpec, Observer, Policy, Role, Sent, SqlError};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::servers::{Cluster, Server, first};

/// Names of endpoints by their node's number.
pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The superuser of a private server on this port.
pub(crate) fn superuser(port: u16) -> PostgresSettings {
    let mut settings = PostgresSettings::new("127.0.0.1", "postgres", "postgres");
    settings.port = port;
    settings.tls.mode = TlsMode::Off;
    settings.connect_timeout = Duration::from_secs(2);
    settings
}

/// A driver for a private server on this port.
pub(crate) fn postgres(port: u16, tasks: &Tasks) -> PostgresDriver {
    PostgresDriver::new(superuser(port), tasks.clone())
}

/// A source over PostgreSQL servers on these ports; roles follow the servers.
pub(crate) fn source(
    ports: &[u16],
    settings: Settings,
    tasks: &Tasks,
    observer: impl Observer + 'static,
) -> DataProxy {
    let driver = |port: &u16| Arc::new(postgres(*port, tasks)) as Arc<dyn Driver>;
    source_of(
        ports.iter().map(driver).collect(),
        settings,
        tasks,
        observer,
    )
}

/// A source over all nodes of a cluster; roles follow the servers.
pub(crate) fn source_over<C: Cluster>(
    cluster: &C,
    settings: Settings,
    tasks: &Tasks,
    observer: impl Observer + 'static,
) -> DataProxy {
    let driver = |port: u16| C::Node::driver(port, C::Node::SUPERUSER, tasks);
    let drivers = cluster.ports().into_iter().map(driver).collect();
    source_of(drivers, settings, tasks, observer)
}

/// A source over servers; roles follow them.
pub(crate) fn source_of(
    drivers: Vec<Arc<dyn Driver>>,
    settings: Settings,
    tasks: &Tasks,
    observer: impl Observer + 'static,
) -> DataProxy {
    let policy = Policy::new(settings).expect("the story's policy is valid");
    let chance = Chance::seeded(7);
    let mut builder = DataProxy::builder("orders", Arc::clone(&policy))
        .tasks(tasks.clone())
        .chance(chance.clone())
        .observer(observer);
    for (driver, name) in drivers.into_iter().zip(NAMES) {
        let member: Arc<dyn Database> =
            Arc::new(Plain::new(driver, &policy, tasks.clone(), chance.clone()));
        builder = builder.endpoint(EndpointSpec::new(name, member).role(Role::Replica));
    }
    builder.build().expect("the story's endpoints are valid")
}

/// Waits until the source follows a primary and all its endpoints are known.
pub(crate) async fn wait_for_primary(proxy: &DataProxy) {
    proxy
        .source()
        .wait_for(Duration::from_secs(20), |snapshot| {
            snapshot.primary().is_some()
        })
        .await
        .expect("a primary is followed within 20 s");
}

/// What became of each insert.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    Acknowledged,
    Failed { code: &'static str, sent: Sent },
}

/// Books of one load.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) reads: AtomicU64,
    pub(crate) failed_reads: Mutex<Vec<String>>,
    pub(crate) slowest_read: Mutex<Duration>,
    pub(crate) fates: Mutex<BTreeMap<i64, Fate>>,
    /// Moments at which a write was acknowledged, with its number.
    pub(crate) acknowledged: Mutex<Vec<(Instant, i64)>>,
    /// Moments at which a read was answered.
    answered: Mutex<Vec<Instant>>,
    next: AtomicU64,
    stop: AtomicBool,
}

impl Books {
    fn note_duration(&self, taken: Duration) {
        let mut slowest = self.slowest_read.lock();
        *slowest = (*slowest).max(taken);
    }

    /// Acknowledged inserts so far.
    pub(crate) fn written(&self) -> usize {
        self.acknowledged.lock().len()
    }

    /// When a read was answered first after this moment.
    pub(crate) fn read_after(&self, moment: Instant) -> Option<Instant> {
        let answered = self.answered.lock();
        answered.iter().copied().filter(|when| *when > moment).min()
    }

    /// The slowest read since this was asked last.
    pub(crate) fn take_slowest_read(&self) -> Duration {
        std::mem::take(&mut *self.slowest_read.lock())
    }

    /// The first acknowledgement of an insert that was begun after this moment.
    pub(crate) fn first_after(&self, moment: Instant) -> Option<Instant> {
        let acknowledged = self.acknowledged.lock();
        acknowledged
            .iter()
            .map(|(when, _)| *when)
            .filter(|when| *when > moment)
            .min()
    }
}

/// Readers and writers that run until they are stopped.
pub(crate) struct Load {
    pub(crate) books: Arc<Books>,
    callers: JoinSet<()>,
}

impl Load {
    pub(crate) fn start(proxy: &DataProxy, readers: usize, writers: usize) -> Self {
        let books = Arc::new(Books::default());
        let mut callers = JoinSet::new();
        for _ in 0..readers {
            callers.spawn(read(proxy.clone(), Arc::clone(&books)));
        }
        for _ in 0..writers {
            callers.spawn(write(proxy.clone(), Arc::clone(&books)));
        }
        Load { books, callers }
    }

    /// Ends the callers after their call in flight.
    pub(crate) async fn stop(mut self) -> Arc<Books> {
        self.books.stop.store(true, Ordering::Release);
        while let Some(ended) = self.callers.join_next().await {
            ended.expect("a caller does not panic");
        }
        self.books
    }
}

async fn read(proxy: DataProxy, books: Arc<Books>) {
    let sql = format!("SELECT v FROM fixed WHERE id = {}", first(proxy.dialect()));
    while !books.stop.load(Ordering::Acquire) {
        let began = Instant::now();
        let read = proxy.scalar(&sql, vec![Value::I64(1)], Options::default());
        match read.await {
            Ok(value) => {
                assert_eq!(value, Some(Value::Text("one".into())));
                books.reads.fetch_add(1, Ordering::Relaxed);
                books.answered.lock().push(Instant::now());
            }
            Err(error) => books.failed_reads.lock().push(describe(&error)),
        }
        books.note_duration(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn write(proxy: DataProxy, books: Arc<Books>) {
    let sql = format!("INSERT INTO marks (id) VALUES ({})", first(proxy.dialect()));
    while !books.stop.load(Ordering::Acquire) {
        let id = i64::try_from(books.next.fetch_add(1, Ordering::Relaxed)).expect("few writes");
        let written = proxy
            .execute(&sql, vec![Value::I64(id)], Options::default())
            .await;
        let fate = match written {
            Ok(_) => {
                books.acknowledged.lock().push((Instant::now(), id));
                Fate::Acknowledged
            }
            Err(error) => Fate::Failed {
                code: error.code().as_str(),
                sent: error.sent(),
            },
        };
        let failed = matches!(fate, Fate::Failed { .. });
        books.fates.lock().insert(id, fate);
        let pause = if failed { 20 } else { 2 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// An error with its attempts, for a failing assertion.
pub(crate) fn describe(error: &SqlError) -> String {
    let attempts: Vec<String> = error
        .detail()
        .attempts
        .iter()
        .map(|attempt| {
            format!(
                "{} {:?} {:?}",
                attempt.endpoint, attempt.category, attempt.message
            )
        })
        .collect();
    format!("{error} [{}]", attempts.join(" | "))
}

/// What every load needs.
pub(crate) const TABLES: &str = "CREATE TABLE marks (id bigint NOT NULL);
    CREATE TABLE fixed (id bigint PRIMARY KEY, v text NOT NULL);
    INSERT INTO fixed VALUES (1, 'one')";

/// Checks the books against what is stored: every acknowledged insert is there once, and none that is
/// said to have had no effect.
pub(crate) fn check_fates(books: &Books, stored: &BTreeMap<i64, u64>) {
    for (id, fate) in books.fates.lock().iter() {
        let count = stored.get(id).copied().unwrap_or(0);
        match fate {
            Fate::Acknowledged => assert_eq!(count, 1, "acknowledged insert {id}"),
            Fate::Failed {
                sent: Sent::Maybe,
                code,
            } => {
                assert!(count <= 1, "insert {id} ({code}) ran {count} times");
                assert_eq!(*code, "outcome_unknown", "insert {id}");
            }
            Fate::Failed { sent, code } => {
                assert_eq!(
                    count, 0,
                    "insert {id} failed as {code} with sent {sent}, but is there"
                );
            }
        }
    }
}

/// How often each insert is there.
pub(crate) async fn stored(server: &impl Server) -> BTreeMap<i64, u64> {
    let rows = server
        .sql("SELECT id, count(*) FROM marks GROUP BY id")
        .await
        .unwrap();
    let number = |text: &Option<String>| text.as_deref().unwrap().parse::<i64>().unwrap();
    rows.iter()
        .map(|row| (number(&row[0]), u64::try_from(number(&row[1])).unwrap()))
        .collect()
}
