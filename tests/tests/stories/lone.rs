//! A source over one server, whose pool and permits can be looked at from outside.

use std::sync::Arc;
use std::time::Duration;

use mainstay::policy::Settings;
use mainstay::sql::{
    Access, AnswerMax, Driver, Options, Plain, Request, TransactionLimits, Value, Work,
};
use mainstay::tasks::Tasks;
use mainstay::{Chance, DataProxy, Database, EndpointSpec, Policy, Preset, Role, Safety};
use mainstay_testkit::postgres::PostgresServer;
use tokio::time::{Instant, sleep};

use super::servers::Server;

/// Clean-ups end within 2 s by closing; the rest is for a busy machine.
const CLEAN_MAX: Duration = Duration::from_secs(8);

/// Sessions of clients that left are closed by a fault proxy within 5 s.
const SESSIONS_MAX: Duration = Duration::from_secs(10);

/// A source of one endpoint.
pub(crate) struct Lone {
    pub(crate) proxy: DataProxy,
    pub(crate) plain: Plain,
    pub(crate) tasks: Tasks,
}

/// Settings under which nothing but the fault at hand decides: no circuit, no health checks, which
/// would be cut too and take the role away, and short pauses.
pub(crate) fn settings(attempt_timeout: Duration) -> Settings {
    let mut settings = Preset::Balanced.settings();
    settings.retry.attempt_timeout = Some(attempt_timeout);
    settings.retry.attempt_timeout_is_set = true;
    settings.retry.delay = Duration::from_millis(5);
    settings.retry.budget = None;
    settings.circuit.failures = 0;
    settings.health.enabled = false;
    settings
}

impl Lone {
    /// Over the PostgreSQL server on this port, or the proxy before it.
    pub(crate) fn postgres(port: u16, settings: Settings) -> Self {
        Self::of::<PostgresServer>(port, settings)
    }

    /// Over the server on this port, or the proxy before it.
    pub(crate) fn of<S: Server>(port: u16, settings: Settings) -> Self {
        let tasks = Tasks::new();
        let driver = S::driver(port, S::SUPERUSER, &tasks);
        Self::over(driver, settings, tasks, TransactionLimits::default())
    }

    /// Over a driver whose background work runs in `tasks`.
    pub(crate) fn over(
        driver: Arc<dyn Driver>,
        settings: Settings,
        tasks: Tasks,
        limits: TransactionLimits,
    ) -> Self {
        let policy = Policy::new(settings).expect("the story's policy is valid");
        let chance = Chance::seeded(11);
        let plain = Plain::new(driver, &policy, tasks.clone(), chance.clone());
        let member: Arc<dyn Database> = Arc::new(plain.clone());
        let proxy = DataProxy::builder("lone", policy)
            .tasks(tasks.clone())
            .chance(chance)
            .transactions(limits)
            .endpoint(EndpointSpec::new("a", member).role(Role::Primary))
            .build()
            .expect("one endpoint is valid");
        Lone {
            proxy,
            plain,
            tasks,
        }
    }

    /// Attempts in flight on the endpoint.
    pub(crate) fn in_flight(&self) -> u32 {
        self.proxy
            .source()
            .status()
            .iter()
            .map(|status| status.in_flight)
            .sum()
    }

    /// Waits until clean-ups have ended and sees that every place and permit is free again.
    pub(crate) async fn check_whole(&self, after: &str) {
        let end = Instant::now() + CLEAN_MAX;
        // The place in the pool is free a moment before the slot of the endpoint.
        let is_busy = || self.plain.pool_stats().active > 0 || self.in_flight() > 0;
        while is_busy() && Instant::now() < end {
            sleep(Duration::from_millis(1)).await;
        }
        let stats = self.plain.pool_stats();
        assert_eq!((stats.active, stats.waiting), (0, 0), "{after}: {stats:?}");
        assert_eq!(self.in_flight(), 0, "in flight {after}");
    }

    /// Ends everything; nothing may be left running.
    pub(crate) async fn shut_down(self) {
        self.proxy.close(Duration::from_secs(5)).await;
        assert_eq!(self.tasks.shutdown(Duration::from_secs(5)).await, 0);
    }
}

/// A statement for inside of a transaction.
pub(crate) fn statement(text: &str, params: Vec<Value>, safety: Safety) -> Request {
    let work = Work::Statement {
        text: text.into(),
        params,
    };
    let access = match safety {
        Safety::Read => Access::ReadOnly,
        _ => Access::ReadWrite,
    };
    Request {
        class: None,
        name: "statement".into(),
        work,
        safety,
        access,
        options: Options::default(),
        answer_max: AnswerMax::default(),
    }
}

/// Waits until no client has a transaction open at the server.
pub(crate) async fn wait_without_transactions<S: Server>(server: &S) {
    let end = Instant::now() + SESSIONS_MAX;
    loop {
        let left = server.value(S::OPEN_TRANSACTIONS).await.unwrap();
        if left == "0" {
            return;
        }
        assert!(Instant::now() < end, "{left} transactions are still open");
        sleep(Duration::from_millis(20)).await;
    }
}
