//! Values at the ends of what MySQL holds, as parameters, from tables, and through plain texts.

use mainstay_sql::value::{Day, Finite, Micros, TimeOfDay};
use mainstay_sql::{AnswerMax, Code, ColumnType, Connection, Decimal, Value};

use super::place::{Place, rows, run, value};

fn decimal(text: &str) -> Value {
    Value::Decimal(Decimal::parse(text).unwrap())
}

fn other(name: &str, text: &str) -> Value {
    Value::Other {
        type_name: name.into(),
        text: text.into(),
    }
}

fn date(days: i32) -> Value {
    Value::Date(Finite::At(Day(days)))
}

fn time(micros: i64) -> Value {
    Value::Time(TimeOfDay {
        micros,
        offset: None,
    })
}

/// Stored as a parameter, read by a prepared statement and by a plain text.
async fn comes_back(session: &mut Box<dyn Connection>, native: &str, stored: &Value) {
    rows(session, &format!("CREATE OR REPLACE TABLE v (v {native})")).await;
    let params = std::slice::from_ref(stored);
    run(session, "INSERT INTO v VALUES (?)", params)
        .await
        .unwrap_or_else(|e| panic!("{native} {stored:?}: {e}"));
    assert_eq!(value(session, "SELECT v FROM v").await, *stored, "{native}");
    // A procedure's `EXECUTE IMMEDIATE` gives what a plain text gives.
    let found = run(session, "SELECT COUNT(*) FROM v WHERE v = ?", params)
        .await
        .unwrap();
    assert_eq!(
        found.rows,
        [[Value::I64(1)]],
        "{native} {stored:?} is found again"
    );
}

#[tokio::test]
async fn numbers_come_back_exactly() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let table = [
        ("TINYINT", Value::I64(-128)),
        ("TINYINT UNSIGNED", Value::I64(255)),
        ("BOOLEAN", Value::I64(1)),
        ("MEDIUMINT", Value::I64(-8_388_608)),
        ("INT UNSIGNED", Value::I64(4_294_967_295)),
        ("BIGINT", Value::I64(i64::MAX)),
        ("BIGINT", Value::I64(i64::MIN)),
        ("BIGINT UNSIGNED", Value::U64(u64::MAX)),
        ("BIGINT UNSIGNED", Value::U64(0)),
        ("FLOAT", Value::F64(0.5)),
        ("DOUBLE", Value::F64(f64::MIN_POSITIVE)),
        ("DOUBLE", Value::F64(f64::MIN)),
        (
            "DECIMAL(38, 0)",
            decimal("99999999999999999999999999999999999999"),
        ),
        (
            "DECIMAL(38, 38)",
            decimal("-0.00000000000000000000000000000000000001"),
        ),
        ("DECIMAL(65, 0)", decimal(&"9".repeat(65))),
        ("DECIMAL(5, 2)", decimal("0.00")),
        ("YEAR", Value::I64(1901)),
        ("BIT(1)", other("bit", "1")),
        ("BIT(64)", other("bit", &"10".repeat(32))),
    ];
    for (native, stored) in table {
        comes_back(&mut session, native, &stored).await;
    }
    let answer = run(&mut session, "SELECT ?", &[Value::Bool(true)])
        .await
        .unwrap();
    assert_eq!(answer.rows, [[Value::I64(1)]]);
}

#[tokio::test]
async fn texts_and_bytes_come_back_exactly() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let mega = "ü🙂".repeat(1 << 17);
    let table = [
        ("LONGTEXT", Value::Text(mega)),
        ("VARCHAR(10)", Value::Text("a\0b\\'\"\n".into())),
        (
            "VARCHAR(10) CHARACTER SET latin1",
            Value::Text("größe".into()),
        ),
        ("CHAR(4)", Value::Text("ab".into())),
        ("ENUM('x', 'y,z')", Value::Text("y,z".into())),
        ("SET('x', 'y')", Value::Text(String::new())),
        (
            "VARBINARY(256)",
            Value::Bytes((0..=255).collect::<Vec<u8>>().into()),
        ),
        ("LONGBLOB", Value::Bytes(vec![7; 1 << 20].into())),
        ("BINARY(3)", Value::Bytes(vec![1, 2, 3].into())),
        ("UUID", Value::Uuid(uuid::Uuid::from_u128(u128::MAX))),
        ("INET4", other("inet4", "10.0.0.1")),
        ("JSON", Value::Json("[1, {\"a\": \"ü\"}]".into())),
    ];
    for (native, stored) in table {
        comes_back(&mut session, native, &stored).await;
    }
}

#[tokio::test]
async fn days_and_times_come_back_at_both_ends() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let longest = (838 * 3600 + 59 * 60 + 59) * 1_000_000 + 999_999;
    let at = |micros| Value::Timestamp(Finite::At(Micros(micros)));
    let point = |micros| Value::TimestampTz(Finite::At(Micros(micros)));
    let table = [
        ("DATE", date(-719_162)),
        ("DATE", date(2_932_896)),
        ("DATETIME(6)", at(-62_135_596_800_000_000)),
        ("DATETIME(6)", at(253_402_300_799_999_999)),
        ("DATETIME", at(0)),
        ("TIMESTAMP(6)", point(1_000_000)),
        ("TIMESTAMP(6)", point(2_147_483_647_999_999)),
        ("TIME(6)", time(longest)),
        ("TIME(6)", time(-longest)),
        ("TIME", time(0)),
        ("TIME(3)", time(-1000)),
    ];
    for (native, stored) in table {
        comes_back(&mut session, native, &stored).await;
    }
}

#[tokio::test]
async fn zero_dates_are_given_and_taken_as_text() {
    let mut place = Place::new().await;
    place.settings.options = vec![("sql_mode".into(), "STRICT_ALL_TABLES".into())];
    let mut session = place.writer().await;
    for (native, stored) in [
        ("DATE", other("date", "0000-00-00")),
        ("DATE", other("date", "2020-00-10")),
        ("DATETIME(6)", other("datetime", "0000-00-00 00:00:00")),
        ("TIMESTAMP NULL", other("timestamp", "0000-00-00 00:00:00")),
    ] {
        comes_back(&mut session, native, &stored).await;
    }
}

#[tokio::test]
async fn null_of_every_type_comes_back() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let types = [
        "TINYINT",
        "BIGINT UNSIGNED",
        "DOUBLE",
        "DECIMAL(38, 10)",
        "TEXT",
        "BLOB",
        "UUID",
        "DATE",
        "TIME",
        "DATETIME",
        "TIMESTAMP NULL",
        "JSON",
        "ENUM('a')",
        "SET('a')",
        "BIT(3)",
        "YEAR",
    ];
    let columns: Vec<String> = types
        .iter()
        .enumerate()
        .map(|(n, native)| format!("c{n} {native}"))
        .collect();
    rows(
        &mut session,
        &format!("CREATE TABLE n ({})", columns.join(", ")),
    )
    .await;
    let places = vec!["?"; types.len()].join(", ");
    let insert = format!("INSERT INTO n VALUES ({places})");
    run(&mut session, &insert, &vec![Value::Null; types.len()])
        .await
        .unwrap();
    let read = rows(&mut session, "SELECT * FROM n").await;
    assert_eq!(read, [vec![Value::Null; types.len()]]);
}

#[tokio::test]
async fn a_plain_text_gives_the_same_values_as_a_prepared_one() {
    let mut place = Place::new().await;
    place.settings.options = vec![("max_statement_time".into(), "10".into())];
    let mut session = place.writer().await;
    rows(
        &mut session,
        "CREATE TABLE v (a bigint unsigned, b double, c decimal(10, 2), d datetime(6), e time(6), \
         f date, g json, h uuid, i bit(3), j blob, k text, l float)",
    )
    .await;
    rows(
        &mut session,
        "INSERT INTO v VALUES (18446744073709551615, 0.1, 1.50, '1969-12-31 23:59:59.5', '-25:00:00.000001', \
         '2020-02-29', '[1]', '00000000-0000-0000-0000-000000000007', b'101', x'00ff', 'ü', 0.5)",
    )
    .await;
    let prepared = rows(&mut session, "SELECT * FROM v").await;
    rows(&mut session, "PREPARE mine FROM 'SELECT * FROM v'").await;
    // Prepared by the server for itself: it answers in text.
    let answer = session
        .run("EXECUTE mine", &[], AnswerMax::default(), &|| {})
        .await
        .unwrap();
    assert_eq!(answer.rows, prepared);
    assert_eq!(answer.columns[0].column_type, ColumnType::U64);
    assert_eq!(answer.columns[8].native.as_ref(), "bit");
}

#[tokio::test]
async fn a_statement_longer_than_the_server_takes_is_refused_before_it_leaves() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let params = [Value::Bytes(vec![0; 17 << 20].into())];
    let told = std::sync::atomic::AtomicBool::new(false);
    let tell = || told.store(true, std::sync::atomic::Ordering::SeqCst);
    let sent = session
        .run("SELECT LENGTH(?)", &params, AnswerMax::default(), &tell)
        .await;
    assert_eq!(sent.unwrap_err().code(), Code::BadValue);
    assert!(!told.load(std::sync::atomic::Ordering::SeqCst));
    assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1));
}

#[tokio::test]
async fn packets_of_more_than_one_frame_pass_both_ways() {
    let options = mainstay_testkit::mariadb::MariadbOptions::new();
    let place = Place::with(options.setting("max_allowed_packet", 64 << 20)).await;
    let mut session = place.writer().await;
    for size in [(1 << 24) - 12, (1 << 24) - 1, 1 << 24, (1 << 25) + 5] {
        let bytes = Value::Bytes(vec![7; size].into());
        let params = [bytes.clone()];
        let back = session
            .run("SELECT ?", &params, AnswerMax::default(), &|| {})
            .await
            .unwrap();
        assert!(back.rows == [[bytes]], "{size} bytes");
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_read_leaves_the_session_usable() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    // Latin letters come as they are.
    rows(&mut session, "SET character_set_results = NULL").await;
    for at in [1, 5, 5000] {
        let text =
            format!("SELECT IF(seq = {at}, _latin1 X'E9', _latin1 'a') FROM seq_1_to_100000");
        let error = run(&mut session, &text, &[]).await.unwrap_err();
        assert_eq!(error.code(), mainstay_sql::Code::Internal, "{at}");
        assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1), "{at}");
        session.open(&text, &[], &|| {}).await.unwrap();
        let error = loop {
            match session.next_batch(mainstay_sql::BatchMax::default()).await {
                Ok(batch) => assert!(batch.is_some(), "{at}"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), mainstay_sql::Code::Internal, "{at}");
        assert!(!session.is_closed(), "{at}");
        assert_eq!(value(&mut session, "SELECT 1").await, Value::I64(1), "{at}");
    }
}
