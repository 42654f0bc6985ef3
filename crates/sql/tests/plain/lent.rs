//! A closure on a lent connection.

use std::future::Future;
use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_sql::{Access, Code, Lent, Options, SqlError, Value, Verbs};
use mainstay_testkit::scripted::reply::{connection_lost, constraint_broken, contended};
use mainstay_testkit::scripted::{Happened, Point, Reply};

use super::{Bench, Safety};

/// The sessions that statements ran on, in order.
fn sessions_used(bench: &Bench) -> Vec<u64> {
    let log = bench.driver.log();
    log.iter()
        .filter_map(|happened| match happened {
            Happened::Called(session, Point::Run, _) => Some(*session),
            _ => None,
        })
        .collect()
}

async fn two_writes(mut lent: Lent) -> Result<u32, SqlError> {
    lent.execute("UPDATE t SET a = 1", vec![]).await?;
    lent.execute("UPDATE t SET a = 2", vec![]).await?;
    Ok(lent.attempt())
}

#[tokio::test(start_paused = true)]
async fn a_closure_has_one_connection_and_gives_its_result() {
    let bench = Bench::new();
    bench
        .driver
        .on_text("SELECT", Reply::rows(vec![vec![Value::I64(7)]]));
    let got = bench
        .plain
        .run(Safety::Write, Options::default(), |mut lent| async move {
            lent.execute("UPDATE t SET a = 1", vec![]).await?;
            lent.scalar("SELECT a FROM t", vec![]).await
        })
        .await;
    assert_eq!(got.unwrap(), Some(Value::I64(7)));
    assert_eq!(sessions_used(&bench), [1, 1]);
    assert_eq!(bench.driver.sessions()[0].access, Access::ReadWrite);
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn its_future_can_be_spawned_and_its_closure_may_borrow_nothing() {
    let bench = Bench::new();
    let plain = bench.plain.clone();
    let spawned = async move {
        plain
            .run(Safety::Write, Options::default(), two_writes)
            .await
    };
    let spawned: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(spawned);
    assert_eq!(spawned.await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_it_changes_in_the_session_ends_with_it() {
    let bench = Bench::new();
    let ended = bench
        .plain
        .run(Safety::Write, Options::default(), |mut lent| async move {
            lent.execute("SET work_mem = '1MB'", vec![]).await.map(drop)
        });
    ended.await.unwrap();
    bench.assert_clean().await;
    assert_eq!(bench.driver.counts().resets, 1);
}

#[tokio::test(start_paused = true)]
async fn it_may_not_begin_or_end_transactions_by_itself() {
    let bench = Bench::new();
    for text in ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a"] {
        let ended = bench
            .plain
            .run(Safety::Write, Options::default(), |mut lent| async move {
                lent.execute(text, vec![]).await
            });
        let error = ended.await.unwrap_err();
        assert_eq!((error.code(), error.sent()), (Code::BadStatement, Sent::No));
    }
    assert_eq!(bench.driver.counts().statements, 0);
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_is_declared_a_read_gets_a_read_only_session() {
    let bench = Bench::new();
    let ended = bench
        .plain
        .run(Safety::Read, Options::default(), two_writes);
    ended.await.unwrap();
    assert_eq!(bench.driver.sessions()[0].access, Access::ReadOnly);
}

#[tokio::test(start_paused = true)]
async fn an_error_says_what_all_statements_together_may_have_done() {
    for (earlier, reply, code, sent) in [
        (
            false,
            Reply::fails(constraint_broken()),
            Code::Constraint,
            Sent::YesUnprocessed,
        ),
        (
            false,
            Reply::fails(contended()),
            Code::Contention,
            Sent::YesUnprocessed,
        ),
        (
            true,
            Reply::fails(constraint_broken()),
            Code::Constraint,
            Sent::Maybe,
        ),
        (
            false,
            Reply::breaks(connection_lost()),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
    ] {
        let bench = Bench::new();
        if earlier {
            bench.driver.next(Point::Run, Reply::affected(1));
        }
        bench.driver.next(Point::Run, reply);
        let ended = bench
            .plain
            .run(Safety::Write, Options::default(), two_writes);
        let error = ended.await.unwrap_err();
        assert_eq!((error.code(), error.sent()), (code, sent), "{error}");
        bench.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_closure_itself_does_not_hide_what_it_had_done() {
    let bench = Bench::new();
    let mine = || SqlError::caller(Code::Conflict, "too many", "take fewer");
    let ended = bench
        .plain
        .run(Safety::Write, Options::default(), |mut lent| async move {
            lent.execute("UPDATE t SET a = 1", vec![]).await?;
            Err::<(), _>(mine())
        });
    let error = ended.await.unwrap_err();
    assert_eq!((error.code(), error.sent()), (Code::Conflict, Sent::Maybe));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_statement_takes_the_connection_with_it() {
    let bench = Bench::new();
    bench.driver.next(Point::Run, Reply::hangs());
    let ended = bench
        .plain
        .run(Safety::Write, Options::default(), |mut lent| async move {
            let slow = lent.execute("UPDATE t SET a = 1", vec![]);
            let _ = tokio::time::timeout(Duration::from_millis(10), slow).await;
            lent.execute("UPDATE t SET a = 2", vec![]).await.map(drop)
        });
    let error = ended.await.unwrap_err();
    assert_eq!((error.code(), error.sent()), (Code::Conflict, Sent::Maybe));
    assert_eq!(bench.driver.counts().statements, 1);
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_closure_is_cut_at_the_limit_of_its_attempt() {
    let bench = Bench::new();
    let began = tokio::time::Instant::now();
    let ended = bench
        .plain
        .run(Safety::Write, Options::default(), |mut lent| async move {
            lent.execute("UPDATE t SET a = 1", vec![]).await?;
            std::future::pending::<Result<(), SqlError>>().await
        });
    let error = ended.await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::OutcomeUnknown, Sent::Maybe)
    );
    assert!(began.elapsed() < Duration::from_millis(2500));
    bench.driver.next(Point::Run, Reply::hangs());
    let ended = bench
        .plain
        .run(Safety::Write, Options::default(), two_writes);
    let error = ended.await.unwrap_err();
    // The cancel at the server is the proof.
    assert_eq!(
        (error.code(), error.sent()),
        (Code::DeadlineExceeded, Sent::YesUnprocessed)
    );
    bench.assert_clean().await;
}
