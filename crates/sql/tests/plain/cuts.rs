//! Every future is dropped at every await point that it has; nothing may be left behind.

use std::time::Duration;

use mainstay_engine::{Safety, Sent};
use mainstay_sql::{Begin, Code, Database, Dialect, Options, Request, Scope, Value, Verbs, Work};
use mainstay_testkit::cut::cut_at;
use mainstay_testkit::scripted::reply::{OnCancel, connection_lost};
use mainstay_testkit::scripted::{Point, Reply};

use crate::{Bench, many, read, write};

/// Drops what `work` makes at its 1st, 2nd, 3rd … await point until it comes to its end.
async fn at_every_point<T>(name: &str, work: impl AsyncFn(&Bench) -> T) {
    for k in 1.. {
        let bench = Bench::new();
        bench.driver.set_yields(2);
        let wait = Duration::from_millis(5);
        let slow = Reply::rows(vec![vec![Value::I64(1)]; 1500]);
        bench.driver.always(
            Point::Run,
            Reply::affected(1).wait_before(wait).wait_after(wait),
        );
        bench
            .driver
            .always(Point::Open, slow.wait_before(wait).wait_after(wait));
        for point in [
            Point::Connect,
            Point::Begin,
            Point::Commit,
            Point::NextBatch,
            Point::Rollback,
        ] {
            bench
                .driver
                .always(point, Reply::default().wait_before(wait).wait_after(wait));
        }
        let ended = cut_at(k, work(&bench)).await;
        bench.assert_clean().await;
        // The next borrowers find what they expect.
        bench
            .plain
            .collect(&write("INSERT INTO t VALUES (1)"), Scope::default())
            .await
            .unwrap();
        let next = bench
            .plain
            .begin(&Begin::default(), Scope::default())
            .await
            .unwrap();
        next.commit().await.unwrap();
        bench.assert_clean().await;
        let counts = bench.driver.counts();
        assert!(counts.begins >= counts.commits, "{name} {k}");
        if ended.is_some() {
            assert!(k > 3, "{name} has await points");
            return;
        }
        assert!(k < 500, "{name} does not end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_leaves_nothing_behind_wherever_it_is_dropped() {
    at_every_point("read", async |bench| {
        let _ = bench
            .plain
            .collect(&read("SELECT 1"), Scope::default())
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_write_leaves_nothing_behind_wherever_it_is_dropped() {
    at_every_point("write", async |bench| {
        let _ = bench
            .plain
            .collect(&write("INSERT INTO t VALUES (1)"), Scope::default())
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_write_at_its_limit_leaves_nothing_behind_wherever_it_is_dropped() {
    at_every_point("limit", async |bench| {
        bench.driver.on_text("INSERT INTO hangs", Reply::hangs());
        let _ = bench
            .plain
            .collect(&write("INSERT INTO hangs VALUES (1)"), Scope::default())
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_leaves_nothing_behind_wherever_it_is_dropped() {
    at_every_point("batch", async |bench| {
        let _ = bench
            .plain
            .collect(&many("INSERT INTO t VALUES ($1)", 2), Scope::default())
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_leaves_nothing_behind_wherever_it_is_dropped() {
    at_every_point("transaction", async |bench| {
        let Ok(mut transaction) = bench.plain.begin(&Begin::default(), Scope::default()).await
        else {
            return;
        };
        let _ = transaction.run(&write("INSERT INTO t VALUES (1)")).await;
        let _ = transaction.savepoint("a").await;
        let _ = transaction.commit().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rollback_leaves_nothing_behind_wherever_it_is_dropped() {
    at_every_point("rollback", async |bench| {
        let Ok(transaction) = bench.plain.begin(&Begin::default(), Scope::default()).await else {
            return;
        };
        let _ = transaction.rollback().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_leaves_nothing_behind_wherever_it_is_dropped() {
    at_every_point("stream", async |bench| {
        let Ok(mut stream) = bench
            .plain
            .stream(&read("SELECT 1"), Scope::default())
            .await
        else {
            return;
        };
        while let Ok(Some(_)) = stream.next().await {}
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_dropped_takes_its_transaction_with_it() {
    let bench = Bench::new();
    let mut transaction = bench
        .plain
        .begin(&Begin::default(), Scope::default())
        .await
        .unwrap();
    bench.driver.next(Point::Run, Reply::hangs());
    assert!(
        cut_at(1, transaction.run(&write("UPDATE t SET a = 1")))
            .await
            .is_none()
    );
    let error = transaction.run(&read("SELECT 1")).await.unwrap_err();
    assert_eq!(error.code(), mainstay_sql::Code::TransactionLost);
    bench.assert_clean().await;
    assert_eq!(bench.driver.counts().rollbacks, 1);
}

#[tokio::test(start_paused = true)]
async fn a_closure_on_a_lent_connection_leaves_nothing_behind_wherever_it_is_dropped() {
    for safety in [Safety::Read, Safety::Write] {
        at_every_point("a closure", async |bench| {
            bench
                .plain
                .run(safety, Options::default(), |mut lent| async move {
                    lent.query("SELECT 1", vec![]).await?;
                    lent.execute("UPDATE t SET a = 1", vec![]).await
                })
                .await
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_script_that_only_reads_leaves_no_doubt() {
    for dialect in [Dialect::Postgres, Dialect::MySql, Dialect::Sqlite] {
        for (point, reply, code) in [
            (
                Point::Run,
                Reply::hangs().on_cancel(OnCancel::Ignores),
                Code::DeadlineExceeded,
            ),
            (Point::Run, Reply::hangs(), Code::DeadlineExceeded),
            (Point::Begin, Reply::hangs(), Code::DeadlineExceeded),
            (
                Point::Run,
                Reply::breaks(connection_lost()),
                Code::AttemptsFailed,
            ),
            (
                Point::Commit,
                Reply::breaks(connection_lost()),
                Code::AttemptsFailed,
            ),
            (Point::Commit, Reply::hangs(), Code::DeadlineExceeded),
        ] {
            let bench = Bench::of(dialect);
            let script = Request {
                work: Work::Script {
                    statements: vec!["SELECT 1".into(), "SELECT 2".into()],
                },
                ..read("")
            };
            bench.driver.next(point, reply.clone());
            let ended = bench.plain.collect(&script, Scope::default()).await;
            let error = ended.unwrap_err();
            assert_eq!(
                error.code(),
                code,
                "{dialect:?} {point:?} {reply:?}: {error}"
            );
            bench.assert_clean().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_mysql_keeps_what_commits_by_itself_and_not_what_names_a_variable() {
    for (text, sent) in [
        ("UPDATE t SET a = 1", Sent::YesUnprocessed),
        ("UPDATE t SET a = @x", Sent::YesUnprocessed),
        ("CREATE TABLE x (a int)", Sent::Maybe),
    ] {
        let bench = Bench::of(Dialect::MySql);
        bench.driver.next(Point::Run, Reply::affected(1));
        // Cut at its limit, between two steps perhaps, and rolled back.
        bench.driver.next(Point::Run, Reply::hangs());
        let ended = bench.plain.collect(&many(text, 2), Scope::default()).await;
        let error = ended.unwrap_err();
        assert_eq!(error.sent(), sent, "{text}: {error}");
        bench.assert_clean().await;
    }
}
