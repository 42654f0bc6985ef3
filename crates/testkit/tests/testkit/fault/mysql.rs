//! The proxy before a real MariaDB.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_testkit::fault::{
    Action, Answer, Cut, Fault, FaultProxy, Kind, Moment, Point, none, queue,
};
use mainstay_testkit::mariadb::{MariadbOptions, MariadbServer, MariadbSession};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};

async fn server() -> MariadbServer {
    let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
    server.sql("CREATE TABLE marks (id bigint)").await.unwrap();
    server
}

async fn raw(port: u16) -> Conn {
    let options = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .user(Some("root"))
        .db_name(Some("test"))
        .prefer_socket(false);
    Conn::new(options).await.unwrap()
}

#[tokio::test]
async fn a_plan_sees_text_parameters_and_kind_of_prepared_and_plain_statements() {
    let server = server().await;
    let seen: Arc<Mutex<Vec<Moment>>> = Arc::default();
    let notes = seen.clone();
    let proxy = FaultProxy::start_mysql(server.port(), move |moment: &Moment| {
        notes.lock().unwrap().push(moment.clone());
        None
    })
    .unwrap();
    let mut conn = raw(proxy.port()).await;
    seen.lock().unwrap().clear();
    let insert = "INSERT INTO marks VALUES (?)";
    conn.exec_drop(insert, (7_i64,)).await.unwrap();
    conn.query_drop("START TRANSACTION").await.unwrap();
    let rows: Vec<i64> = conn
        .exec("SELECT id FROM marks WHERE id = ?", (7_i64,))
        .await
        .unwrap();
    assert_eq!(rows, [7]);
    conn.query_drop("COMMIT").await.unwrap();
    let many: Vec<u64> = conn.query("SELECT seq FROM seq_1_to_5000").await.unwrap();
    assert_eq!(many.len(), 5000);
    let seen = seen.lock().unwrap();
    let kinds: Vec<Kind> = seen.iter().map(|moment| moment.kind).collect();
    assert_eq!(
        kinds,
        [
            Kind::Prepare,
            Kind::Statement,
            Kind::Begin,
            Kind::Prepare,
            Kind::Statement,
            Kind::Commit,
            Kind::Statement
        ]
    );
    assert_eq!(&*seen[1].text, insert);
    assert_eq!(seen[1].parameters[0].as_i64(), Some(7));
    assert_eq!(
        proxy.counts().statements,
        7 + 1,
        "the client's own first question"
    );
}

#[tokio::test]
async fn a_cut_at_each_point_ends_the_connection_and_its_record_is_true() {
    let server = server().await;
    let proxy = FaultProxy::start_mysql(server.port(), none()).unwrap();
    let is_insert = |moment: &Moment| moment.text.starts_with("INSERT");
    for (number, (point, forwarded)) in [
        (Point::BeforeSend, false),
        (Point::AfterSend, true),
        (Point::BeforeAnswer, true),
    ]
    .into_iter()
    .enumerate()
    {
        let session = MariadbSession::connect(proxy.port(), "test").await.unwrap();
        let fault = Fault::new(point, Action::Cut(Cut::Rst));
        proxy.set_plan(queue(is_insert, [fault]));
        let insert = format!("INSERT INTO marks VALUES ({number})");
        assert!(session.sql(&insert).await.is_err(), "{point:?}");
        proxy.settle().await.unwrap();
        let struck = proxy.struck().pop().unwrap();
        assert_eq!((struck.forwarded, struck.fault), (forwarded, fault));
        let completed = Some(Answer::Completed("1".into()));
        assert_eq!(struck.answer, completed.filter(|_| forwarded), "{point:?}");
        let count = format!("SELECT COUNT(*) FROM marks WHERE id = {number}");
        let there = server.value(&count).await.unwrap();
        assert_eq!(there, if forwarded { "1" } else { "0" }, "{point:?}");
    }
}

#[tokio::test]
async fn a_delay_answers_late_and_a_failure_is_recorded_with_its_number() {
    let server = server().await;
    let delay = Fault::new(
        Point::BeforeAnswer,
        Action::Delay(Duration::from_millis(200)),
    );
    let proxy = FaultProxy::start_mysql(server.port(), none()).unwrap();
    let session = MariadbSession::connect(proxy.port(), "test").await.unwrap();
    proxy.set_plan(queue(|_: &Moment| true, [delay, delay]));
    let begun = tokio::time::Instant::now();
    let rows = session.sql("SELECT seq FROM seq_1_to_3").await.unwrap();
    assert_eq!(rows.len(), 3);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert!(session.sql("SELECT * FROM nowhere").await.is_err());
    proxy.settle().await.unwrap();
    let answers: Vec<_> = proxy
        .struck()
        .into_iter()
        .map(|struck| struck.answer)
        .collect();
    assert_eq!(answers[1], Some(Answer::Failed("1146".into())));
}

#[tokio::test]
async fn a_hang_answers_nothing() {
    let server = server().await;
    let proxy = FaultProxy::start_mysql(server.port(), none()).unwrap();
    for point in [Point::BeforeSend, Point::AfterSend, Point::BeforeAnswer] {
        let session = MariadbSession::connect(proxy.port(), "test").await.unwrap();
        proxy.set_plan(queue(|_: &Moment| true, [Fault::new(point, Action::Hang)]));
        let asked = tokio::time::timeout(Duration::from_millis(150), session.sql("SELECT 1"));
        assert!(asked.await.is_err(), "{point:?}");
    }
}
