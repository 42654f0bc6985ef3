use std::time::Duration;

use mainstay_engine::{Category, Failure, Sent};
use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{
    AnswerMax, Code, Database, Dialect, Position, Probe, Scope, SqlError, State, Value, Verdict,
    stray,
};
use mainstay_testkit::scripted::reply::{connection_lost, constraint_broken, interrupted, refused};
use mainstay_testkit::scripted::{OnCancel, Point, Reply};

use crate::{Bench, many, read, request, write};

async fn fails(bench: &Bench, request: &mainstay_sql::Request) -> SqlError {
    bench
        .plain
        .collect(request, Scope::default())
        .await
        .unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_read_that_takes_too_long_ends_with_a_timeout_and_is_cancelled_at_the_server() {
    let bench = Bench::new();
    bench.driver.next(Point::Run, Reply::hangs());
    let error = fails(&bench, &read("SELECT 1")).await;
    assert_eq!(error.failure().category, Category::Timeout);
    assert_eq!(error.code(), Code::DeadlineExceeded);
    bench.assert_clean().await;
    assert_eq!(bench.driver.counts().cancels, 1);
    assert_eq!(bench.driver.counts().clean_ups, 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_cut_says_what_the_server_proved() {
    let second = Duration::from_secs(1);
    let hang = Reply::hangs;
    for (text, reply, code, sent) in [
        (
            "INSERT INTO t VALUES (1)",
            hang(),
            Code::DeadlineExceeded,
            Sent::YesUnprocessed,
        ),
        ("CALL p()", hang(), Code::OutcomeUnknown, Sent::Maybe),
        (
            "INSERT INTO t VALUES (1)",
            hang().on_cancel(OnCancel::Finishes),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
        (
            "INSERT INTO t VALUES (1)",
            hang().on_cancel(OnCancel::Ignores),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
        (
            "INSERT INTO t VALUES (1)",
            hang().wait_before(3 * second),
            Code::DeadlineExceeded,
            Sent::No,
        ),
        (
            "INSERT INTO t VALUES (1)",
            Reply::fails(constraint_broken())
                .wait_after(Duration::from_millis(2100))
                .on_cancel(OnCancel::Ignores),
            Code::Constraint,
            Sent::YesUnprocessed,
        ),
        (
            "INSERT INTO t VALUES (1)",
            Reply::breaks(connection_lost())
                .wait_after(3 * second)
                .on_cancel(OnCancel::Finishes),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
    ] {
        let bench = Bench::new();
        bench.driver.next(Point::Run, reply.clone());
        let error = fails(&bench, &write(text)).await;
        assert_eq!(
            (error.code(), error.sent()),
            (code, sent),
            "{text} {reply:?}"
        );
        bench.assert_clean().await;
        assert_eq!(bench.driver.counts().idle_cancels, 0, "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_waits_at_most_a_quarter_of_a_second_for_the_proof() {
    let bench = Bench::new();
    bench
        .driver
        .next(Point::Run, Reply::hangs().on_cancel(OnCancel::Ignores));
    let started = tokio::time::Instant::now();
    fails(&bench, &write("INSERT INTO t VALUES (1)")).await;
    let took = started.elapsed();
    assert!(
        took >= Duration::from_millis(2250) && took < Duration::from_millis(2300),
        "{took:?}"
    );
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_is_not_delivered_closes_the_connection() {
    let bench = Bench::new();
    bench.driver.always(Point::Cancel, Reply::hangs());
    let late = Reply::affected(1).wait_after(Duration::from_millis(2100));
    bench.driver.next(Point::Run, late);
    let error = fails(&bench, &write("INSERT INTO t VALUES (1)")).await;
    assert_eq!(error.code(), Code::OutcomeUnknown);
    bench.assert_clean().await;
    assert_eq!(
        bench.driver.counts().closes,
        1,
        "it could hit the next statement"
    );
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_server_keep_their_code_unless_their_effect_is_unknown() {
    for (text, error, code, sent) in [
        (
            "INSERT INTO t VALUES (1)",
            constraint_broken(),
            Code::Constraint,
            Sent::YesUnprocessed,
        ),
        (
            "CALL p()",
            constraint_broken(),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
        (
            "CALL p()",
            stray::opened(Sent::YesUnprocessed),
            Code::BadStatement,
            Sent::YesUnprocessed,
        ),
        (
            "CALL p()",
            stray::opened(Sent::Maybe),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
        (
            "INSERT INTO t VALUES (1)",
            connection_lost(),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
        (
            "UPDATE t SET a = 1",
            interrupted(),
            Code::Cancelled,
            Sent::YesUnprocessed,
        ),
    ] {
        let bench = Bench::new();
        bench.driver.next(Point::Run, Reply::fails(error));
        let error = fails(&bench, &write(text)).await;
        assert_eq!((error.code(), error.sent()), (code, sent), "{text}");
        bench.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn connecting_counts_within_the_limit_and_sends_nothing() {
    let bench = Bench::new();
    let refused = refused().hint("see whether it runs");
    bench.driver.next(Point::Connect, Reply::fails(refused));
    let error = fails(&bench, &write("INSERT INTO t VALUES (1)")).await;
    assert_eq!(
        (error.code(), error.sent()),
        (Code::AttemptsFailed, Sent::No)
    );
    let hint = error.detail().hint.as_deref();
    assert_eq!(hint, Some("see whether it runs"));
    assert_eq!(bench.plain.state(), State::Broken);

    bench.driver.next(Point::Connect, Reply::hangs());
    let error = fails(&bench, &write("INSERT INTO t VALUES (1)")).await;
    assert_eq!(
        (error.failure().category, error.sent()),
        (Category::Timeout, Sent::No)
    );

    bench
        .plain
        .collect(&read("SELECT 1"), Scope::default())
        .await
        .unwrap();
    assert_eq!(bench.plain.state(), State::Open);
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_place_in_the_pool_is_a_refusal_of_our_own() {
    let bench = Bench::with(Dialect::Postgres, |settings| {
        settings.pool.active_max = 1;
        settings.pool.idle_max = 1;
    });
    bench.driver.next(
        Point::Run,
        Reply::answer(Default::default()).wait_after(Duration::from_secs(2)),
    );
    let (slow, fast) = (read("SELECT 1"), {
        let mut fast = read("SELECT 2");
        fast.options.deadline = Some(Duration::from_secs(1));
        fast
    });
    let (first, second) = tokio::join!(
        bench.plain.collect(&slow, Scope::default()),
        bench.plain.collect(&fast, Scope::default())
    );
    first.unwrap();
    let error = second.unwrap_err();
    assert_eq!((error.code(), error.sent()), (Code::PoolTimeout, Sent::No));
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_prepared_statement_is_prepared_again_once() {
    let stale = || {
        let failure = Failure::new(Category::Unknown, "cached plan must not change result type");
        SqlError::new(Code::Internal, failure.sent(Sent::YesUnprocessed))
            .verdict(Verdict::PrepareAgain)
    };
    let bench = Bench::new();
    bench.driver.next(Point::Run, Reply::fails(stale()));
    bench
        .plain
        .collect(&write("UPDATE t SET a = 1"), Scope::default())
        .await
        .unwrap();
    bench.driver.next(Point::Run, Reply::fails(stale()));
    bench.driver.next(Point::Run, Reply::fails(stale()));
    fails(&bench, &write("UPDATE t SET a = 1")).await;
    assert_eq!(bench.driver.counts().statements, 4);
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_hidden_write_runs_once_more_as_a_write_and_is_remembered() {
    let read_only = || {
        let failure = Failure::new(
            Category::Unknown,
            "cannot execute INSERT in a read-only transaction",
        );
        SqlError::new(
            Code::BadStatement,
            failure.code("25006").sent(Sent::YesUnprocessed),
        )
        .verdict(Verdict::ReadOnly)
    };
    let bench = Bench::new();
    bench.driver.next(Point::Run, Reply::fails(read_only()));
    bench
        .plain
        .collect(&read("SELECT * FROM view_that_writes"), Scope::default())
        .await
        .unwrap();
    assert_eq!(bench.driver.counts().statements, 2);
    let class = bench
        .plain
        .schema()
        .classify("select * from VIEW_THAT_WRITES");
    assert!(!class.safety.is_read());

    let mut declared = read("SELECT * FROM other_view");
    declared.options.safety = Some(mainstay_engine::Safety::Read);
    bench.driver.next(Point::Run, Reply::fails(read_only()));
    fails(&bench, &declared).await;
    assert_eq!(
        bench.driver.counts().statements,
        3,
        "what is declared a read stays one"
    );
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn statements_that_would_change_a_pooled_session_are_refused() {
    let bench = Bench::new();
    for text in [
        "BEGIN",
        "COMMIT",
        "SAVEPOINT a",
        "SET search_path = x",
        "SELECT 1; ROLLBACK",
    ] {
        let error = fails(&bench, &write(text)).await;
        assert_eq!(
            (error.code(), error.sent()),
            (Code::BadStatement, Sent::No),
            "{text}"
        );
        assert!(error.detail().hint.is_some());
    }
    assert_eq!(bench.driver.counts().connects, 0);
}

#[tokio::test(start_paused = true)]
async fn only_what_may_leave_something_behind_is_reset() {
    let bench = Bench::new();
    for (text, resets) in [
        ("SELECT 1", 0),
        ("INSERT INTO t VALUES (1)", 0),
        ("CREATE TEMP TABLE x (a int)", 1),
        ("SELECT set_config('a', 'b', false)", 2),
        ("this is not SQL", 3),
    ] {
        let safety = bench.plain.schema().classify(text).safety;
        bench
            .plain
            .collect(&request(text, safety), Scope::default())
            .await
            .unwrap();
        bench.assert_clean().await;
        assert_eq!(bench.driver.counts().resets, resets, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_beyond_its_bounds_is_refused_by_name() {
    let bench = Bench::new();
    let rows = vec![vec![Value::I64(1)]; 3];
    bench.driver.always(Point::Run, Reply::rows(rows));
    let mut wanted = read("SELECT 1");
    wanted.answer_max = AnswerMax {
        rows: 2,
        bytes: u64::MAX,
    };
    assert_eq!(fails(&bench, &wanted).await.code(), Code::AnswerTooLarge);
    wanted.answer_max = AnswerMax {
        rows: u64::MAX,
        bytes: 10,
    };
    assert_eq!(fails(&bench, &wanted).await.code(), Code::AnswerTooLarge);
    wanted.answer_max = AnswerMax {
        rows: 3,
        bytes: 10_000,
    };
    assert_eq!(
        bench
            .plain
            .collect(&wanted, Scope::default())
            .await
            .unwrap()
            .rows
            .len(),
        3
    );
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_zero_is_refused() {
    let bench = Bench::new();
    let mut wanted = read("SELECT 1");
    wanted.options.deadline = Some(Duration::ZERO);
    assert_eq!(fails(&bench, &wanted).await.code(), Code::BadRequest);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_transaction_that_ends_whole_or_not_at_all() {
    let bench = Bench::new();
    bench.driver.always(Point::Run, Reply::affected(1));
    let answer = bench
        .plain
        .collect(&many("INSERT INTO t VALUES ($1)", 3), Scope::default())
        .await
        .unwrap();
    assert_eq!(answer.affected, Some(3));
    assert_eq!(bench.driver.counts().commits, 1);

    bench.driver.next(Point::Run, Reply::affected(1));
    bench
        .driver
        .next(Point::Run, Reply::fails(constraint_broken()));
    let error = fails(&bench, &many("INSERT INTO t VALUES ($1)", 3)).await;
    assert_eq!(
        (error.code(), error.sent()),
        (Code::Constraint, Sent::YesUnprocessed)
    );
    assert_eq!(error.detail().place, [("statement", "2".to_owned())]);
    assert_eq!(
        (
            bench.driver.counts().commits,
            bench.driver.counts().rollbacks
        ),
        (1, 1)
    );

    bench
        .driver
        .next(Point::Run, Reply::breaks(connection_lost()));
    let error = fails(&bench, &many("INSERT INTO t VALUES ($1)", 3)).await;
    assert_eq!(error.sent(), Sent::YesUnprocessed, "no COMMIT was sent");

    bench
        .driver
        .next(Point::Commit, Reply::breaks(connection_lost()));
    let error = fails(&bench, &many("INSERT INTO t VALUES ($1)", 3)).await;
    assert_eq!(
        (error.code(), error.sent()),
        (Code::OutcomeUnknown, Sent::Maybe)
    );
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_cut_is_rolled_back_unless_its_commit_was_sent() {
    for (point, reply, code, sent) in [
        (
            Point::Run,
            Reply::hangs(),
            Code::DeadlineExceeded,
            Sent::YesUnprocessed,
        ),
        (
            Point::Run,
            Reply::affected(1)
                .wait_after(Duration::from_millis(2100))
                .on_cancel(OnCancel::Ignores),
            Code::DeadlineExceeded,
            Sent::YesUnprocessed,
        ),
        (
            Point::Begin,
            Reply::hangs(),
            Code::DeadlineExceeded,
            Sent::No,
        ),
        (
            Point::Commit,
            Reply::hangs(),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
        (
            Point::Commit,
            Reply::default().wait_after(Duration::from_millis(2100)),
            Code::OutcomeUnknown,
            Sent::Maybe,
        ),
    ] {
        let bench = Bench::new();
        bench.driver.next(point, reply.clone());
        let error = fails(&bench, &many("INSERT INTO t VALUES ($1)", 2)).await;
        assert_eq!(
            (error.sent(), error.code()),
            (sent, code),
            "{point:?} {reply:?}"
        );
        bench.assert_clean().await;
        assert_eq!(bench.driver.counts().commits, 0, "{point:?} {reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn health_checks_keep_a_connection_of_their_own() {
    let bench = Bench::with(Dialect::Postgres, |settings| settings.pool.active_max = 1);
    bench.driver.set_probe(Ok(Probe {
        is_primary: Some(true),
        ..Probe::default()
    }));
    for _ in 0..3 {
        assert_eq!(bench.plain.probe().await.unwrap().is_primary, Some(true));
    }
    assert_eq!(bench.driver.counts().connects, 1);
    assert_eq!(bench.plain.pool_stats().misses, 0);
    bench
        .driver
        .next(Point::Probe, Reply::fails(connection_lost()));
    bench.plain.probe().await.unwrap_err();
    bench.plain.probe().await.unwrap();
    assert_eq!(
        bench.driver.counts().connects,
        2,
        "a failed check opens a new one"
    );
}

#[tokio::test(start_paused = true)]
async fn the_catalog_and_the_position_are_asked_on_a_pooled_connection() {
    let bench = Bench::new();
    let answer = bench
        .plain
        .describe(&Describe::Entities, Scope::default())
        .await
        .unwrap();
    assert_eq!(answer, Description::Entities(Vec::new()));
    bench.driver.set_position(Some(Position::Lsn(7)));
    assert_eq!(
        bench.plain.position().await.unwrap(),
        Some(Position::Lsn(7))
    );
    bench.driver.next(Point::Describe, Reply::hangs());
    let error = bench
        .plain
        .describe(&Describe::Entities, Scope::default())
        .await
        .unwrap_err();
    assert_eq!(error.failure().category, Category::Timeout);
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_database_lends_nothing() {
    let bench = Bench::new();
    bench
        .plain
        .collect(&read("SELECT 1"), Scope::default())
        .await
        .unwrap();
    bench.plain.close(Duration::from_secs(1)).await;
    assert_eq!(bench.plain.state(), State::Closed);
    assert_eq!(
        fails(&bench, &read("SELECT 1")).await.code(),
        Code::Draining
    );
    assert!(bench.driver.sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_before_the_hand_over_proves_itself_whatever_the_statement() {
    for text in [
        "SELEC 1",
        "CALL p()",
        "VACUUM t",
        "INSERT INTO t VALUES (1)",
    ] {
        for hands_over in [false, true] {
            let bench = Bench::new();
            let mut reply = Reply::fails(constraint_broken());
            if !hands_over {
                reply = reply.hands_nothing_over();
            }
            bench.driver.next(Point::Run, reply);
            let error = bench
                .plain
                .collect(&write(text), Scope::default())
                .await
                .unwrap_err();
            let proves = !hands_over || text.starts_with("INSERT");
            assert_eq!(error.sent().is_proven_harmless(), proves, "{text}");
            bench.assert_clean().await;
        }
    }
}
