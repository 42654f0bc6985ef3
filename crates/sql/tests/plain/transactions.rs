use std::time::Duration;

use mainstay_engine::{Category, Failure, Sent};
use mainstay_sql::{Begin, Code, Database, Dialect, Scope, SqlError, Transaction, Verdict};
use mainstay_testkit::scripted::reply::{connection_lost, constraint_broken, contended};
use mainstay_testkit::scripted::{Happened, Point, Reply};

use crate::{Bench, read, write};

async fn begin(bench: &Bench) -> Box<dyn Transaction> {
    bench
        .plain
        .begin(&Begin::default(), Scope::default())
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_transaction_commits_or_rolls_back_on_one_connection() {
    let bench = Bench::new();
    let mut transaction = begin(&bench).await;
    transaction
        .run(&write("INSERT INTO t VALUES (1)"))
        .await
        .unwrap();
    transaction.run(&read("SELECT 1")).await.unwrap();
    transaction.commit().await.unwrap();
    let mut transaction = begin(&bench).await;
    transaction
        .run(&write("INSERT INTO t VALUES (1)"))
        .await
        .unwrap();
    transaction.rollback().await.unwrap();
    bench.assert_clean().await;
    let counts = bench.driver.counts();
    assert_eq!(
        (counts.connects, counts.commits, counts.rollbacks),
        (1, 1, 1)
    );
    assert_eq!(counts.clean_ups, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_transaction_is_rolled_back() {
    let bench = Bench::new();
    drop(begin(&bench).await);
    bench.assert_clean().await;
    let counts = bench.driver.counts();
    assert_eq!((counts.begins, counts.commits, counts.rollbacks), (1, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_times_out_leaks_no_transaction() {
    let bench = Bench::new();
    bench.driver.next(Point::Begin, Reply::hangs());
    let error = bench
        .plain
        .begin(&Begin::default(), Scope::default())
        .await
        .err()
        .unwrap();
    assert_eq!(
        (error.failure().category, error.sent()),
        (Category::Timeout, Sent::YesUnprocessed)
    );
    bench.assert_clean().await;
    begin(&bench).await.commit().await.unwrap();
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_statement_postgres_takes_nothing_but_the_way_back() {
    let bench = Bench::new();
    let mut transaction = begin(&bench).await;
    transaction.savepoint("before").await.unwrap();
    bench
        .driver
        .next(Point::Run, Reply::fails(constraint_broken()));
    let error = transaction
        .run(&write("INSERT INTO t VALUES (1)"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Constraint);
    for _ in 0..2 {
        let error = transaction.run(&read("SELECT 1")).await.unwrap_err();
        assert_eq!(
            (error.code(), error.sent()),
            (Code::Conflict, Sent::YesUnprocessed)
        );
    }
    transaction.rollback_to("before").await.unwrap();
    transaction.run(&read("SELECT 1")).await.unwrap();
    transaction.release("before").await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(bench.driver.counts().commits, 1);

    let mut transaction = begin(&bench).await;
    bench.driver.next(Point::Run, Reply::fails(contended()));
    transaction
        .run(&write("UPDATE t SET a = 1"))
        .await
        .unwrap_err();
    let error = transaction.commit().await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::Conflict, Sent::YesUnprocessed)
    );
    assert_eq!(
        bench.driver.counts().commits,
        1,
        "a failed transaction is never committed"
    );
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_statement_sqlite_goes_on_if_the_transaction_stands() {
    let bench = Bench::of(Dialect::Sqlite);
    let mut transaction = begin(&bench).await;
    bench
        .driver
        .next(Point::Run, Reply::fails(constraint_broken()));
    transaction
        .run(&write("INSERT INTO t VALUES (1)"))
        .await
        .unwrap_err();
    transaction
        .run(&write("INSERT INTO t VALUES (2)"))
        .await
        .unwrap();
    bench.driver.next(Point::Run, Reply::fails(contended()));
    transaction
        .run(&write("INSERT INTO t VALUES (3)"))
        .await
        .unwrap_err();
    assert_eq!(
        transaction.run(&read("SELECT 1")).await.unwrap_err().code(),
        Code::Conflict
    );
    transaction.rollback().await.unwrap();
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_loses_the_transaction_and_says_that_nothing_happened() {
    let bench = Bench::new();
    let mut transaction = begin(&bench).await;
    bench
        .driver
        .next(Point::Run, Reply::breaks(connection_lost()));
    let error = transaction
        .run(&write("INSERT INTO t VALUES (1)"))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::TransactionLost, Sent::YesUnprocessed)
    );
    let error = transaction.run(&read("SELECT 1")).await.unwrap_err();
    assert_eq!(error.code(), Code::TransactionLost);
    let error = transaction.commit().await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::TransactionLost, Sent::YesUnprocessed)
    );
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_commit_says_what_is_known_about_it() {
    let busy = || {
        let failure = Failure::new(Category::Contention, "database is locked");
        SqlError::new(Code::Contention, failure.sent(Sent::Maybe)).verdict(Verdict::CommitAgain)
    };
    for (replies, code, sent) in [
        (
            vec![Reply::breaks(connection_lost())],
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
        (vec![Reply::hangs()], Code::OutcomeUnknown, Sent::Maybe),
        (
            vec![Reply::fails(contended())],
            Code::Contention,
            Sent::YesUnprocessed,
        ),
        (
            vec![Reply::fails(refused_before_sending()).hands_nothing_over()],
            Code::AttemptsFailed,
            Sent::YesUnprocessed,
        ),
        (
            vec![Reply::fails(busy()); 200],
            Code::Contention,
            Sent::YesUnprocessed,
        ),
    ] {
        let bench = Bench::new();
        let transaction = begin(&bench).await;
        for reply in replies.clone() {
            bench.driver.next(Point::Commit, reply);
        }
        let error = transaction.commit().await.unwrap_err();
        assert_eq!(
            (error.code(), error.sent()),
            (code, sent),
            "{:?}",
            replies[0]
        );
        bench.assert_clean().await;
    }
    let bench = Bench::of(Dialect::Sqlite);
    bench.driver.next(Point::Commit, Reply::fails(busy()));
    bench.driver.next(Point::Commit, Reply::fails(busy()));
    begin(&bench).await.commit().await.unwrap();
    assert_eq!(bench.driver.counts().commits, 1);
}

fn refused_before_sending() -> SqlError {
    let failure = Failure::new(Category::Transient, "broken pipe").sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
}

#[tokio::test(start_paused = true)]
async fn names_of_savepoints_are_checked_and_quoted() {
    let bench = Bench::new();
    let mut transaction = begin(&bench).await;
    transaction
        .savepoint("a\"; DROP TABLE t; --")
        .await
        .unwrap();
    let log = bench.driver.log();
    assert!(log.iter().any(|happened| matches!(happened,
        Happened::Called(_, _, text) if text == "SAVEPOINT \"a\"\"; DROP TABLE t; --\"")));
    for name in ["", "a\0b", &"x".repeat(64)] {
        assert_eq!(
            transaction.savepoint(name).await.unwrap_err().code(),
            Code::BadRequest
        );
    }
    transaction.rollback().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn control_statements_are_refused_inside_but_settings_are_allowed() {
    let bench = Bench::new();
    let mut transaction = begin(&bench).await;
    for text in ["COMMIT", "ROLLBACK", "SAVEPOINT a", "BEGIN"] {
        let error = transaction.run(&write(text)).await.unwrap_err();
        assert_eq!(error.code(), Code::BadStatement, "{text}");
    }
    transaction
        .run(&write("SET LOCAL work_mem = '1MB'"))
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    bench.assert_clean().await;
    assert_eq!(bench.driver.counts().resets, 1);
}

#[tokio::test(start_paused = true)]
async fn a_statement_is_cut_at_its_deadline_or_the_attempt_timeout_inside_a_transaction() {
    for (deadline, limit) in [
        (Some(Duration::from_millis(100)), 100),
        (Some(Duration::from_secs(5)), 5000),
        (None, 2000),
    ] {
        let bench = Bench::new();
        let mut transaction = begin(&bench).await;
        let mut slow = write("UPDATE t SET a = 1");
        slow.options.deadline = deadline;
        bench.driver.next(Point::Run, Reply::hangs());
        let began = tokio::time::Instant::now();
        let error = transaction.run(&slow).await.unwrap_err();
        assert_eq!(began.elapsed().as_millis(), limit);
        assert_eq!(
            (error.failure().category, error.sent()),
            (Category::Timeout, Sent::YesUnprocessed)
        );
        assert_eq!(
            transaction.run(&read("SELECT 1")).await.unwrap_err().code(),
            Code::Conflict
        );
        transaction.rollback().await.unwrap();
        bench.assert_clean().await;
    }
}
