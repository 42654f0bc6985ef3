//! What callers' statements may not do.

use mainstay_engine::{Blame, Sent};
use mainstay_sql::{Access, Code, Value};

use super::bench::{Bench, begin, run, run_with, scalar};

#[tokio::test]
async fn a_statement_cannot_change_what_others_share() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let table = [
        ("pragma hard_heap_limit=1000000", "process"),
        ("PRAGMA Main.Hard_Heap_Limit(1000000)", "process"),
        ("PRAGMA soft_heap_limit = 1000000", "process"),
        ("PRAGMA temp_store_directory = '/tmp'", "SQLITE_TMPDIR"),
        ("PRAGMA data_store_directory = '/tmp'", "SQLITE_TMPDIR"),
        ("PRAGMA writable_schema = on", "CREATE, ALTER and DROP"),
        ("PRAGMA schema_version = 7", "CREATE, ALTER and DROP"),
        ("PRAGMA journal_mode = delete", "pragma.journal_mode"),
        ("PRAGMA locking_mode = exclusive", "pragma.locking_mode"),
        ("PRAGMA mmap_size = 1", "pragma.mmap_size"),
        ("PRAGMA cache_size = 1", "pragma.cache_size"),
        ("PRAGMA synchronous = off", "pragma.synchronous"),
        ("PRAGMA max_page_count = 1", "pragma.max_page_count"),
        ("PRAGMA query_only = off", "read_only"),
        ("PRAGMA busy_timeout = 100000", "busy_timeout_ms"),
        ("PRAGMA nonsense", "pragma.nonsense"),
        ("EXPLAIN PRAGMA hard_heap_limit = 1", "process"),
        ("ATTACH 'other.db' AS other", "source of its own"),
        ("ATTACH '' AS other", "source of its own"),
        ("ATTACH ':memory:' AS other", "source of its own"),
        ("ATTACH 'a' || 'b' AS other", "source of its own"),
        ("DETACH main", "source of its own"),
        ("SELECT load_extension('x')", "brings along"),
        ("SELECT fts3_tokenizer('simple')", "brings along"),
    ];
    for (text, hint) in table {
        let error = run(&mut c, text).await.unwrap_err();
        assert_eq!(error.code(), Code::BadStatement, "{text}: {error}");
        assert_eq!(error.sent(), Sent::No, "{text}");
        assert_eq!(error.failure().blame, Blame::Caller, "{text}");
        assert_eq!(error.failure().weight(5), 0, "{text}");
        let said = error.detail().hint.as_deref().unwrap_or("");
        assert!(said.contains(hint), "{text}: {said}");
        assert!(!c.is_closed(), "{text}");
    }
    let error = c.open("PRAGMA hard_heap_limit = 1", &[], &|| ()).await;
    assert_eq!(error.unwrap_err().code(), Code::BadStatement);
    run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
    let plain = bench.connect().await;
    assert!(!plain.is_closed());
}

#[tokio::test]
async fn a_copy_into_another_file_is_refused_and_plain_vacuum_is_not() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"]).await;
    let copy = bench.folder.path().join("copy.db");
    let name = [Value::Text(copy.display().to_string())];
    let text = format!("VACUUM INTO '{}'", copy.display());
    for error in [
        run(&mut c, &text).await.unwrap_err(),
        run_with(&mut c, "VACUUM INTO ?1", &name).await.unwrap_err(),
        run_with(&mut c, "ATTACH ?1 AS other", &name)
            .await
            .unwrap_err(),
    ] {
        assert_eq!(error.code(), Code::BadStatement, "{error}");
        assert_eq!(error.sent(), Sent::No);
    }
    assert!(!copy.exists());
    run(&mut c, "VACUUM").await.unwrap();
    assert_eq!(scalar(&mut c, "SELECT a FROM t").await, Value::I64(1));
}

#[tokio::test]
async fn no_function_and_no_trigger_leads_around_the_guard() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let error = run(&mut c, "SELECT * FROM pragma_hard_heap_limit")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::BadStatement, "{error}");
    let trigger = "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT load_extension(new.a); END";
    run(&mut c, trigger).await.unwrap();
    let error = run(&mut c, "INSERT INTO t VALUES ('x')").await.unwrap_err();
    assert_eq!((error.code(), error.sent()), (Code::BadStatement, Sent::No));
    // An error that comes later is told as it is.
    let error = run(&mut c, "SELECT nope").await.unwrap_err();
    assert!(error.to_string().contains("nope"), "{error}");
}

#[tokio::test]
async fn looking_and_upkeep_go_on() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a PRIMARY KEY)"]).await;
    for text in [
        "PRAGMA table_info(t)",
        "pragma TABLE_XINFO('t')",
        "PRAGMA index_list(t)",
        "PRAGMA foreign_key_list(t)",
        "PRAGMA database_list",
        "PRAGMA compile_options",
        "PRAGMA integrity_check",
        "PRAGMA main.quick_check(1)",
        "PRAGMA page_count",
        "PRAGMA page_size",
        "PRAGMA encoding",
        "PRAGMA journal_mode",
        "PRAGMA schema_version",
        "PRAGMA user_version = 7",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA optimize",
        "SELECT * FROM pragma_table_info('t')",
        "ANALYZE",
        "REINDEX",
        "ALTER TABLE t ADD COLUMN b",
        "CREATE VIRTUAL TABLE f USING fts5(x)",
    ] {
        run(&mut c, text).await.unwrap();
    }
    assert_eq!(scalar(&mut c, "PRAGMA user_version").await, Value::I64(7));
    c.begin(&begin(Access::ReadOnly)).await.unwrap();
    c.commit(&|| ()).await.unwrap();
    c.reset().await.unwrap();
    c.check().await.unwrap();
    let mut reader = bench.connect_read_only().await;
    reader.probe().await.unwrap();
    let error = run(&mut reader, "PRAGMA query_only = off")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::BadStatement);
}
