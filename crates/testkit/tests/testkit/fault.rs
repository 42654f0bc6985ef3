//! The fault proxy: each fault at each moment, and what it says happened, compared with the server.

mod load;
mod mysql;
mod outage;

use std::time::Duration;

use mainstay_testkit::fault::{
    self, Action, Answer, Cut, Fault, FaultProxy, Kind, Moment, Point, Struck,
};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer, Session};
use tokio::time::{Instant, timeout};

/// Longer than anything takes here unless it hangs.
const SOON: Duration = Duration::from_secs(5);
/// Long enough to tell a hang from an answer.
const NEVER: Duration = Duration::from_millis(250);
const DELAY: Duration = Duration::from_millis(800);

async fn server() -> PostgresServer {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    server
        .sql("CREATE TABLE t (id bigint PRIMARY KEY)")
        .await
        .unwrap();
    server
}

/// A proxy that strikes the next statement for which `when` holds.
fn striking(
    server: &PostgresServer,
    fault: Fault,
    when: impl Fn(&Moment) -> bool + Send + 'static,
) -> FaultProxy {
    FaultProxy::start(server.port(), fault::queue(when, [fault])).unwrap()
}

async fn session(proxy: &FaultProxy) -> Session {
    Session::connect(&proxy.url("postgres")).await.unwrap()
}

async fn ids(server: &PostgresServer) -> String {
    let ids = "SELECT coalesce(string_agg(id::text, ' ' ORDER BY id), '') FROM t";
    server.value(ids).await.unwrap()
}

/// The one statement that was struck, when all about it is known.
async fn only(proxy: &FaultProxy) -> Struck {
    proxy.settle().await.unwrap();
    let mut struck = proxy.struck();
    assert_eq!(struck.len(), 1, "{struck:?}");
    struck.remove(0)
}

fn is_run(moment: &Moment) -> bool {
    moment.kind != Kind::Prepare && moment.text.starts_with("INSERT")
}

#[tokio::test]
async fn without_a_plan_everything_passes_and_is_counted() {
    let server = server().await;
    let proxy = FaultProxy::start(server.port(), fault::none()).unwrap();
    let session = session(&proxy).await;
    let insert = session.prepare("INSERT INTO t VALUES ($1)").await.unwrap();
    session.execute(&insert, &[&1_i64]).await.unwrap();
    let rows = session
        .query(
            "SELECT repeat('x', 100000) FROM generate_series(1, 200)",
            &[],
        )
        .await;
    assert_eq!(rows.unwrap().len(), 200);
    let refused = session.execute(&insert, &[&1_i64]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "23505");
    assert_eq!(session.value("SELECT count(*) FROM t").await.unwrap(), "1");
    let counts = proxy.counts();
    assert_eq!(counts.connections, 1);
    assert!(counts.statements >= 5, "{counts:?}");
    assert_eq!(proxy.struck(), []);
}

#[tokio::test]
async fn a_plan_sees_text_parameters_and_kind_of_prepared_and_plain_statements() {
    let server = server().await;
    let (sender, seen) = std::sync::mpsc::channel();
    let plan = move |moment: &Moment| {
        sender.send(moment.clone()).unwrap();
        None
    };
    let proxy = FaultProxy::start(server.port(), plan).unwrap();
    let mut session = Session::connect(&proxy.url("postgres")).await.unwrap();
    let insert = session.prepare("INSERT INTO t VALUES ($1)").await.unwrap();
    let transaction = session.transaction().await.unwrap();
    transaction.execute(&insert, &[&41_i64]).await.unwrap();
    transaction.commit().await.unwrap();
    let seen: Vec<Moment> = seen.try_iter().collect();
    let kinds: Vec<_> = seen.iter().map(|moment| moment.kind).collect();
    assert_eq!(
        kinds,
        [Kind::Prepare, Kind::Begin, Kind::Statement, Kind::Commit]
    );
    assert_eq!(&*seen[2].text, "INSERT INTO t VALUES ($1)");
    assert_eq!(seen[2].parameters[0].as_i64(), Some(41));
    assert_eq!(
        seen.iter().map(|moment| moment.number).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
}

/// For each point: whether the statement must have been forwarded, and so run.
const POINTS: [(Point, bool); 3] = [
    (Point::BeforeSend, false),
    (Point::AfterSend, true),
    (Point::BeforeAnswer, true),
];

#[tokio::test]
async fn a_cut_at_each_point_ends_the_connection_and_its_record_is_true() {
    let server = server().await;
    let mut expected = Vec::new();
    for (number, (point, runs, form)) in POINTS
        .into_iter()
        .flat_map(|(p, runs)| [(p, runs, Cut::Fin), (p, runs, Cut::Rst)])
        .enumerate()
    {
        let fault = Fault::new(point, Action::Cut(form));
        let proxy = striking(&server, fault, is_run);
        let session = session(&proxy).await;
        let insert = session.prepare("INSERT INTO t VALUES ($1)").await.unwrap();
        let id = i64::try_from(number).unwrap();
        let result = timeout(SOON, session.execute(&insert, &[&id]))
            .await
            .expect("it is cut");
        assert!(result.is_err(), "{fault:?}");
        assert!(session.is_closed(), "{fault:?}");

        let struck = only(&proxy).await;
        assert_eq!(
            (struck.fault, struck.planned, struck.forwarded),
            (fault, true, runs)
        );
        assert_eq!(struck.moment.parameters[0].as_i64(), Some(id));
        let answer = runs.then(|| Answer::Completed("INSERT 0 1".to_owned()));
        assert_eq!(struck.answer, answer, "{fault:?}");
        if runs {
            expected.push(id.to_string());
        }
        assert_eq!(ids(&server).await, expected.join(" "), "{fault:?}");
    }
}

#[tokio::test]
async fn a_hang_at_each_point_answers_nothing_and_its_record_is_true() {
    let server = server().await;
    let mut expected = Vec::new();
    for (id, (point, runs)) in POINTS.into_iter().enumerate() {
        let fault = Fault::new(point, Action::Hang);
        let proxy = striking(&server, fault, is_run);
        let session = session(&proxy).await;
        let insert = format!("INSERT INTO t VALUES ({id})");
        assert!(
            timeout(NEVER, session.sql(&insert)).await.is_err(),
            "{fault:?}"
        );
        assert!(
            timeout(NEVER, session.sql("SELECT 1")).await.is_err(),
            "and nothing after it"
        );
        assert!(!session.is_closed());
        drop(session);

        proxy.settle().await.unwrap();
        let struck = proxy.struck();
        assert_eq!((struck[0].fault, struck[0].forwarded), (fault, runs));
        assert_eq!(struck[0].answer.is_some(), runs);
        assert!(
            !struck[1].planned && !struck[1].forwarded,
            "the one after the hang: {struck:?}"
        );
        if runs {
            expected.push(id.to_string());
        }
        assert_eq!(ids(&server).await, expected.join(" "), "{fault:?}");
    }
}

#[tokio::test]
async fn a_delay_at_each_point_answers_late_and_right() {
    let server = server().await;
    for (id, (point, _)) in POINTS.into_iter().enumerate() {
        let fault = Fault::new(point, Action::Delay(DELAY));
        let proxy = striking(&server, fault, is_run);
        let session = session(&proxy).await;
        let begun = Instant::now();
        let insert = format!("INSERT INTO t VALUES ({id})");
        let inserting = session.sql(&insert);
        tokio::pin!(inserting);
        assert!(
            timeout(DELAY / 2, &mut inserting).await.is_err(),
            "{fault:?}"
        );
        let mut ran_early = false;
        while begun.elapsed() < DELAY && !ran_early {
            let there = ids(&server).await.contains(&id.to_string());
            ran_early = there && begun.elapsed() < DELAY;
        }
        assert_eq!(ran_early, point != Point::BeforeSend, "{fault:?}");
        timeout(SOON, inserting)
            .await
            .expect("it is only late")
            .unwrap();
        assert!(begun.elapsed() >= DELAY);
        assert!(only(&proxy).await.forwarded);
        assert_eq!(
            session.value("SELECT 1").await.unwrap(),
            "1",
            "the connection lives on"
        );
    }
}

#[tokio::test]
async fn a_commit_can_be_struck_at_each_point() {
    let server = server().await;
    let actions = [Action::Cut(Cut::Fin), Action::Cut(Cut::Rst), Action::Hang];
    let mut expected = Vec::new();
    let faults = POINTS
        .into_iter()
        .flat_map(|(point, runs)| actions.map(|a| (point, a, runs)));
    for (id, (point, action, runs)) in faults.enumerate() {
        let fault = Fault::new(point, action);
        let proxy = striking(&server, fault, |moment| moment.kind == Kind::Commit);
        let session = session(&proxy).await;
        session.sql("BEGIN").await.unwrap();
        session
            .sql(&format!("INSERT INTO t VALUES ({id})"))
            .await
            .unwrap();
        let commit = timeout(NEVER, session.sql("COMMIT")).await;
        assert!(!matches!(commit, Ok(Ok(_))), "{fault:?}");
        drop(session);

        let struck = only(&proxy).await;
        assert_eq!((struck.moment.kind, struck.forwarded), (Kind::Commit, runs));
        let answer = runs.then(|| Answer::Completed("COMMIT".to_owned()));
        assert_eq!(struck.answer, answer, "{fault:?}");
        if runs {
            expected.push(id.to_string());
        }
        assert_eq!(ids(&server).await, expected.join(" "), "{fault:?}");
    }
}

#[tokio::test]
async fn the_record_of_a_statement_that_failed_holds_its_sqlstate() {
    let server = server().await;
    server.sql("INSERT INTO t VALUES (1)").await.unwrap();
    let fault = Fault::new(Point::BeforeAnswer, Action::Cut(Cut::Rst));
    let proxy = striking(&server, fault, is_run);
    let session = session(&proxy).await;
    assert!(session.sql("INSERT INTO t VALUES (1)").await.is_err());
    assert_eq!(
        only(&proxy).await.answer,
        Some(Answer::Failed("23505".to_owned()))
    );
}

#[tokio::test]
async fn pipelined_statements_behind_a_cut_are_recorded_as_its_company() {
    let server = server().await;
    let fault = Fault::new(Point::BeforeSend, Action::Cut(Cut::Rst));
    let proxy = striking(&server, fault, |moment| moment.text.ends_with("(2)"));
    let session = session(&proxy).await;
    let (slow, struck, behind) = tokio::join!(
        session.sql("INSERT INTO t SELECT 1 FROM pg_sleep(0.3)"),
        session.sql("INSERT INTO t VALUES (2)"),
        session.sql("INSERT INTO t VALUES (3)"),
    );
    assert!(slow.is_err() && struck.is_err() && behind.is_err());
    proxy.settle().await.unwrap();
    let mut seen: Vec<_> = proxy
        .struck()
        .into_iter()
        .map(|struck| (struck.moment.number, struck.planned, struck.forwarded))
        .collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [(0, false, true), (1, true, false), (2, false, false)]
    );
    assert_eq!(ids(&server).await, "1");
}

#[tokio::test]
async fn a_copy_passes_and_its_end_can_be_struck() {
    let server = server().await;
    let proxy = FaultProxy::start(server.port(), fault::none()).unwrap();
    let session = session(&proxy).await;
    for (rows, fault) in [
        ("1\n2\n", None),
        (
            "3\n",
            Some(Fault::new(Point::AfterSend, Action::Delay(DELAY))),
        ),
    ] {
        proxy.set_plan(fault::queue(
            |moment| moment.text.starts_with("COPY"),
            fault,
        ));
        let sink = session
            .copy_in::<_, bytes::Bytes>("COPY t FROM STDIN")
            .await
            .unwrap();
        let mut sink = std::pin::pin!(sink);
        use futures_util::SinkExt;
        sink.send(bytes::Bytes::from_static(rows.as_bytes()))
            .await
            .unwrap();
        sink.finish().await.unwrap();
    }
    assert_eq!(session.value("SELECT count(*) FROM t").await.unwrap(), "3");
}

#[tokio::test]
async fn a_client_that_ended_its_half_sees_the_servers_end_and_not_earlier() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = FaultProxy::start_raw(listener.local_addr().unwrap().port()).unwrap();
    let mut client = tokio::net::TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .unwrap();
    client.write_all(b"stop").await.unwrap();
    client.shutdown().await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let mut said = Vec::new();
    server.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, b"stop");
    let mut rest = [0; 1];
    assert!(
        timeout(NEVER, client.read(&mut rest)).await.is_err(),
        "the server has not ended it yet"
    );
    drop(server);
    let read = timeout(SOON, client.read(&mut rest)).await.unwrap();
    assert_eq!(read.unwrap(), 0);
}

#[tokio::test]
async fn a_cancel_request_passes() {
    let server = server().await;
    let proxy = FaultProxy::start(server.port(), fault::none()).unwrap();
    let session = session(&proxy).await;
    let token = session.cancel_token();
    let sleep = session.query("SELECT pg_sleep(30)", &[]);
    let cancel = async {
        let running = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        mainstay_testkit::until("the statement runs", async || {
            server.value(running).await.unwrap() != "0"
        })
        .await;
        token.cancel_query(tokio_postgres::NoTls).await.unwrap();
    };
    let (slept, ()) = timeout(SOON, async { tokio::join!(sleep, cancel) })
        .await
        .unwrap();
    assert_eq!(slept.unwrap_err().code().unwrap().code(), "57014");
}
