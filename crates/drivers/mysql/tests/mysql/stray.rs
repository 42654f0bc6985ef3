//! Transactions that the server has and the driver has not begun, and what is committed behind its back.

use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, Policy, Preset, Sent};
use mainstay_sql::{Access, Begin, Code, Driver, Options, Plain, Value, Verbs};

use super::place::{Place, driver, rows, run, value};

async fn count(place: &Place, table: &str) -> String {
    let text = format!("SELECT COUNT(*) FROM test.{table}");
    place.server.value(&text).await.unwrap()
}

fn pooled(place: &Place) -> Plain {
    Plain::new(
        Arc::new(place.driver()),
        &Policy::preset(Preset::Balanced),
        Tasks::new(),
        Chance::seeded(7),
    )
}

#[tokio::test]
async fn a_script_that_failed_says_what_is_committed_already() {
    let place = Place::new().await;
    place
        .server
        .sql(
            "CREATE TABLE test.t (a int PRIMARY KEY); CREATE TABLE test.old (a int); \
             CREATE TABLE test.plain (a int) ENGINE = MyISAM; \
             CREATE PROCEDURE test.keeps() BEGIN COMMIT; START TRANSACTION; END; \
             CREATE PROCEDURE test.lets() BEGIN DO 1; END",
        )
        .await
        .unwrap();
    let plain = pooled(&place);
    let (undone, maybe) = (Sent::YesUnprocessed, Sent::Maybe);
    // The last statement of each fails. What it proves about itself says nothing about those before it.
    for (number, (script, expected, left)) in [
        ("INSERT INTO t VALUES ({}); SELEC 1", undone, "0"),
        (
            "INSERT INTO t VALUES ({}); SELECT * FROM nowhere",
            undone,
            "0",
        ),
        ("INSERT INTO t VALUES ({}), ({})", undone, "0"),
        ("CREATE TABLE old (a int)", undone, "0"),
        ("CREATE TABLE new{} (a int); SELEC 1", maybe, "0"),
        (
            "CREATE TABLE new{} (a int); INSERT INTO t VALUES ('\0')",
            maybe,
            "0",
        ),
        (
            "CREATE TABLE new{} (a int); INSERT INTO t VALUES ({}), ({})",
            maybe,
            "0",
        ),
        (
            "INSERT INTO t VALUES ({}); CREATE TABLE old (a int)",
            maybe,
            "1",
        ),
        ("INSERT INTO t VALUES ({}); TRUNCATE nowhere", maybe, "1"),
        (
            "INSERT INTO t VALUES ({}); CALL keeps(); SELEC 1",
            maybe,
            "1",
        ),
        (
            "INSERT INTO t VALUES ({}); CALL lets(); SELEC 1",
            maybe,
            "0",
        ),
        ("INSERT INTO plain VALUES ({}); SELEC 1", maybe, "0"),
        (
            "INSERT INTO t VALUES ({}); INSERT INTO plain VALUES ({}); SELEC 1",
            maybe,
            "0",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        place.server.sql("DELETE FROM test.t").await.unwrap();
        let script = script.replace("{}", &number.to_string());
        let error = plain.script(&script, Options::default()).await.unwrap_err();
        assert_eq!(error.sent(), expected, "{script}: {error}");
        let is_unknown = error.code() == Code::OutcomeUnknown;
        assert_eq!(is_unknown, expected == maybe, "{script}: {error}");
        assert_eq!(count(&place, "t").await, left, "{script}");
    }
    plain
        .execute("INSERT INTO t VALUES (-1)", vec![], Options::default())
        .await
        .unwrap();
    assert_eq!(count(&place, "t").await, "1", "the sessions are clean");
}

#[tokio::test]
async fn after_ddl_that_failed_nothing_runs_outside_of_the_transaction() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int)").await;
    session.begin(&Begin::default()).await.unwrap();
    rows(&mut session, "INSERT INTO t VALUES (1)").await;
    let error = run(&mut session, "CREATE TABLE t (a int)", &[]).await;
    assert_eq!(error.unwrap_err().sent(), Sent::Maybe);
    rows(&mut session, "INSERT INTO t VALUES (2)").await;
    session.rollback().await.unwrap();
    assert_eq!(
        rows(&mut session, "SELECT a FROM t").await,
        [[Value::I64(1)]],
        "committed by the DDL, although that failed"
    );
}

#[tokio::test]
async fn what_a_procedure_leaves_open_is_rolled_back_and_told() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int)").await;
    for procedure in [
        "CREATE PROCEDURE opens() BEGIN START TRANSACTION; INSERT INTO t VALUES (1); END",
        "CREATE PROCEDURE breaks() BEGIN START TRANSACTION; INSERT INTO t VALUES (1); \
         SIGNAL SQLSTATE '45000'; END",
        "CREATE PROCEDURE ends() BEGIN COMMIT; END",
    ] {
        rows(&mut session, procedure).await;
    }
    for text in ["CALL opens()", "CALL breaks()"] {
        let error = run(&mut session, text, &[]).await.unwrap_err();
        // It might have committed something before.
        assert_eq!(error.sent(), Sent::Maybe, "{text}: {error}");
        let left = value(&mut session, "SELECT COUNT(*) FROM t").await;
        assert_eq!(left, Value::I64(0), "{text}");
        rows(&mut session, "INSERT INTO t VALUES (2)").await;
        assert_eq!(count(&place, "t").await, "1", "{text}: committed at once");
        rows(&mut session, "DELETE FROM t").await;
    }
    session.begin(&Begin::default()).await.unwrap();
    let error = run(&mut session, "CALL ends()", &[]).await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::TransactionLost, Sent::Maybe),
        "{error}"
    );
}

#[tokio::test]
async fn a_closure_that_turns_autocommit_off_is_told_before_it_loses_a_write() {
    let place = Place::new().await;
    place
        .server
        .sql("CREATE TABLE test.t (a int)")
        .await
        .unwrap();
    let plain = pooled(&place);
    let ended = plain
        .run(
            mainstay_engine::Safety::Write,
            Options::default(),
            async |mut lent: mainstay_sql::Lent| {
                lent.execute("SET autocommit = 0", vec![]).await?;
                lent.execute("INSERT INTO t VALUES (1)", vec![]).await
            },
        )
        .await;
    let error = ended.unwrap_err();
    assert_eq!(error.code(), Code::BadStatement, "{error}");
    plain
        .execute("INSERT INTO t VALUES (2)", vec![], Options::default())
        .await
        .unwrap();
    assert_eq!(count(&place, "t").await, "1");
}

#[tokio::test]
async fn a_server_that_commits_nothing_by_itself_commits_ours() {
    let place = Place::new().await;
    place.server.set("autocommit", 0).await.unwrap();
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int)").await;
    for n in 1..3 {
        rows(&mut session, "INSERT INTO t VALUES (1)").await;
        assert_eq!(count(&place, "t").await, n.to_string());
        session.reset().await.unwrap();
    }
    let mut settings = place.settings.clone();
    settings.options = vec![("autocommit".into(), "0".into())];
    let refused = driver(settings).connect(Access::ReadWrite).await;
    let error = refused.err().expect("writes would be lost");
    assert_eq!(error.sent(), Sent::No);
    assert!(error.to_string().contains("autocommit"), "{error}");
}
