//! What a session keeps, gives back and cleans up.

use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_engine::Sent;
use mainstay_sql::{AnswerMax, Code, Value};

use super::place::{Place, driver, rows, run, text, value};

const PREPARED: &str = "SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql";

#[tokio::test]
async fn prepared_statements_are_kept_and_the_oldest_closed_at_the_server() {
    let mut place = Place::new().await;
    place.settings.statements_max = 4;
    place.driver = driver(place.settings.clone());
    let mut session = place.reader().await;
    for n in 0..20 {
        rows(&mut session, &format!("SELECT {n}")).await;
    }
    assert_eq!(value(&mut session, PREPARED).await, Value::I64(4));
    rows(&mut session, "SELECT 19").await;
    assert_eq!(value(&mut session, PREPARED).await, Value::I64(4));
}

#[tokio::test]
async fn only_statements_that_count_say_how_many_rows_they_changed() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let table = [
        ("CREATE TABLE t (a int4)", None),
        ("INSERT INTO t SELECT generate_series(1, 3)", Some(3)),
        ("UPDATE t SET a = 0 WHERE a > 1", Some(2)),
        ("DELETE FROM t WHERE a = 99", Some(0)),
        ("INSERT INTO t VALUES (4), (5) RETURNING a", Some(2)),
        (
            "WITH x AS (SELECT 6 AS a) INSERT INTO t SELECT a FROM x",
            Some(1),
        ),
        (
            "WITH x AS (DELETE FROM t WHERE a = 6 RETURNING a) SELECT * FROM x",
            None,
        ),
        ("SELECT * FROM t", None),
        (
            "MERGE INTO t USING (VALUES (4)) v(a) ON t.a = v.a WHEN MATCHED THEN DELETE",
            Some(1),
        ),
        ("", None),
    ];
    for (statement, affected) in table {
        assert_eq!(
            run(&mut session, statement, &[]).await.unwrap().affected,
            affected,
            "{statement}"
        );
    }
}

#[tokio::test]
async fn a_statement_is_handed_over_once_and_only_if_it_is_sent() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    let handed = AtomicU32::new(0);
    let mark = || {
        handed.fetch_add(1, Ordering::Relaxed);
    };
    let max = AnswerMax::default();
    session.run("SELECT 1", &[], max, &mark).await.unwrap();
    assert_eq!(handed.load(Ordering::Relaxed), 1);
    session.run("SELEC", &[], max, &mark).await.unwrap_err();
    assert_eq!(handed.load(Ordering::Relaxed), 1);
    session
        .run("SELECT 1/0", &[], max, &mark)
        .await
        .unwrap_err();
    assert_eq!(handed.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn an_answer_beyond_its_bounds_is_refused_and_the_session_stays_usable() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let many = "SELECT generate_series(1, 10000000)";
    let max = AnswerMax {
        rows: 10,
        bytes: u64::MAX,
    };
    let error = session.run(many, &[], max, &|| {}).await.unwrap_err();
    assert_eq!(error.code(), Code::AnswerTooLarge);
    assert_eq!(error.sent(), Sent::YesUnprocessed, "it was cancelled");
    let max = AnswerMax {
        rows: u64::MAX,
        bytes: 1000,
    };
    let error = session
        .run("SELECT repeat('x', 2000)", &[], max, &|| {})
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::AnswerTooLarge);
    let exact = AnswerMax {
        rows: 3,
        bytes: u64::MAX,
    };
    let answer = session
        .run("SELECT generate_series(1, 3)", &[], exact, &|| {})
        .await
        .unwrap();
    assert_eq!(answer.rows.len(), 3);
    session.check().await.unwrap();
}

#[tokio::test]
async fn reset_gives_the_session_back_as_connect_gave_it() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "SELECT 42").await;
    rows(&mut session, "SET work_mem = '99kB'").await;
    rows(&mut session, "SELECT pg_advisory_lock(7)").await;
    rows(&mut session, "PREPARE \"my \"\"own\" AS SELECT 1").await;
    rows(&mut session, "LISTEN something").await;
    rows(&mut session, "CREATE TEMP TABLE mine (a int4)").await;
    rows(&mut session, "SET search_path = pg_catalog").await;
    session.reset().await.unwrap();
    assert_ne!(value(&mut session, "SHOW work_mem").await, text("99kB"));
    assert_eq!(
        value(&mut session, "SHOW search_path").await,
        text(&place.schema)
    );
    let mut reader = place.reader().await;
    rows(
        &mut reader,
        "SET default_transaction_isolation = serializable",
    )
    .await;
    reader.reset().await.unwrap();
    let read_only = value(&mut reader, "SHOW default_transaction_read_only").await;
    assert_eq!(read_only, text("on"));
    let left = "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) \
         + (SELECT count(*) FROM pg_prepared_statements WHERE from_sql) \
         + (SELECT count(*) FROM pg_listening_channels()) \
         + (SELECT count(*) FROM pg_class WHERE relname = 'mine')";
    assert_eq!(value(&mut session, left).await, Value::I64(0));
    let kept = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT 42'";
    assert_eq!(value(&mut session, kept).await, Value::I64(1));
}

#[tokio::test]
async fn types_of_the_users_own_are_still_found_after_a_reset() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TYPE one AS ENUM ('a')").await;
    rows(&mut session, "CREATE TYPE two AS ENUM ('b')").await;
    assert_eq!(value(&mut session, "SELECT 'a'::one").await, text("a"));
    session.reset().await.unwrap();
    assert_eq!(value(&mut session, "SELECT 'b'::two").await, text("b"));
}
