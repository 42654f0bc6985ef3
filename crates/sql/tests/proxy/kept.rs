//! Transactions of MySQL that are lost after a statement that may have committed what came before it: no
//! rerun, for that would write it twice.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Role, Safety, Sent};
use mainstay_sql::{
    Access, AnswerMax, Begin, Code, Dialect, Options, Request, SqlError, Verbs, Work,
};
use mainstay_testkit::scripted::reply::{OnCancel, connection_lost};
use mainstay_testkit::scripted::{Happened, Point, Reply, ScriptedDriver};

use super::pair::{Pair, pair_of};
use super::unsent;

const INSERT: &str = "INSERT INTO t VALUES (1)";

fn request(text: &str) -> Request {
    Request {
        class: None,
        name: "test".into(),
        work: Work::Statement {
            text: text.into(),
            params: Vec::new(),
        },
        safety: Safety::Write,
        access: Access::ReadWrite,
        options: Options::default(),
        answer_max: AnswerMax::default(),
    }
}

/// What takes the transaction away.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Its endpoint ceases to be primary.
    Role,
    /// Nobody uses it for too long.
    Idle,
    /// Its next statement gets no answer.
    Silence,
    /// Its next statement meets a broken connection.
    Break,
    /// Its next statement finds the connection closed.
    Closed,
}

const LOSSES: [Loss; 5] = [
    Loss::Role,
    Loss::Idle,
    Loss::Silence,
    Loss::Break,
    Loss::Closed,
];

impl Loss {
    async fn happen(self, pair: &Pair) {
        let driver = &pair.drivers[0];
        let source = pair.proxy.source();
        match self {
            Loss::Role => {
                source.set_role("b", Role::Primary, "test").unwrap();
            }
            Loss::Idle => tokio::time::sleep(Duration::from_secs(61)).await,
            Loss::Silence => {
                driver.next(Point::Run, Reply::hangs().on_cancel(OnCancel::Ignores));
            }
            Loss::Break => {
                driver.next(Point::Run, Reply::breaks(connection_lost()));
            }
            Loss::Closed => {
                driver.next(Point::Run, Reply::breaks(unsent()).hands_nothing_over());
            }
        }
    }
}

fn inserts(driver: &ScriptedDriver) -> usize {
    let log = driver.log();
    let is_insert = |happened: &&Happened| matches!(happened, Happened::Called(_, Point::Run, text) if text == INSERT);
    log.iter().filter(is_insert).count()
}

/// Runs an INSERT and `text`, then loses the transaction once; may be run again once.
async fn lose(pair: &Arc<Pair>, text: &'static str, loss: Loss) -> Result<(), SqlError> {
    let times = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let proxy = &pair.proxy;
    proxy
        .transaction(Begin::default(), 1, |transaction| {
            let (pair, times) = (Arc::clone(pair), Arc::clone(&times));
            Box::pin(async move {
                transaction.run(&request(INSERT)).await?;
                transaction.run(&request(text)).await?;
                if times.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                    loss.happen(&pair).await;
                }
                transaction.run(&request("SELECT 1")).await.map(drop)
            })
        })
        .await
}

fn world(dialect: Dialect) -> Arc<Pair> {
    Arc::new(pair_of(dialect, Role::Replica))
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_may_have_committed_by_itself_is_not_run_again_after_a_loss() {
    for loss in LOSSES {
        for text in [
            "CREATE TABLE IF NOT EXISTS x (a int)",
            "DROP TABLE IF EXISTS x",
            "TRUNCATE x",
            "CALL p()",
            "no statement that anybody knows",
        ] {
            let pair = world(Dialect::MySql);
            let error = lose(&pair, text, loss).await.unwrap_err();
            assert_eq!(
                (error.code(), error.sent()),
                (Code::TransactionLost, Sent::Maybe),
                "{text} {loss:?}: {error}"
            );
            let [first, second] = pair.drivers.each_ref().map(inserts);
            assert_eq!((first, second), (1, 0), "{text} {loss:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_transaction_has_committed_is_said_by_every_call_after_the_loss() {
    for loss in LOSSES {
        let pair = world(Dialect::MySql);
        let begin = Begin::default();
        let scope = mainstay_sql::Scope::default();
        let begun = mainstay_sql::Database::begin(&pair.proxy, &begin, scope);
        let mut transaction = begun.await.unwrap();
        transaction.run(&request(INSERT)).await.unwrap();
        let ddl = "CREATE TABLE x (a int)";
        transaction.run(&request(ddl)).await.unwrap();
        loss.happen(&pair).await;
        let mut errors = Vec::new();
        for _ in 0..2 {
            errors.push(transaction.run(&request("SELECT 1")).await.unwrap_err());
        }
        errors.push(transaction.savepoint("s").await.unwrap_err());
        errors.push(transaction.commit().await.unwrap_err());
        for error in errors {
            assert_eq!(error.sent(), Sent::Maybe, "{loss:?}: {error}");
            let hint = error.detail().hint.as_deref().unwrap_or_default();
            assert!(hint.contains("look what is there"), "{loss:?}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_commits_nothing_by_itself_is_run_again_after_a_loss() {
    for (dialect, text, losses) in [
        (
            Dialect::Postgres,
            "CREATE TABLE x (a int)",
            LOSSES.as_slice(),
        ),
        (
            Dialect::MySql,
            "UPDATE t SET a = 1",
            &[Loss::Role, Loss::Idle],
        ),
        (Dialect::MySql, "SELECT 2", &[Loss::Role, Loss::Idle]),
    ] {
        for loss in losses {
            let pair = world(dialect);
            lose(&pair, text, *loss).await.unwrap();
            let inserted: usize = pair.drivers.iter().map(inserts).sum();
            assert_eq!(inserted, 2, "{text} {loss:?}");
            let commits: u64 = pair.drivers.iter().map(|it| it.counts().commits).sum();
            assert_eq!(commits, 1, "{text} {loss:?}");
        }
    }
}
