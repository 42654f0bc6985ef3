//! A PostgreSQL primary with two replicas under load; servers are killed, and nobody notices but an
//! event.

use std::sync::Arc;
use std::time::Duration;

use mainstay::tasks::Tasks;
use mainstay::{Event, EventKind, Preset};
use mainstay_testkit::postgres::{PostgresCluster, PostgresOptions, PostgresServer};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::world::{self, Load};

/// Writes go on at most this long after a direct connection could commit on the new primary.
const RESUME_MAX: Duration = Duration::from_secs(1);

async fn prepare(cluster: &PostgresCluster) {
    cluster
        .primary()
        .sql(
            "CREATE TABLE marks (id bigint NOT NULL);
             CREATE TABLE fixed (id bigint PRIMARY KEY, v text NOT NULL);
             INSERT INTO fixed VALUES (1, 'one')",
        )
        .await
        .unwrap();
    cluster.wait_caught_up().await.unwrap();
}

/// The moment at which a direct connection has committed.
async fn first_direct_commit(server: &PostgresServer) -> Instant {
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        let tried = server.sql("INSERT INTO marks (id) VALUES (-1)");
        match tokio::time::timeout(Duration::from_secs(5), tried).await {
            Ok(Ok(_)) => return Instant::now(),
            _ if Instant::now() > give_up => panic!("no direct commit within 20 s"),
            _ => sleep(Duration::from_millis(10)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_servers_cost_no_read_and_no_acknowledged_write() {
    let cluster = PostgresCluster::start(2, PostgresOptions::new())
        .await
        .unwrap();
    prepare(&cluster).await;
    let tasks = Tasks::new();
    let ports: Vec<u16> = cluster.nodes().iter().map(PostgresServer::port).collect();
    let promoted = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&promoted);
    let observer = move |event: &Event| {
        if let EventKind::RolePromoted { endpoint, .. } = &event.kind {
            list.lock().push(endpoint.to_string());
        }
    };
    let proxy = world::source(&ports, Preset::Balanced.settings(), &tasks, observer);
    world::wait_for_primary(&proxy).await;

    let load = Load::start(&proxy, 50, 10);
    sleep(Duration::from_secs(1)).await;
    let replica = cluster.replica_numbers()[1];
    cluster.node(replica).kill9().await.unwrap();
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(
        *load.books.failed_reads.lock(),
        Vec::<String>::new(),
        "after a killed replica"
    );
    cluster.node(replica).start_again().await.unwrap();
    cluster.wait_attached(2).await.unwrap();

    let before = load.books.written();
    let old = cluster.primary_number();
    cluster.node(old).kill9().await.unwrap();
    let next = cluster.most_advanced_replica().await.unwrap();
    cluster.promote(next).await.unwrap();
    let direct = first_direct_commit(cluster.node(next)).await;
    sleep(RESUME_MAX).await;
    let resumed = load
        .books
        .first_after(direct)
        .expect("writes resume within a second");
    let pause = resumed.saturating_duration_since(direct);
    println!("writes resumed {pause:?} after a direct connection could commit");
    assert!(pause <= RESUME_MAX, "{pause:?}");
    sleep(Duration::from_secs(1)).await;
    assert!(load.books.written() > before + 50, "writes go on");

    cluster.node(old).start_again().await.unwrap();
    let on_old = world::stored(cluster.node(old)).await.len();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        world::stored(cluster.node(old)).await.len(),
        on_old,
        "no write reaches the old primary"
    );
    let books = load.stop().await;
    assert_eq!(*books.failed_reads.lock(), Vec::<String>::new());
    let mut after = world::stored(cluster.node(next)).await;
    after.remove(&-1);
    world::check_fates(&books, &after);

    assert_eq!(*promoted.lock(), [world::NAMES[old], world::NAMES[next]]);
    println!(
        "{} reads, slowest {:?}; {} writes acknowledged of {}",
        books.reads.load(std::sync::atomic::Ordering::Relaxed),
        books.slowest_read.lock(),
        books.written(),
        books.fates.lock().len(),
    );
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}
