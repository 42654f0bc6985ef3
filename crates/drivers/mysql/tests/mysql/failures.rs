//! Each row of the table of errors that a real server can be made to produce.

use std::time::Duration;

use mainstay_engine::{Blame, Category, Sent};
use mainstay_sql::{Begin, Code, Connection, SqlError, Value, Verdict};
use mainstay_testkit::mariadb::MariadbOptions;

use super::place::{Place, id, number, rows, run, value};

fn check(error: &SqlError, expected: (u16, Category, Sent)) {
    let failure = error.failure();
    assert_eq!(
        (number(error), failure.category, failure.sent),
        expected,
        "{error}"
    );
}

async fn fails(session: &mut Box<dyn Connection>, text: &str) -> SqlError {
    match run(session, text, &[]).await {
        Err(error) => error,
        Ok(_) => panic!("{text} worked"),
    }
}

async fn hot(place: &Place) -> (Box<dyn Connection>, Box<dyn Connection>) {
    let (mut one, two) = (place.writer().await, place.writer().await);
    rows(&mut one, "CREATE TABLE hot (id int PRIMARY KEY, v int)").await;
    rows(&mut one, "INSERT INTO hot VALUES (1, 0), (2, 0)").await;
    (one, two)
}

#[tokio::test]
async fn a_lock_that_is_not_given_in_time_is_contention() {
    let place = Place::with(MariadbOptions::new().setting("innodb_lock_wait_timeout", 1)).await;
    let (mut one, mut two) = hot(&place).await;
    one.begin(&Begin::default()).await.unwrap();
    rows(&mut one, "UPDATE hot SET v = 1 WHERE id = 1").await;
    let error = fails(&mut two, "UPDATE hot SET v = 2 WHERE id = 1").await;
    check(&error, (1205, Category::Contention, Sent::YesUnprocessed));
    let error = fails(&mut two, "SELECT * FROM hot WHERE id = 1 FOR UPDATE NOWAIT").await;
    check(&error, (1205, Category::Contention, Sent::YesUnprocessed));
    one.rollback().await.unwrap();
}

#[tokio::test]
async fn a_deadlock_is_contention_and_ends_the_transaction() {
    let place = Place::new().await;
    let (mut one, mut two) = hot(&place).await;
    for session in [&mut one, &mut two] {
        session.begin(&Begin::default()).await.unwrap();
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
    check(&error, (1213, Category::Contention, Sent::YesUnprocessed));
    for session in [&mut one, &mut two] {
        session.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_snapshot_that_has_become_stale_is_contention() {
    let place = Place::new().await;
    let (mut one, mut two) = hot(&place).await;
    if run(&mut one, "SET SESSION innodb_snapshot_isolation = ON", &[])
        .await
        .is_err()
    {
        // Versions before 10.6.18 do not know it, and so cannot raise 1020 here.
        return;
    }
    one.begin(&Begin::default()).await.unwrap();
    rows(&mut one, "SELECT * FROM hot").await;
    rows(&mut two, "UPDATE hot SET v = 9 WHERE id = 1").await;
    let error = fails(&mut one, "UPDATE hot SET v = 1 WHERE id = 1").await;
    check(&error, (1020, Category::Contention, Sent::YesUnprocessed));
    one.rollback().await.unwrap();
}

#[tokio::test]
async fn a_killed_session_may_have_done_it() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let own = id(&mut session).await;
    let (result, ()) = tokio::join!(run(&mut session, "SELECT SLEEP(60)", &[]), async {
        place.wait_until(own, "STATE = 'User sleep'").await;
        place.server.sql(&format!("KILL {own}")).await.unwrap();
    });
    let error = result.unwrap_err();
    assert_eq!(error.failure().category, Category::Transient, "{error}");
    assert_eq!(error.sent(), Sent::Maybe, "{error}");
    assert!(session.is_closed());
}

#[tokio::test]
async fn a_statement_that_somebody_else_killed_weighs_nothing() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let own = id(&mut session).await;
    let (result, ()) = tokio::join!(run(&mut session, "SELECT SLEEP(60)", &[]), async {
        place.wait_until(own, "STATE = 'User sleep'").await;
        let kill = format!("KILL QUERY {own}");
        place.server.sql(&kill).await.unwrap();
    });
    let error = result.unwrap_err();
    assert_eq!(
        (number(&error), error.detail().verdict),
        (1317, Verdict::Neutral)
    );
    assert_eq!(error.sent(), Sent::YesUnprocessed);
    assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1));
}

#[tokio::test]
async fn the_servers_own_limit_is_a_timeout() {
    let mut place = Place::new().await;
    place.settings.options = vec![("max_statement_time".into(), "0.1".into())];
    let mut session = place.writer().await;
    let error = fails(&mut session, "SELECT SLEEP(60)").await;
    check(&error, (1969, Category::Timeout, Sent::YesUnprocessed));
    assert_eq!(error.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_read_only_server_is_told_from_other_options() {
    let place = Place::new().await;
    place.server.create_user("app", "").await.unwrap();
    let mut settings = place.settings.clone();
    settings.user = "app".into();
    let driver = super::place::driver(settings);
    let mut session = mainstay_sql::Driver::connect(&driver, mainstay_sql::Access::ReadWrite)
        .await
        .unwrap();
    rows(&mut session, "CREATE TABLE t (a int)").await;
    place.server.set("read_only", "ON").await.unwrap();
    let error = fails(&mut session, "INSERT INTO t VALUES (1)").await;
    assert_eq!(
        (number(&error), error.detail().verdict),
        (1290, Verdict::ReadOnly)
    );
    assert_eq!(error.sent(), Sent::YesUnprocessed);
    place.server.set("read_only", "OFF").await.unwrap();
    rows(&mut session, "INSERT INTO t VALUES (1)").await;

    let place = Place::with(MariadbOptions::new().setting("secure_file_priv", "/var/lib")).await;
    let mut session = place.writer().await;
    let error = fails(&mut session, "SELECT 1 INTO OUTFILE '/tmp/mainstay_never'").await;
    assert_eq!(
        (number(&error), error.detail().verdict),
        (1290, Verdict::None),
        "{error}"
    );
    assert_eq!(error.failure().blame, Blame::Caller);
}

#[tokio::test]
async fn a_session_that_we_keep_read_only_says_so_and_the_callers_own_does_not() {
    let place = Place::new().await;
    let mut writer = place.writer().await;
    rows(&mut writer, "CREATE TABLE t (a int)").await;
    let mut reader = place.reader().await;
    let error = fails(&mut reader, "INSERT INTO t VALUES (1)").await;
    assert_eq!(
        (number(&error), error.detail().verdict),
        (1792, Verdict::ReadOnly)
    );
    let begin = Begin {
        access: mainstay_sql::Access::ReadOnly,
        ..Begin::default()
    };
    writer.begin(&begin).await.unwrap();
    let error = fails(&mut writer, "INSERT INTO t VALUES (1)").await;
    assert_eq!(
        (number(&error), error.detail().verdict),
        (1792, Verdict::None)
    );
    assert_eq!(error.failure().category, Category::Persistent);
    writer.rollback().await.unwrap();
}

#[tokio::test]
async fn what_the_user_may_not_do_is_the_callers() {
    let place = Place::new().await;
    place.server.create_user("app", "").await.unwrap();
    let sql = "CREATE DATABASE other; CREATE TABLE other.t (a int); CREATE TABLE test.t (a int, b int); \
               CREATE PROCEDURE other.p() SELECT 1; \
               REVOKE ALL ON test.* FROM 'app'@'127.0.0.1'; GRANT SELECT (a) ON test.t TO 'app'@'127.0.0.1'";
    place.server.sql(sql).await.unwrap();
    let mut settings = place.settings.clone();
    settings.user = "app".into();
    let driver = super::place::driver(settings);
    let mut session = mainstay_sql::Driver::connect(&driver, mainstay_sql::Access::ReadWrite)
        .await
        .unwrap();
    for (text, expected) in [
        ("SELECT * FROM other.t", 1142),
        ("SELECT b FROM test.t", 1143),
        ("SET GLOBAL read_only = OFF", 1227),
        ("CALL other.p()", 1370),
        ("CREATE DATABASE third", 1044),
    ] {
        let error = fails(&mut session, text).await;
        let failure = error.failure();
        assert_eq!(
            (
                number(&error),
                failure.category,
                failure.blame,
                error.code()
            ),
            (expected, Category::Auth, Blame::Caller, Code::NotAllowed),
            "{text}"
        );
    }
}

#[tokio::test]
async fn what_the_caller_got_wrong_is_named_and_weighs_nothing() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    for text in [
        "CREATE TABLE p (id int PRIMARY KEY)",
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(3) NOT NULL, n int CHECK (n > 0), \
         p int, CONSTRAINT to_p FOREIGN KEY (p) REFERENCES p (id))",
        "INSERT INTO p VALUES (1)",
        "INSERT INTO t VALUES (1, 'a', 1, 1)",
    ] {
        rows(&mut session, text).await;
    }
    for (text, expected, code) in [
        (
            "INSERT INTO t VALUES (1, 'a', 1, 1)",
            1062,
            Code::Constraint,
        ),
        (
            "INSERT INTO t VALUES (2, NULL, 1, 1)",
            1048,
            Code::Constraint,
        ),
        ("INSERT INTO t (id) VALUES (2)", 1364, Code::Constraint),
        (
            "INSERT INTO t VALUES (2, 'a', 0, 1)",
            4025,
            Code::Constraint,
        ),
        (
            "INSERT INTO t VALUES (2, 'a', 1, 9)",
            1452,
            Code::Constraint,
        ),
        ("DELETE FROM p WHERE id = 1", 1451, Code::Constraint),
        (
            "INSERT INTO t VALUES (2, 'abcd', 1, 1)",
            1406,
            Code::BadValue,
        ),
        (
            "INSERT INTO t VALUES (9999999999, 'a', 1, 1)",
            1264,
            Code::BadValue,
        ),
        (
            "INSERT INTO t VALUES ('x', 'a', 1, 1)",
            1366,
            Code::BadValue,
        ),
        ("SELECT * FROM nowhere", 1146, Code::UnknownEntity),
        ("SELECT nothing FROM t", 1054, Code::UnknownColumn),
        ("SELEC 1", 1064, Code::BadStatement),
        ("SELECT * FROM nowhere.t", 1146, Code::UnknownEntity),
    ] {
        let error = fails(&mut session, text).await;
        assert_eq!((number(&error), error.code()), (expected, code), "{error}");
        let failure = error.failure();
        assert_eq!(
            (failure.blame, failure.weight(5), failure.category),
            (Blame::Caller, 0, Category::Persistent),
            "{error}"
        );
        assert!(error.sent().is_proven_harmless(), "{error}");
    }
    let place = |error: &SqlError, name: &str| {
        let found = error
            .detail()
            .place
            .iter()
            .find(|(kind, _)| *kind == "constraint");
        assert_eq!(
            found.map(|(_, name)| name.as_str()),
            Some(name),
            "{error:?}"
        );
    };
    place(
        &fails(&mut session, "INSERT INTO t VALUES (1, 'a', 1, 1)").await,
        "PRIMARY",
    );
    place(
        &fails(&mut session, "INSERT INTO t VALUES (2, 'a', 1, 9)").await,
        "to_p",
    );
}

#[tokio::test]
async fn an_error_of_a_table_without_transactions_may_have_done_a_part() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    for (table, engine, expected, left) in [
        ("whole", "InnoDB", Sent::YesUnprocessed, 0),
        ("parts", "MyISAM", Sent::Maybe, 1),
        ("crash safe", "Aria", Sent::Maybe, 1),
    ] {
        let made = format!("CREATE TABLE `{table}` (id int PRIMARY KEY) ENGINE = {engine}");
        rows(&mut session, &made).await;
        let insert = format!("INSERT INTO `{table}` VALUES (1), (1)");
        for _ in 0..2 {
            let error = fails(&mut session, &insert).await;
            assert_eq!((number(&error), error.sent()), (1062, expected), "{table}");
        }
        let count = value(&mut session, &format!("SELECT COUNT(*) FROM `{table}`")).await;
        assert_eq!(count, Value::I64(left), "{table}");
    }
}

#[tokio::test]
async fn statements_that_do_several_things_prove_nothing_by_an_error() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (id int PRIMARY KEY)").await;
    let procedure =
        "CREATE PROCEDURE twice() BEGIN INSERT INTO t VALUES (1); INSERT INTO t VALUES (1); END";
    rows(&mut session, procedure).await;
    let error = fails(&mut session, "CALL twice()").await;
    check(&error, (1062, Category::Persistent, Sent::Maybe));
    assert_eq!(
        value(&mut session, "SELECT COUNT(*) FROM t").await,
        Value::I64(1)
    );
    let error = fails(&mut session, "DROP TABLE t, nowhere").await;
    assert_eq!(
        (error.code(), error.sent()),
        (Code::UnknownEntity, Sent::Maybe)
    );
}

#[tokio::test]
async fn a_full_table_is_saturation() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "SET SESSION max_heap_table_size = 16384").await;
    let made = "CREATE TABLE small (v char(255)) ENGINE = MEMORY";
    rows(&mut session, made).await;
    let fill = "INSERT INTO small SELECT REPEAT('x', 255) FROM seq_1_to_1000";
    let error = fails(&mut session, fill).await;
    check(&error, (1114, Category::Saturation, Sent::Maybe));
}

#[tokio::test]
async fn too_many_prepared_statements_are_saturation() {
    let place = Place::with(MariadbOptions::new().setting("max_prepared_stmt_count", 2)).await;
    let mut session = place.writer().await;
    rows(&mut session, "SELECT 1").await;
    rows(&mut session, "SELECT 2").await;
    let error = fails(&mut session, "SELECT 3").await;
    check(&error, (1461, Category::Saturation, Sent::YesUnprocessed));
}

#[tokio::test]
async fn a_damaged_table_is_the_endpoints() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE broken (a int) ENGINE = MyISAM").await;
    rows(&mut session, "INSERT INTO broken VALUES (1), (2)").await;
    rows(&mut session, "FLUSH TABLES").await;
    let records = place.server.folder().join("data/test/broken.MYD");
    std::fs::write(&records, b"x").unwrap();
    let error = fails(&mut session, "SELECT * FROM broken").await;
    let failure = error.failure();
    assert_eq!(failure.category, Category::Endpoint, "{error}");
    assert_eq!(failure.blame, Blame::Endpoint);
}

#[tokio::test]
async fn a_server_that_goes_down_in_the_middle_may_have_done_it() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let own = id(&mut session).await;
    let (result, ()) = tokio::join!(run(&mut session, "DO SLEEP(60)", &[]), async {
        place.wait_until(own, "STATE = 'User sleep'").await;
        place.server.stop().await.unwrap();
    });
    let error = result.unwrap_err();
    assert_eq!(error.failure().category, Category::Transient, "{error}");
    assert_eq!(error.sent(), Sent::Maybe, "{error}");
    let again = tokio::time::timeout(Duration::from_secs(1), run(&mut session, "SELECT 1", &[]));
    let error = again.await.unwrap().unwrap_err();
    assert_eq!(error.sent(), Sent::No, "{error}");
}

#[tokio::test]
async fn more_parameters_than_the_protocol_counts_are_the_callers_mistake() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let text = format!("SELECT 1 WHERE 1 IN ({}?)", "?,".repeat(65_535));
    let values = vec![Value::I64(1); 65_536];
    let error = run(&mut session, &text, &values).await.unwrap_err();
    assert_eq!((error.code(), error.sent()), (Code::BadValue, Sent::No));
    // The server's own count.
    let error = run(&mut session, &text, &[]).await.unwrap_err();
    assert_eq!(
        (error.code(), number(&error), error.failure().blame),
        (Code::BadValue, 1390, Blame::Caller),
        "{error}"
    );
    assert_eq!(error.sent(), Sent::YesUnprocessed);
    assert!(error.detail().hint.is_some());
    assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1));
}
