//! Members that have a history of their own: an old primary that lives on beside its successor, and a
//! server that never belonged to the others. Their positions may be higher than the primary's and mean
//! nothing.

use std::sync::Arc;
use std::time::Duration;

use mainstay::policy::ReadFrom;
use mainstay::sql::{Driver, Options, Plain, Value, Verbs};
use mainstay::tasks::Tasks;
use mainstay::{
    Chance, DataProxy, Database, EndpointSpec, Event, EventKind, Policy, Preset, Role, Settings,
};
use mainstay_testkit::postgres::{PostgresCluster, PostgresOptions, PostgresServer};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::world;

/// Written through Mainstay after a promotion.
const WRITTEN: i64 = 50;

fn settings() -> Settings {
    let mut settings = Preset::Balanced.settings();
    settings.health.interval = Duration::from_millis(250);
    settings
}

/// Commits wait for nobody: two primaries go on side by side.
fn alone() -> PostgresOptions {
    PostgresOptions::new().setting("synchronous_standby_names", "")
}

type Strangers = Arc<Mutex<Vec<String>>>;

fn noting(strangers: &Strangers) -> impl Fn(&Event) + Send + Sync + 'static {
    let list = Arc::clone(strangers);
    move |event: &Event| {
        if let EventKind::Estranged { endpoint, .. } = &event.kind {
            list.lock().push(endpoint.to_string());
        }
    }
}

async fn count(proxy: &DataProxy, session: Option<&str>, read_from: Option<ReadFrom>) -> i64 {
    let options = Options {
        session: session.map(Into::into),
        read_from,
        ..Options::default()
    };
    let counted = proxy
        .scalar("SELECT count(*) FROM marks", vec![], options)
        .await;
    match counted {
        Ok(Some(Value::I64(count))) => count,
        other => panic!("{other:?}"),
    }
}

async fn write(proxy: &DataProxy, session: &str, ids: impl Iterator<Item = i64>) {
    for id in ids {
        let options = Options {
            session: Some(session.into()),
            ..Options::default()
        };
        let values = vec![Value::I64(id)];
        let text = "INSERT INTO marks VALUES ($1)";
        proxy.execute(text, values, options).await.unwrap();
    }
}

async fn until(what: &str, fits: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !fits() {
        assert!(Instant::now() < give_up, "{what} within 20 s");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Writes of its own, until its log is longer than that of any other server here.
async fn grow(server: &PostgresServer) {
    for round in 0..3 {
        let text = format!(
            "CREATE TABLE IF NOT EXISTS own (x int); INSERT INTO own VALUES ({round}); \
             SELECT pg_switch_wal()"
        );
        server.sql(&text).await.unwrap();
    }
}

async fn check_reads(proxy: &DataProxy, session: &str) {
    for round in 0..30 {
        for from in [None, Some(ReadFrom::Any), Some(ReadFrom::Replica)] {
            assert_eq!(
                count(proxy, Some(session), from).await,
                WRITTEN,
                "{round} {from:?}"
            );
            assert_eq!(count(proxy, None, from).await, WRITTEN, "{round} {from:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_lives_on_gets_no_read_once_its_successor_is_followed() {
    let cluster = PostgresCluster::start(1, alone()).await.unwrap();
    cluster.primary().sql(world::TABLES).await.unwrap();
    cluster.wait_caught_up().await.unwrap();
    let tasks = Tasks::new();
    let strangers = Strangers::default();
    let ports: Vec<u16> = cluster.nodes().iter().map(PostgresServer::port).collect();
    let proxy = world::source(&ports, settings(), &tasks, noting(&strangers));
    world::wait_for_primary(&proxy).await;

    let (old, new) = (cluster.primary_number(), cluster.replica_numbers()[0]);
    cluster.node(new).promote().await.unwrap();
    until("the new primary is followed", || {
        let snapshot = proxy.source().snapshot();
        let primary = snapshot
            .primary()
            .map(|placed| placed.endpoint.id.to_string());
        primary.as_deref() == Some(world::NAMES[new])
    })
    .await;
    grow(cluster.node(old)).await;
    write(&proxy, "s", 0..WRITTEN).await;
    until("the old one is a stranger", || !strangers.lock().is_empty()).await;
    // Long enough for its position to have been compared, were it.
    sleep(Duration::from_secs(1)).await;
    check_reads(&proxy, "s").await;
    assert_eq!(*strangers.lock(), [world::NAMES[old]]);
    let status = proxy.source().status();
    let seen = status
        .iter()
        .find(|seen| seen.endpoint.as_str() == world::NAMES[old]);
    let seen = seen.unwrap();
    assert_eq!((seen.estranged, seen.lag_ms), (true, None));
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_belonged_to_the_others_gets_no_read() {
    let cluster = PostgresCluster::start(1, alone()).await.unwrap();
    cluster.primary().sql(world::TABLES).await.unwrap();
    cluster.wait_caught_up().await.unwrap();
    let foreign = PostgresServer::start(PostgresOptions::new().own_identity())
        .await
        .unwrap();
    foreign.sql(world::TABLES).await.unwrap();
    grow(&foreign).await;
    let tasks = Tasks::new();
    let strangers = Strangers::default();
    let ports: Vec<u16> = cluster.nodes().iter().map(PostgresServer::port).collect();
    let proxy = world::source(&ports, settings(), &tasks, noting(&strangers));
    world::wait_for_primary(&proxy).await;
    let driver = Arc::new(world::postgres(foreign.port(), &tasks)) as Arc<dyn Driver>;
    let policy = Policy::new(settings()).unwrap();
    let plain = Plain::new(driver, &policy, tasks.clone(), Chance::seeded(7));
    let member: Arc<dyn Database> = Arc::new(plain);
    let spec = EndpointSpec::new("d", member).role(Role::Replica);
    proxy.source().add_endpoint(spec).unwrap();
    write(&proxy, "s", 0..WRITTEN).await;
    until("the foreign one is a stranger", || {
        !strangers.lock().is_empty()
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    check_reads(&proxy, "s").await;
    assert_eq!(*strangers.lock(), ["d"]);
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}
