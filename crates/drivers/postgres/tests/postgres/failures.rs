//! The errors of a real server, each read by the table.

use std::time::Duration;

use mainstay_engine::{Blame, Category, Sent};
use mainstay_sql::{Begin, Code, Connection, Isolation, SqlError, Verdict};

use super::place::{Place, pid, rows, run, wait_until};

type Box_ = Box<dyn Connection>;

async fn fails(session: &mut Box_, text: &str) -> SqlError {
    match run(session, text, &[]).await {
        Err(error) => error,
        Ok(answer) => panic!("{text}: {answer:?}"),
    }
}

pub(super) fn state(error: &SqlError) -> &str {
    error.failure().code.as_deref().unwrap_or("")
}

fn place<'a>(error: &'a SqlError, kind: &str) -> Option<&'a str> {
    error
        .detail()
        .place
        .iter()
        .find(|(k, _)| *k == kind)
        .map(|(_, name)| name.as_str())
}

async fn tables(place: &Place) -> Box_ {
    let mut session = place.writer().await;
    for text in [
        "CREATE TABLE parent (id int4 PRIMARY KEY, n int4 NOT NULL CONSTRAINT small CHECK (n < 100))",
        "CREATE TABLE child (id int4 PRIMARY KEY, parent int4 CONSTRAINT of_parent REFERENCES parent)",
        "INSERT INTO parent VALUES (1, 1), (2, 2)",
    ] {
        rows(&mut session, text).await;
    }
    session
}

#[tokio::test]
async fn the_callers_mistakes_are_the_callers_and_prove_that_nothing_happened() {
    let place = Place::new().await;
    let mut session = tables(&place).await;
    let table = [
        ("SELEC 1", "42601", Code::BadStatement),
        ("SELECT * FROM nowhere", "42P01", Code::UnknownEntity),
        ("SELECT nothing FROM parent", "42703", Code::UnknownColumn),
        ("SELECT nofunction()", "42883", Code::BadStatement),
        ("SELECT 1; SELECT 2", "42601", Code::BadStatement),
        ("SELECT n / 0 FROM parent", "22012", Code::BadValue),
        ("SELECT 'x'::int4", "22P02", Code::BadValue),
        (
            "INSERT INTO parent VALUES (3, 3000000000)",
            "22003",
            Code::BadValue,
        ),
        (
            "INSERT INTO parent VALUES (1, 1)",
            "23505",
            Code::Constraint,
        ),
        (
            "INSERT INTO parent VALUES (3, NULL)",
            "23502",
            Code::Constraint,
        ),
        (
            "INSERT INTO parent VALUES (3, 100)",
            "23514",
            Code::Constraint,
        ),
        ("INSERT INTO child VALUES (1, 9)", "23503", Code::Constraint),
        (
            "SELECT (SELECT id FROM parent)",
            "21000",
            Code::BadStatement,
        ),
        ("CREATE TABLE parent (a int4)", "42P07", Code::BadStatement),
        ("SELECT lastval()", "55000", Code::BadStatement),
        ("TABLE nowhere.t", "42P01", Code::UnknownEntity),
        (
            "CREATE TABLE nowhere.t (a int4)",
            "3F000",
            Code::BadStatement,
        ),
    ];
    for (text, sqlstate, code) in table {
        let error = fails(&mut session, text).await;
        assert_eq!(
            (state(&error), error.code()),
            (sqlstate, code),
            "{text}: {error}"
        );
        let failure = error.failure();
        assert_eq!(
            (failure.category, failure.blame),
            (Category::Persistent, Blame::Caller),
            "{text}"
        );
        assert_eq!(failure.sent, Sent::YesUnprocessed, "{text}");
    }
}

#[tokio::test]
async fn an_error_names_what_the_server_named() {
    let place_ = Place::new().await;
    let mut session = tables(&place_).await;
    let error = fails(&mut session, "INSERT INTO parent VALUES (1, 1)").await;
    assert_eq!(place(&error, "constraint"), Some("parent_pkey"));
    assert_eq!(place(&error, "table"), Some("parent"));
    assert_eq!(place(&error, "schema"), Some(place_.schema.as_str()));
    assert_eq!(
        place(&error, "detail"),
        Some("Key (id)=(1) already exists.")
    );
    let error = fails(&mut session, "INSERT INTO parent VALUES (3, NULL)").await;
    assert_eq!(place(&error, "column"), Some("n"));
    let error = fails(&mut session, "SELECT  nothing FROM parent").await;
    assert_eq!(place(&error, "position"), Some("9"));
    let error = fails(&mut session, "SELECT upper(1)").await;
    assert!(
        error
            .detail()
            .hint
            .as_deref()
            .unwrap()
            .contains("explicit type casts"),
        "{error}"
    );
}

#[tokio::test]
async fn statements_that_may_commit_midway_prove_nothing_by_an_error() {
    let place = Place::new().await;
    let mut session = tables(&place).await;
    rows(
        &mut session,
        "CREATE PROCEDURE half() LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO parent VALUES (7, 7); COMMIT; RAISE EXCEPTION 'after'; END $$",
    )
    .await;
    let error = fails(&mut session, "CALL half()").await;
    assert_eq!((state(&error), error.sent()), ("P0001", Sent::Maybe));
    assert_eq!(
        rows(&mut session, "SELECT 1 FROM parent WHERE id = 7")
            .await
            .len(),
        1
    );
    let error = fails(&mut session, "DO $$ BEGIN RAISE 'no'; END $$").await;
    assert_eq!(error.sent(), Sent::Maybe);
}

#[tokio::test]
async fn statements_that_are_undone_whole_prove_by_an_error_that_nothing_happened() {
    let place = Place::new().await;
    drop(tables(&place).await);
    let plain = mainstay_sql::Plain::new(
        std::sync::Arc::new(super::place::driver(place.settings.clone())),
        &mainstay_engine::Policy::preset(mainstay_engine::Preset::Balanced),
        mainstay_engine::tasks::Tasks::new(),
        mainstay_engine::Chance::seeded(7),
    );
    let (undone, unknown) = (Sent::YesUnprocessed, Sent::Maybe);
    for (text, number, sent) in [
        ("EXECUTE nothing", "26000", undone),
        ("FETCH 1 FROM nothing", "34000", undone),
        ("MOVE 1 IN nothing", "34000", undone),
        ("LOCK TABLE parent", "25P01", undone),
        ("LOAD 'nothing'", "58P01", undone),
        ("COPY parent FROM '/nowhere/at/all'", "58P01", undone),
        ("COPY parent TO '/nowhere/at/all'", "58P01", unknown),
        ("COPY parent FROM PROGRAM 'false'", "38000", unknown),
    ] {
        let ran = mainstay_sql::Verbs::execute(&plain, text, vec![], Default::default());
        let error = ran.await.unwrap_err();
        assert_eq!(
            (state(&error), error.sent()),
            (number, sent),
            "{text}: {error}"
        );
        let is_unknown = error.code() == Code::OutcomeUnknown;
        assert_eq!(is_unknown, sent == unknown, "{text}: {error}");
    }
}

#[tokio::test]
async fn a_block_that_may_not_commit_where_it_stands_is_the_callers() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    session.begin(&Begin::default()).await.unwrap();
    let error = fails(&mut session, "DO $$ BEGIN COMMIT; END $$").await;
    assert_eq!((state(&error), error.code()), ("2D000", Code::BadStatement));
    assert_eq!(error.failure().blame, Blame::Caller);
    session.rollback().await.unwrap();
}

#[tokio::test]
async fn a_missing_right_is_auth_and_the_callers() {
    let place = Place::new().await;
    let mut session = tables(&place).await;
    rows(&mut session, &format!("CREATE ROLE {}_user", place.schema)).await;
    rows(&mut session, &format!("SET ROLE {}_user", place.schema)).await;
    let error = fails(
        &mut session,
        &format!("SELECT * FROM {}.parent", place.schema),
    )
    .await;
    assert_eq!((state(&error), error.code()), ("42501", Code::NotAllowed));
    assert_eq!(
        (error.failure().category, error.failure().blame),
        (Category::Auth, Blame::Caller)
    );
}

#[tokio::test]
async fn a_read_only_session_is_kept_so_by_the_server() {
    let place = Place::new().await;
    tables(&place).await;
    let mut reader = place.reader().await;
    for text in [
        "INSERT INTO parent VALUES (5, 5)",
        "CREATE TABLE t (a int4)",
        "SELECT * FROM parent FOR UPDATE",
        "SELECT nextval('pg_catalog.nothing')",
        "WITH a AS (DELETE FROM parent RETURNING id) SELECT * FROM a",
    ] {
        let error = fails(&mut reader, text).await;
        if state(&error) != "42P01" {
            assert_eq!(
                (state(&error), error.detail().verdict),
                ("25006", Verdict::ReadOnly),
                "{text}"
            );
            assert_eq!(error.sent(), Sent::YesUnprocessed);
        }
    }
    let begin = Begin::default();
    assert!(
        reader.begin(&begin).await.is_err(),
        "a writing transaction on a read-only session"
    );
    assert_eq!(rows(&mut reader, "SELECT 1 FROM parent").await.len(), 2);
}

#[tokio::test]
async fn a_read_that_opens_its_session_for_writes_ends_it() {
    let place = Place::new().await;
    let mut writer = tables(&place).await;
    rows(
        &mut writer,
        "CREATE FUNCTION sly() RETURNS text STABLE LANGUAGE sql AS \
         $$ SELECT set_config('default_transaction_read_only', 'off', false) $$",
    )
    .await;
    let mut reader = place.reader().await;
    // The answer may still come; the session does not live to run another statement.
    let _ = run(&mut reader, "SELECT sly()", &[]).await;
    let error = fails(&mut reader, "INSERT INTO parent VALUES (5, 5)").await;
    assert!(reader.is_closed(), "{error}");
    assert_eq!(rows(&mut writer, "SELECT 1 FROM parent").await.len(), 2);
}

#[tokio::test]
async fn locks_that_time_out_are_contention_and_those_not_waited_for_are_the_callers() {
    let place = Place::new().await;
    let mut holder = tables(&place).await;
    let mut other = place.writer().await;
    holder.begin(&Begin::default()).await.unwrap();
    rows(&mut holder, "SELECT 1 FROM parent WHERE id = 1 FOR UPDATE").await;
    rows(&mut other, "SET lock_timeout = '50ms'").await;
    let error = fails(&mut other, "UPDATE parent SET n = 5 WHERE id = 1").await;
    assert_eq!((state(&error), error.code()), ("55P03", Code::Contention));
    assert_eq!(
        (error.failure().category, error.sent()),
        (Category::Contention, Sent::YesUnprocessed)
    );
    let error = fails(
        &mut other,
        "SELECT 1 FROM parent WHERE id = 1 FOR UPDATE NOWAIT",
    )
    .await;
    assert_eq!(
        (state(&error), error.failure().blame),
        ("55P03", Blame::Caller)
    );
    let error = fails(&mut other, "LOCK TABLE parent IN EXCLUSIVE MODE NOWAIT").await;
    assert_eq!(state(&error), "25P01");
    other.begin(&Begin::default()).await.unwrap();
    let error = fails(&mut other, "LOCK TABLE parent IN EXCLUSIVE MODE NOWAIT").await;
    assert_eq!(
        (state(&error), error.failure().category),
        ("55P03", Category::Persistent)
    );
    let error = fails(&mut other, "SELECT 1").await;
    assert_eq!(
        (state(&error), error.failure().blame),
        ("25P02", Blame::Caller)
    );
    other.rollback().await.unwrap();
    holder.rollback().await.unwrap();
}

#[tokio::test]
async fn a_deadlock_is_contention_for_one_of_the_two() {
    let place = Place::new().await;
    let (mut a, mut b) = (tables(&place).await, place.writer().await);
    for session in [&mut a, &mut b] {
        rows(session, "SET deadlock_timeout = '20ms'").await;
        session.begin(&Begin::default()).await.unwrap();
    }
    rows(&mut a, "UPDATE parent SET n = 3 WHERE id = 1").await;
    rows(&mut b, "UPDATE parent SET n = 3 WHERE id = 2").await;
    let (first, second) = tokio::join!(
        run(&mut a, "UPDATE parent SET n = 4 WHERE id = 2", &[]),
        async {
            let result = run(&mut b, "UPDATE parent SET n = 4 WHERE id = 1", &[]).await;
            b.rollback().await.unwrap();
            result
        }
    );
    let error = first.err().or(second.err()).expect("one of them lost");
    assert_eq!(
        (state(&error), error.failure().category),
        ("40P01", Category::Contention)
    );
    assert_eq!(error.sent(), Sent::YesUnprocessed);
}

#[tokio::test]
async fn a_serialization_conflict_is_contention() {
    let place = Place::new().await;
    let (mut a, mut b) = (tables(&place).await, place.writer().await);
    let begin = Begin {
        isolation: Isolation::RepeatableRead,
        ..Begin::default()
    };
    a.begin(&begin).await.unwrap();
    rows(&mut a, "SELECT * FROM parent").await;
    rows(&mut b, "UPDATE parent SET n = 9").await;
    let error = fails(&mut a, "UPDATE parent SET n = 8").await;
    assert_eq!(
        (state(&error), error.failure().category),
        ("40001", Category::Contention)
    );
    a.rollback().await.unwrap();
}

#[tokio::test]
async fn the_servers_own_time_limit_is_a_timeout_and_a_cancel_is_neutral() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "SET statement_timeout = '30ms'").await;
    let error = fails(&mut session, "SELECT pg_sleep(10)").await;
    assert_eq!(
        (state(&error), error.failure().category),
        ("57014", Category::Timeout)
    );
    assert_eq!(error.detail().verdict, Verdict::None);
    rows(&mut session, "SET statement_timeout = 0").await;
    let backend = pid(&mut session).await;
    let (error, ()) = tokio::join!(fails(&mut session, "SELECT pg_sleep(10)"), async {
        wait_until(backend, "state = 'active' AND wait_event = 'PgSleep'").await;
        super::place::server()
            .await
            .sql(&format!("SELECT pg_cancel_backend({backend})"))
            .await
            .unwrap();
    });
    assert_eq!(
        (state(&error), error.detail().verdict),
        ("57014", Verdict::Neutral)
    );
    assert_eq!(
        (error.code(), error.sent()),
        (Code::Cancelled, Sent::YesUnprocessed)
    );
}

#[tokio::test]
async fn a_plan_that_went_stale_is_prepared_again() {
    let place = Place::new().await;
    let mut session = tables(&place).await;
    rows(&mut session, "SELECT * FROM child").await;
    rows(&mut session, "ALTER TABLE child ADD COLUMN more int4").await;
    let error = fails(&mut session, "SELECT * FROM child").await;
    assert_eq!(
        (state(&error), error.detail().verdict),
        ("0A000", Verdict::PrepareAgain)
    );
    assert_eq!(error.sent(), Sent::YesUnprocessed);
    let answer = run(&mut session, "SELECT * FROM child", &[]).await.unwrap();
    assert_eq!(answer.columns.len(), 3);
}

#[tokio::test]
async fn running_out_of_something_is_saturation_or_the_callers_limit() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "SET temp_file_limit = '64kB'").await;
    rows(&mut session, "SET work_mem = '64kB'").await;
    let error = fails(
        &mut session,
        "SELECT n FROM generate_series(1, 100000) n ORDER BY n DESC",
    )
    .await;
    assert_eq!(
        (state(&error), error.failure().blame),
        ("53400", Blame::Caller)
    );
    rows(
        &mut session,
        "CREATE FUNCTION deep(n int4) RETURNS int4 LANGUAGE plpgsql AS \
         $$ BEGIN RETURN deep(n + 1); END $$",
    )
    .await;
    let error = fails(&mut session, "SELECT deep(1)").await;
    assert_eq!(
        (state(&error), error.failure().category),
        ("54001", Category::Persistent)
    );
}

#[tokio::test]
async fn what_shared_sessions_cannot_run_is_refused_before_it_is_sent() {
    let place = Place::new().await;
    let mut session = tables(&place).await;
    for text in [
        "COPY parent FROM STDIN",
        "COPY parent TO STDOUT",
        "DISCARD ALL",
        "DEALLOCATE ALL",
    ] {
        let error = fails(&mut session, text).await;
        assert_eq!(
            (error.code(), error.sent()),
            (Code::NotAvailable, Sent::No),
            "{text}"
        );
    }
    let error = fails(&mut session, "SELECT '\0'").await;
    assert_eq!((error.code(), error.sent()), (Code::BadStatement, Sent::No));
    assert_eq!(rows(&mut session, "SELECT 1").await.len(), 1);
}

#[tokio::test]
async fn an_idle_session_that_the_server_ends_is_found_before_it_is_used() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "SET idle_session_timeout = '20ms'").await;
    for _ in 0..500 {
        if session.is_closed() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let error = fails(&mut session, "SELECT 1").await;
    assert_eq!(
        (error.sent(), error.failure().category),
        (Sent::No, Category::Transient),
        "{error}"
    );
    assert!(
        error.to_string().contains("idle-session timeout"),
        "{error}"
    );
}
