//! A primary with replicas: replication, failover, held-back replicas, two primaries.

use std::time::Duration;

use mainstay_testkit::postgres::{PostgresCluster, PostgresOptions};
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn replicas_stream_what_the_primary_commits_and_refuse_writes() {
    let cluster = PostgresCluster::start(2, PostgresOptions::new())
        .await
        .unwrap();
    cluster
        .primary()
        .sql("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    cluster.wait_caught_up().await.unwrap();
    for number in cluster.replica_numbers() {
        let replica = cluster.node(number);
        assert_eq!(replica.value("SELECT count(*) FROM t").await.unwrap(), "1");
        assert!(replica.sql("INSERT INTO t VALUES (2)").await.is_err());
    }
    let state = "SELECT string_agg(application_name || ' ' || sync_state, ', ' ORDER BY 1) \
                 FROM pg_stat_replication";
    let state = cluster.primary().value(state).await.unwrap();
    assert!(
        state.contains("node1 quorum") && state.contains("node2 quorum"),
        "{state}"
    );
}

#[tokio::test]
async fn after_a_killed_primary_and_a_promotion_the_other_replica_attaches_and_commits_work() {
    let cluster = PostgresCluster::start(2, PostgresOptions::new())
        .await
        .unwrap();
    cluster
        .primary()
        .sql("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    cluster.primary().kill9().await.unwrap();

    let killed = Instant::now();
    let next = cluster.most_advanced_replica().await.unwrap();
    cluster.promote(next).await.unwrap();
    println!("promoted after {:?}", killed.elapsed());
    let insert = cluster.primary().sql("INSERT INTO t VALUES (2)");
    timeout(Duration::from_secs(10), insert)
        .await
        .expect("a commit on the new primary")
        .unwrap();
    println!("a commit on the new primary after {:?}", killed.elapsed());

    cluster.wait_attached(1).await.unwrap();
    cluster.wait_caught_up().await.unwrap();
    let other = cluster
        .replica_numbers()
        .into_iter()
        .find(|n| *n != 0)
        .unwrap();
    let rows = "SELECT string_agg(id::text, ' ' ORDER BY id) FROM t";
    assert_eq!(cluster.node(other).value(rows).await.unwrap(), "1 2");

    cluster.node(0).start_again().await.unwrap();
    assert_eq!(
        cluster
            .node(0)
            .value("SELECT pg_is_in_recovery()")
            .await
            .unwrap(),
        "f"
    );
    assert_eq!(cluster.node(0).value(rows).await.unwrap(), "1");
    assert_eq!(
        cluster
            .primary()
            .value("SELECT pg_is_in_recovery()")
            .await
            .unwrap(),
        "f"
    );
    let timeline = "SELECT timeline_id FROM pg_control_checkpoint()";
    cluster.primary().sql("CHECKPOINT").await.unwrap();
    assert_eq!(cluster.node(0).value(timeline).await.unwrap(), "1");
    assert_eq!(cluster.primary().value(timeline).await.unwrap(), "2");
}

#[tokio::test]
async fn the_replica_that_received_most_is_the_one_that_was_not_cut_off() {
    let cluster = PostgresCluster::start(2, PostgresOptions::new())
        .await
        .unwrap();
    cluster.node(1).kill9().await.unwrap();
    cluster
        .primary()
        .sql("CREATE TABLE t AS SELECT 1")
        .await
        .unwrap();
    cluster.primary().kill9().await.unwrap();
    cluster.node(1).start_again().await.unwrap();
    assert_eq!(cluster.most_advanced_replica().await.unwrap(), 2);
}

#[tokio::test]
async fn a_commit_waits_while_no_replica_is_attached() {
    let cluster = PostgresCluster::start(1, PostgresOptions::new())
        .await
        .unwrap();
    cluster
        .primary()
        .sql("CREATE TABLE t (id int)")
        .await
        .unwrap();
    cluster.node(1).kill9().await.unwrap();
    let session = cluster.primary().session().await.unwrap();
    let insert = session.sql("INSERT INTO t VALUES (1)");
    tokio::pin!(insert);
    assert!(
        timeout(Duration::from_millis(300), &mut insert)
            .await
            .is_err()
    );
    cluster.node(1).start_again().await.unwrap();
    timeout(Duration::from_secs(10), insert)
        .await
        .expect("the commit goes on")
        .unwrap();
}

#[tokio::test]
async fn a_replica_can_be_held_back_and_let_go_at_run_time() {
    let cluster = PostgresCluster::start(1, PostgresOptions::new())
        .await
        .unwrap();
    cluster
        .primary()
        .sql("CREATE TABLE t (id int)")
        .await
        .unwrap();
    cluster.wait_caught_up().await.unwrap();
    let held = Duration::from_millis(500);
    cluster.hold_back(1, held).await.unwrap();

    let replica = cluster.node(1).session().await.unwrap();
    let begun = Instant::now();
    cluster
        .primary()
        .sql("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    cluster.wait_caught_up().await.unwrap();
    let late = begun.elapsed();
    assert!(late >= held, "replayed after {late:?}");
    assert_eq!(replica.value("SELECT count(*) FROM t").await.unwrap(), "1");

    cluster.hold_back(1, Duration::ZERO).await.unwrap();
    cluster
        .primary()
        .sql("INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    cluster.wait_caught_up().await.unwrap();
    assert_eq!(replica.value("SELECT count(*) FROM t").await.unwrap(), "2");
}

#[test]
fn a_cluster_can_be_started_and_used_from_a_spawned_task() {
    fn is_send<T: Send>(_: &T) {}
    let start = PostgresCluster::start(1, PostgresOptions::new());
    is_send(&start);
    is_send(&async {
        let cluster = PostgresCluster::start(1, PostgresOptions::new()).await?;
        cluster.wait_caught_up().await?;
        let next = cluster.most_advanced_replica().await?;
        cluster.promote(next).await
    });
}
