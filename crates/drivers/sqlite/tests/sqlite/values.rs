use mainstay_sql::value::{Day, Finite, Micros, TimeOfDay};
use mainstay_sql::{Decimal, Value};

use super::bench::{Bench, run, run_with, scalar};

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

fn decimal(value: &str) -> Value {
    Value::Decimal(Decimal::parse(value).unwrap())
}

#[tokio::test]
async fn every_value_comes_back_as_it_went_in() {
    let (_bench, mut c) = Bench::with(&[
        "CREATE TABLE t(k, a, b BOOLEAN, n DECIMAL TEXT, u UUID, d DATE, h TIME, s TIMESTAMP, \
         z TIMESTAMPTZ, j JSON)",
    ])
    .await;
    let at = Value::Timestamp(Finite::At(Micros(1_700_000_000_123_456)));
    let zoned = Value::TimestampTz(Finite::At(Micros(-1_000)));
    let clock = |micros, offset| Value::Time(TimeOfDay { micros, offset });
    let uuid = uuid::Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0);
    let table = [
        ("a", Value::Null),
        ("a", Value::I64(i64::MIN)),
        ("a", Value::I64(i64::MAX)),
        ("a", Value::F64(f64::MIN_POSITIVE)),
        ("a", Value::F64(f64::MAX)),
        ("a", Value::F64(f64::INFINITY)),
        ("a", Value::F64(f64::NEG_INFINITY)),
        ("a", Value::F64(0.1)),
        ("a", Value::F64(3.0)),
        ("a", text("")),
        ("a", text("nul \0 inside \0")),
        ("a", text("Grüße 👋")),
        ("a", Value::Bytes(vec![].into())),
        ("a", Value::Bytes(vec![0, 255, 0].into())),
        ("b", Value::Bool(true)),
        ("b", Value::Bool(false)),
        ("n", decimal("12.50")),
        ("n", decimal("-123456789012345678901234567890.000000000100")),
        ("u", Value::Uuid(uuid)),
        ("d", Value::Date(Finite::At(Day(-1)))),
        ("h", clock(3_600_000_000, None)),
        ("h", clock(1_500_000, Some(-5400))),
        ("s", at),
        ("z", zoned),
        ("j", Value::Json("{\"a\": [1, 2.50]}".into())),
    ];
    for (k, (column, value)) in table.into_iter().enumerate() {
        let k = Value::I64(k as i64);
        let insert = format!("INSERT INTO t(k, {column}) VALUES (?1, ?2)");
        run_with(&mut c, &insert, &[k.clone(), value.clone()])
            .await
            .unwrap();
        let select = format!("SELECT {column} FROM t WHERE k = ?1 AND {column} IS ?2");
        let answer = run_with(&mut c, &select, &[k, value.clone()])
            .await
            .unwrap();
        assert_eq!(answer.rows, [[value]], "{column}");
    }
}

#[tokio::test]
async fn what_others_wrote_is_read_for_what_it_is() {
    let (_bench, mut c) = Bench::with(&[
        "CREATE TABLE t(b BOOLEAN, n DECIMAL, u UUID, d DATE, s DATETIME, j JSON, i INT)",
        "INSERT INTO t VALUES (1, 12, 'no uuid', '2024-02-29', '2024-02-29 10:00:00', '[1]', 'text')",
        "INSERT INTO t VALUES ('yes', 12.5, NULL, '29.2.2024', '2024-02-29T10:00:00Z', '[', 1.5)",
        "INSERT INTO t VALUES (7, 'n/a', x'00', 20240229, 1709200800, 5, x'ff')",
    ])
    .await;
    let rows = run(&mut c, "SELECT * FROM t ORDER BY rowid")
        .await
        .unwrap()
        .rows;
    let date = Value::Date(Finite::At(Day(19_782)));
    let at = Value::Timestamp(Finite::At(Micros(1_709_200_800_000_000)));
    let first = vec![
        Value::Bool(true),
        decimal("12"),
        text("no uuid"),
        date,
        at,
        Value::Json("[1]".into()),
        text("text"),
    ];
    let second = vec![
        text("yes"),
        Value::F64(12.5),
        Value::Null,
        text("29.2.2024"),
        text("2024-02-29T10:00:00Z"),
        text("["),
        Value::F64(1.5),
    ];
    let third = vec![
        Value::I64(7),
        text("n/a"),
        Value::Bytes(vec![0].into()),
        Value::I64(20_240_229),
        Value::I64(1_709_200_800),
        Value::I64(5),
        Value::Bytes(vec![255].into()),
    ];
    assert_eq!(rows, [first, second, third]);
}

#[tokio::test]
async fn text_of_another_encoding_is_given_as_its_bytes() {
    let (_bench, mut c) = Bench::with(&[]).await;
    let expected = Value::Other {
        type_name: "text that is not UTF-8".into(),
        text: "x'61ff'".into(),
    };
    assert_eq!(
        scalar(&mut c, "SELECT CAST(x'61ff' AS TEXT)").await,
        expected
    );
}
