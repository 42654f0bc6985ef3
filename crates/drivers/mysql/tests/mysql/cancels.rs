//! Cancels hit what they are meant for, and never what comes after.

use std::pin::pin;
use std::time::Duration;

use mainstay_engine::{Chance, Sent};
use mainstay_sql::{AnswerMax, Code, Value, Verdict};

use super::place::{Place, id, rows, run, value};

#[tokio::test]
async fn a_cancelled_statement_ends_neutral_and_proven() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let own = id(&mut session).await;
    let canceller = session.canceller();
    let (result, ()) = tokio::join!(run(&mut session, "SELECT SLEEP(60)", &[]), async {
        place.wait_until(own, "STATE = 'User sleep'").await;
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
        let text = format!("SELECT {n}");
        assert_eq!(value(&mut session, &text).await, Value::I64(n));
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
    for race in 0..600 {
        let canceller = session.canceller();
        let pause = Duration::from_micros(chance.draw() % 6000);
        let mut cancel = pin!(async {
            tokio::time::sleep(pause).await;
            canceller.cancel().await;
        });
        let result = {
            let mut work =
                pin!(session.run("SELECT SLEEP(0.004)", &[], AnswerMax::default(), &|| {}));
            tokio::select! {
                result = &mut work => result,
                () = &mut cancel => work.await,
            }
        };
        match result {
            Ok(_) => finished += 1,
            Err(error) => {
                assert_eq!(error.code(), Code::Cancelled, "race {race}: {error}");
                cancelled += 1;
            }
        }
        // The cancel may be on its way still, and nobody drives it any more.
        let next = session.run("SELECT SLEEP(0.0001), 5", &[], AnswerMax::default(), &|| {});
        let answer = next
            .await
            .unwrap_or_else(|e| panic!("race {race} of seed {seed}: the next was hit: {e}"));
        assert_eq!(
            answer.rows[0],
            [Value::I64(0), Value::I64(5)],
            "race {race}"
        );
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
    let seed = 11;
    let chance = Chance::seeded(seed);
    for race in 0..300 {
        let pause = Duration::from_micros(chance.draw() % 2000);
        // Every tenth text is new, so that prepares are dropped half way as well.
        let statement = match race % 10 {
            0 => format!("SELECT SLEEP(0.001), {race}"),
            _ => "SELECT SLEEP(0.001)".into(),
        };
        let work = run(&mut session, &statement, &[]);
        let _ = tokio::time::timeout(pause, work).await;
        session
            .clean_up()
            .await
            .unwrap_or_else(|e| panic!("race {race} of seed {seed}: {e}"));
        let next = value(&mut session, "SELECT 3").await;
        assert_eq!(next, Value::I64(3), "race {race}");
    }
    assert!(!session.is_closed());
    let own = id(&mut session).await;
    let kept = format!(
        "SELECT VARIABLE_VALUE + 0 < 60 FROM information_schema.GLOBAL_STATUS \
         WHERE VARIABLE_NAME = 'PREPARED_STMT_COUNT' AND {own} = {own}"
    );
    assert_eq!(
        value(&mut session, &kept).await,
        Value::I64(1),
        "statements leaked"
    );
}

/// A server that starts again counts its sessions from the beginning: the number of a session that is
/// gone belongs to somebody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_after_a_restart_hits_nobody_who_has_the_number_now() {
    let place = Place::new().await;
    let mut old = place.writer().await;
    let number = id(&mut old).await;
    let canceller = old.canceller();
    // Left in the middle, so that there is something to cancel.
    let work = run(&mut old, "SELECT SLEEP(60)", &[]);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), work)
            .await
            .is_err()
    );
    place.server.kill9().await.unwrap();
    // The server tells its runs apart by the second.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    place.server.start_again().await.unwrap();
    let mut heir = loop {
        let mut session = place.writer().await;
        let its = id(&mut session).await;
        if its == number {
            break session;
        }
        assert!(its < number, "the number was passed");
    };
    let (result, ()) = tokio::join!(run(&mut heir, "SELECT SLEEP(1)", &[]), async {
        place.wait_until(number, "STATE = 'User sleep'").await;
        canceller.cancel().await;
    });
    assert_eq!(result.unwrap().rows, [[Value::I64(0)]], "the heir was hit");
    assert!(old.clean_up().await.is_err());
    assert!(old.is_closed());
}

#[tokio::test]
async fn a_cancelled_change_of_many_rows_changes_none() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a bigint)").await;
    rows(&mut session, "INSERT INTO t SELECT seq FROM seq_1_to_100").await;
    let own = id(&mut session).await;
    let canceller = session.canceller();
    let change = "UPDATE t SET a = a + SLEEP(0.05)";
    let (result, ()) = tokio::join!(run(&mut session, change, &[]), async {
        place.wait_until(own, "STATE = 'User sleep'").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        canceller.cancel().await;
    });
    assert_eq!(result.unwrap_err().sent(), Sent::YesUnprocessed);
    let sum = value(&mut session, "SELECT CAST(SUM(a) AS SIGNED) FROM t").await;
    assert_eq!(sum, Value::I64(5050));
}
