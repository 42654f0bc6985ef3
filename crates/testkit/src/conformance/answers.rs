use mainstay_sql::stream::BatchMax;
use mainstay_sql::{AnswerMax, Code, Value};

use super::Fixture;
use super::bench::{Bench, Session};

fn numbers(count: u32) -> String {
    format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
         SELECT i FROM n"
    )
}

/// Beyond the bounds of rows or bytes an answer is refused by name, and the session stays usable.
pub async fn an_answer_beyond_its_bounds_is_refused(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.reader().await;
    let three = numbers(3);
    for (rows, bytes, fits) in [
        (2, u64::MAX, false),
        (u64::MAX, 64, false),
        (3, u64::MAX, true),
    ] {
        let max = AnswerMax { rows, bytes };
        let result = session.0.run(&three, &[], max, &|| {}).await;
        match result {
            Ok(answer) => assert!(fits && answer.rows.len() == 3),
            Err(error) => assert!(!fits && error.code() == Code::AnswerTooLarge, "{error}"),
        }
        session.assert_usable().await;
    }
}

async fn batches(session: &mut Session, text: &str, max: BatchMax) -> Vec<Vec<Vec<Value>>> {
    session.0.open(text, &[], &|| {}).await.unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = session.0.next_batch(max).await.unwrap() {
        batches.push(batch.rows);
    }
    batches
}

/// No batch is empty or larger than asked for (by more than its last row), and no row is lost.
pub async fn streams_are_bounded_in_rows_and_bytes(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.reader().await;
    let by_rows = BatchMax {
        rows: 100,
        bytes: usize::MAX,
    };
    for count in [1u32, 99, 100, 101, 5000] {
        let got = batches(&mut session, &numbers(count), by_rows).await;
        assert!(got.iter().all(|rows| !rows.is_empty() && rows.len() <= 100));
        let rows: Vec<i64> = got
            .iter()
            .flatten()
            .map(|row| match row[0] {
                Value::I64(number) => number,
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(rows, (1..=i64::from(count)).collect::<Vec<_>>());
        session.assert_usable().await;
    }
    let none = batches(&mut session, "SELECT 1 WHERE 1 = 0", by_rows).await;
    assert!(none.is_empty());

    let wide = format!("SELECT '{}' FROM ({}) AS w", "x".repeat(1000), numbers(200));
    let by_bytes = BatchMax {
        rows: 10_000,
        bytes: 10_000,
    };
    let got = batches(&mut session, &wide, by_bytes).await;
    assert!(
        got.iter().all(|rows| rows.len() <= 11),
        "a batch is bounded in bytes"
    );
    assert_eq!(got.iter().map(Vec::len).sum::<usize>(), 200);
    session.assert_usable().await;
}

/// A stream that is left in the middle is ended by a clean-up, and the session is usable again.
pub async fn a_stream_that_is_left_early_is_cleaned_up(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.reader().await;
    let few = BatchMax {
        rows: 10,
        bytes: usize::MAX,
    };
    for _ in 0..3 {
        session
            .0
            .open(&numbers(100_000), &[], &|| {})
            .await
            .unwrap();
        session.0.next_batch(few).await.unwrap().unwrap();
        session.0.clean_up().await.unwrap();
        session.assert_usable().await;
    }
}
