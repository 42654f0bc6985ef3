use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_engine::{Blame, Sent};
use mainstay_sql::{AnswerMax, Code, Dialect, SqlError, Value};

use super::Fixture;
use super::bench::{Bench, Session};

/// The driver says that the first byte left: for what has an effect, and for what fails at the server.
pub async fn the_hand_over_is_told_before_the_effect(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench
        .table("conformance_handed", "id BIGINT PRIMARY KEY")
        .await;
    for works in [true, false] {
        let told = AtomicBool::new(false);
        let tell = || told.store(true, Ordering::Release);
        let text = "INSERT INTO conformance_handed VALUES (1)";
        let result = session.0.run(text, &[], AnswerMax::default(), &tell).await;
        assert_eq!(result.is_ok(), works);
        assert!(told.load(Ordering::Acquire), "works: {works}");
    }
}

/// INSERT, UPDATE and DELETE say how many rows they changed.
pub async fn affected_rows_are_counted(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench
        .table("conformance_affected", "id BIGINT PRIMARY KEY, n BIGINT")
        .await;
    for (text, affected) in [
        (
            "INSERT INTO conformance_affected VALUES (1, 1), (2, 2), (3, 3)",
            3,
        ),
        ("UPDATE conformance_affected SET n = 0 WHERE id < 3", 2),
        ("UPDATE conformance_affected SET n = 0 WHERE id > 9", 0),
        ("DELETE FROM conformance_affected", 3),
    ] {
        assert_eq!(
            session.run(text).await.unwrap().affected,
            Some(affected),
            "{text}"
        );
    }
}

/// The error is one of the caller: it weighs nothing, changed nothing, and leaves the session usable.
async fn assert_callers(
    session: &mut Session,
    result: Result<impl Sized, SqlError>,
    codes: &[Code],
) {
    let error = result.err().expect("it must fail");
    assert!(codes.contains(&error.code()), "{error}");
    assert_eq!(error.failure().blame, Blame::Caller, "{error}");
    assert_eq!(error.failure().weight(5), 0, "{error}");
    assert_ne!(error.sent(), Sent::Maybe, "{error}");
    session.assert_usable().await;
}

/// Unique, NOT NULL and CHECK.
pub async fn a_broken_constraint_is_the_callers_and_changes_nothing(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let columns = "id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL, n BIGINT CHECK (n > 0)";
    let mut session = bench.table("conformance_constraint", columns).await;
    session
        .run("INSERT INTO conformance_constraint VALUES (1, 'a', 1)")
        .await
        .unwrap();
    for values in [
        "(1, 'a', 1)",
        "(2, NULL, 1)",
        "(2, 'a', 0)",
        "(3, 'b', 1), (1, 'c', 1)",
    ] {
        let text = format!("INSERT INTO conformance_constraint VALUES {values}");
        let result = session.run(&text).await;
        assert_callers(&mut session, result, &[Code::Constraint]).await;
        assert_eq!(session.count("conformance_constraint").await, 1, "{values}");
    }
}

/// A missing table, a missing column, and text that is no SQL each have their code.
pub async fn unknown_names_and_bad_syntax_are_the_callers(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.table("conformance_names", "id BIGINT").await;
    for (text, code) in [
        ("SELECT * FROM conformance_missing", Code::UnknownEntity),
        (
            "INSERT INTO conformance_missing VALUES (1)",
            Code::UnknownEntity,
        ),
        ("SELECT missing FROM conformance_names", Code::UnknownColumn),
        ("SELEC 1", Code::BadStatement),
        ("SELECT * FROM", Code::BadStatement),
    ] {
        let result = session.run(text).await;
        // A database may have no code of its own for what is missing.
        assert_callers(&mut session, result, &[code, Code::BadStatement]).await;
    }
}

/// An open quote is refused.
pub async fn an_open_quote_is_refused(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.writer().await;
    for text in ["SELECT 'open", "SELECT \"open", "SELECT 1 /* open"] {
        let result = session.run(text).await;
        // SQLite ends an open comment at the end of the text, as its documentation says.
        if text.ends_with("/* open") && result.is_ok() {
            continue;
        }
        assert_callers(
            &mut session,
            result,
            &[Code::BadStatement, Code::UnknownColumn],
        )
        .await;
    }
}

/// A NUL byte in a text is refused; in a parameter it is refused or kept.
pub async fn a_nul_byte_is_refused(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.table("conformance_nul", "v TEXT").await;
    let result = session.run("SELECT 'a\0b'").await;
    let codes = [Code::BadStatement, Code::BadValue, Code::BadRequest];
    assert_callers(&mut session, result, &codes).await;
    let value = Value::Text("a\0b".to_owned());
    let insert = bench.sql("INSERT INTO conformance_nul VALUES ({})");
    let result = session
        .run_with(&insert, std::slice::from_ref(&value))
        .await;
    if result.is_err() {
        assert_callers(&mut session, result, &[Code::BadValue]).await;
    } else {
        let read = session.run("SELECT v FROM conformance_nul").await.unwrap();
        assert_eq!(read.rows, [[value]]);
    }
}

/// Too few and too many parameters.
pub async fn a_wrong_number_of_parameters_is_refused(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench
        .table("conformance_params", "a BIGINT, b BIGINT")
        .await;
    let text = bench.sql("INSERT INTO conformance_params VALUES ({}, {})");
    for count in [0, 1, 3] {
        let result = session.run_with(&text, &vec![Value::I64(1); count]).await;
        let codes = [Code::BadValue, Code::BadStatement, Code::BadRequest];
        assert_callers(&mut session, result, &codes).await;
    }
    assert_eq!(session.count("conformance_params").await, 0);
}

/// The second statement of a text is never left out in silence.
pub async fn two_statements_in_one_text_are_refused(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.table("conformance_two", "a BIGINT").await;
    let two = "INSERT INTO conformance_two VALUES (1); INSERT INTO conformance_two VALUES (2)";
    let result = session.run(two).await;
    assert_callers(
        &mut session,
        result,
        &[Code::BadStatement, Code::BadRequest],
    )
    .await;
    assert_eq!(session.count("conformance_two").await, 0);
}

/// Names in quotes may have any character; MySQL's none beyond the first 65536 of Unicode.
pub async fn unicode_names_are_taken_as_they_are(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.writer().await;
    let quote = |name| bench.dialect().quote(name);
    let name = match bench.dialect() {
        Dialect::MySql => "größe 長",
        _ => "größe 📏",
    };
    let (table, column) = (quote("naïve 表 \"q\""), quote(name));
    session
        .run(&format!("CREATE TABLE {table} ({column} TEXT)"))
        .await
        .unwrap();
    let insert = bench.sql(&format!("INSERT INTO {table} ({column}) VALUES ({{}})"));
    let value = Value::Text("ünïcödé 🙂".to_owned());
    session
        .run_with(&insert, std::slice::from_ref(&value))
        .await
        .unwrap();
    let read = session
        .run(&format!("SELECT {column} FROM {table}"))
        .await
        .unwrap();
    assert_eq!(&*read.columns[0].name, name);
    assert_eq!(read.rows, [[value]]);
}
