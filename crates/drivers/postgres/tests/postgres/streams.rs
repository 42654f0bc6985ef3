//! Answers in batches.

use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, Policy, Preset, Safety};
use mainstay_sql::{
    Access, AnswerMax, BatchMax, Code, Database, Options, Plain, Request, Scope, Value, Verbs, Work,
};

use super::place::{Place, driver, rows, run, server, settings, value};

#[tokio::test]
async fn rows_come_in_batches_bounded_by_rows() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    let columns = session
        .open("SELECT generate_series(1, 25) AS n", &[], &|| {})
        .await
        .unwrap();
    assert_eq!(&*columns[0].name, "n");
    let max = BatchMax {
        rows: 10,
        bytes: usize::MAX,
    };
    let mut sizes = Vec::new();
    let mut next = 1;
    while let Some(batch) = session.next_batch(max).await.unwrap() {
        sizes.push(batch.rows.len());
        for row in batch.rows {
            assert_eq!(row, [Value::I64(next)]);
            next += 1;
        }
    }
    assert_eq!(sizes, [10, 10, 5]);
    assert_eq!(rows(&mut session, "SELECT 1").await.len(), 1);
}

#[tokio::test]
async fn rows_come_in_batches_bounded_by_bytes_and_never_none() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    session
        .open(
            "SELECT repeat('x', 100000) FROM generate_series(1, 20)",
            &[],
            &|| {},
        )
        .await
        .unwrap();
    let max = BatchMax {
        rows: 1000,
        bytes: 250_000,
    };
    let mut sizes = Vec::new();
    while let Some(batch) = session.next_batch(max).await.unwrap() {
        sizes.push(batch.rows.len());
    }
    assert_eq!(sizes, [3, 3, 3, 3, 3, 3, 2]);
}

#[tokio::test]
async fn an_empty_answer_ends_at_once() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    let columns = session
        .open("SELECT 1 AS a WHERE false", &[], &|| {})
        .await
        .unwrap();
    assert_eq!(columns.len(), 1);
    assert!(
        session
            .next_batch(BatchMax::default())
            .await
            .unwrap()
            .is_none()
    );
    let error = session.next_batch(BatchMax::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Internal);
}

#[tokio::test]
async fn an_error_midway_is_an_error_and_never_an_end() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    session
        .open(
            "SELECT 1 / (100000 - n) FROM generate_series(1, 200000) n",
            &[],
            &|| {},
        )
        .await
        .unwrap();
    let max = BatchMax {
        rows: 1000,
        bytes: usize::MAX,
    };
    let mut seen = 0;
    let error = loop {
        match session.next_batch(max).await {
            Ok(Some(batch)) => seen += batch.rows.len(),
            Ok(None) => panic!("ended after {seen} rows"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Code::BadValue);
    assert!(seen >= 99_000, "{seen}");
    assert_eq!(rows(&mut session, "SELECT 1").await.len(), 1);
}

#[tokio::test]
async fn a_stream_left_midway_is_cancelled_and_the_session_used_again() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    let endless = "SELECT generate_series(1, 1000000000)";
    for _ in 0..5 {
        session.open(endless, &[], &|| {}).await.unwrap();
        assert_eq!(
            session
                .next_batch(BatchMax::default())
                .await
                .unwrap()
                .unwrap()
                .rows
                .len(),
            1024
        );
        assert_eq!(
            run(&mut session, "SELECT 1", &[]).await.unwrap_err().code(),
            Code::Internal
        );
        session.clean_up().await.unwrap();
        assert_eq!(value(&mut session, "SELECT 7").await, Value::I64(7));
    }
}

#[tokio::test]
async fn a_reader_that_waits_holds_the_server_back() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    let backend = super::place::pid(&mut session).await;
    session
        .open(
            "SELECT repeat('x', 1000) FROM generate_series(1, 100000000)",
            &[],
            &|| {},
        )
        .await
        .unwrap();
    session.next_batch(BatchMax::default()).await.unwrap();
    // Its socket is full: it waits for this client and makes no more rows.
    super::place::wait_until(backend, "wait_event = 'ClientWrite'").await;
    session.clean_up().await.unwrap();
}

/// Many rows, of which one is no UTF-8: the statement has the server write Latin letters.
fn spoiled(at: u32) -> String {
    format!(
        "SELECT set_config('client_encoding', 'LATIN1', false), \
         CASE WHEN n = {at} THEN chr(233) ELSE 'a' END FROM generate_series(1, 100000) n"
    )
}

#[tokio::test]
async fn a_value_that_cannot_be_read_leaves_the_session_usable() {
    let mut session = Place::new().await.reader().await;
    for at in [1, 5, 5000] {
        let error = run(&mut session, &spoiled(at), &[]).await.unwrap_err();
        assert_eq!(error.code(), Code::Internal, "{at}");
        assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1), "{at}");
        session.open(&spoiled(at), &[], &|| {}).await.unwrap();
        let error = loop {
            match session.next_batch(BatchMax::default()).await {
                Ok(batch) => assert!(batch.is_some(), "{at}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), Code::Internal, "{at}");
        assert!(!session.is_closed(), "{at}");
        assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1), "{at}");
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_read_spoils_no_pool() {
    let driver = Arc::new(driver(settings(server().await)));
    let policy = Policy::preset(Preset::Balanced);
    let plain = Plain::new(driver, &policy, Tasks::new(), Chance::seeded(3));
    for at in [1, 5, 5000] {
        let request = Request {
            class: None,
            name: "test".into(),
            work: Work::Statement {
                text: spoiled(at).into(),
                params: vec![],
            },
            safety: Safety::Read,
            access: Access::ReadOnly,
            options: Options::default(),
            answer_max: AnswerMax::default(),
        };
        let error = match plain.stream(&request, Scope::default()).await {
            Err(error) => error,
            Ok(mut stream) => loop {
                match stream.next().await {
                    Ok(batch) => assert!(batch.is_some(), "{at}"),
                    Err(error) => break error,
                }
            },
        };
        assert_eq!(error.code(), Code::Internal, "{at}");
        for _ in 0..5 {
            let one = plain.scalar("SELECT 1", vec![], Options::default()).await;
            assert_eq!(one.unwrap(), Some(Value::I64(1)), "{at}");
        }
    }
}
