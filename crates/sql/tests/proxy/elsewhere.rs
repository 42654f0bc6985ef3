//! An endpoint that runs its statements in a task of its own: what ends an attempt reaches it there too.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, EndpointSpec, Policy, Preset, Role};
use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{
    Answer, Begin, Borrower, BoxFuture, Code, DataProxy, Database, Dialect, Loan, Options, Plain,
    Position, Probe, Request, RowStream, Schema, Scope, SqlError, State, Transaction, Verbs,
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
