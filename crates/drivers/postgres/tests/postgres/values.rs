//! Every type comes and goes exactly.

use mainstay_engine::Sent;
use mainstay_sql::value::{Day, Finite, Interval, Micros, TimeOfDay};
use mainstay_sql::{Code, ColumnType, Connection, Decimal, Value};

use super::place::{Place, rows, run, text, value};

fn decimal(text: &str) -> Value {
    Value::Decimal(Decimal::parse(text).unwrap())
}

fn other(name: &str, text: &str) -> Value {
    Value::Other {
        type_name: name.into(),
        text: text.into(),
    }
}

fn at(micros: i64) -> Finite<Micros> {
    Finite::At(Micros(micros))
}

/// Literals and what they are read as.
fn literals() -> Vec<(&'static str, Value)> {
    vec![
        ("true", Value::Bool(true)),
        ("(-32768)::int2", Value::I64(-32768)),
        ("2147483647::int4", Value::I64(2_147_483_647)),
        ("(-9223372036854775808)::int8", Value::I64(i64::MIN)),
        ("1.5::float4", Value::F64(1.5)),
        ("'-Infinity'::float8", Value::F64(f64::NEG_INFINITY)),
        ("5e-324::float8", Value::F64(5e-324)),
        ("0.1::numeric(20,10)", decimal("0.1000000000")),
        (
            "'-123456789012345678901234567890.000000000012345'::numeric",
            decimal("-123456789012345678901234567890.000000000012345"),
        ),
        (
            "1e40::numeric",
            decimal("10000000000000000000000000000000000000000"),
        ),
        ("'NaN'::numeric", decimal("NaN")),
        ("'-Infinity'::numeric", decimal("-Infinity")),
        ("'süß \u{1F600}'::text", text("süß \u{1F600}")),
        ("'a'::char(3)", text("a  ")),
        ("'v'::varchar(3)", text("v")),
        ("'n'::name", text("n")),
        ("'x'::\"char\"", text("x")),
        ("''::\"char\"", text("")),
        ("'\\x00ff'::bytea", Value::Bytes(vec![0, 255].into())),
        (
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
            Value::Uuid("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".parse().unwrap()),
        ),
        ("'1970-01-02'::date", Value::Date(Finite::At(Day(1)))),
        (
            "'4713-01-01 BC'::date",
            Value::Date(Finite::At(Day(-2_440_550))),
        ),
        (
            "'5874897-12-31'::date",
            Value::Date(Finite::At(Day(2_145_042_905))),
        ),
        ("'-infinity'::date", Value::Date(Finite::NegativeInfinity)),
        (
            "'24:00:00'::time",
            Value::Time(TimeOfDay {
                micros: 86_400_000_000,
                offset: None,
            }),
        ),
        (
            "'00:00:01-05:30'::timetz",
            Value::Time(TimeOfDay {
                micros: 1_000_000,
                offset: Some(-19_800),
            }),
        ),
        (
            "'1969-12-31 23:59:59.999999'::timestamp",
            Value::Timestamp(at(-1)),
        ),
        ("'infinity'::timestamp", Value::Timestamp(Finite::Infinity)),
        (
            "'2000-01-01 00:00:00+00'::timestamptz",
            Value::TimestampTz(at(946_684_800_000_000)),
        ),
        (
            "'-infinity'::timestamptz",
            Value::TimestampTz(Finite::NegativeInfinity),
        ),
        (
            "'294276-12-31 23:59:59.999999'::timestamp",
            other("timestamp", "294276-12-31 23:59:59.999999"),
        ),
        (
            "'1 year -2 days 3.5 secs'::interval",
            Value::Interval(Interval {
                months: 12,
                days: -2,
                micros: 3_500_000,
            }),
        ),
        (
            "'{\"b\": 1,  \"a\": 2}'::json",
            Value::Json("{\"b\": 1,  \"a\": 2}".into()),
        ),
        ("'{\"b\":1}'::jsonb", Value::Json("{\"b\": 1}".into())),
        (
            "'{1,NULL,3}'::int4[]",
            Value::Array(vec![Value::I64(1), Value::Null, Value::I64(3)]),
        ),
        ("'{}'::text[]", Value::Array(vec![])),
        (
            "'{{1,2},{3,4}}'::int8[]",
            Value::Array(vec![
                Value::Array(vec![Value::I64(1), Value::I64(2)]),
                Value::Array(vec![Value::I64(3), Value::I64(4)]),
            ]),
        ),
        (
            "'[0:1]={a,\"b,c\"}'::text[]",
            other("text[]", "[0:1]={a,\"b,c\"}"),
        ),
        (
            "'{1.50,NaN}'::numeric[]",
            Value::Array(vec![decimal("1.50"), decimal("NaN")]),
        ),
        ("4294967295::oid", other("oid", "4294967295")),
        ("'10.1.2.3'::inet", other("inet", "10.1.2.3")),
        ("'10.1.0.0/16'::inet", other("inet", "10.1.0.0/16")),
        ("'10.1.2.3'::cidr", other("cidr", "10.1.2.3/32")),
        ("'2001:db8::1'::inet", other("inet", "2001:db8::1")),
        ("'::ffff:1.2.3.4'::inet", other("inet", "::ffff:1.2.3.4")),
        (
            "'08:00:2b:01:02:03'::macaddr",
            other("macaddr", "08:00:2b:01:02:03"),
        ),
        (
            "'08:00:2b:01:02:03:04:05'::macaddr8",
            other("macaddr8", "08:00:2b:01:02:03:04:05"),
        ),
        ("B'1010101011'", other("bit", "1010101011")),
        ("''::varbit", other("varbit", "")),
        ("'16/B374D848'::pg_lsn", other("pg_lsn", "16/B374D848")),
        (
            "'18446744073709551615'::xid8",
            other("xid8", "18446744073709551615"),
        ),
        ("'[1,10)'::int4range", other("int4range", "[1,10)")),
        (
            "'{[1,2),[5,7)}'::int4multirange",
            other("int4multirange", "{[1,2),[5,7)}"),
        ),
        ("ROW(1,'a b',NULL)", other("record", "(1,\"a b\",)")),
        ("'12.34'::money", other("money", "$12.34")),
        (
            "'fat:2 cat:1'::tsvector",
            other("tsvector", "'cat':1 'fat':2"),
        ),
        ("'(1.5,2)'::point", other("point", "(1.5,2)")),
        ("'$.a'::jsonpath", other("jsonpath", "$.\"a\"")),
        ("'<a>1</a>'::xml", other("xml", "<a>1</a>")),
        (
            "'postgres=r/postgres'::aclitem",
            other("aclitem", "postgres=r/postgres"),
        ),
        ("'1 2'::int2vector", other("int2vector", "1 2")),
        ("'pg_class'::regclass", other("regclass", "pg_class")),
        (
            "'{\"[1,2)\"}'::int4range[]",
            other("int4range[]", "{\"[1,2)\"}"),
        ),
    ]
}

#[tokio::test]
async fn every_literal_is_read_exactly() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    for (literal, expected) in literals() {
        let got = value(&mut session, &format!("SELECT {literal}")).await;
        assert_eq!(got, expected, "{literal}");
    }
    let nan = value(&mut session, "SELECT 'NaN'::float8").await;
    assert!(matches!(nan, Value::F64(v) if v.is_nan()));
}

#[tokio::test]
async fn what_was_read_can_be_given_back_as_a_parameter_of_its_type() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    for (literal, expected) in literals() {
        let columns = run(&mut session, &format!("SELECT {literal}"), &[])
            .await
            .unwrap()
            .columns;
        let native = columns[0].native.to_string();
        if matches!(native.as_str(), "record" | "aclitem") {
            continue;
        }
        let native = match native.as_str() {
            "char" => "\"char\"",
            "bit" => "bit(10)",
            other => other,
        };
        let asked = format!("SELECT $1::{native}");
        let back = run(&mut session, &asked, std::slice::from_ref(&expected)).await;
        let back = back
            .unwrap_or_else(|e| panic!("{literal}: {e}"))
            .rows
            .remove(0)
            .remove(0);
        let back = if native == "bpchar" {
            text("a  ")
        } else {
            back
        };
        assert_eq!(back, expected, "{literal}");
    }
}

#[tokio::test]
async fn a_text_is_a_parameter_of_any_type() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let table = [
        ("int4", "7", Value::I64(7)),
        ("numeric", "1.500", decimal("1.500")),
        ("date", "1970-01-02", Value::Date(Finite::At(Day(1)))),
        (
            "uuid",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            Value::Uuid("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".parse().unwrap()),
        ),
        ("jsonb", "{\"a\":1}", Value::Json("{\"a\": 1}".into())),
        ("inet", "::1", other("inet", "::1")),
        ("int4range", "[1,3]", other("int4range", "[1,4)")),
        ("bool", "yes", Value::Bool(true)),
        ("bytea", "\\x01", Value::Bytes(vec![1].into())),
        (
            "text[]",
            "{a,NULL}",
            Value::Array(vec![text("a"), Value::Null]),
        ),
        ("text", "plain", text("plain")),
    ];
    for (native, given, expected) in table {
        let answer = run(
            &mut session,
            &format!("SELECT $1::{native}"),
            &[text(given)],
        )
        .await
        .unwrap();
        assert_eq!(answer.rows, [[expected]], "{native}");
    }
}

#[tokio::test]
async fn numbers_fit_wherever_they_are_exact() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let table = [
        ("numeric", Value::I64(7), decimal("7")),
        ("float8", Value::I64(7), Value::F64(7.0)),
        ("int2", Value::F64(3.0), Value::I64(3)),
        ("int8", Value::U64(9), Value::I64(9)),
        (
            "numeric",
            Value::U64(u64::MAX),
            decimal("18446744073709551615"),
        ),
        ("numeric", Value::F64(0.1), decimal("0.1")),
        ("float8", decimal("-0.50"), Value::F64(-0.5)),
        ("float4", Value::F64(0.1), Value::F64(f64::from(0.1_f32))),
        ("oid", Value::I64(4_294_967_295), other("oid", "4294967295")),
    ];
    for (native, given, expected) in table {
        let answer = run(
            &mut session,
            &format!("SELECT $1::{native}"),
            std::slice::from_ref(&given),
        )
        .await;
        assert_eq!(answer.unwrap().rows, [[expected]], "{given:?} as {native}");
    }
}

#[tokio::test]
async fn a_value_that_does_not_fit_is_refused_before_anything_is_sent() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let table = [
        ("int4", Value::I64(2_147_483_648)),
        ("int2", Value::I64(-32_769)),
        ("int8", Value::U64(u64::MAX)),
        ("float8", Value::I64(9_007_199_254_740_993)),
        ("float4", Value::F64(0.123_456_789)),
        ("float4", Value::F64(1e300)),
        ("float8", decimal("0.1000000000000000055511151231257827")),
        ("int4", Value::F64(1.5)),
        ("int4", decimal("1.5")),
        ("text", Value::I64(1)),
        ("text", text("a\0b")),
        ("uuid", text("\0")),
        ("bool", Value::I64(1)),
        ("bytea", text("\0")),
        ("text", Value::Bytes(vec![1].into())),
        ("timestamp", Value::TimestampTz(at(0))),
        (
            "time",
            Value::Time(TimeOfDay {
                micros: -1,
                offset: None,
            }),
        ),
        (
            "time",
            Value::Time(TimeOfDay {
                micros: 0,
                offset: Some(0),
            }),
        ),
        (
            "timetz",
            Value::Time(TimeOfDay {
                micros: 0,
                offset: None,
            }),
        ),
        ("date", Value::Date(Finite::At(Day(i32::MIN)))),
        ("int4[]", Value::Array(vec![Value::I64(1), text("\0")])),
        (
            "int4[]",
            Value::Array(vec![Value::Array(vec![Value::I64(i64::MAX)])]),
        ),
        ("int4", Value::Array(vec![])),
        ("inet", other("cidr", "10.0.0.0/8")),
        ("\"char\"", text("ab")),
    ];
    for (native, given) in table {
        let handed = std::sync::atomic::AtomicBool::new(false);
        let statement = format!("SELECT $1::{native}");
        let params = [given.clone()];
        let mark = || handed.store(true, std::sync::atomic::Ordering::Relaxed);
        let result = session
            .run(
                &statement,
                &params,
                mainstay_sql::AnswerMax::default(),
                &mark,
            )
            .await;
        let error = result.expect_err(&format!("{given:?} as {native}"));
        assert_eq!(
            (error.code(), error.sent()),
            (Code::BadValue, Sent::No),
            "{given:?} as {native}: {error}"
        );
        assert!(!handed.into_inner(), "{native}");
    }
    let count = run(&mut session, "SELECT $1::int4", &[]).await.unwrap_err();
    assert_eq!((count.code(), count.sent()), (Code::BadValue, Sent::No));
}

#[tokio::test]
async fn a_text_that_is_none_of_the_type_is_the_servers_to_refuse() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let error = run(&mut session, "SELECT $1::int4", &[text("seven")])
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::BadValue, Sent::YesUnprocessed)
    );
}

#[tokio::test]
async fn types_of_the_users_own_come_with_their_names() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    for statement in [
        "CREATE TYPE mood AS ENUM ('glad', 'sad')",
        "CREATE DOMAIN amount AS numeric(10,2) CHECK (VALUE >= 0)",
        "CREATE TYPE pair AS (a int4, b text)",
        "CREATE TABLE t (id int4 GENERATED ALWAYS AS IDENTITY, m mood, ms mood[], a amount, p pair, i inet)",
    ] {
        rows(&mut session, statement).await;
    }
    let insert =
        "INSERT INTO t (m, ms, a, p, i) VALUES ($1, $2, $3, $4, $5) RETURNING m, ms, a, p, i, id";
    let params = [
        text("glad"),
        Value::Array(vec![text("sad"), Value::Null]),
        decimal("1.50"),
        text("(1,x)"),
        text("::1"),
    ];
    let answer = run(&mut session, insert, &params).await.unwrap();
    assert_eq!(answer.affected, Some(1));
    let expected = [
        text("glad"),
        Value::Array(vec![text("sad"), Value::Null]),
        decimal("1.50"),
        other("pair", "(1,x)"),
        other("inet", "::1"),
        Value::I64(1),
    ];
    assert_eq!(answer.rows, [expected]);
    let types: Vec<_> = answer
        .columns
        .iter()
        .map(|c| (c.column_type.clone(), &*c.native))
        .collect();
    assert_eq!(types[0], (ColumnType::Text, "mood"));
    assert_eq!(
        types[1],
        (ColumnType::Array(Box::new(ColumnType::Text)), "mood[]")
    );
    assert_eq!(types[3], (ColumnType::Other("pair".into()), "pair"));
}

#[tokio::test]
async fn columns_of_one_name_and_rows_in_order_survive_the_detour_over_text() {
    let place = Place::new().await;
    let mut session = place.reader().await;
    let statement = "SELECT n AS x, int4range(n, n + 1) AS x, 'é' FROM generate_series(3, 1, -1) n ORDER BY n DESC ; ";
    let answer = run(&mut session, statement, &[]).await.unwrap();
    let names: Vec<_> = answer.columns.iter().map(|c| &*c.name).collect();
    assert_eq!(names, ["x", "x", "?column?"]);
    assert_eq!(
        answer.rows[0],
        [Value::I64(3), other("int4range", "[3,4)"), text("é")]
    );
    assert_eq!(answer.rows[2][0], Value::I64(1));
    assert_eq!(answer.affected, None);
}

#[tokio::test]
async fn a_type_that_cannot_be_read_is_a_clear_error() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (r int4range)").await;
    let statement = "WITH gone AS (DELETE FROM t RETURNING r) SELECT r FROM gone";
    let error = run(&mut session, statement, &[]).await.unwrap_err();
    assert_eq!((error.code(), error.sent()), (Code::NotAvailable, Sent::No));
    assert!(error.to_string().contains("r::text"), "{error}");
    let cast = "WITH gone AS (DELETE FROM t RETURNING r) SELECT r::text FROM gone";
    assert!(run(&mut session, cast, &[]).await.is_ok());
}

#[tokio::test]
async fn random_numbers_survive_the_way_there_and_back() {
    let place = Place::new().await;
    let mut session: Box<dyn Connection> = place.writer().await;
    let seed = 20_261_129;
    let chance = mainstay_engine::Chance::seeded(seed);
    let below = |n: u64| chance.draw() % n;
    for _ in 0..500 {
        let digits: String = (0..=below(60))
            .map(|_| char::from(b'0' + below(10) as u8))
            .collect();
        let fraction: String = (0..below(40))
            .map(|_| char::from(b'0' + below(10) as u8))
            .collect();
        let whole = digits.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let text = if fraction.is_empty() {
            whole.to_owned()
        } else {
            format!("{whole}.{fraction}")
        };
        let answer = run(&mut session, "SELECT $1::numeric", &[decimal(&text)])
            .await
            .unwrap();
        assert_eq!(answer.rows, [[decimal(&text)]], "seed {seed}");
    }
}
