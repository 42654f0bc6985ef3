//! Cancels hit what they are meant for, and never what comes after.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::{Either, select};
use mainstay_engine::{Chance, Sent};
use mainstay_sql::{AnswerMax, Code, Value, Verdict};

use super::place::{Place, pid, rows, run, value, wait_until};

#[tokio::test]
async fn a_cancelled_statement_ends_neutral_and_proven() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let backend = pid(&mut session).await;
    let canceller = session.canceller();
    let (result, ()) = tokio::join!(run(&mut session, "SELECT pg_sleep(60)", &[]), async {
        wait_until(backend, "wait_event = 'PgSleep'").await;
        canceller.cancel().await;
    });
    let error = result.unwrap_err();
    assert_eq!(
        (error.code(), error.detail().verdict, error.sent()),
        (Code::Cancelled, Verdict::Neutral, Sent::YesUnprocessed)
    );
    assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1));
}

#[tokio::test]
async fn a_cancel_of_an_idle_session_hits_nothing() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let canceller = session.canceller();
    for n in 0..50 {
        canceller.cancel().await;
        assert_eq!(
            value(&mut session, &format!("SELECT {n}")).await,
            Value::I64(n)
        );
    }
}

/// Statements that end on their own about when their cancel arrives; the next one is never hit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_cancel_never_hits_the_next_statement() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let seed = 7;
    let chance = Chance::seeded(seed);
    let (mut cancelled, mut finished) = (0, 0);
    for race in 0..1000 {
        let canceller = session.canceller();
        let pause = Duration::from_micros(chance.draw() % 4000);
        let statement = "SELECT pg_sleep(0.003)";
        let cancel = async {
            tokio::time::sleep(pause).await;
            canceller.cancel().await;
        };
        let cancel = pin!(cancel);
        let (result, rest) = {
            let work = pin!(session.run(statement, &[], AnswerMax::default(), &|| {}));
            match select(work, cancel).await {
                Either::Left((result, cancel)) => (result, Some(cancel)),
                Either::Right(((), work)) => (work.await, None),
            }
        };
        match result {
            Ok(_) => finished += 1,
            Err(error) => {
                assert_eq!(error.code(), Code::Cancelled, "race {race}: {error}");
                cancelled += 1;
            }
        }
        // The cancel may be on its way still: half of them are held without being driven, half are dropped.
        let held = rest.filter(|_| race % 2 == 0);
        let next = session.run(
            "SELECT pg_sleep(0.0001), 5",
            &[],
            AnswerMax::default(),
            &|| {},
        );
        let answer = next
            .await
            .unwrap_or_else(|e| panic!("race {race} of seed {seed}: the next was hit: {e}"));
        let _ = held;
        assert_eq!(answer.rows[0][1], Value::I64(5));
    }
    assert!(
        cancelled > 50 && finished > 50,
        "no race: {cancelled} cancelled, {finished} finished"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_dropped_at_any_moment_is_cleaned_up_and_hits_nothing_after() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int4)").await;
    let seed = 11;
    let chance = Chance::seeded(seed);
    for race in 0..300 {
        let pause = Duration::from_micros(chance.draw() % 2000);
        // Every tenth text is new, so that prepares are dropped half way as well.
        let statement = if race % 10 == 0 {
            format!("SELECT pg_sleep(0.001), {race}")
        } else {
            "SELECT pg_sleep(0.001)".into()
        };
        let work = run(&mut session, &statement, &[]);
        let _ = tokio::time::timeout(pause, work).await;
        session
            .clean_up()
            .await
            .unwrap_or_else(|e| panic!("race {race} of seed {seed}: {e}"));
        assert_eq!(
            value(&mut session, "SELECT 3").await,
            Value::I64(3),
            "race {race}"
        );
    }
    assert!(!session.is_closed());
}

#[tokio::test]
async fn a_long_statement_dropped_before_it_was_sent_does_not_hold_the_clean_up() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "SELECT 1").await;
    run(&mut session, "SELECT pg_sleep($1)", &[Value::F64(0.0)])
        .await
        .unwrap();
    let begin = tokio::time::Instant::now();
    for _ in 0..3 {
        {
            let params = [Value::F64(60.0)];
            let mut work = pin!(run(&mut session, "SELECT pg_sleep($1)", &params));
            let mut cx = Context::from_waker(Waker::noop());
            // Queued for the connection's task, which has not run yet.
            assert!(work.as_mut().poll(&mut cx).is_pending());
        }
        session.clean_up().await.unwrap();
    }
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert_eq!(value(&mut session, "SELECT 3").await, Value::I64(3));
}
