use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mainstay_engine::{Blame, Sent};
use mainstay_sql::{Access, AnswerMax, BatchMax, Code, Driver, Value, Verdict};
use mainstay_sqlite::SqliteDriver;

use super::bench::{Bench, begin, run, scalar};

const FOREVER: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

/// Polls once, so that the request is handed over.
fn poll_once<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) {
    let polled = future.poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending), "it ended at once");
}

#[tokio::test]
async fn a_cancelled_statement_ends_neutral_and_the_connection_lives_on() {
    let (_bench, mut c) = Bench::with(&[]).await;
    let canceller = c.canceller();
    for _ in 0..20 {
        let mut running = c.run(FOREVER, &[], AnswerMax::default(), &|| ());
        poll_once(running.as_mut());
        canceller.cancel().await;
        let error = running.await.unwrap_err();
        assert_eq!(error.code(), Code::Cancelled);
        assert_eq!(error.detail().verdict, Verdict::Neutral);
        assert_eq!(error.sent(), Sent::YesUnprocessed);
        assert_eq!(error.failure().weight(5), 0);
        assert_eq!(scalar(&mut c, "SELECT 1").await, Value::I64(1));
    }
    assert!(!c.is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_cancel_never_hits_the_next_statement() {
    let (_bench, mut c) = Bench::with(&[]).await;
    let short = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT max(i) FROM n";
    let (mut hit, mut missed) = (0, 0);
    for round in 0..1000 {
        let canceller = c.canceller();
        let racing = std::thread::spawn(move || {
            let mut cancel = canceller.cancel();
            let polled = cancel
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_ready(), "a cancellation is delivered at once");
        });
        let length = [Value::I64(1 + round * 7 % 2000)];
        match c.run(short, &length, AnswerMax::default(), &|| ()).await {
            Ok(_) => missed += 1,
            Err(error) => {
                assert_eq!(error.code(), Code::Cancelled, "{error}");
                hit += 1;
            }
        }
        racing.join().unwrap();
        let answer = c
            .run(short, &length, AnswerMax::default(), &|| ())
            .await
            .unwrap();
        assert_eq!(answer.rows, [length]);
    }
    assert_eq!(hit + missed, 1000);
}

#[tokio::test]
async fn a_dropped_future_needs_a_clean_up_which_undoes_and_gives_the_connection_back() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
    {
        let mut running = pin!(c.run(FOREVER, &[], AnswerMax::default(), &|| ()));
        poll_once(running.as_mut());
    }
    let error = run(&mut c, "SELECT 1").await.unwrap_err();
    assert_eq!(error.code(), Code::Internal, "{error}");
    c.clean_up().await.unwrap();
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(0)
    );
    let mut other = bench.connect().await;
    run(&mut other, "INSERT INTO t VALUES (2)").await.unwrap();
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    c.rollback().await.unwrap();
}

#[tokio::test]
async fn a_begin_whose_caller_leaves_leaks_no_transaction() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let mut other = bench.connect().await;
    for _ in 0..200 {
        {
            // Whether the worker was quicker than this poll makes no difference.
            let begin = begin(Access::ReadWrite);
            let mut context = Context::from_waker(Waker::noop());
            let _ = c.begin(&begin).as_mut().poll(&mut context);
        }
        c.clean_up().await.unwrap();
        run(&mut other, "INSERT INTO t VALUES (1)").await.unwrap();
        run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
    }
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(400)
    );
}

#[tokio::test]
async fn a_stream_is_cancelled_in_the_middle() {
    let (_bench, mut c) = Bench::with(&[]).await;
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                   SELECT i FROM n WHERE i <= 3 OR i < 0";
    c.open(endless, &[], &|| ()).await.unwrap();
    let three = BatchMax {
        rows: 3,
        bytes: 1000,
    };
    assert_eq!(c.next_batch(three).await.unwrap().unwrap().rows.len(), 3);
    let canceller = c.canceller();
    let mut next = c.next_batch(three);
    poll_once(next.as_mut());
    canceller.cancel().await;
    let error = next.await.unwrap_err();
    assert_eq!(error.code(), Code::Cancelled);
    assert_eq!(scalar(&mut c, "SELECT 1").await, Value::I64(1));
}

#[tokio::test]
async fn waiting_for_a_lock_can_be_cancelled() {
    let (bench, mut holder) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let long = std::time::Duration::from_secs(600);
    let settings = bench.settings().busy_timeout(long);
    let mut c = bench
        .connect_with(settings, Access::ReadWrite)
        .await
        .unwrap();
    holder.begin(&begin(Access::ReadWrite)).await.unwrap();
    let canceller = c.canceller();
    {
        let mut writing = pin!(c.run(
            "INSERT INTO t VALUES (1)",
            &[],
            AnswerMax::default(),
            &|| ()
        ));
        poll_once(writing.as_mut());
        canceller.cancel().await;
        let error = writing.await.unwrap_err();
        assert_eq!(error.code(), Code::Cancelled);
    }
    holder.commit(&|| ()).await.unwrap();
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM t").await,
        Value::I64(0)
    );
}

#[tokio::test]
async fn a_dropped_connection_ends_its_statement_and_gives_its_locks_back() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    c.begin(&begin(Access::ReadWrite)).await.unwrap();
    run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
    {
        let mut running = pin!(c.run(FOREVER, &[], AnswerMax::default(), &|| ()));
        poll_once(running.as_mut());
    }
    drop(c);
    // Waits for the lock of the one that is going away.
    let settings = bench
        .settings()
        .busy_timeout(std::time::Duration::from_secs(60));
    let mut other = bench
        .connect_with(settings, Access::ReadWrite)
        .await
        .unwrap();
    run(&mut other, "INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(
        scalar(&mut other, "SELECT sum(a) FROM t").await,
        Value::I64(2)
    );
}

#[tokio::test]
async fn a_cancelled_write_ends_its_transaction_and_nothing_runs_outside_of_it() {
    let (_bench, mut c) = Bench::with(&["CREATE TABLE t(a)"]).await;
    let endless = "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                   SELECT i FROM n WHERE i < 0";
    let canceller = c.canceller();
    let mut lost = 0;
    for round in 0..50 {
        c.begin(&begin(Access::ReadWrite)).await.unwrap();
        run(&mut c, "INSERT INTO t VALUES (1)").await.unwrap();
        {
            let mut writing = c.run(endless, &[], AnswerMax::default(), &|| ());
            poll_once(writing.as_mut());
            // Later each time: sometimes the write has begun, sometimes it has not.
            (0..round).for_each(|_| std::thread::yield_now());
            canceller.cancel().await;
            let error = writing.await.unwrap_err();
            assert_eq!(error.code(), Code::Cancelled);
        }
        if let Err(error) = run(&mut c, "INSERT INTO t VALUES (2)").await {
            assert_eq!(error.code(), Code::TransactionLost);
            assert_eq!(error.sent(), Sent::YesUnprocessed);
            lost += 1;
        }
        c.rollback().await.unwrap();
        assert_eq!(
            scalar(&mut c, "SELECT count(*) FROM t").await,
            Value::I64(0)
        );
    }
    assert!(lost > 0, "no write was cancelled while it ran");
}

/// SQLite looks for an interrupt between the steps of its machine, and this is one step of a second or more.
const ONE_LONG_STEP: &str = "SELECT instr(zeroblob(400000), CAST(zeroblob(200000) || 'x' AS BLOB))";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_wait_for_threads_that_were_left_inside_one_long_function() {
    let bench = Bench::new();
    let driver = SqliteDriver::new(bench.settings()).unwrap();
    let mut held = driver.connect(Access::ReadWrite).await.unwrap();
    let mut left = Vec::new();
    for _ in 0..4 {
        left.push(driver.connect(Access::ReadOnly).await.unwrap());
    }
    for mut connection in left {
        let running = connection.run(ONE_LONG_STEP, &[], AnswerMax::default(), &|| ());
        let cut = tokio::time::timeout(Duration::from_millis(100), running).await;
        assert!(cut.is_err(), "it was too short for this test");
    }
    let opened = tokio::time::Instant::now();
    let next = driver.connect(Access::ReadOnly).await;
    let waited = opened.elapsed();
    match next {
        // They ended within the wait.
        Ok(_) => assert!(waited > Duration::from_millis(50), "{waited:?}"),
        Err(error) => {
            assert_eq!(error.failure().blame, Blame::Us, "{error}");
            assert_eq!(error.sent(), Sent::No);
        }
    }
    // Whoever has a connection goes on.
    assert_eq!(scalar(&mut held, "SELECT 1").await, Value::I64(1));
    let again = async { while driver.connect(Access::ReadOnly).await.is_err() {} };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, again).await.expect("they end");
}

#[tokio::test]
async fn threads_whose_opening_is_abandoned_end_although_the_file_stays_locked() {
    let bench = Bench::new();
    let holder = rusqlite::Connection::open(bench.path()).unwrap();
    holder
        .execute_batch("CREATE TABLE t(a); BEGIN EXCLUSIVE")
        .unwrap();
    let settings = bench.settings().busy_timeout(Duration::from_secs(600));
    let driver = SqliteDriver::new(settings).unwrap();
    let soon = Duration::from_millis(100);
    // More than may be left: each waits for the lock, and is not refused for those before it.
    for _ in 0..12 {
        let opening = driver.connect(Access::ReadWrite);
        assert!(tokio::time::timeout(soon, opening).await.is_err());
    }
    holder.execute_batch("COMMIT").unwrap();
    driver.connect(Access::ReadWrite).await.unwrap();
}
