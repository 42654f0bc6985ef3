use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_engine::Sent;
use mainstay_sql::{AnswerMax, BatchMax, Code, ColumnType, Value};

use super::bench::{Bench, run, run_with, scalar};

#[tokio::test]
async fn an_answer_has_columns_rows_counts_and_keys() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT)"]).await;
    let insert = "INSERT INTO t(name) VALUES (?1)";
    let answer = run_with(&mut c, insert, &[Value::Text("a".into())])
        .await
        .unwrap();
    assert_eq!(answer.affected, Some(1));
    assert_eq!(answer.keys, [Value::I64(1)]);
    assert!(answer.columns.is_empty() && answer.rows.is_empty());

    let answer = run(&mut c, "UPDATE t SET name = 'b' WHERE id = 7")
        .await
        .unwrap();
    assert_eq!((answer.affected, answer.keys.len()), (Some(0), 0));

    let answer = run(&mut c, "SELECT id, name, 1 + 1 AS two FROM t")
        .await
        .unwrap();
    let columns: Vec<_> = answer
        .columns
        .iter()
        .map(|c| (&*c.name, &c.column_type, &*c.native))
        .collect();
    let expected = [
        ("id", &ColumnType::I64, "INTEGER"),
        ("name", &ColumnType::Text, "TEXT"),
        ("two", &ColumnType::Any, ""),
    ];
    assert_eq!(columns, expected);
    assert_eq!(
        answer.rows,
        [[Value::I64(1), Value::Text("a".into()), Value::I64(2)]]
    );
    assert_eq!(answer.affected, None);

    let empty = run(&mut c, "SELECT id FROM t WHERE id < 0").await.unwrap();
    assert_eq!((empty.columns.len(), empty.rows.len()), (1, 0));
}

#[tokio::test]
async fn a_key_is_given_only_where_it_is_that_of_the_row() {
    let (_bench, mut c) = Bench::with(&[
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE)",
        "CREATE TABLE without(id TEXT PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE plain(a INT)",
        "CREATE TABLE texts(id TEXT PRIMARY KEY)",
        "CREATE VIEW v AS SELECT a FROM t",
        "CREATE TRIGGER g INSTEAD OF INSERT ON v BEGIN INSERT INTO t(a) VALUES (new.a + 100); END",
        "INSERT INTO t(id, a) VALUES (41, 1)",
    ])
    .await;
    let table: [(&str, Option<u64>, &[i64]); 10] = [
        ("INSERT INTO t(a) VALUES (2)", Some(1), &[42]),
        ("INSERT INTO t(a) VALUES (3), (4)", Some(2), &[]),
        ("INSERT OR IGNORE INTO t(a) VALUES (2)", Some(0), &[]),
        (
            "INSERT INTO t(a) VALUES (2) ON CONFLICT(a) DO UPDATE SET a = 20",
            Some(1),
            &[],
        ),
        ("REPLACE INTO t(id, a) VALUES (50, 3)", Some(1), &[50]),
        ("INSERT INTO without VALUES ('x')", Some(1), &[]),
        ("INSERT INTO plain VALUES (1)", Some(1), &[]),
        ("INSERT INTO texts VALUES ('x')", Some(1), &[]),
        ("INSERT INTO v VALUES (9)", None, &[]),
        ("CREATE TABLE later(a)", None, &[]),
    ];
    for (text, affected, keys) in table {
        let answer = run(&mut c, text).await.unwrap();
        if affected.is_some() || text.starts_with("CREATE") {
            assert_eq!(answer.affected, affected, "{text}");
        }
        let keys: Vec<_> = keys.iter().map(|key| Value::I64(*key)).collect();
        assert_eq!(answer.keys, keys, "{text}");
    }
}

#[tokio::test]
async fn returning_gives_rows_and_a_count() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(id INTEGER PRIMARY KEY, a INT)"]).await;
    let text = "INSERT INTO t(a) VALUES (5), (6) RETURNING id, a";
    let answer = run(&mut c, text).await.unwrap();
    let row = |id, a| vec![Value::I64(id), Value::I64(a)];
    assert_eq!(answer.rows, [row(1, 5), row(2, 6)]);
    assert_eq!(answer.affected, Some(2));
}

#[tokio::test]
async fn a_changed_schema_is_seen_by_kept_statements() {
    let (bench, mut a) = Bench::with(&["CREATE TABLE t(x INT)", "INSERT INTO t VALUES (1)"]).await;
    let mut b = bench.connect().await;
    let all = "SELECT * FROM t";
    assert_eq!(run(&mut a, all).await.unwrap().columns.len(), 1);
    assert_eq!(run(&mut b, all).await.unwrap().columns.len(), 1);
    run(&mut a, "ALTER TABLE t ADD COLUMN y BOOLEAN DEFAULT 1")
        .await
        .unwrap();
    for c in [&mut a, &mut b] {
        let answer = run(c, all).await.unwrap();
        assert_eq!(answer.columns.len(), 2);
        assert_eq!(answer.rows, [[Value::I64(1), Value::Bool(true)]]);
    }
    // The same names with other types and no key any more.
    run(&mut b, "DROP TABLE t").await.unwrap();
    run(&mut b, "CREATE TABLE t(x BOOLEAN, y INT)")
        .await
        .unwrap();
    run(&mut b, "INSERT INTO t VALUES (1, 1)").await.unwrap();
    let answer = run(&mut a, all).await.unwrap();
    assert_eq!(answer.rows, [[Value::Bool(true), Value::I64(1)]]);
}

#[tokio::test]
async fn statements_that_make_no_sense_are_refused_with_a_hint() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let table = [
        ("", "no statement"),
        ("-- nothing", "no statement"),
        ("SELECT 1; SELECT 2", "more than one statement"),
        (
            "INSERT INTO t VALUES (1); DROP TABLE t",
            "more than one statement",
        ),
        ("SELECT 'open", "unrecognized token"),
        ("SELEC 1", "syntax error"),
        ("SELECT ?1", "parameters: the statement takes 1 and got 0"),
        ("SELECT 'a\0b'", "NUL byte"),
    ];
    for (text, expected) in table {
        let error = run(&mut c, text).await.unwrap_err();
        assert_eq!(error.code(), Code::BadStatement, "{text}");
        assert_ne!(error.sent(), Sent::Maybe, "{text}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.detail().hint.is_some(), "{error}");
        assert_eq!(error.failure().weight(5), 0);
    }
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(0)
    );
    assert_eq!(
        scalar(&mut c, "SELECT 1; -- with a remark").await,
        Value::I64(1)
    );
    assert!(!c.is_closed());
}

#[tokio::test]
async fn an_answer_beyond_its_bounds_is_refused_and_a_change_says_that_it_happened() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a TEXT)"]).await;
    let rows = |rows| AnswerMax {
        rows,
        bytes: u64::MAX,
    };
    let bytes = AnswerMax {
        rows: u64::MAX,
        bytes: 100,
    };
    let three = "INSERT INTO t VALUES (1), (2), (3) RETURNING a";
    let error = c.run(three, &[], rows(2), &|| ()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::AnswerTooLarge, Sent::Maybe)
    );
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(3)
    );

    let error = c
        .run("SELECT a FROM t", &[], rows(2), &|| ())
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::AnswerTooLarge, Sent::YesUnprocessed)
    );
    let exact = c
        .run("SELECT a FROM t", &[], rows(3), &|| ())
        .await
        .unwrap();
    assert_eq!(exact.rows.len(), 3);
    let big = "SELECT printf('%.*c', 101, 'x')";
    let error = c.run(big, &[], bytes, &|| ()).await.unwrap_err();
    assert_eq!(error.code(), Code::AnswerTooLarge);
}

#[tokio::test]
async fn handing_over_is_reported_once_and_not_for_what_stays_here() {
    let (_bench, mut c) = Bench::with(&[]).await;
    let count = AtomicU32::new(0);
    let mark = || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    c.run("SELECT 1", &[], AnswerMax::default(), &mark)
        .await
        .unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let bad = [Value::F64(f64::NAN)];
    c.run("SELECT ?1", &bad, AnswerMax::default(), &mark)
        .await
        .unwrap_err();
    c.open("SELECT '\0'", &[], &mark).await.unwrap_err();
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

const NUMBERS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) \
                       SELECT i FROM n";

#[tokio::test]
async fn a_stream_gives_every_row_in_batches_within_bounds() {
    let (_bench, mut c) = Bench::with(&[]).await;
    let columns = c.open(NUMBERS, &[], &|| ()).await.unwrap();
    assert_eq!(&*columns[0].name, "i");
    let mut next = 1;
    let max = BatchMax {
        rows: 300,
        bytes: 1000,
    };
    while let Some(batch) = c.next_batch(max).await.unwrap() {
        let full = 1000_usize.div_ceil(Value::I64(1).size());
        assert!(batch.rows.len() <= full, "{} rows", batch.rows.len());
        for row in batch.rows {
            assert_eq!(row, [Value::I64(next)]);
            next += 1;
        }
    }
    assert_eq!(next, 10_001);
    let error = c.next_batch(max).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict, "the statement has ended");
    assert_eq!(scalar(&mut c, "SELECT 1").await, Value::I64(1));
}

#[tokio::test]
async fn a_stream_that_is_left_ends_with_the_next_request() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)", "INSERT INTO t VALUES (1), (2)"]).await;
    let one = BatchMax { rows: 1, bytes: 1 };
    c.open("SELECT a FROM t", &[], &|| ()).await.unwrap();
    assert_eq!(c.next_batch(one).await.unwrap().unwrap().rows.len(), 1);
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(2)
    );
    // Its snapshot is gone as well: the log can be written back whole.
    let mut other = bench.connect().await;
    let checkpoint = run(&mut other, "PRAGMA wal_checkpoint(TRUNCATE)")
        .await
        .unwrap();
    assert_eq!(checkpoint.rows[0][0], Value::I64(0));
    let error = c.next_batch(one).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
}

#[tokio::test]
async fn an_empty_stream_has_columns_and_no_batch() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a DATE, b)"]).await;
    let columns = c.open("SELECT * FROM t", &[], &|| ()).await.unwrap();
    assert_eq!(columns[0].column_type, ColumnType::Date);
    assert!(c.next_batch(BatchMax::default()).await.unwrap().is_none());
    let columns = c
        .open("INSERT INTO t VALUES (1, 2)", &[], &|| ())
        .await
        .unwrap();
    assert!(columns.is_empty());
    assert!(c.next_batch(BatchMax::default()).await.unwrap().is_none());
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(1)
    );
}
