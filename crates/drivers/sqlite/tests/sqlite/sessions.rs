use mainstay_engine::{Category, Sent};
use mainstay_sql::{Access, Position, Value, Verdict};
use mainstay_sqlite::SqliteSettings;

use super::bench::{Bench, begin, run, scalar};

#[tokio::test]
async fn a_session_has_the_settings_that_were_promised() {
    let (bench, mut c) = Bench::with(&[]).await;
    assert_eq!(
        scalar(&mut c, "PRAGMA journal_mode").await,
        Value::Text("wal".into())
    );
    assert_eq!(scalar(&mut c, "PRAGMA synchronous").await, Value::I64(1));
    assert_eq!(scalar(&mut c, "PRAGMA foreign_keys").await, Value::I64(1));
    assert_eq!(scalar(&mut c, "PRAGMA query_only").await, Value::I64(0));
    let settings = bench
        .settings()
        .pragma("synchronous", "full")
        .pragma("cache_size", "-321");
    let mut c = bench
        .connect_with(settings, Access::ReadWrite)
        .await
        .unwrap();
    assert_eq!(scalar(&mut c, "PRAGMA synchronous").await, Value::I64(2));
    assert_eq!(scalar(&mut c, "PRAGMA cache_size").await, Value::I64(-321));
}

#[tokio::test]
async fn a_missing_file_is_an_endpoint_error_and_is_not_made() {
    let bench = Bench::new();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let settings = SqliteSettings::new(bench.path());
        let Err(error) = bench.connect_with(settings, access).await else {
            panic!("opened a missing file");
        };
        assert_eq!(error.failure().category, Category::Endpoint);
        assert_eq!(error.sent(), Sent::No);
        assert_eq!(error.failure().code.as_deref(), Some("SQLITE_CANTOPEN"));
        assert!(!bench.path().exists());
    }
}

#[tokio::test]
async fn a_misspelt_pragma_is_an_error() {
    let bench = Bench::new();
    let settings = bench.settings().pragma("cache_sice", "1");
    let Err(error) = bench.connect_with(settings, Access::ReadWrite).await else {
        panic!("took an unknown pragma");
    };
    assert!(error.to_string().contains("cache_sice"), "{error}");
    assert_eq!(error.sent(), Sent::No);
}

#[tokio::test]
async fn a_read_only_session_reads_a_log_that_is_not_written_back_and_changes_nothing() {
    let (bench, mut writer) = Bench::with(&["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"]).await;
    let mut reader = bench.connect_read_only().await;
    assert_eq!(
        scalar(&mut reader, "SELECT count(*) FROM t").await,
        Value::I64(1)
    );
    for text in [
        "INSERT INTO t VALUES (2)",
        "DROP TABLE t",
        "CREATE TEMP TABLE x(a)",
        "PRAGMA user_version = 7",
        "BEGIN IMMEDIATE",
    ] {
        let error = run(&mut reader, text).await.unwrap_err();
        assert_eq!(error.detail().verdict, Verdict::ReadOnly, "{text}: {error}");
        assert_eq!(error.sent(), Sent::YesUnprocessed, "{text}");
        assert_eq!(error.failure().weight(5), 0, "{text}");
    }
    let error = reader.begin(&begin(Access::ReadWrite)).await.unwrap_err();
    assert_eq!(error.detail().verdict, Verdict::ReadOnly);
    let error = run(&mut reader, "PRAGMA query_only = off")
        .await
        .unwrap_err();
    assert_eq!(error.sent(), Sent::No, "{error}");
    run(&mut writer, "INSERT INTO t VALUES (3)").await.unwrap();
    assert_eq!(
        scalar(&mut reader, "SELECT count(*) FROM t").await,
        Value::I64(2)
    );
}

#[tokio::test]
async fn a_read_only_session_opens_first_and_without_the_files_of_the_log() {
    let (bench, mut writer) = Bench::with(&["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"]).await;
    run(&mut writer, "PRAGMA wal_checkpoint(TRUNCATE)")
        .await
        .unwrap();
    // A file in WAL mode as its last writer leaves it: no log, no index of the log.
    let alone = Bench::new();
    std::fs::copy(bench.path(), alone.path()).unwrap();
    let mut reader = alone.connect_read_only().await;
    assert_eq!(
        scalar(&mut reader, "SELECT count(*) FROM t").await,
        Value::I64(1)
    );
    let mut writer = alone.connect().await;
    assert_eq!(
        scalar(&mut writer, "PRAGMA journal_mode").await,
        Value::Text("wal".into())
    );
    run(&mut writer, "INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(
        scalar(&mut reader, "SELECT count(*) FROM t").await,
        Value::I64(2)
    );
}

#[tokio::test]
async fn a_read_only_session_recovers_the_log_that_a_crash_left() {
    let (bench, mut writer) = Bench::with(&["CREATE TABLE t(a)", "INSERT INTO t VALUES (1)"]).await;
    run(&mut writer, "INSERT INTO t VALUES (2)").await.unwrap();
    let crashed = Bench::new();
    for end in ["", "-wal"] {
        let name = format!("test.db{end}");
        std::fs::copy(
            bench.folder.path().join(&name),
            crashed.folder.path().join(&name),
        )
        .unwrap();
    }
    let mut reader = crashed.connect_read_only().await;
    assert_eq!(
        scalar(&mut reader, "SELECT count(*) FROM t").await,
        Value::I64(2)
    );
}

#[tokio::test]
async fn an_endpoint_can_be_read_only_as_a_whole() {
    let (bench, _writer) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let settings = bench.settings().read_only_endpoint(true);
    let mut c = bench
        .connect_with(settings, Access::ReadWrite)
        .await
        .unwrap();
    let error = run(&mut c, "INSERT INTO t VALUES (2)").await.unwrap_err();
    assert_eq!(error.detail().verdict, Verdict::ReadOnly);
}

#[tokio::test]
async fn a_reset_leaves_nothing_of_the_caller_behind() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    for text in [
        "CREATE TEMP TABLE x(a)",
        "PRAGMA foreign_keys = off",
        "PRAGMA recursive_triggers = on",
    ] {
        run(&mut c, text).await.unwrap();
    }
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
    c.reset().await.unwrap();
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM temp.sqlite_master").await,
        Value::I64(0)
    );
    assert_eq!(scalar(&mut c, "PRAGMA foreign_keys").await, Value::I64(1));
    assert_eq!(
        scalar(&mut c, "PRAGMA recursive_triggers").await,
        Value::I64(0)
    );
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(0)
    );
    // The new session can be cancelled too.
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    c.rollback().await.unwrap();
}

#[tokio::test]
async fn a_reset_gives_the_locks_of_a_file_without_a_log_back() {
    let bench = Bench::new();
    let settings = || bench.settings().pragma("journal_mode", "delete");
    let mut c = bench
        .connect_with(settings(), Access::ReadWrite)
        .await
        .unwrap();
    run(&mut c, "CREATE TABLE t(a)").await.unwrap();
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO t VALUES (0)").await.unwrap();
    c.reset().await.unwrap();
    let mut other = bench
        .connect_with(settings(), Access::ReadWrite)
        .await
        .unwrap();
    run(&mut other, "INSERT INTO t VALUES (1)").await.unwrap();
}

#[tokio::test]
async fn a_missing_file_is_made_for_a_reader_too() {
    let bench = Bench::new();
    let mut reader = bench.connect_read_only().await;
    run(&mut reader, "SELECT count(*) FROM sqlite_master")
        .await
        .unwrap();
    let mut writer = bench.connect().await;
    run(&mut writer, "CREATE TABLE t(a)").await.unwrap();
    run(&mut reader, "SELECT a FROM t").await.unwrap();
}

#[tokio::test]
async fn a_probe_says_what_sqlite_knows() {
    let (_bench, mut c) = Bench::with(&[]).await;
    let probe = c.probe().await.unwrap();
    assert_eq!(probe.is_primary, None);
    assert_eq!(probe.position, Some(Position::Shared));
    assert_eq!(c.position().await.unwrap(), Some(Position::Shared));
    c.check().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn the_history_of_a_session_is_that_of_its_file() {
    let (bench, mut first) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let mut second = bench.connect_read_only().await;
    let (_other, mut elsewhere) = Bench::with(&[]).await;
    let history = first.lineage().await.unwrap().history;
    assert!(history.is_some());
    assert_eq!(second.lineage().await.unwrap().history, history);
    assert_ne!(elsewhere.lineage().await.unwrap().history, history);

    // Another file takes its place: what was committed is not there.
    let moved = bench.folder.path().join("old.db");
    std::fs::rename(bench.path(), moved).unwrap();
    let mut replaced = bench.connect().await;
    assert_ne!(replaced.lineage().await.unwrap().history, history);
}
