//! Writes under a key that must wait: for a standby, for another request, or longer than a key is kept.

use std::time::Duration;

use mainstay::Sent;
use mainstay::sql::{Code, IdempotencyTable, Options, Verbs};
use mainstay::tasks::Tasks;
use mainstay_testkit::mariadb::{MariadbCluster, MariadbServer};
use mainstay_testkit::postgres::{PostgresCluster, PostgresServer};

use super::super::lone;
use super::super::servers::{Cluster, Server};
use super::{key, of, rig_with, table};

/// A write that no standby has may be lost with its server: it is not called a success, however often it is asked for.
async fn a_stored_answer_waits_for_a_standby<C: Cluster>() {
    let cluster = C::start(1, &[]).await;
    let primary = cluster.primary();
    primary.sql("CREATE TABLE t (id bigint)").await.unwrap();
    let rig = of(primary, Some(table("mainstay_keys")));
    let insert = "INSERT INTO t VALUES (1)";
    rig.proxy.execute(insert, vec![], key("a")).await.unwrap();
    let standby = cluster.node(cluster.replica_numbers()[0]);
    standby.kill9().await;
    let limited = || Options {
        deadline: Some(Duration::from_secs(3)),
        ..key("b")
    };
    let lost = rig.proxy.execute(insert, vec![], limited()).await;
    assert_eq!(lost.unwrap_err().code(), Code::OutcomeUnknown);
    // A crash ends the wait: what was in the log is there, and may be nowhere else.
    primary.kill9().await;
    primary.start_again().await;
    assert_eq!(primary.value("SELECT count(*) FROM t").await.unwrap(), "2");
    for known in ["a", "b"] {
        let options = Options {
            deadline: Some(Duration::from_secs(3)),
            ..key(known)
        };
        let again = rig.proxy.execute(insert, vec![], options).await;
        let error = again.unwrap_err();
        assert_eq!(error.code(), Code::OutcomeUnknown, "{known}: {error}");
    }
    standby.start_again().await;
    cluster.wait_attached(1).await;
    for known in ["a", "b"] {
        let again = rig.proxy.execute(insert, vec![], key(known)).await;
        assert!(again.unwrap().meta.replayed, "{known}");
    }
    assert_eq!(primary.value("SELECT count(*) FROM t").await.unwrap(), "2");
    rig.shut_down().await;
}

#[tokio::test]
async fn a_stored_answer_of_postgresql_waits_for_a_standby() {
    a_stored_answer_waits_for_a_standby::<PostgresCluster>().await;
}

#[tokio::test]
async fn a_stored_answer_of_mariadb_waits_for_a_standby() {
    a_stored_answer_waits_for_a_standby::<MariadbCluster>().await;
}

/// A write that takes longer than its key is kept: the key counts from its end.
async fn a_key_outlives_a_slow_write<S: Server>(trigger: &[&str]) {
    let server = S::start(&[]).await;
    server.sql("CREATE TABLE t (id bigint)").await.unwrap();
    for text in trigger {
        server.sql(text).await.unwrap();
    }
    let keys = IdempotencyTable {
        keep: Duration::from_secs(2),
        ..table("mainstay_keys")
    };
    let rig = of(&server, Some(keys));
    let slow = "INSERT INTO t (id) VALUES (1)";
    let first = rig.proxy.execute(slow, vec![], key("a")).await.unwrap();
    assert!(!first.meta.replayed);
    let again = rig.proxy.execute(slow, vec![], key("a")).await.unwrap();
    assert!(again.meta.replayed);
    assert_eq!(server.value("SELECT count(*) FROM t").await.unwrap(), "1");
    rig.shut_down().await;
}

#[tokio::test]
async fn a_key_of_postgresql_outlives_a_slow_write() {
    a_key_outlives_a_slow_write::<PostgresServer>(&[
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep(2.5); RETURN NEW; END'",
        "CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slow()",
    ])
    .await;
}

#[tokio::test]
async fn a_key_of_mariadb_outlives_a_slow_write() {
    let trigger = "CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW DO SLEEP(2.5)";
    a_key_outlives_a_slow_write::<MariadbServer>(&[trigger]).await;
}

/// Whoever waits for another request with the same key finds no fault with the server.
async fn a_wait_for_the_same_key_opens_no_circuit<S: Server>(trigger: &[&str], asleep: &str) {
    let server = S::start(&[]).await;
    server.sql("CREATE TABLE t (id bigint)").await.unwrap();
    let first = of(&server, Some(table("mainstay_keys")));
    let insert = "INSERT INTO t (id) VALUES (1)";
    first
        .proxy
        .execute(insert, vec![], key("made"))
        .await
        .unwrap();
    for text in trigger {
        server.sql(text).await.unwrap();
    }
    let tasks = Tasks::new();
    let driver = S::driver(server.port(), S::SUPERUSER, &tasks);
    let mut settings = lone::settings(Duration::from_millis(300));
    settings.circuit.failures = 1;
    settings.retry.attempts_max = 2;
    let second = rig_with(driver, tasks, Some(table("mainstay_keys")), settings);
    let slow = first.proxy.execute(insert, vec![], key("a"));
    let waiting = async {
        // The first one has claimed its key when its row is being written.
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        while server.value(asleep).await.unwrap() == "0" {
            assert!(tokio::time::Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for _ in 0..2 {
            let again = second.proxy.execute(insert, vec![], key("a")).await;
            let error = again.unwrap_err();
            assert_eq!(
                (error.code(), error.sent()),
                (Code::Contention, Sent::No),
                "{error}"
            );
            assert_eq!(error.detail().attempts.len(), 2, "{error}");
        }
        let other = second.proxy.execute(insert, vec![], key("made")).await;
        assert!(other.unwrap().meta.replayed);
    };
    let (ended, ()) = tokio::join!(slow, waiting);
    assert!(!ended.unwrap().meta.replayed);
    first.shut_down().await;
    second.shut_down().await;
}

#[tokio::test]
async fn a_wait_for_the_same_key_opens_no_circuit_on_postgresql() {
    let trigger = [
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep(4); RETURN NEW; END'",
        "CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION slow()",
    ];
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    a_wait_for_the_same_key_opens_no_circuit::<PostgresServer>(&trigger, asleep).await;
}

#[tokio::test]
async fn a_wait_for_the_same_key_opens_no_circuit_on_mariadb() {
    let trigger = "CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW DO SLEEP(4)";
    let asleep = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE state = 'User sleep'";
    a_wait_for_the_same_key_opens_no_circuit::<MariadbServer>(&[trigger], asleep).await;
}
