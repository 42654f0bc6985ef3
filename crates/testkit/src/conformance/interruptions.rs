use std::time::Duration;

use mainstay_engine::Sent;
use mainstay_sql::{AnswerMax, Database, Options, Value, Verbs, Verdict};

use super::Fixture;
use super::bench::Bench;

/// Long enough for a statement to be under way, short against what it takes.
const UNDER_WAY: Duration = Duration::from_millis(200);

/// Far below the ten seconds that the slow read takes.
const SOON: Duration = Duration::from_secs(5);

/// A cancel ends a statement with the proof that nothing happened; the session stays usable.
pub async fn a_cancelled_statement_says_that_it_did_nothing(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.writer().await;
    let canceller = session.0.canceller();
    let work = session
        .0
        .run(fixture.slow_read(), &[], AnswerMax::default(), &|| {});
    let cancel = async {
        tokio::time::sleep(UNDER_WAY).await;
        canceller.cancel().await;
    };
    let both = async { tokio::join!(work, cancel).0 };
    let result = tokio::time::timeout(SOON, both)
        .await
        .expect("the cancel ends it");
    let error = result.unwrap_err();
    assert_eq!(error.detail().verdict, Verdict::Neutral, "{error}");
    assert_eq!(error.sent(), Sent::YesUnprocessed, "{error}");
    session.assert_usable().await;
}

/// A cancel that comes when nothing is under way has no effect on what comes next.
pub async fn a_late_cancel_hits_nothing(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.writer().await;
    for _ in 0..50 {
        session.assert_usable().await;
        session.0.canceller().cancel().await;
    }
    session.assert_usable().await;
}

/// A statement whose future is dropped is ended by the clean-up, within its time.
pub async fn a_dropped_statement_is_cleaned_up(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.writer().await;
    for _ in 0..3 {
        let work = session
            .0
            .run(fixture.slow_read(), &[], AnswerMax::default(), &|| {});
        assert!(
            tokio::time::timeout(UNDER_WAY, work).await.is_err(),
            "the slow read is slow"
        );
        let clean_up = tokio::time::timeout(SOON, session.0.clean_up()).await;
        clean_up.expect("a clean-up is quick").unwrap();
        session.assert_usable().await;
    }
}

/// Callers that leave do not use up the pool, and do not hurt the next one.
pub async fn a_dropped_statement_frees_its_place_in_a_pool(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let plain = bench.pooled();
    for _ in 0..3 {
        let slow = plain.query(fixture.slow_read(), vec![], Options::default());
        assert!(tokio::time::timeout(UNDER_WAY, slow).await.is_err());
        let next = plain.scalar("SELECT 42", vec![], Options::default()).await;
        assert_eq!(next.unwrap(), Some(Value::I64(42)));
    }
    let is_free = async {
        while plain.pool_stats().active > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, is_free)
        .await
        .expect("every place comes back");
    plain.close(SOON).await;
}
