//! Transactions that the server has and the driver has not begun, and what is committed behind its back.

use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, Policy, Preset, Sent};
use mainstay_sql::{Access, Begin, Code, Database, Driver, Options, Plain, Value, Verbs};
use mainstay_testkit::mariadb::MariadbOptions;

use super::place::{Place, driver, number, rows, run, value};

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

async fn with_tables_of_both_kinds() -> Place {
    let place = Place::with(MariadbOptions::new().setting("innodb_lock_wait_timeout", 1)).await;
    place
        .server
        .sql(
            "CREATE TABLE test.hot (id int PRIMARY KEY, v int); \
             INSERT INTO test.hot VALUES (1, 0), (2, 0); \
             CREATE TABLE test.aria (a int) ENGINE = Aria; \
             CREATE TABLE test.myisam (a int) ENGINE = MyISAM",
        )
        .await
        .unwrap();
    place
}

#[tokio::test]
async fn rows_that_a_rollback_leaves_are_not_written_again() {
    let place = with_tables_of_both_kinds().await;
    let plain = pooled(&place);
    let mut holder = place.writer().await;
    holder.begin(&Begin::default()).await.unwrap();
    rows(&mut holder, "UPDATE hot SET v = 1 WHERE id = 1").await;
    for table in ["aria", "myisam"] {
        let keeps = format!("INSERT INTO {table} VALUES (1)");
        let keeps = keeps.as_str();
        let ended: Result<(), _> = plain
            .transaction(Begin::default(), 2, |transaction| {
                let keeps = keeps.to_owned();
                Box::pin(async move {
                    transaction.run(&written(&keeps)).await?;
                    let waits = written("UPDATE hot SET v = 2 WHERE id = 1");
                    transaction.run(&waits).await.map(drop)
                })
            })
            .await;
        let error = ended.unwrap_err();
        assert_eq!(
            (number(&error), error.sent()),
            (1205, Sent::Maybe),
            "{error}"
        );
        assert_eq!(count(&place, table).await, "1", "{table}");
        // Told also by the rollback itself, and by the COMMIT that becomes one.
        for commits in [false, true] {
            let begin = Begin::default();
            let begun = plain.begin(&begin, mainstay_sql::Scope::default()).await;
            let mut transaction = begun.unwrap();
            transaction.run(&written(keeps)).await.unwrap();
            let ended = match commits {
                false => transaction.rollback().await,
                true => {
                    let waits = written("UPDATE hot SET v = 2 WHERE id = 1");
                    transaction.run(&waits).await.unwrap_err();
                    transaction.commit().await.map(drop)
                }
            };
            let error = ended.unwrap_err();
            assert_eq!(error.sent(), Sent::Maybe, "{table} {commits}: {error}");
        }
    }
    holder.rollback().await.unwrap();
}

fn written(text: &str) -> mainstay_sql::Request {
    mainstay_sql::Request {
        class: None,
        name: "test".into(),
        work: mainstay_sql::Work::Statement {
            text: text.into(),
            params: vec![],
        },
        safety: mainstay_engine::Safety::Write,
        access: Access::ReadWrite,
        options: Options::default(),
        answer_max: mainstay_sql::AnswerMax::default(),
    }
}

#[tokio::test]
async fn a_deadlock_that_leaves_rows_says_so_and_so_does_the_rollback_behind_it() {
    let place = with_tables_of_both_kinds().await;
    let (mut one, mut two) = (place.writer().await, place.writer().await);
    for table in ["aria", "myisam"] {
        for session in [&mut one, &mut two] {
            session.begin(&Begin::default()).await.unwrap();
            rows(session, &format!("INSERT INTO {table} VALUES (1)")).await;
        }
        rows(&mut one, "UPDATE hot SET v = 1 WHERE id = 1").await;
        rows(&mut two, "UPDATE hot SET v = 2 WHERE id = 2").await;
        let (a, b) = tokio::join!(
            run(&mut one, "UPDATE hot SET v = 3 WHERE id = 2", &[]),
            run(&mut two, "UPDATE hot SET v = 4 WHERE id = 1", &[]),
        );
        let ((Ok(_), Err(error)) | (Err(error), Ok(_))) = (a, b) else {
            panic!("one of the two is the victim");
        };
        assert_eq!(
            (number(&error), error.sent()),
            (1213, Sent::Maybe),
            "{table}: {error}"
        );
        for session in [&mut one, &mut two] {
            let error = session.rollback().await.unwrap_err();
            assert_eq!(error.sent(), Sent::Maybe, "{table}: {error}");
        }
    }
    one.begin(&Begin::default()).await.unwrap();
    one.rollback().await.unwrap();
}

#[tokio::test]
async fn rows_that_a_trigger_or_a_function_leaves_are_not_written_again() {
    let place = with_tables_of_both_kinds().await;
    let mut session = place.writer().await;
    for text in [
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TRIGGER keeps BEFORE INSERT ON t FOR EACH ROW INSERT INTO aria VALUES (1)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "CREATE TRIGGER passes BEFORE INSERT ON other FOR EACH ROW INSERT INTO t VALUES (NEW.id + 10)",
        "CREATE TABLE called (id int PRIMARY KEY)",
        "CREATE FUNCTION keep(n int) RETURNS int BEGIN INSERT INTO aria VALUES (1); RETURN n; END",
        "CREATE TABLE whole (id int PRIMARY KEY)",
        "CREATE TABLE log (a int)",
        "CREATE TRIGGER logs BEFORE INSERT ON whole FOR EACH ROW INSERT INTO log VALUES (1)",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO other VALUES (1)",
        "INSERT INTO called VALUES (1)",
        "INSERT INTO whole VALUES (1)",
    ] {
        rows(&mut session, text).await;
    }
    for (text, expected) in [
        ("INSERT INTO t VALUES (1)", Sent::Maybe),
        ("INSERT INTO other VALUES (1)", Sent::Maybe),
        ("INSERT INTO called VALUES (keep(1))", Sent::Maybe),
        ("INSERT INTO whole VALUES (1)", Sent::YesUnprocessed),
    ] {
        rows(&mut session, "DELETE FROM aria").await;
        let error = run(&mut session, text, &[]).await.unwrap_err();
        assert_eq!(
            (number(&error), error.sent()),
            (1062, expected),
            "{text}: {error}"
        );
        let left = count(&place, "aria").await != "0";
        assert_eq!(left, expected == Sent::Maybe, "{text}");
    }
}
