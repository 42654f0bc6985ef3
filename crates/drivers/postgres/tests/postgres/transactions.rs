//! Begin, commit, rollback and what is left when they are abandoned.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use mainstay_engine::Sent;
use mainstay_sql::{Access, Begin, Code, Isolation, Value, Verdict};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};

use super::failures::state;
use super::place::{Place, pid, rows, run, server, text, value, wait_until};

async fn count(place: &Place) -> Value {
    let mut session = place.reader().await;
    value(&mut session, "SELECT count(*) FROM t").await
}

#[tokio::test]
async fn a_transaction_takes_effect_whole_or_not_at_all() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int4)").await;
    for (commits, expected) in [(false, 0), (true, 2)] {
        session.begin(&Begin::default()).await.unwrap();
        rows(&mut session, "INSERT INTO t VALUES (1)").await;
        rows(&mut session, "INSERT INTO t VALUES (2)").await;
        match commits {
            true => session.commit(&|| {}).await.unwrap(),
            false => session.rollback().await.unwrap(),
        }
        assert_eq!(count(&place).await, Value::I64(expected));
    }
}

#[tokio::test]
async fn isolation_and_access_are_what_was_asked_for() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let table = [
        (Isolation::Default, "read committed"),
        (Isolation::ReadCommitted, "read committed"),
        (Isolation::RepeatableRead, "repeatable read"),
        (Isolation::Serializable, "serializable"),
    ];
    for (isolation, name) in table {
        for (access, read_only) in [(Access::ReadOnly, "on"), (Access::ReadWrite, "off")] {
            let begin = Begin {
                isolation,
                access,
                ..Begin::default()
            };
            session.begin(&begin).await.unwrap();
            assert_eq!(
                value(&mut session, "SHOW transaction_isolation").await,
                text(name)
            );
            assert_eq!(
                value(&mut session, "SHOW transaction_read_only").await,
                text(read_only)
            );
            session.rollback().await.unwrap();
        }
    }
}

#[tokio::test]
async fn committing_a_transaction_that_an_error_has_ended_is_an_error() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int4)").await;
    session.begin(&Begin::default()).await.unwrap();
    rows(&mut session, "INSERT INTO t VALUES (1)").await;
    run(&mut session, "SELECT 1/0", &[]).await.unwrap_err();
    let error = session.commit(&|| {}).await.unwrap_err();
    assert_eq!(
        (state(&error), error.code(), error.sent()),
        ("25P02", Code::Conflict, Sent::YesUnprocessed)
    );
    assert_eq!(count(&place).await, Value::I64(0));
    rows(&mut session, "INSERT INTO t VALUES (2)").await;
    assert_eq!(
        count(&place).await,
        Value::I64(1),
        "the session is outside of transactions again"
    );
}

#[tokio::test]
async fn an_error_at_commit_has_rolled_back() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(
        &mut session,
        "CREATE TABLE t (a int4 PRIMARY KEY, b int4 REFERENCES t DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    session.begin(&Begin::default()).await.unwrap();
    rows(&mut session, "INSERT INTO t VALUES (1, 9)").await;
    let error = session.commit(&|| {}).await.unwrap_err();
    assert_eq!(
        (state(&error), error.code(), error.sent()),
        ("23503", Code::Constraint, Sent::YesUnprocessed)
    );
    assert_eq!(count(&place).await, Value::I64(0));
}

#[tokio::test]
async fn a_conflict_found_at_commit_is_contention_and_has_rolled_back() {
    let place = Place::new().await;
    let (mut a, mut b) = (place.writer().await, place.writer().await);
    rows(&mut a, "CREATE TABLE t (a int4)").await;
    let begin = Begin {
        isolation: Isolation::Serializable,
        ..Begin::default()
    };
    for session in [&mut a, &mut b] {
        session.begin(&begin).await.unwrap();
        value(session, "SELECT count(*) FROM t").await;
    }
    rows(&mut a, "INSERT INTO t VALUES (1)").await;
    rows(&mut b, "INSERT INTO t VALUES (2)").await;
    a.commit(&|| {}).await.unwrap();
    let error = b.commit(&|| {}).await.unwrap_err();
    assert_eq!(
        (state(&error), error.code(), error.sent()),
        ("40001", Code::Contention, Sent::YesUnprocessed)
    );
    assert_eq!(count(&place).await, Value::I64(1));
}

#[tokio::test]
async fn a_begin_dropped_at_any_moment_leaves_no_open_transaction() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let backend = pid(&mut session).await;
    for polls in 0..40 {
        {
            let begin = Begin::default();
            let mut future = pin!(session.begin(&begin));
            for _ in 0..polls % 4 {
                let mut cx = Context::from_waker(Waker::noop());
                if let Poll::Ready(result) = future.as_mut().poll(&mut cx) {
                    result.unwrap();
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_micros(100 * (polls / 4))).await;
            }
        }
        session.clean_up().await.unwrap();
        let state = server()
            .await
            .value(&format!(
                "SELECT state FROM pg_stat_activity WHERE pid = {backend}"
            ))
            .await;
        assert_eq!(state.unwrap(), "idle", "after {polls} polls");
    }
}

#[tokio::test]
async fn a_commit_whose_wait_for_a_standby_is_cancelled_is_unknown() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let driver = super::place::driver(super::place::settings(&server));
    let mut session = mainstay_sql::Driver::connect(&driver, Access::ReadWrite)
        .await
        .unwrap();
    rows(&mut session, "CREATE TABLE t (a int4)").await;
    rows(&mut session, "CREATE TABLE probes (a int4)").await;
    let backend = pid(&mut session).await;
    server
        .set("synchronous_standby_names", "nobody")
        .await
        .unwrap();
    wait_until_commits_wait(&server).await;
    let cancel = cancel_the_wait(&server, backend);
    let (result, ()) = tokio::join!(run(&mut session, "INSERT INTO t VALUES (1)", &[]), cancel);
    let error = result.unwrap_err();
    assert_eq!(
        (state(&error), error.code(), error.sent()),
        ("01000", Code::OutcomeUnknown, Sent::Maybe)
    );
    session.begin(&Begin::default()).await.unwrap();
    rows(&mut session, "INSERT INTO t VALUES (2)").await;
    let cancel = cancel_the_wait(&server, backend);
    let (result, ()) = tokio::join!(session.commit(&|| {}), cancel);
    let error = result.unwrap_err();
    assert_eq!(
        (error.code(), error.sent(), error.detail().verdict),
        (Code::OutcomeUnknown, Sent::Maybe, Verdict::None)
    );
    // Both are there: had they been called failures, somebody would have written them twice.
    assert_eq!(
        value(&mut session, "SELECT count(*) FROM t").await,
        Value::I64(2)
    );
    assert!(
        mainstay_sql::Driver::connect(&driver, Access::ReadOnly)
            .await
            .unwrap()
            .probe()
            .await
            .unwrap()
            .lacks_sync_standby
    );
}

/// A new setting takes effect when the process that publishes it to all others looks: until then
/// commits return at once.
async fn wait_until_commits_wait(server: &PostgresServer) {
    mainstay_testkit::until("commits wait for a standby", async || {
        let probe = server.sql("INSERT INTO probes VALUES (1)");
        let limit = std::time::Duration::from_millis(200);
        tokio::time::timeout(limit, probe).await.is_err()
    })
    .await;
}

async fn cancel_the_wait(server: &PostgresServer, backend: i64) {
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE pid = {backend} AND wait_event = 'SyncRep'"
    );
    mainstay_testkit::until("the commit waits for a standby", async || {
        server.value(&waits).await.unwrap() == "1"
    })
    .await;
    let cancel = format!("SELECT pg_cancel_backend({backend})");
    server.sql(&cancel).await.unwrap();
}

#[tokio::test]
async fn a_transaction_of_another_session_is_not_seen_before_its_commit() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int4)").await;
    session.begin(&Begin::default()).await.unwrap();
    rows(&mut session, "INSERT INTO t VALUES (1)").await;
    assert_eq!(count(&place).await, Value::I64(0));
    let backend = pid(&mut session).await;
    drop(session);
    // The dropped session has gone, and its transaction with it.
    wait_until_gone(backend).await;
    assert_eq!(count(&place).await, Value::I64(0));
}

async fn wait_until_gone(backend: i64) {
    let session = server().await.session().await.unwrap();
    let own = session.value("SELECT pg_backend_pid()").await.unwrap();
    let alive = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}");
    for _ in 0..2000 {
        if session.value(&alive).await.unwrap() == "0" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    wait_until(own.parse().unwrap(), "false").await;
}
