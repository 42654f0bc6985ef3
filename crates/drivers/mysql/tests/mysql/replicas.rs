//! Roles, positions and lag of real replicas.

use std::time::Duration;

use mainstay_sql::{Access, Connection, Driver, Position};
use mainstay_testkit::mariadb::{MariadbCluster, MariadbOptions};

use super::place::{driver, rows, settings};

async fn session(cluster: &MariadbCluster, node: usize) -> Box<dyn Connection> {
    let driver = driver(settings(cluster.node(node).port()));
    driver.connect(Access::ReadOnly).await.unwrap()
}

fn number(position: Option<Position>) -> u64 {
    match position {
        Some(Position::Gtid(number)) => number,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn servers_say_who_is_primary_and_how_far_they_have_come() {
    let cluster = MariadbCluster::start(1, MariadbOptions::new())
        .await
        .unwrap();
    let mut sessions = [session(&cluster, 0).await, session(&cluster, 1).await];
    let made = "CREATE TABLE t (a int); INSERT INTO t VALUES (1)";
    cluster.primary().sql(made).await.unwrap();
    cluster.wait_caught_up().await.unwrap();
    let mut positions = Vec::new();
    for (session, is_primary) in sessions.iter_mut().zip([true, false]) {
        let probe = session.probe().await.unwrap();
        assert_eq!(probe.is_primary, Some(is_primary));
        assert!(!probe.lacks_sync_standby);
        positions.push(number(probe.position));
    }
    assert_eq!(positions[0], positions[1]);

    cluster.hold_back(1, Duration::from_secs(30)).await.unwrap();
    cluster
        .primary()
        .sql("INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    let [primary, replica] = &mut sessions;
    let written = number(primary.position().await.unwrap());
    assert_eq!(written, positions[0] + 1);
    assert_eq!(number(replica.position().await.unwrap()), positions[0]);
    cluster.hold_back(1, Duration::ZERO).await.unwrap();
    cluster.wait_caught_up().await.unwrap();
    assert_eq!(number(replica.position().await.unwrap()), written);
}

#[tokio::test]
async fn a_promoted_replica_counts_on_where_the_old_primary_stopped() {
    let cluster = MariadbCluster::start(2, MariadbOptions::new())
        .await
        .unwrap();
    cluster
        .primary()
        .sql("CREATE TABLE t (a int)")
        .await
        .unwrap();
    cluster.wait_caught_up().await.unwrap();
    let mut promoted = session(&cluster, 1).await;
    let before = number(promoted.position().await.unwrap());
    cluster.node(0).kill9().await.unwrap();
    cluster.promote(1).await.unwrap();
    cluster.wait_attached(1).await.unwrap();
    assert_eq!(promoted.probe().await.unwrap().is_primary, Some(true));
    cluster
        .primary()
        .sql("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    assert_eq!(number(promoted.position().await.unwrap()), before + 1);

    // The only replica goes: commits wait.
    cluster.node(2).kill9().await.unwrap();
    for _ in 0..500 {
        if promoted.probe().await.unwrap().lacks_sync_standby {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody says that the standby is missing");
}

#[tokio::test]
async fn a_server_without_a_binary_log_has_no_position() {
    let options = MariadbOptions::new().setting("skip_log_bin", "ON");
    let place = super::place::Place::with(options).await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int)").await;
    assert_eq!(session.position().await.unwrap(), None);
    assert_eq!(session.probe().await.unwrap().is_primary, Some(true));
}

#[tokio::test]
async fn a_replica_has_applied_all_once_it_follows_nobody_and_its_relay_log_is_done() {
    let cluster = MariadbCluster::start(1, MariadbOptions::new())
        .await
        .unwrap();
    let mut primary = session(&cluster, 0).await;
    let mut replica = session(&cluster, 1).await;
    assert!(primary.has_applied_all().await.unwrap());
    let primary = cluster.primary();
    primary.sql("CREATE TABLE t (a int)").await.unwrap();
    cluster.wait_caught_up().await.unwrap();
    let node = cluster.node(1);
    assert!(!replica.has_applied_all().await.unwrap(), "it follows");
    node.sql("STOP SLAVE IO_THREAD").await.unwrap();
    assert!(replica.has_applied_all().await.unwrap());
    node.sql("START SLAVE IO_THREAD").await.unwrap();

    cluster.hold_back(1, Duration::from_secs(30)).await.unwrap();
    cluster.wait_attached(1).await.unwrap();
    // Acknowledged, and so received.
    let insert = "INSERT INTO t VALUES (1)";
    primary.sql(insert).await.unwrap();
    cluster.node(0).kill9().await.unwrap();
    let promote = "STOP SLAVE IO_THREAD; SET GLOBAL read_only = OFF";
    node.sql(promote).await.unwrap();
    assert!(!replica.has_applied_all().await.unwrap(), "it is held back");
    node.sql("STOP SLAVE").await.unwrap();
    assert!(!replica.has_applied_all().await.unwrap(), "it gave up");
}

#[tokio::test]
async fn whether_a_replica_has_applied_all_is_not_told_to_everybody() {
    let place = super::place::Place::new().await;
    let humble = "CREATE USER humble@localhost; CREATE USER humble@'127.0.0.1'; \
        GRANT SELECT ON test.* TO humble@localhost; GRANT SELECT ON test.* TO humble@'127.0.0.1'";
    place.server.sql(humble).await.unwrap();
    let mut settings = place.settings.clone();
    settings.user = "humble".into();
    let mut session = driver(settings).connect(Access::ReadOnly).await.unwrap();
    let error = session.has_applied_all().await.unwrap_err();
    assert_eq!(error.failure().code.as_deref(), Some("1227"), "{error}");
    assert_eq!(error.failure().category, mainstay_engine::Category::Auth);
}
