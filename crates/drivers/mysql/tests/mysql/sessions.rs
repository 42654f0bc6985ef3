//! What a session keeps, and what it gives back.

use mainstay_engine::Sent;
use mainstay_sql::stream::BatchMax;
use mainstay_sql::{Access, Begin, Code, Isolation, Value, Verdict};

use super::place::{Place, rows, run, value};

#[tokio::test]
async fn statements_are_kept_prepared_and_bounded() {
    let mut place = Place::new().await;
    place.settings.statements_max = 3;
    let mut session = place.writer().await;
    for n in 0..20 {
        rows(&mut session, &format!("SELECT {n}")).await;
    }
    let kept = place
        .server
        .value("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'PREPARED_STMT_COUNT'")
        .await
        .unwrap();
    assert!(kept.parse::<u32>().unwrap() <= 3, "{kept}");
}

#[tokio::test]
async fn a_reset_takes_variables_locks_and_settings_back() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    rows(&mut session, "SET @mine = 7").await;
    rows(&mut session, "SELECT GET_LOCK('mine', 1)").await;
    rows(&mut session, "SET @@time_zone = '+02:00'").await;
    session.reset().await.unwrap();
    assert_eq!(value(&mut session, "SELECT @mine").await, Value::Null);
    assert_eq!(
        value(&mut session, "SELECT IS_USED_LOCK('mine')").await,
        Value::Null
    );
    let error = run(&mut session, "CREATE TABLE t (a int)", &[])
        .await
        .unwrap_err();
    assert_eq!(error.detail().verdict, Verdict::ReadOnly);
    assert_eq!(
        value(&mut session, "SELECT @@time_zone").await,
        Value::Text("+00:00".into())
    );
}

#[tokio::test]
async fn a_read_only_session_that_a_function_opened_is_given_up() {
    let place = Place::new().await;
    let mut writer = place.writer().await;
    let opens = "CREATE FUNCTION opens() RETURNS int \
                 BEGIN SET @@session.tx_read_only = OFF; RETURN 1; END";
    rows(&mut writer, opens).await;
    let mut reader = place.reader().await;
    assert!(!reader.is_closed());
    assert_eq!(value(&mut reader, "SELECT opens()").await, Value::I64(1));
    assert!(reader.is_closed());
    let error = run(&mut reader, "SELECT 1", &[]).await.unwrap_err();
    assert_eq!(error.sent(), Sent::No);
}

#[tokio::test]
async fn statements_that_cannot_be_prepared_run_as_plain_text() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int)").await;
    for text in [
        "LOCK TABLES t READ",
        "UNLOCK TABLES",
        "PREPARE mine FROM 'SELECT 7'",
    ] {
        run(&mut session, text, &[])
            .await
            .unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    assert_eq!(value(&mut session, "EXECUTE mine").await, Value::I64(7));
}

#[tokio::test]
async fn a_procedure_gives_its_first_rows_and_leaves_the_session_usable() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let made = "CREATE PROCEDURE several(n int) BEGIN DO 1; SELECT n; SELECT n + 1, n + 2; END";
    rows(&mut session, made).await;
    for n in 0..3 {
        let answer = run(&mut session, "CALL several(?)", &[Value::I64(n)])
            .await
            .unwrap();
        assert_eq!(answer.rows, [[Value::I64(n)]]);
        assert_eq!(value(&mut session, "SELECT 5").await, Value::I64(5));
    }
    session.open("CALL several(1)", &[], &|| {}).await.unwrap();
    let max = BatchMax::default();
    let batch = session.next_batch(max).await.unwrap().unwrap();
    assert_eq!(batch.rows, [[Value::I64(1)]]);
    assert!(session.next_batch(max).await.unwrap().is_none());
    assert_eq!(value(&mut session, "SELECT 5").await, Value::I64(5));
}

#[tokio::test]
async fn generated_keys_and_returned_rows_are_given() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(
        &mut session,
        "CREATE TABLE t (id bigint AUTO_INCREMENT PRIMARY KEY, v int)",
    )
    .await;
    let answer = run(
        &mut session,
        "INSERT INTO t (v) VALUES (?)",
        &[Value::I64(1)],
    )
    .await
    .unwrap();
    assert_eq!(
        (answer.affected, answer.keys),
        (Some(1), vec![Value::I64(1)])
    );
    let returning = "INSERT INTO t (v) VALUES (2), (3) RETURNING id";
    let answer = run(&mut session, returning, &[]).await.unwrap();
    assert_eq!(answer.rows, [[Value::I64(2)], [Value::I64(3)]]);
    assert_eq!(answer.affected, Some(2));
    let same = run(&mut session, "UPDATE t SET v = 2 WHERE id = 2", &[])
        .await
        .unwrap();
    assert_eq!(same.affected, Some(1), "rows that were found count");
}

#[tokio::test]
async fn isolation_holds_for_one_transaction() {
    let place = Place::new().await;
    let (mut one, mut other) = (place.writer().await, place.writer().await);
    rows(&mut one, "CREATE TABLE t (a int)").await;
    for (isolation, seen) in [
        (Isolation::ReadCommitted, 1),
        (Isolation::RepeatableRead, 0),
        (Isolation::Default, 0),
    ] {
        rows(&mut other, "DELETE FROM t").await;
        let begin = Begin {
            isolation,
            ..Begin::default()
        };
        one.begin(&begin).await.unwrap();
        assert_eq!(
            value(&mut one, "SELECT COUNT(*) FROM t").await,
            Value::I64(0)
        );
        rows(&mut other, "INSERT INTO t VALUES (1)").await;
        let count = value(&mut one, "SELECT COUNT(*) FROM t").await;
        assert_eq!(count, Value::I64(seen), "{isolation:?}");
        one.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn ddl_commits_what_came_before_and_says_so_with_the_next_error() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int PRIMARY KEY)").await;
    session.begin(&Begin::default()).await.unwrap();
    rows(&mut session, "INSERT INTO t VALUES (1)").await;
    rows(&mut session, "CREATE TABLE u (a int)").await;
    rows(&mut session, "INSERT INTO t VALUES (2)").await;
    let error = run(&mut session, "INSERT INTO t VALUES (1)", &[])
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::Constraint, Sent::Maybe)
    );
    session.rollback().await.unwrap();
    let left = rows(&mut session, "SELECT a FROM t").await;
    assert_eq!(left, [[Value::I64(1)]], "what came after the DDL is undone");
    let error = run(&mut session, "INSERT INTO t VALUES (1)", &[])
        .await
        .unwrap_err();
    assert_eq!(error.sent(), Sent::YesUnprocessed);
}

#[tokio::test]
async fn a_session_kept_read_only_begins_no_transaction_that_writes() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    assert!(session.begin(&Begin::default()).await.is_err());
    let begin = Begin {
        access: Access::ReadOnly,
        ..Begin::default()
    };
    session.begin(&begin).await.unwrap();
    assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1));
    session.commit(&|| {}).await.unwrap();
}

#[tokio::test]
async fn a_stream_of_a_million_rows_is_read_in_bounded_batches() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    let max = BatchMax {
        rows: 1000,
        bytes: 64 << 10,
    };
    let columns = session
        .open("SELECT seq FROM seq_1_to_1000000", &[], &|| {})
        .await
        .unwrap();
    assert_eq!(&*columns[0].name, "seq");
    let (mut count, mut sum) = (0_u64, 0_u64);
    while let Some(batch) = session.next_batch(max).await.unwrap() {
        assert!(batch.rows.len() <= 1000);
        for row in &batch.rows {
            let Value::U64(number) = row[0] else {
                panic!("{row:?}");
            };
            sum += number;
        }
        count += batch.rows.len() as u64;
    }
    assert_eq!((count, sum), (1_000_000, 500_000_500_000));
    assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1));
}
