use mainstay_engine::{Category, Sent};
use mainstay_sql::{Access, Code, Value, Verdict};

use super::bench::{Bench, begin, run, scalar};

#[tokio::test]
async fn a_commit_keeps_and_a_rollback_forgets() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let mut other = bench.connect().await;
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
    assert_eq!(
        scalar(&mut other, "SELECT count(*) FROM t").await,
        Value::I64(0)
    );
    c.commit(&|| ()).await.unwrap();
    assert_eq!(
        scalar(&mut other, "SELECT count(*) FROM t").await,
        Value::I64(1)
    );

    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO t VALUES (2)").await.unwrap();
    c.rollback().await.unwrap();
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(1)
    );
    c.rollback().await.unwrap();
}

#[tokio::test]
async fn savepoints_are_plain_statements() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    for text in [
        "INSERT INTO t VALUES (1)",
        "SAVEPOINT \"s 1\"",
        "INSERT INTO t VALUES (2)",
        "ROLLBACK TO \"s 1\"",
        "RELEASE \"s 1\"",
    ] {
        run(&mut c, text).await.unwrap();
    }
    c.commit(&|| ()).await.unwrap();
    assert_eq!(scalar(&mut c, "SELECT sum(a) FROM t").await, Value::I64(1));
}

#[tokio::test]
async fn what_does_not_fit_the_transaction_is_a_conflict() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let error = c.commit(&|| ()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::Conflict, Sent::YesUnprocessed)
    );
    c.begin(&begin(Access::ReadOnly)).await.unwrap();
    let error = c.begin(&begin(Access::ReadOnly)).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict);
    let error = run(&mut c, "COMMIT").await.unwrap_err();
    assert_eq!(error.code(), Code::TransactionLost, "{error}");
    let error = c.commit(&|| ()).await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict, "a statement had ended it");
}

#[tokio::test]
async fn after_an_error_that_rolled_back_nothing_runs_outside_the_transaction() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a UNIQUE ON CONFLICT ROLLBACK)"]).await;
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
    let error = run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap_err();
    assert_eq!(error.code(), Code::Constraint);
    for _ in 0..2 {
        let error = run(&mut c, "INSERT INTO t VALUES (2)").await.unwrap_err();
        assert_eq!(
            (error.code(), error.sent()),
            (Code::TransactionLost, Sent::YesUnprocessed)
        );
    }
    let error = c.commit(&|| ()).await.unwrap_err();
    assert_eq!(error.code(), Code::TransactionLost);
    c.rollback().await.unwrap();
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(0)
    );
}

#[tokio::test]
async fn a_constraint_checked_at_commit_leaves_the_transaction_open() {
    let (_bench, mut c) = Bench::with(&[
        "CREATE TABLE p(id INTEGER PRIMARY KEY)",
        "CREATE TABLE c(p REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
    ])
    .await;
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO c VALUES (1)").await.unwrap();
    let error = c.commit(&|| ()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::Constraint, Sent::YesUnprocessed)
    );
    run(&mut c, "INSERT INTO p VALUES (1)").await.unwrap();
    c.commit(&|| ()).await.unwrap();
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM c").await,
        Value::I64(1)
    );
}

#[tokio::test]
async fn busy_at_commit_keeps_the_transaction_and_the_commit_succeeds_later() {
    let bench = Bench::new();
    let settings = || bench.settings().pragma("journal_mode", "delete");
    let mut writer = bench
        .connect_with(settings(), Access::ReadWrite)
        .await
        .unwrap();
    let mut reader = bench
        .connect_with(settings(), Access::ReadWrite)
        .await
        .unwrap();
    run(&mut writer, "CREATE TABLE t(a)").await.unwrap();
    writer.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut writer, "INSERT INTO t VALUES (1)").await.unwrap();
    reader.begin(&begin(Access::ReadOnly)).await.unwrap();
    assert_eq!(
        scalar(&mut reader, "SELECT count(*) FROM t").await,
        Value::I64(0)
    );

    for _ in 0..2 {
        let error = writer.commit(&|| ()).await.unwrap_err();
        assert_eq!(error.detail().verdict, Verdict::CommitAgain);
        assert_eq!(error.failure().category, Category::Contention);
        assert_eq!(error.sent(), Sent::YesUnprocessed);
    }
    reader.rollback().await.unwrap();
    writer.commit(&|| ()).await.unwrap();
    assert_eq!(
        scalar(&mut reader, "SELECT count(*) FROM t").await,
        Value::I64(1)
    );
}

#[tokio::test]
async fn a_snapshot_that_is_too_old_to_write_says_run_the_transaction_again() {
    let (bench, mut a) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let mut b = bench.connect().await;
    a.begin(&begin(Access::ReadOnly)).await.unwrap();
    scalar(&mut a, "SELECT count(*) FROM t").await;
    run(&mut b, "INSERT INTO t VALUES (1)").await.unwrap();
    let error = run(&mut a, "INSERT INTO t VALUES (2)").await.unwrap_err();
    assert_eq!(
        error.failure().code.as_deref(),
        Some("SQLITE_BUSY_SNAPSHOT")
    );
    assert_eq!(error.failure().category, Category::Contention);
    assert!(error.to_string().contains("run the transaction again"));
    a.rollback().await.unwrap();
    run(&mut a, "INSERT INTO t VALUES (2)").await.unwrap();
}
