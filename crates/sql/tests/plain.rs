//! One endpoint as a database, on a scripted driver and a paused clock.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "plain/cuts.rs"]
mod cuts;
#[path = "plain/lent.rs"]
mod lent;
#[path = "plain/statements.rs"]
mod statements;
#[path = "plain/streams.rs"]
mod streams;
#[path = "plain/transactions.rs"]
mod transactions;

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, Policy, Preset, Safety};
use mainstay_sql::{Access, AnswerMax, Dialect, Options, Plain, Request, Value, Work};
use mainstay_testkit::scripted::ScriptedDriver;

/// A database on a scripted driver.
struct Bench {
    driver: ScriptedDriver,
    plain: Plain,
}

impl Bench {
    fn new() -> Self {
        Self::of(Dialect::Postgres)
    }

    fn of(dialect: Dialect) -> Self {
        Self::with(dialect, |_| {})
    }

    fn with(dialect: Dialect, change: impl FnOnce(&mut mainstay_engine::Settings)) -> Self {
        let driver = ScriptedDriver::new(dialect);
        let mut settings = Preset::Balanced.settings();
        settings.retry.attempt_timeout = Some(Duration::from_secs(2));
        change(&mut settings);
        let policy = Policy::new(settings).unwrap();
        let plain = Plain::new(
            Arc::new(driver.clone()),
            &policy,
            Tasks::new(),
            Chance::seeded(1),
        );
        Bench { driver, plain }
    }

    /// Waits until clean-ups have ended and sees that nothing was left behind.
    async fn assert_clean(&self) {
        // The pool's sweeper is a task too: clean-ups are over once no place is in use.
        for _ in 0..3000 {
            if self.plain.pool_stats().active == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(self.plain.pool_stats().active, 0, "{:?}", self.driver.log());
        for session in self.driver.sessions() {
            assert!(!session.is_busy, "{:?}", self.driver.log());
            assert!(!session.in_transaction, "{:?}", self.driver.log());
        }
        assert_eq!(self.driver.counts().misuses, 0, "{:?}", self.driver.log());
    }
}

fn request(text: &str, safety: Safety) -> Request {
    Request {
        class: None,
        name: "test".into(),
        work: Work::Statement {
            text: text.into(),
            params: Vec::new(),
        },
        safety,
        access: if safety.is_read() {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
        options: Options::default(),
        answer_max: AnswerMax::default(),
    }
}

fn read(text: &str) -> Request {
    request(text, Safety::Read)
}

fn write(text: &str) -> Request {
    request(text, Safety::Write)
}

fn many(text: &str, runs: usize) -> Request {
    Request {
        work: Work::Many {
            text: text.into(),
            params: (0..runs).map(|n| vec![Value::I64(n as i64)]).collect(),
        },
        ..write(text)
    }
}
