//! Connections that end while something is under way.

use std::time::Duration;

use mainstay_engine::{Category, Sent};
use mainstay_sql::{Access, AnswerMax, Begin, Code, Driver, Verdict};
use mainstay_testkit::fault::{Action, Cut, Fault, FaultProxy, Kind, Moment, Point};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};

use super::failures::state;
use super::place::{Place, driver, pid, rows, run, server, settings, wait_until};

#[tokio::test]
async fn a_session_terminated_in_flight_leaves_doubt() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let backend = pid(&mut session).await;
    let (result, ()) = tokio::join!(run(&mut session, "SELECT pg_sleep(10)", &[]), async {
        wait_until(backend, "wait_event = 'PgSleep'").await;
        server()
            .await
            .sql(&format!("SELECT pg_terminate_backend({backend})"))
            .await
            .unwrap();
    });
    let error = result.unwrap_err();
    assert_eq!((state(&error), error.sent()), ("57P01", Sent::Maybe));
    assert_eq!(error.failure().category, Category::Transient);
    assert!(session.is_closed());
    let error = run(&mut session, "SELECT 1", &[]).await.unwrap_err();
    assert_eq!(error.sent(), Sent::No);
    assert!(session.clean_up().await.is_err());
}

#[tokio::test]
async fn a_transaction_that_stays_idle_too_long_is_lost() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(
        &mut session,
        "SET idle_in_transaction_session_timeout = '20ms'",
    )
    .await;
    session.begin(&Begin::default()).await.unwrap();
    for _ in 0..500 {
        if session.is_closed() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let error = run(&mut session, "SELECT 1", &[]).await.unwrap_err();
    assert_eq!(
        (error.code(), error.detail().verdict),
        (Code::TransactionLost, Verdict::LeaseLost)
    );
    assert_eq!(error.sent(), Sent::No);
}

#[tokio::test]
async fn a_stopped_server_is_found_and_a_started_one_used_again() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let driver = driver(settings(&server));
    let mut session = driver.connect(Access::ReadWrite).await.unwrap();
    let mut busy = driver.connect(Access::ReadWrite).await.unwrap();
    let (result, ()) = tokio::join!(run(&mut busy, "SELECT pg_sleep(10)", &[]), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.stop_fast().await.unwrap();
    });
    let error = result.unwrap_err();
    assert_eq!((state(&error), error.sent()), ("57P01", Sent::Maybe));
    let error = run(&mut session, "SELECT 1", &[]).await.unwrap_err();
    assert_eq!(
        (error.sent(), error.failure().category),
        (Sent::No, Category::Transient),
        "{error}"
    );
    let Err(error) = driver.connect(Access::ReadWrite).await else {
        panic!("connected to nothing")
    };
    assert_eq!(
        (error.sent(), error.failure().category),
        (Sent::No, Category::Transient),
        "{error}"
    );
    server.start_again().await.unwrap();
    assert!(driver.connect(Access::ReadWrite).await.is_ok());
}

#[tokio::test]
async fn a_killed_server_leaves_doubt_about_a_commit() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let driver = driver(settings(&server));
    let mut session = driver.connect(Access::ReadWrite).await.unwrap();
    let handed = std::sync::atomic::AtomicBool::new(false);
    session.begin(&Begin::default()).await.unwrap();
    rows(&mut session, "CREATE TABLE t (a int4)").await;
    server.sigstop().unwrap();
    let mark = || handed.store(true, std::sync::atomic::Ordering::Relaxed);
    let (result, ()) = tokio::join!(session.commit(&mark), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.kill9().await.unwrap();
    });
    let error = result.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::OutcomeUnknown, Sent::Maybe),
        "{error}"
    );
    assert!(handed.into_inner());
}

#[tokio::test]
async fn a_server_that_does_not_answer_ends_the_connect_at_its_limit() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let mut limited = settings(&server);
    limited.connect_timeout = Duration::from_millis(100);
    server.sigstop().unwrap();
    let Err(error) = driver(limited).connect(Access::ReadOnly).await else {
        panic!("connected")
    };
    server.sigcont().unwrap();
    assert_eq!(
        (error.sent(), error.failure().category),
        (Sent::No, Category::Timeout),
        "{error}"
    );
}

#[tokio::test]
async fn ending_the_drivers_tasks_ends_its_sessions() {
    let tasks = mainstay_engine::tasks::Tasks::new();
    let driver = mainstay_postgres::PostgresDriver::new(settings(server().await), tasks.clone());
    let mut session = driver.connect(Access::ReadOnly).await.unwrap();
    assert_eq!(tasks.running(), 1);
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
    assert!(session.is_closed());
    assert!(
        session
            .run("SELECT 1", &[], AnswerMax::default(), &|| {})
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_lost_rollback_does_not_hide_what_a_commit_said() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    for text in [
        "CREATE TABLE t (state text)",
        "CREATE FUNCTION refuses() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = NEW.state; END $$",
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION refuses()",
    ] {
        rows(&mut session, text).await;
    }
    for (cut, point) in [
        (Cut::Rst, Point::BeforeSend),
        (Cut::Fin, Point::BeforeAnswer),
    ] {
        let plan = move |moment: &Moment| {
            let fault = Fault::new(point, Action::Cut(cut));
            (moment.kind == Kind::Rollback).then_some(fault)
        };
        let proxy = FaultProxy::start(server().await.port(), plan).unwrap();
        let mut through = place.settings.clone();
        through.port = proxy.port();
        let through = driver(through);
        for (refusal, code, sent) in [
            ("08007", Code::OutcomeUnknown, Sent::Maybe),
            ("40003", Code::OutcomeUnknown, Sent::Maybe),
            ("23505", Code::Constraint, Sent::YesUnprocessed),
        ] {
            let mut session = through.connect(Access::ReadWrite).await.unwrap();
            session.begin(&Begin::default()).await.unwrap();
            let insert = format!("INSERT INTO t VALUES ('{refusal}')");
            rows(&mut session, &insert).await;
            let error = session.commit(&|| {}).await.unwrap_err();
            assert_eq!(
                (state(&error), error.code(), error.sent()),
                (refusal, code, sent),
                "{point:?}: {error}"
            );
            assert!(session.is_closed(), "{refusal} {point:?}");
        }
    }
}
