//! Connections that end: before a statement, in the middle of one, at COMMIT.

use std::time::Duration;

use mainstay_engine::{Category, Sent};
use mainstay_sql::{Begin, Code, Value, Verdict};
use mainstay_testkit::fault::{Action, Cut, Fault, FaultProxy, Kind, Moment, Point};

use super::place::{Place, id, number, rows, run, value};

#[tokio::test]
async fn an_idle_session_that_the_server_ended_is_known_to_be_gone() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let own = id(&mut session).await;
    assert!(!session.is_closed());
    place.server.sql(&format!("KILL {own}")).await.unwrap();
    for _ in 0..200 {
        if session.is_closed() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the session looks alive");
}

#[tokio::test]
async fn a_transaction_goes_with_its_connection() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int)").await;
    session.begin(&Begin::default()).await.unwrap();
    rows(&mut session, "INSERT INTO t VALUES (1)").await;
    place.server.kill9().await.unwrap();
    let error = run(&mut session, "INSERT INTO t VALUES (2)", &[])
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.detail().verdict),
        (Code::TransactionLost, Verdict::LeaseLost)
    );
    assert!(session.commit(&|| {}).await.is_err());
    place.server.start_again().await.unwrap();
    let mut next = place.writer().await;
    assert_eq!(
        value(&mut next, "SELECT COUNT(*) FROM t").await,
        Value::I64(0)
    );
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_unknown() {
    let place = Place::new().await;
    let proxy = FaultProxy::start_raw(place.server.port()).unwrap();
    let mut settings = place.settings.clone();
    settings.port = proxy.port();
    let through = super::place::driver(settings);
    let mut session = mainstay_sql::Driver::connect(&through, mainstay_sql::Access::ReadWrite)
        .await
        .unwrap();
    rows(&mut session, "CREATE TABLE t (a int)").await;
    session.begin(&Begin::default()).await.unwrap();
    rows(&mut session, "INSERT INTO t VALUES (1)").await;
    proxy.black_hole(true);
    let (ended, ()) = tokio::join!(session.commit(&|| {}), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.cut_all(Cut::Rst);
    });
    let error = ended.unwrap_err();
    assert_eq!(
        (error.code(), error.sent(), error.failure().category),
        (Code::OutcomeUnknown, Sent::Maybe, Category::Transient)
    );
    assert!(session.is_closed());
}

#[tokio::test]
async fn a_session_over_a_silent_line_is_given_up_by_its_clean_up() {
    let place = Place::new().await;
    let proxy = FaultProxy::start_raw(place.server.port()).unwrap();
    let mut settings = place.settings.clone();
    settings.port = proxy.port();
    settings.connect_timeout = Duration::from_millis(300);
    let through = super::place::driver(settings);
    let mut session = mainstay_sql::Driver::connect(&through, mainstay_sql::Access::ReadWrite)
        .await
        .unwrap();
    proxy.black_hole(true);
    let work = run(&mut session, "SELECT 1", &[]);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), work)
            .await
            .is_err()
    );
    let cleaned = tokio::time::timeout(Duration::from_secs(30), session.clean_up()).await;
    assert!(cleaned.expect("it gives up").is_err());
    assert!(session.is_closed());
}

#[tokio::test]
async fn a_lost_rollback_does_not_hide_what_a_commit_said() {
    let place = Place::new().await;
    place.server.create_user("app", "").await.unwrap();
    let mut settings = place.settings.clone();
    settings.user = "app".into();
    for (cut, point) in [
        (Cut::Rst, Point::BeforeSend),
        (Cut::Fin, Point::BeforeAnswer),
    ] {
        let plan = move |moment: &Moment| {
            let fault = Fault::new(point, Action::Cut(cut));
            (moment.kind == Kind::Rollback).then_some(fault)
        };
        let proxy = FaultProxy::start_mysql(place.server.port(), plan).unwrap();
        settings.port = proxy.port();
        let through = super::place::driver(settings.clone());
        for (ddl, code, sent) in [
            (
                Some("CREATE OR REPLACE TABLE x (a int)"),
                Code::OutcomeUnknown,
                Sent::Maybe,
            ),
            (None, Code::BadStatement, Sent::YesUnprocessed),
        ] {
            let mut session =
                mainstay_sql::Driver::connect(&through, mainstay_sql::Access::ReadWrite)
                    .await
                    .unwrap();
            rows(&mut session, "CREATE OR REPLACE TABLE t (a int)").await;
            session.begin(&Begin::default()).await.unwrap();
            rows(&mut session, "INSERT INTO t VALUES (1)").await;
            if let Some(ddl) = ddl {
                rows(&mut session, ddl).await;
                rows(&mut session, "INSERT INTO t VALUES (2)").await;
            }
            // Refuses the COMMIT of what has written already, and leaves the session alive.
            place.server.set("read_only", "ON").await.unwrap();
            let error = session.commit(&|| {}).await.unwrap_err();
            place.server.set("read_only", "OFF").await.unwrap();
            assert_eq!(
                (number(&error), error.code(), error.sent()),
                (1290, code, sent),
                "{ddl:?} {point:?}: {error}"
            );
            assert!(session.is_closed(), "{ddl:?} {point:?}");
        }
    }
}
