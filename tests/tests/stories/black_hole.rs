//! A server that takes connections and bytes but never answers (SIGSTOP): worse than one that refuses.

use std::time::Duration;

use mainstay::policy::Settings;
use mainstay::sql::{Options, Verbs};
use mainstay::tasks::Tasks;
use mainstay::{DataProxy, EventKind, Preset};
use mainstay_testkit::mariadb::MariadbCluster;
use mainstay_testkit::postgres::PostgresCluster;
use tokio::time::{Instant, sleep};

use super::chronicle::{Chronicle, is_down, is_healthy, is_promoted};
use super::servers::{Cluster, Server};
use super::world::{self, Load};

/// What a read may take beyond its attempt's limit: another endpoint's answer on a busy machine.
const FAILOVER: Duration = Duration::from_millis(500);
const ATTEMPT: Duration = Duration::from_secs(2);

async fn cluster<C: Cluster>() -> C {
    let cluster = C::start(2, &[]).await;
    cluster.primary().sql(world::TABLES).await.unwrap();
    cluster.wait_caught_up().await;
    cluster
}

fn settings(interval: Duration, timeout: Duration) -> Settings {
    let mut settings = Preset::Balanced.settings();
    settings.retry.attempt_timeout = Some(ATTEMPT);
    settings.retry.attempt_timeout_is_set = true;
    settings.health.interval = interval;
    settings.health.timeout = timeout;
    settings
}

/// How long an endpoint may take to leave: two checks that begin after its last answer.
fn two_checks(settings: &Settings) -> Duration {
    2 * settings.health.interval + settings.health.timeout + FAILOVER
}

/// Reads until this endpoint has answered one.
async fn read_from(proxy: &DataProxy, name: &str, limit: Duration) -> Duration {
    let began = Instant::now();
    loop {
        let answer = proxy
            .query("SELECT v FROM fixed", Vec::new(), Options::default())
            .await
            .unwrap();
        if answer.meta.endpoint.as_deref() == Some(name) {
            return began.elapsed();
        }
        assert!(
            began.elapsed() < limit,
            "no read from {name} in {limit:?}: {:?}",
            proxy.source().status()
        );
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_leaves_within_two_checks_and_its_attempts_are_cut_then() {
    // One after the other: two at once would measure each other.
    stop_each_of_two::<PostgresCluster>().await;
    stop_each_of_two::<MariadbCluster>().await;
}

async fn stop_each_of_two<C: Cluster>() {
    let cluster = cluster::<C>().await;
    let tasks = Tasks::new();
    let settings = settings(Duration::from_millis(400), Duration::from_millis(300));
    let leaves = two_checks(&settings);
    assert!(leaves < ATTEMPT, "a cut is to be told from a timeout");
    let proxy = world::source_over(&cluster, settings, &tasks, |_: &_| {});
    let chronicle = Chronicle::of(&proxy);
    world::wait_for_primary(&proxy).await;
    let load = Load::start(&proxy, 20, 2);
    sleep(Duration::from_millis(500)).await;

    for (number, is_primary) in [(1, false), (0, true)] {
        let name = world::NAMES[number];
        load.books.take_slowest_read();
        let stopped = Instant::now();
        cluster.node(number).sigstop();
        let down = |event: &EventKind| is_down(event, name);
        let left = chronicle.wait("it is down", stopped, leaves, down).await;
        // Reads cut at that moment are answered elsewhere within a failover.
        sleep(FAILOVER).await;
        let slowest = load.books.take_slowest_read();
        println!(
            "{name} left after {:?}; slowest read {slowest:?}",
            left - stopped
        );
        assert!(slowest <= left - stopped + FAILOVER, "{slowest:?}");
        sleep(Duration::from_millis(500)).await;
        assert!(load.books.take_slowest_read() < FAILOVER, "nobody asks it");

        let continued = Instant::now();
        cluster.node(number).sigcont();
        let healthy = |event: &EventKind| is_healthy(event, name);
        let back = chronicle
            .wait("it is healthy", continued, leaves, healthy)
            .await;
        if is_primary {
            let promoted = |event: &EventKind| is_promoted(event, name);
            chronicle
                .wait("it is primary", continued, leaves, promoted)
                .await;
            assert!(proxy.source().snapshot().primary().is_some());
        }
        let read = read_from(&proxy, name, Duration::from_secs(5)).await;
        println!(
            "{name} was healthy {:?} after it went on and answered a read {read:?} later",
            back - continued
        );
    }

    let books = load.stop().await;
    assert_eq!(*books.failed_reads.lock(), Vec::<String>::new());
    world::check_fates(&books, &world::stored(cluster.primary()).await);
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_waits_for_a_black_hole_longer_than_one_attempt_and_a_failover() {
    // One after the other: two at once would measure each other.
    stop_between_checks::<PostgresCluster>().await;
    stop_between_checks::<MariadbCluster>().await;
}

async fn stop_between_checks<C: Cluster>() {
    let cluster = cluster::<C>().await;
    let tasks = Tasks::new();
    // Checks that come later than the attempts' limit.
    let settings = settings(Duration::from_secs(5), Duration::from_secs(2));
    let proxy = world::source_over(&cluster, settings, &tasks, |_: &_| {});
    world::wait_for_primary(&proxy).await;
    let load = Load::start(&proxy, 20, 0);
    sleep(Duration::from_millis(500)).await;
    load.books.take_slowest_read();
    cluster.node(1).sigstop();
    sleep(ATTEMPT + 2 * FAILOVER).await;
    let replica = load.books.take_slowest_read();
    cluster.node(1).sigcont();
    cluster.node(0).sigstop();
    sleep(ATTEMPT + 2 * FAILOVER).await;
    cluster.node(0).sigcont();
    let books = load.stop().await;
    let primary = books.take_slowest_read();
    println!("slowest read: replica stopped {replica:?}, primary stopped {primary:?}");
    for slowest in [replica, primary] {
        assert!(slowest <= ATTEMPT + FAILOVER, "{slowest:?}");
    }
    assert_eq!(*books.failed_reads.lock(), Vec::<String>::new());
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}
