use mainstay_engine::{Blame, Category, Sent, Severity};
use mainstay_sql::{Access, Code, Connection, SqlError, Value, Verdict};
use mainstay_testkit::until;

use super::bench::{Bench, begin, place, run, run_with, scalar};

fn code(error: &SqlError) -> &str {
    error.failure().code.as_deref().unwrap_or("")
}

#[tokio::test]
async fn busy_is_contention_and_proves_that_nothing_happened() {
    let (bench, mut a) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let mut b = bench.connect().await;
    a.begin(&begin(Access::ReadWrite)).await.unwrap();
    let error = run(&mut b, "INSERT INTO t VALUES (1)").await.unwrap_err();
    assert_eq!(
        (code(&error), error.code()),
        ("SQLITE_BUSY", Code::Contention)
    );
    assert_eq!(error.failure().category, Category::Contention);
    assert_eq!(error.sent(), Sent::YesUnprocessed);
    let error = b.begin(&begin(Access::ReadWrite)).await.unwrap_err();
    assert_eq!(code(&error), "SQLITE_BUSY");
    assert!(!b.is_closed());
    a.rollback().await.unwrap();
    run(&mut b, "INSERT INTO t VALUES (1)").await.unwrap();
}

#[tokio::test]
async fn locked_is_contention() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
    let error = run(&mut c, "PRAGMA wal_checkpoint").await.unwrap_err();
    assert_eq!(
        (code(&error), error.code()),
        ("SQLITE_LOCKED", Code::Contention)
    );
    assert_eq!(error.sent(), Sent::YesUnprocessed);
    c.commit(&|| ()).await.unwrap();
}

#[tokio::test]
async fn constraints_name_what_was_broken() {
    let (_bench, mut c) = Bench::with(&[
        "CREATE TABLE p(id INTEGER PRIMARY KEY)",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT UNIQUE, b INT NOT NULL DEFAULT 0, p REFERENCES p, \
         CONSTRAINT positive CHECK (b >= 0), UNIQUE (b, p))",
        "CREATE TABLE s(a INT) STRICT",
        "CREATE UNIQUE INDEX \"by half\" ON s(a / 2)",
        "CREATE TRIGGER g BEFORE DELETE ON t BEGIN SELECT RAISE(ABORT, 'never delete'); END",
        "INSERT INTO p VALUES (1)",
        "INSERT INTO t(id, a, b, p) VALUES (1, 1, 1, 1)",
        "INSERT INTO s VALUES (2)",
    ])
    .await;
    let table: [(&str, &str, &[&str], &[&str]); 9] = [
        (
            "INSERT INTO t(a) VALUES (1)",
            "SQLITE_CONSTRAINT_UNIQUE",
            &["a"],
            &[],
        ),
        (
            "INSERT INTO t(b, p) VALUES (1, 1)",
            "SQLITE_CONSTRAINT_UNIQUE",
            &["b", "p"],
            &[],
        ),
        (
            "INSERT INTO t(id) VALUES (1)",
            "SQLITE_CONSTRAINT_PRIMARYKEY",
            &["id"],
            &[],
        ),
        (
            "INSERT INTO t(b) VALUES (NULL)",
            "SQLITE_CONSTRAINT_NOTNULL",
            &["b"],
            &[],
        ),
        (
            "INSERT INTO t(b) VALUES (-1)",
            "SQLITE_CONSTRAINT_CHECK",
            &[],
            &["positive"],
        ),
        (
            "INSERT INTO t(p) VALUES (9)",
            "SQLITE_CONSTRAINT_FOREIGNKEY",
            &[],
            &[],
        ),
        (
            "INSERT INTO s VALUES ('x')",
            "SQLITE_CONSTRAINT_DATATYPE",
            &["a"],
            &[],
        ),
        (
            "INSERT INTO s VALUES (3)",
            "SQLITE_CONSTRAINT_UNIQUE",
            &[],
            &["by half"],
        ),
        ("DELETE FROM t", "SQLITE_CONSTRAINT_TRIGGER", &[], &[]),
    ];
    for (text, name, columns, constraints) in table {
        let error = run(&mut c, text).await.unwrap_err();
        assert_eq!(
            (code(&error), error.code()),
            (name, Code::Constraint),
            "{text}: {error}"
        );
        assert_eq!(place(&error, "column"), columns, "{text}");
        assert_eq!(place(&error, "constraint"), constraints, "{text}");
        assert_eq!(error.failure().blame, Blame::Caller);
        assert_eq!(error.failure().weight(5), 0);
        assert_eq!(error.sent(), Sent::YesUnprocessed);
    }
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(1)
    );
}

#[tokio::test]
async fn a_wrong_name_is_named() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let error = run(&mut c, "SELECT * FROM nope").await.unwrap_err();
    assert_eq!(error.code(), Code::BadStatement);
    assert_eq!(place(&error, "table"), ["nope"]);
    let error = run(&mut c, "SELECT b FROM t").await.unwrap_err();
    assert_eq!(place(&error, "column"), ["b"]);
    assert_eq!(place(&error, "position"), ["7"]);
}

#[tokio::test]
async fn a_deleted_file_takes_no_write_and_fails_the_health_check() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let mut second = bench.connect().await;
    let mut third = bench.connect().await;
    third.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut third, "INSERT INTO t VALUES (1)").await.unwrap();
    std::fs::remove_file(bench.path()).unwrap();
    let error = run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap_err();
    assert_eq!(code(&error), "SQLITE_READONLY_DBMOVED");
    assert_eq!(error.failure().category, Category::Endpoint);
    assert_eq!(error.detail().verdict, Verdict::None);
    assert_eq!(error.sent(), Sent::YesUnprocessed);
    assert!(c.is_closed(), "a new connection finds what is there now");
    let error = run(&mut c, "SELECT 1").await.unwrap_err();
    assert_eq!(error.sent(), Sent::No);
    let error = third.commit(&|| ()).await.unwrap_err();
    assert_eq!(
        (code(&error), error.sent()),
        ("SQLITE_READONLY_DBMOVED", Sent::YesUnprocessed)
    );
    let error = second.probe().await.unwrap_err();
    assert_eq!(error.failure().category, Category::Endpoint);
}

#[tokio::test]
async fn a_replaced_file_fails_the_health_check() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let mut second = bench.connect().await;
    std::fs::rename(bench.path(), bench.folder.path().join("old.db")).unwrap();
    std::fs::write(bench.path(), b"").unwrap();
    let error = c.probe().await.unwrap_err();
    assert_eq!(code(&error), "SQLITE_READONLY_DBMOVED");
    let error = second.check().await.unwrap_err();
    assert_eq!(error.failure().category, Category::Endpoint);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_critical_at_connect() {
    let bench = Bench::new();
    std::fs::write(bench.path(), vec![b'x'; 8192]).unwrap();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let Err(error) = bench.connect_with(bench.settings(), access).await else {
            panic!("opened garbage");
        };
        assert_eq!(code(&error), "SQLITE_NOTADB");
        assert_eq!(error.failure().severity, Severity::Critical);
        assert_eq!(error.sent(), Sent::No);
    }
}

#[tokio::test]
async fn a_damaged_page_is_critical_and_closes() {
    let bench = Bench::new();
    let settings = || bench.settings().pragma("journal_mode", "delete");
    let mut c = bench
        .connect_with(settings(), Access::ReadWrite)
        .await
        .unwrap();
    run(&mut c, "CREATE TABLE t(a)").await.unwrap();
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) \
                INSERT INTO t SELECT printf('%.*c', 100, 'x') FROM n";
    run(&mut c, fill).await.unwrap();
    let mut bytes = std::fs::read(bench.path()).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(bench.path(), bytes).unwrap();
    let mut c = bench
        .connect_with(settings(), Access::ReadWrite)
        .await
        .unwrap();
    let error = run(&mut c, "SELECT count(*), max(a) FROM t")
        .await
        .unwrap_err();
    assert!(code(&error).starts_with("SQLITE_CORRUPT"), "{error}");
    assert_eq!(error.failure().severity, Severity::Critical);
    assert!(c.is_closed());
}

#[tokio::test]
async fn a_folder_in_the_place_of_the_file_cannot_be_opened() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path()).unwrap();
    let Err(error) = bench
        .connect_with(bench.settings(), Access::ReadWrite)
        .await
    else {
        panic!("opened a folder");
    };
    assert_eq!(error.failure().category, Category::Endpoint, "{error}");
    assert!(code(&error).starts_with("SQLITE_CANTOPEN"), "{error}");
}

#[tokio::test]
async fn a_full_database_is_saturation_and_undoes_the_statement() {
    let (bench, _first) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let settings = bench.settings().pragma("max_page_count", "10");
    let mut c = bench
        .connect_with(settings, Access::ReadWrite)
        .await
        .unwrap();
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
    let big = [Value::Bytes(vec![7; 100_000].into())];
    let error = run_with(&mut c, "INSERT INTO t VALUES (?1)", &big)
        .await
        .unwrap_err();
    assert_eq!(
        (code(&error), error.failure().category),
        ("SQLITE_FULL", Category::Saturation)
    );
    assert_eq!(error.sent(), Sent::YesUnprocessed);
    c.rollback().await.unwrap();
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(0)
    );
}

#[tokio::test]
async fn a_value_that_is_too_big_is_the_callers() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let error = run(&mut c, "INSERT INTO t VALUES (zeroblob(2000000000))")
        .await
        .unwrap_err();
    assert_eq!(
        (code(&error), error.code()),
        ("SQLITE_TOOBIG", Code::BadValue)
    );
    assert_eq!(error.failure().blame, Blame::Caller);
    let error = run(&mut c, "INSERT INTO t(rowid) VALUES ('x')")
        .await
        .unwrap_err();
    assert_eq!(
        (code(&error), error.code()),
        ("SQLITE_MISMATCH", Code::BadValue)
    );
}

#[tokio::test]
async fn a_thousand_mistakes_of_the_caller_harm_no_connection() {
    let (_bench, mut c) =
        Bench::with(&["CREATE TABLE t(a UNIQUE)", "INSERT INTO t VALUES (1)"]).await;
    for text in ["SELEC", "SELECT * FROM nope", "INSERT INTO t VALUES (1)"]
        .iter()
        .cycle()
        .take(1000)
    {
        let error = run(&mut c, text).await.unwrap_err();
        assert_eq!(error.failure().weight(5), 0);
        assert!(!error.failure().moves_on());
    }
    assert!(!c.is_closed());
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(1)
    );
}

/// A read looks every 100 ms at most.
async fn until_moved(reader: &mut Box<dyn Connection>) {
    until("a read finds out", async || {
        let read = run(reader, "SELECT 1").await;
        read.is_err_and(|error| code(&error) == "SQLITE_READONLY_DBMOVED")
    })
    .await;
    assert!(reader.is_closed());
}

#[tokio::test]
async fn a_reader_of_a_deleted_or_replaced_file_counts_as_closed() {
    let (bench, _writer) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let aside = bench.folder.path().join("aside.db");
    let mut reader = bench.connect_read_only().await;
    let mut checked = bench.connect_read_only().await;
    run(&mut reader, "SELECT a FROM t").await.unwrap();
    assert!(!reader.is_closed());

    std::fs::rename(bench.path(), &aside).unwrap();
    until_moved(&mut reader).await;
    assert_eq!(
        code(&checked.probe().await.unwrap_err()),
        "SQLITE_READONLY_DBMOVED"
    );

    let mut reader = bench.connect_read_only().await;
    assert!(!reader.is_closed());
    std::fs::copy(&aside, bench.folder.path().join("new.db")).unwrap();
    std::fs::rename(bench.folder.path().join("new.db"), bench.path()).unwrap();
    until_moved(&mut reader).await;
}

#[tokio::test]
async fn no_value_grows_beyond_what_the_settings_allow() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let settings = bench.settings().value_max_bytes(10_000);
    let mut small = bench
        .connect_with(settings, Access::ReadOnly)
        .await
        .unwrap();
    let long = format!("SELECT '{}'", "x".repeat(20_000));
    for text in [
        "SELECT length(hex(zeroblob(9000)))",
        "SELECT zeroblob(10001)",
        &long,
    ] {
        let error = run(&mut small, text).await.unwrap_err();
        assert_eq!(
            (code(&error), error.code()),
            ("SQLITE_TOOBIG", Code::BadValue),
            "{error}"
        );
        assert_eq!(error.failure().weight(5), 0);
        let hint = error.detail().hint.as_deref().unwrap_or("");
        assert!(hint.contains("value_max_bytes"), "{hint}");
    }
    // The default.
    let error = run(&mut c, "SELECT hex(zeroblob(150000000))")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::BadValue);
    let answer = run(&mut c, "SELECT length(zeroblob(60000000))")
        .await
        .unwrap();
    assert_eq!(answer.rows[0][0], Value::I64(60_000_000));
    c.reset().await.unwrap();
    run(&mut c, "SELECT zeroblob(150000000)").await.unwrap_err();
}
