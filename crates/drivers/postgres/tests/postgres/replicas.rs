//! Roles and positions of a primary and its replica.

use mainstay_engine::{Category, Sent};
use mainstay_sql::{Access, Begin, Connection, Driver, Isolation, Position, Value};
use mainstay_testkit::postgres::{PostgresCluster, PostgresOptions, PostgresServer};

use super::failures::state;
use super::place::{driver, pid, rows, run, settings, value};

async fn session(server: &PostgresServer, access: Access) -> Box<dyn Connection> {
    driver(settings(server)).connect(access).await.unwrap()
}

async fn position(session: &mut Box<dyn Connection>) -> Position {
    session.position().await.unwrap().unwrap()
}

/// Waits until a replica has replayed a position.
async fn wait_covers(replica: &mut Box<dyn Connection>, wanted: Position) {
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(5);
    while !position(replica).await.covers(wanted) {
        assert!(
            tokio::time::Instant::now() < end,
            "{wanted:?} was never replayed"
        );
    }
}

async fn cluster() -> PostgresCluster {
    let options = PostgresOptions::new().setting("max_standby_streaming_delay", "0");
    PostgresCluster::start(1, options).await.unwrap()
}

#[tokio::test]
async fn a_primary_and_its_replica_say_who_they_are_before_and_after_a_promotion() {
    let cluster = cluster().await;
    let mut primary = session(cluster.node(0), Access::ReadWrite).await;
    let mut replica = session(cluster.node(1), Access::ReadOnly).await;
    let (of_primary, of_replica) = (
        primary.probe().await.unwrap(),
        replica.probe().await.unwrap(),
    );
    assert_eq!(
        (of_primary.is_primary, of_replica.is_primary),
        (Some(true), Some(false))
    );
    assert_eq!(of_primary.system, of_replica.system);
    assert!(of_primary.system.is_some());
    assert_eq!(
        (of_primary.timeline, of_replica.timeline),
        (Some(1), Some(1))
    );
    assert!(of_replica.received.is_some() && of_primary.received.is_none());
    assert!(!of_primary.lacks_sync_standby);

    cluster.node(0).kill9().await.unwrap();
    cluster.node(1).promote().await.unwrap();
    let promoted = replica.probe().await.unwrap();
    assert_eq!(
        (promoted.is_primary, promoted.timeline),
        (Some(true), Some(2))
    );
    assert_eq!(promoted.system, of_primary.system);
    assert!(promoted.lacks_sync_standby, "nobody is left to wait for");
}

#[tokio::test]
async fn a_position_covers_every_commit_before_it_also_those_that_do_not_wait_for_the_disk() {
    let cluster = cluster().await;
    let mut primary = session(cluster.node(0), Access::ReadWrite).await;
    let mut replica = session(cluster.node(1), Access::ReadOnly).await;
    rows(&mut primary, "CREATE TABLE t (a int4)").await;
    for wait in ["on", "off", "local"] {
        rows(&mut primary, &format!("SET synchronous_commit = {wait}")).await;
        for n in 0..100 {
            run(&mut primary, "INSERT INTO t VALUES ($1)", &[Value::I64(n)])
                .await
                .unwrap();
            let written = position(&mut primary).await;
            wait_covers(&mut replica, written).await;
            let seen = run(
                &mut replica,
                "SELECT count(*) FROM t WHERE a = $1",
                &[Value::I64(n)],
            )
            .await
            .unwrap();
            assert_eq!(
                seen.rows,
                [[Value::I64(1)]],
                "{n} with synchronous_commit = {wait}"
            );
        }
        rows(&mut primary, "DELETE FROM t").await;
    }
}

#[tokio::test]
async fn a_replica_refuses_writes_gives_way_to_replay_and_can_be_reset() {
    let cluster = cluster().await;
    let mut primary = session(cluster.node(0), Access::ReadWrite).await;
    rows(&mut primary, "CREATE TABLE t (a int4)").await;
    rows(&mut primary, "INSERT INTO t VALUES (1)").await;
    let written = position(&mut primary).await;
    // It believes that it may write: the server knows better.
    let mut replica = session(cluster.node(1), Access::ReadWrite).await;
    wait_covers(&mut replica, written).await;
    let error = run(&mut replica, "INSERT INTO t VALUES (2)", &[])
        .await
        .unwrap_err();
    assert_eq!(
        (state(&error), error.detail().verdict),
        ("25006", mainstay_sql::Verdict::ReadOnly)
    );
    for isolation in [Isolation::Default, Isolation::Serializable] {
        let begin = Begin {
            isolation,
            ..Begin::default()
        };
        let error = replica.begin(&begin).await.unwrap_err();
        assert_eq!(
            (state(&error), error.detail().verdict, error.sent()),
            (
                "0A000",
                mainstay_sql::Verdict::ReadOnly,
                Sent::YesUnprocessed
            ),
            "{error}"
        );
        replica.clean_up().await.unwrap();
    }

    let backend = pid(&mut replica).await;
    let (result, ()) = tokio::join!(
        run(&mut replica, "SELECT a, pg_sleep(30) FROM t", &[]),
        async {
            let sleeps = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE pid = {backend} AND wait_event = 'PgSleep'"
            );
            mainstay_testkit::until("the read sleeps", async || {
                cluster.node(1).value(&sleeps).await.unwrap() == "1"
            })
            .await;
            rows(&mut primary, "TRUNCATE t").await;
        }
    );
    let error = result.unwrap_err();
    assert_eq!(
        (state(&error), error.failure().category),
        ("40001", Category::Transient),
        "{error}"
    );
    assert!(error.failure().moves_on());

    replica.reset().await.unwrap();
    assert_eq!(
        value(&mut replica, "SELECT count(*) FROM t").await,
        Value::I64(0)
    );
}

#[tokio::test]
async fn a_user_without_rights_learns_the_role_at_least() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    server.sql("CREATE ROLE humble LOGIN").await.unwrap();
    let mut humble = settings(&server);
    humble.user = "humble".into();
    let driver = driver(humble);
    let mut session = driver.connect(Access::ReadOnly).await.unwrap();
    let before = session.probe().await.unwrap();
    assert_eq!((before.is_primary, before.timeline), (Some(true), Some(1)));
    server
        .sql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        .await
        .unwrap();
    for _ in 0..2 {
        let probe = session.probe().await.unwrap();
        assert_eq!((probe.is_primary, probe.system), (Some(true), None));
        assert!(probe.position.is_some());
    }
}

#[tokio::test]
async fn a_standby_has_no_history_and_refuses_to_begin_until_it_is_promoted() {
    let cluster = cluster().await;
    let mut primary = session(cluster.node(0), Access::ReadWrite).await;
    let mut replica = session(cluster.node(1), Access::ReadWrite).await;
    let before = primary.lineage().await.unwrap();
    assert!(before.history.is_some());
    assert_eq!(replica.lineage().await.unwrap().history, None);
    let error = replica.begin(&Begin::default()).await.unwrap_err();
    assert_eq!(error.detail().verdict, mainstay_sql::Verdict::ReadOnly);
    replica.clean_up().await.unwrap();

    cluster.node(0).kill9().await.unwrap();
    cluster.node(1).promote().await.unwrap();
    let after = replica.lineage().await.unwrap();
    assert!(after.history.is_some());
    assert_ne!(after.history, before.history);
}

#[tokio::test]
async fn a_user_who_may_not_ask_for_the_identity_has_no_history() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    server
        .sql("CREATE ROLE humble LOGIN; REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        .await
        .unwrap();
    let mut humble = settings(&server);
    humble.user = "humble".into();
    let mut session = driver(humble).connect(Access::ReadWrite).await.unwrap();
    for _ in 0..2 {
        let lineage = session.lineage().await.unwrap();
        assert_eq!((lineage.history, lineage.is_synchronous), (None, false));
    }
    session.begin(&Begin::default()).await.unwrap();
    session.rollback().await.unwrap();
}
