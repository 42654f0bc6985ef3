//! A primary with two replicas under load; servers are killed, and nobody notices but an
//! event.

use std::sync::Arc;
use std::time::Duration;

use mainstay::tasks::Tasks;
use mainstay::{Event, EventKind, Preset};
use mainstay_testkit::mariadb::MariadbCluster;
use mainstay_testkit::postgres::PostgresCluster;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::servers::{Cluster, Server};
use super::world::{self, Load};

/// Writes go on at most this long after a direct connection could commit on the new primary.
const RESUME_MAX: Duration = Duration::from_secs(1);

/// The moment at which a direct connection has committed.
async fn first_direct_commit(server: &impl Server) -> Instant {
    let give_up = Instant::now() + Duration::from_secs(20);
    loop {
        let tried = server.sql("INSERT INTO marks (id) VALUES (-1)");
        match tokio::time::timeout(Duration::from_secs(5), tried).await {
            Ok(Ok(_)) => return Instant::now(),
            problem if Instant::now() > give_up => {
                panic!("no direct commit within 20 s: {problem:?}")
            }
            _ => sleep(Duration::from_millis(10)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_servers_cost_no_read_and_no_acknowledged_write() {
    kill_a_replica_and_then_the_primary::<PostgresCluster>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_servers_of_mariadb_cost_no_read_and_no_acknowledged_write() {
    kill_a_replica_and_then_the_primary::<MariadbCluster>().await;
}

async fn kill_a_replica_and_then_the_primary<C: Cluster>() {
    let cluster = C::start(2, &[]).await;
    cluster.primary().sql(world::TABLES).await.unwrap();
    cluster.wait_caught_up().await;
    let tasks = Tasks::new();
    let promoted = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&promoted);
    let observer = move |event: &Event| {
        if let EventKind::RolePromoted { endpoint, .. } = &event.kind {
            list.lock().push(endpoint.to_string());
        }
    };
    let proxy = world::source_over(&cluster, Preset::Balanced.settings(), &tasks, observer);
    world::wait_for_primary(&proxy).await;

    let load = Load::start(&proxy, 50, 10);
    sleep(Duration::from_secs(1)).await;
    let replica = cluster.replica_numbers()[1];
    cluster.node(replica).kill9().await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(
        *load.books.failed_reads.lock(),
        Vec::<String>::new(),
        "after a killed replica"
    );
    cluster.node(replica).start_again().await;
    cluster.wait_attached(2).await;

    let before = load.books.written();
    let old = cluster.primary_number();
    cluster.node(old).kill9().await;
    let next = cluster.most_advanced_replica().await;
    cluster.promote(next).await;
    let direct = first_direct_commit(cluster.node(next)).await;
    // Among all the other tests a number fails only at twice its bound.
    let bound = RESUME_MAX * u32::try_from(mainstay_testkit::cases(2, 1)).unwrap();
    sleep(bound).await;
    let resumed = load.books.first_after(direct);
    let resumed = resumed.unwrap_or_else(|| panic!("no write within {bound:?}"));
    let pause = resumed.saturating_duration_since(direct);
    println!("writes resumed {pause:?} after a direct connection could commit");
    assert!(pause <= bound, "{pause:?}");
    sleep(Duration::from_secs(1)).await;
    assert!(load.books.written() > before + 50, "writes go on");

    cluster.node(old).start_again().await;
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
