use std::time::Duration;

use mainstay_engine::Category;
use mainstay_sql::{Code, Database, Scope, Value};
use mainstay_testkit::scripted::reply::{connection_lost, constraint_broken};
use mainstay_testkit::scripted::{Point, Reply};

use crate::{Bench, read};

fn rows(count: i64) -> Reply {
    Reply::rows((0..count).map(|n| vec![Value::I64(n)]).collect())
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_read_to_its_end_gives_its_connection_back_clean() {
    let bench = Bench::new();
    for count in [0, 1, 1024, 5000] {
        bench.driver.next(Point::Open, rows(count));
        let mut stream = bench
            .plain
            .stream(&read("SELECT 1"), Scope::default())
            .await
            .unwrap();
        let mut seen = 0;
        while let Some(batch) = stream.next().await.unwrap() {
            assert!(!batch.rows.is_empty());
            seen += batch.rows.len() as i64;
        }
        assert_eq!(seen, count);
        assert!(
            stream.next().await.unwrap().is_none(),
            "the end stays the end"
        );
        bench.assert_clean().await;
    }
    let counts = bench.driver.counts();
    assert_eq!(
        (counts.connects, counts.cancels, counts.clean_ups),
        (1, 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_is_cancelled_at_the_server() {
    let bench = Bench::new();
    bench.driver.next(Point::Open, rows(5000));
    let mut stream = bench
        .plain
        .stream(&read("SELECT 1"), Scope::default())
        .await
        .unwrap();
    stream.next().await.unwrap();
    drop(stream);
    bench.assert_clean().await;
    assert_eq!(bench.driver.counts().clean_ups, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_must_begin_within_the_attempt_and_go_on_within_its_idle_time() {
    let bench = Bench::new();
    bench.driver.next(Point::Open, Reply::hangs());
    let error = bench
        .plain
        .stream(&read("SELECT 1"), Scope::default())
        .await
        .unwrap_err();
    assert_eq!(error.failure().category, Category::Timeout);
    bench.driver.next(Point::NextBatch, Reply::hangs());
    let error = bench
        .plain
        .stream(&read("SELECT 1"), Scope::default())
        .await
        .unwrap_err();
    assert_eq!(error.failure().category, Category::Timeout);

    bench.driver.next(Point::Open, rows(5000));
    let mut stream = bench
        .plain
        .stream(&read("SELECT 1"), Scope::default())
        .await
        .unwrap();
    stream.next().await.unwrap();
    bench.driver.next(
        Point::NextBatch,
        Reply::default().wait_after(Duration::from_secs(20)),
    );
    stream.next().await.unwrap().unwrap();
    bench.driver.next(Point::NextBatch, Reply::hangs());
    assert_eq!(
        stream.next().await.unwrap_err().code(),
        Code::DeadlineExceeded
    );
    assert!(
        stream.next().await.unwrap().is_none(),
        "after an error nothing more comes"
    );
    bench.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_in_the_middle_of_a_stream_ends_it() {
    let bench = Bench::new();
    for broken in [
        Reply::fails(constraint_broken()),
        Reply::breaks(connection_lost()),
    ] {
        bench.driver.next(Point::Open, rows(5000));
        let mut stream = bench
            .plain
            .stream(&read("SELECT 1"), Scope::default())
            .await
            .unwrap();
        stream.next().await.unwrap();
        bench.driver.next(Point::NextBatch, broken);
        stream.next().await.unwrap_err();
        bench.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_stream_failed_is_cleaned_up_before_its_next_use() {
    for later in [false, true] {
        let bench = Bench::new();
        bench.driver.next(Point::Open, rows(5000));
        let broken = || Reply::fails(constraint_broken());
        let error = if later {
            let stream = bench
                .plain
                .stream(&read("SELECT 1"), Scope::default())
                .await;
            let mut stream = stream.unwrap();
            stream.next().await.unwrap();
            bench.driver.next(Point::NextBatch, broken());
            stream.next().await.unwrap_err()
        } else {
            bench.driver.next(Point::NextBatch, broken());
            let read = read("SELECT 1");
            let stream = bench.plain.stream(&read, Scope::default()).await;
            stream.unwrap_err()
        };
        assert_eq!(error.code(), Code::Constraint);
        bench.assert_clean().await;
        assert_eq!(bench.driver.counts().clean_ups, 1, "later: {later}");
    }
    // A text that did not even begin leaves nothing.
    let bench = Bench::new();
    bench
        .driver
        .next(Point::Open, Reply::fails(constraint_broken()));
    let read = read("SELECT 1");
    let stream = bench.plain.stream(&read, Scope::default()).await;
    stream.unwrap_err();
    bench.assert_clean().await;
    assert_eq!(bench.driver.counts().clean_ups, 0);
}
