//! A proxy on a scripted driver and a paused clock: its transactions and its primary.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "proxy/classes.rs"]
mod classes;
#[path = "proxy/elsewhere.rs"]
mod elsewhere;
#[path = "proxy/generations.rs"]
mod generations;
#[path = "proxy/gone.rs"]
mod gone;
#[path = "proxy/kept.rs"]
mod kept;
#[path = "proxy/lent.rs"]
mod lent;
#[path = "proxy/nested.rs"]
mod nested;
#[path = "proxy/pair.rs"]
mod pair;
#[path = "proxy/proofs.rs"]
mod proofs;
#[path = "proxy/redirected.rs"]
mod redirected;
#[path = "proxy/rest.rs"]
mod rest;
#[path = "proxy/sessions.rs"]
mod sessions;
#[path = "proxy/sizes.rs"]
mod sizes;

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{
    Category, Chance, EndpointSpec, Failure, Policy, Preset, Role, Safety, Sent, Settings,
};
use mainstay_sql::{
    Access, AnswerMax, Begin, Code, DataProxy, Database, Dialect, Options, Plain, Probe, Request,
    Scope, SqlError, Transaction, TransactionLimits, Verbs, Verdict, Work,
};
use mainstay_testkit::scripted::reply::{OnCancel, connection_lost, constraint_broken, refused};
use mainstay_testkit::scripted::{Point, Reply, ScriptedDriver};

const ATTEMPT: Duration = Duration::from_secs(2);

struct Bench {
    driver: ScriptedDriver,
    plain: Plain,
    proxy: DataProxy,
}

fn settings() -> Settings {
    let mut settings = Preset::Balanced.settings();
    settings.retry.attempt_timeout = Some(ATTEMPT);
    settings.retry.attempts_max = 1;
    settings.health.enabled = false;
    settings
}

fn bench() -> Bench {
    bench_of(Dialect::Postgres, settings())
}

fn bench_of(dialect: Dialect, settings: Settings) -> Bench {
    let driver = ScriptedDriver::new(dialect);
    let policy = Policy::new(settings).unwrap();
    let shared = Arc::new(driver.clone());
    let plain = Plain::new(shared, &policy, Tasks::new(), Chance::seeded(1));
    let member: Arc<dyn Database> = Arc::new(plain.clone());
    let limits = TransactionLimits {
        idle: Duration::from_secs(60),
        count: 10,
    };
    let proxy = DataProxy::builder("s", policy)
        .endpoint(EndpointSpec::new("a", member).role(Role::Primary))
        .transactions(limits)
        .build()
        .unwrap();
    Bench {
        driver,
        plain,
        proxy,
    }
}

impl Bench {
    async fn begin(&self) -> Box<dyn Transaction> {
        self.proxy
            .begin(&Begin::default(), Scope::default())
            .await
            .unwrap()
    }

    /// Failures that weighed on the endpoint.
    fn blamed(&self) -> bool {
        self.proxy.source().status()[0].stats.failures > 0
    }
}

fn write() -> Request {
    Request {
        class: None,
        name: "test".into(),
        work: Work::Statement {
            text: "UPDATE t SET a = 1".into(),
            params: Vec::new(),
        },
        safety: Safety::Write,
        access: Access::ReadWrite,
        options: Options::default(),
        answer_max: AnswerMax::default(),
    }
}

fn check_lost(error: &SqlError, category: Category) {
    assert_eq!(
        (
            error.code(),
            error.sent(),
            error.detail().verdict,
            error.failure().category
        ),
        (
            Code::TransactionLost,
            Sent::YesUnprocessed,
            Verdict::LeaseLost,
            category
        ),
        "{error}"
    );
}

fn unsent() -> SqlError {
    let failure = Failure::new(Category::Transient, "broken pipe").sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_loses_the_transaction_says_that_nothing_of_it_was_committed() {
    for (reply, category) in [
        (
            Reply::hangs().on_cancel(OnCancel::Ignores),
            Category::Timeout,
        ),
        (Reply::hangs().hands_nothing_over(), Category::Timeout),
        (Reply::breaks(connection_lost()), Category::Transient),
        (Reply::breaks(unsent()), Category::Transient),
    ] {
        let bench = bench();
        let mut transaction = bench.begin().await;
        transaction.run(&write()).await.unwrap();
        bench.driver.next(Point::Run, reply);
        let error = transaction.run(&write()).await.unwrap_err();
        check_lost(&error, category);
        assert!(bench.blamed(), "{error}");
        let error = transaction.run(&write()).await.unwrap_err();
        check_lost(&error, Category::Transient);
        let error = transaction.commit().await.err().unwrap();
        check_lost(&error, Category::Transient);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.plain.pool_stats().active, 0);
        assert_eq!(bench.driver.counts().commits, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_was_idle_for_too_long_is_lost() {
    let bench = bench();
    let mut transaction = bench.begin().await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    let error = transaction.run(&write()).await.unwrap_err();
    check_lost(&error, Category::Transient);
    assert!(!bench.blamed());
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_is_cancelled_at_its_limit_in_time_leaves_the_way_back() {
    let bench = bench();
    let mut transaction = bench.begin().await;
    transaction.savepoint("a").await.unwrap();
    bench.driver.next(Point::Run, Reply::hangs());
    let error = transaction.run(&write()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::DeadlineExceeded, Sent::YesUnprocessed)
    );
    transaction.rollback_to("a").await.unwrap();
    transaction.run(&write()).await.unwrap();
    transaction.commit().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rerun_that_sends_nothing_does_not_hide_what_the_run_before_had_sent() {
    let bench = bench();
    bench
        .driver
        .next(Point::Run, Reply::breaks(connection_lost()));
    bench.driver.next(Point::Connect, Reply::default());
    bench.driver.next(Point::Connect, Reply::fails(refused()));
    let ended: Result<(), _> = bench
        .proxy
        .transaction(Begin::default(), 1, |transaction| {
            Box::pin(async move { transaction.run(&write()).await.map(drop) })
        })
        .await;
    let error = ended.unwrap_err();
    assert_eq!(error.code(), Code::AttemptsFailed, "{error}");
    assert_eq!(error.sent(), Sent::YesUnprocessed);
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_is_lost_weighs_on_its_endpoint() {
    let bench = bench();
    let mut transaction = bench.begin().await;
    transaction.run(&write()).await.unwrap();
    bench
        .driver
        .next(Point::Commit, Reply::breaks(connection_lost()));
    let error = transaction.commit().await.err().unwrap();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::OutcomeUnknown, Sent::Maybe)
    );
    assert!(bench.blamed());
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_cannot_say_so_stays_primary_where_the_file_is_all_there_is() {
    for (dialect, stays) in [(Dialect::Sqlite, true), (Dialect::Postgres, false)] {
        let mut settings = settings();
        settings.health.enabled = true;
        let bench = bench_of(dialect, settings);
        bench.driver.set_probe(Ok(Probe::default()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let snapshot = bench.proxy.source().snapshot();
        assert_eq!(snapshot.primary().is_some(), stays, "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_begin_that_a_change_of_primary_overtakes_ends_on_the_new_primary() {
    let pair = pair::pair(Role::Replica);
    let slow = Reply::default().wait_before(Duration::from_millis(200));
    pair.drivers[0].always(Point::Begin, slow);
    let options = Begin::default();
    let begin = pair.proxy.begin(&options, Scope::default());
    let promote = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let source = pair.proxy.source();
        source.set_role("b", Role::Primary, "test").unwrap();
    };
    let (begun, ()) = tokio::join!(begin, promote);
    let mut transaction = begun.unwrap();
    transaction.run(&write()).await.unwrap();
    transaction.commit().await.unwrap();
    let written = pair
        .drivers
        .each_ref()
        .map(|driver| driver.counts().commits);
    assert_eq!(written, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_whose_endpoint_is_not_primary_any_more_takes_no_statement() {
    for role in [Role::Replica, Role::Standby] {
        let pair = pair::pair(Role::Replica);
        let begun = pair.proxy.begin(&Begin::default(), Scope::default()).await;
        let mut transaction = begun.unwrap();
        pair.proxy.source().set_role("a", role, "test").unwrap();
        let lost = transaction.run(&write()).await.unwrap_err();
        assert_eq!(lost.code(), Code::TransactionLost);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_mistake_of_the_caller_is_no_failure_of_the_endpoint() {
    let pair = pair::pair(Role::Member);
    let failures = || -> u64 {
        let status = pair.proxy.source().status();
        status.iter().map(|it| it.stats.failures).sum()
    };
    for driver in &pair.drivers {
        driver.always(Point::Commit, Reply::fails(constraint_broken()));
        driver.always(
            Point::Open,
            Reply::rows(vec![vec![mainstay_sql::Value::Null]; 5000]),
        );
    }
    let begun = pair.proxy.begin(&Begin::default(), Scope::default()).await;
    begun.unwrap().commit().await.unwrap_err();
    let options = Options::default();
    let stream = pair.proxy.stream_query("SELECT 1", vec![], options).await;
    let mut stream = stream.unwrap();
    for driver in &pair.drivers {
        // Of the second batch: a division by zero, say.
        driver.next(Point::NextBatch, Reply::fails(constraint_broken()));
    }
    stream.next().await.unwrap();
    let broken = stream.next().await.unwrap_err();
    assert_eq!(broken.code(), Code::Constraint);
    assert_eq!(failures(), 0);
}
