//! Closures through a proxy of two endpoints: where they may be run again.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mainstay_engine::{Category, Failure, Role, Safety, Sent};
use mainstay_sql::{Begin, Code, Database, Options, Scope, SqlError, Verbs, Verdict};
use mainstay_testkit::cut::cut_at;
use mainstay_testkit::scripted::reply::{connection_lost, contended, refused};
use mainstay_testkit::scripted::{Point, Reply};

use super::pair::{Pair, pair};

impl Pair {
    /// Runs two statements; says how often the closure was begun.
    async fn run(&self, safety: Safety) -> (u32, Result<u32, SqlError>) {
        let begun = AtomicU32::new(0);
        let ended = self
            .proxy
            .run(safety, Options::default(), |mut lent| {
                begun.fetch_add(1, Ordering::Relaxed);
                async move {
                    lent.query("SELECT 1", vec![]).await?;
                    lent.execute("UPDATE t SET a = 1", vec![]).await?;
                    Ok(lent.attempt())
                }
            })
            .await;
        (begun.into_inner(), ended)
    }

    fn on_both(&self, point: Point, reply: &Reply) {
        for driver in &self.drivers {
            driver.next(point, reply.clone());
        }
    }

    fn statements(&self) -> u64 {
        self.drivers.iter().map(|d| d.counts().statements).sum()
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_is_run_again_on_the_next_endpoint() {
    let pair = pair(Role::Member);
    pair.on_both(Point::Run, &Reply::breaks(connection_lost()));
    let (begun, ended) = pair.run(Safety::Read).await;
    assert_eq!((begun, ended.unwrap()), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_repeatable_write_is_run_again_although_it_may_have_had_an_effect() {
    let pair = pair(Role::Replica);
    pair.drivers[0].next(Point::Run, Reply::affected(1));
    pair.drivers[0].next(Point::Run, Reply::breaks(connection_lost()));
    let (begun, ended) = pair.run(Safety::IdempotentWrite).await;
    assert_eq!((begun, ended.unwrap()), (2, 2));
    assert_eq!(pair.drivers[1].counts().statements, 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_not_run_again_once_something_was_handed_over() {
    for (reply, code, sent) in [
        (
            Reply::breaks(connection_lost()),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
        (
            Reply::fails(contended()),
            Code::Contention,
            Sent::YesUnprocessed,
        ),
    ] {
        let pair = pair(Role::Member);
        pair.on_both(Point::Run, &reply);
        let (begun, ended) = pair.run(Safety::Write).await;
        let error = ended.unwrap_err();
        assert_eq!((error.code(), error.sent()), (code, sent), "{error}");
        assert_eq!((begun, pair.statements()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_is_run_again_as_long_as_nothing_was_handed_over() {
    let pair = pair(Role::Replica);
    let unsent = Failure::new(Category::Transient, "broken pipe").sent(Sent::No);
    let unsent = SqlError::new(Code::AttemptsFailed, unsent);
    pair.drivers[0].next(Point::Connect, Reply::fails(refused()));
    pair.drivers[0].next(Point::Run, Reply::breaks(unsent).hands_nothing_over());
    let (begun, ended) = pair.run(Safety::Write).await;
    assert_eq!((begun, ended.unwrap()), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn one_entry_says_what_was_declared() {
    let pair = pair(Role::Replica);
    for safety in [Safety::Read, Safety::IdempotentWrite, Safety::Write] {
        pair.run(safety).await.1.unwrap();
        let entries = pair.proxy.source().recent_audit().last(10, |_| true);
        assert_eq!(entries[0].operation.to_string(), "run");
        assert_eq!(entries[0].safety, safety);
    }
    let entries = pair.proxy.source().recent_audit().last(10, |_| true);
    assert_eq!(entries.len(), 3);
}

fn read_only() -> SqlError {
    let failure = Failure::new(Category::Persistent, "read-only transaction")
        .code("25006")
        .sent(Sent::YesUnprocessed);
    SqlError::new(Code::BadStatement, failure).verdict(Verdict::ReadOnly)
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_a_read_only_server_is_passed_on_and_nothing_is_run_again() {
    let pair = pair(Role::Replica);
    pair.on_both(Point::Run, &Reply::fails(read_only()));
    let (begun, ended) = pair.run(Safety::Write).await;
    let error = ended.unwrap_err();
    assert_eq!(
        (begun, error.code(), error.sent()),
        (1, Code::NoPrimary, Sent::YesUnprocessed)
    );
    // Wherever it goes.
    pair.on_both(Point::Run, &Reply::fails(read_only()));
    let (begun, ended) = pair.run(Safety::Read).await;
    assert_eq!((begun, ended.unwrap_err().code()), (1, Code::BadStatement));
    assert_eq!(pair.proxy.source().counts().read().calls, 2);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_a_read_only_server_does_not_begin_has_no_primary() {
    let pair = pair(Role::Replica);
    pair.on_both(Point::Begin, &Reply::fails(read_only()));
    let begun = pair.proxy.begin(&Begin::default(), Scope::default()).await;
    let Err(error) = begun else {
        panic!("it was begun");
    };
    assert_eq!(
        (error.code(), error.sent()),
        (Code::NoPrimary, Sent::YesUnprocessed)
    );
    assert!(error.failure().retry_after.is_some() && error.detail().hint.is_some());
    assert_eq!(pair.proxy.source().counts().read().calls, 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_it_at_any_moment_gives_every_permit_back() {
    for k in 1.. {
        let pair = pair(Role::Replica);
        for driver in &pair.drivers {
            driver.set_yields(2);
        }
        let ended = cut_at(k, pair.run(Safety::Write)).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        for status in pair.proxy.source().status() {
            assert_eq!(status.in_flight, 0, "{k}");
        }
        for plain in &pair.plains {
            assert_eq!(plain.pool_stats().active, 0, "{k}");
        }
        assert_eq!(pair.proxy.source().counts().read().calls, 1, "{k}");
        if ended.is_some() {
            assert!(k > 3);
            return;
        }
        assert!(k < 200);
    }
}

#[tokio::test(start_paused = true)]
async fn the_safety_of_a_closure_is_audited_as_declared_and_that_of_a_text_is_not() {
    let pair = pair(Role::Replica);
    pair.run(Safety::Write).await.1.unwrap();
    pair.proxy
        .execute("UPDATE t SET a = 1", vec![], Options::default())
        .await
        .unwrap();
    let entries = pair.proxy.source().recent_audit().last(2, |_| true);
    let said: Vec<_> = entries
        .iter()
        .map(|entry| (entry.operation.to_string(), entry.safety_declared))
        .collect();
    assert_eq!(
        said,
        [("execute".to_owned(), false), ("run".to_owned(), true)]
    );
}
