//! An endpoint that runs its statements in a task of its own: what ends an attempt reaches it there too.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use mainstay_engine::tasks::Tasks;
use mainstay_engine::{
    Attempt, Chance, EndpointSpec, Operation, Outcome, Policy, Preset, Role, Route, Safety,
};
use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{
    Access, Answer, AnswerMax, Begin, Borrower, BoxFuture, Code, DataProxy, Database, Dialect,
    Loan, Options, Plain, Position, Probe, Request, RowStream, Schema, Scope, SqlError, State,
    Transaction, Verbs, Work,
};
use mainstay_testkit::scripted::{Point, Reply, ScriptedDriver};
use tokio::sync::oneshot;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(2);

struct Elsewhere {
    plain: Plain,
    tasks: Tasks,
}

impl Database for Elsewhere {
    fn collect<'a>(
        &'a self,
        request: &'a Request,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Answer, SqlError>> {
        let (plain, request) = (self.plain.clone(), request.clone());
        let (ended, answer) = oneshot::channel();
        // From here on nobody can tell.
        if let Some(attempt) = &scope.attempt {
            attempt.handed_over();
        }
        self.tasks.spawn(async move {
            let _ = ended.send(plain.collect(&request, scope).await);
        });
        Box::pin(async move { answer.await.unwrap() })
    }

    fn dialect(&self) -> Dialect {
        self.plain.dialect()
    }

    fn schema(&self) -> &Schema {
        self.plain.schema()
    }

    fn lend<'a>(
        &'a self,
        loan: &'a Loan,
        work: &'a dyn Borrower,
        scope: Scope,
    ) -> BoxFuture<'a, Result<mainstay_sql::Meta, SqlError>> {
        self.plain.lend(loan, work, scope)
    }

    fn stream<'a>(
        &'a self,
        request: &'a Request,
        scope: Scope,
    ) -> BoxFuture<'a, Result<RowStream, SqlError>> {
        self.plain.stream(request, scope)
    }

    fn begin<'a>(
        &'a self,
        begin: &'a Begin,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Box<dyn Transaction>, SqlError>> {
        self.plain.begin(begin, scope)
    }

    fn describe<'a>(
        &'a self,
        what: &'a Describe,
        scope: Scope,
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        self.plain.describe(what, scope)
    }

    fn probe(&self) -> BoxFuture<'_, Result<Probe, SqlError>> {
        self.plain.probe()
    }

    fn position(&self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        self.plain.position()
    }

    fn retries(&self) -> u32 {
        self.plain.retries()
    }

    fn apply(&self, policy: &Policy) {
        self.plain.apply(policy);
    }

    fn rest(&self, resting: bool) {
        self.plain.rest(resting);
    }

    fn close(&self, limit: Duration) -> BoxFuture<'_, ()> {
        self.plain.close(limit)
    }

    fn state(&self) -> State {
        self.plain.state()
    }
}

fn proxy(driver: &ScriptedDriver) -> (DataProxy, Plain) {
    let mut settings = Preset::Balanced.settings();
    settings.health.enabled = false;
    settings.retry.attempts_max = 1;
    settings.retry.attempt_timeout = Some(LIMIT);
    let policy = Policy::new(settings).unwrap();
    let tasks = Tasks::new();
    let driver = Arc::new(driver.clone());
    let plain = Plain::new(driver, &policy, tasks.clone(), Chance::seeded(1));
    let member: Arc<dyn Database> = Arc::new(Elsewhere {
        plain: plain.clone(),
        tasks: tasks.clone(),
    });
    let proxy = DataProxy::builder("s", policy)
        .tasks(tasks)
        .chance(Chance::seeded(2))
        .endpoint(EndpointSpec::new("a", member).role(Role::Primary))
        .build()
        .unwrap();
    (proxy, plain)
}

#[tokio::test(start_paused = true)]
async fn a_statement_ends_at_its_limit_and_a_write_waits_for_the_proof() {
    for text in ["SELECT 1", "UPDATE t SET a = 1"] {
        let driver = ScriptedDriver::new(Dialect::Postgres);
        let (proxy, plain) = proxy(&driver);
        driver.next(Point::Run, Reply::hangs());
        let began = Instant::now();
        let error = proxy
            .query(text, Vec::new(), Options::default())
            .await
            .unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded, "{text}: {error:?}");
        assert_eq!(began.elapsed(), LIMIT, "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(driver.counts().cancels, 1, "{text}");
        assert_eq!(plain.pool_stats().active, 0, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_statement_ends_when_its_caller_goes_away() {
    let driver = ScriptedDriver::new(Dialect::Postgres);
    let (proxy, plain) = proxy(&driver);
    driver.next(Point::Run, Reply::hangs());
    let query = proxy.query("SELECT 1", Vec::new(), Options::default());
    let soon = Duration::from_millis(10);
    tokio::time::timeout(soon, query).await.unwrap_err();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(plain.pool_stats().active, 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_a_connection_is_not_sent_after_its_caller_went_away() {
    let driver = ScriptedDriver::new(Dialect::Postgres);
    let (proxy, plain) = proxy(&driver);
    let slow = Reply::default().wait_before(Duration::from_millis(100));
    driver.next(Point::Connect, slow);
    let write = proxy.execute("UPDATE t SET a = 1", Vec::new(), Options::default());
    let soon = Duration::from_millis(10);
    tokio::time::timeout(soon, write).await.unwrap_err();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(driver.counts().statements, 0);
    assert_eq!(plain.pool_stats().active, 0);
}

/// Runs each statement beside a second one that hangs as well, each polled only when it is woken itself.
struct Beside(Plain);

impl Beside {
    async fn both(&self, request: &Request, scope: Scope) -> Result<Answer, SqlError> {
        let mut all = FuturesUnordered::new();
        for _ in 0..2 {
            all.push(self.0.collect(request, scope.clone()));
        }
        let first = all.next().await.unwrap();
        all.next().await.unwrap().and(first)
    }
}

#[tokio::test(start_paused = true)]
async fn all_statements_of_one_attempt_end_with_it() {
    let driver = ScriptedDriver::new(Dialect::Postgres);
    let (_, plain) = proxy(&driver);
    let source = mainstay_engine::Source::single("s", Policy::preset(Preset::Balanced));
    driver.always(Point::Run, Reply::hangs());
    let beside = Beside(plain.clone());
    let request = Request {
        name: "query".into(),
        work: Work::Statement {
            text: "SELECT 1".into(),
            params: Vec::new(),
        },
        class: None,
        safety: Safety::Read,
        access: Access::ReadOnly,
        options: Options::default(),
        answer_max: AnswerMax::default(),
    };
    let mut operation = Operation::read("query");
    operation.deadline = Some(LIMIT);
    let route = Route {
        tracks: true,
        grace: Duration::from_millis(50),
        ..Route::default()
    };
    let began = Instant::now();
    let classify = |result: &Result<Answer, SqlError>| match result {
        Ok(_) => Outcome::Success,
        Err(error) => Outcome::Failure(error.failure().clone()),
    };
    let work = |attempt: Attempt<()>| {
        let scope = Scope {
            attempt: Some(attempt.split().1),
            ..Scope::default()
        };
        beside.both(&request, scope)
    };
    let ended = source.call_on(&operation, route, &classify, work).await;
    assert!(ended.is_err());
    assert_eq!(
        began.elapsed(),
        LIMIT,
        "both ended at the limit, not after the grace"
    );
}
