mod arrays;
mod refused;

use mainstay_sql::Value;
use mainstay_sql::value::Finite;

pub use refused::postgres_refused;

use arrays::arrays;

use super::{
    DAY, HOUR, LONG_TEXT_TURNS, Sample, UUID, UUID_TEXT, bytes, date, decimal, interval, json,
    long_text, moment, other, quoted, text, time, timestamp,
};

/// Types of the user's own that the table needs, and the statements that make them.
pub const POSTGRES_TYPES: &[&str] = &[
    "CREATE TYPE mood AS ENUM ('glad', 'sad, or not')",
    "CREATE DOMAIN amount AS numeric(10, 2) CHECK (VALUE >= 0)",
];

/// Every type of PostgreSQL that has values of its own here, and some that are given as text.
pub fn postgres() -> Vec<Sample> {
    let mut samples = numbers();
    samples.extend(decimals());
    samples.extend(texts_and_bytes());
    samples.extend(days_and_times());
    samples.extend(moments());
    samples.extend(spans_and_documents());
    samples.extend(arrays());
    samples.extend(others());
    samples
}

fn numbers() -> Vec<Sample> {
    let float = |native, literal: &str, number, json: &str| {
        let literal = format!("'{literal}'::{native}");
        Sample::new(native, literal, Value::F64(number), "f64", json)
    };
    let integer = |native, literal: &str, number, json: &str| {
        let literal = format!("'{literal}'::{native}");
        Sample::new(native, literal, Value::I64(number), "i64", json)
    };
    vec![
        Sample::new("boolean", "true", Value::Bool(true), "bool", "true"),
        Sample::new("boolean", "false", Value::Bool(false), "bool", "false"),
        integer("smallint", "-32768", -32_768, "-32768"),
        integer("integer", "2147483647", 2_147_483_647, "2147483647"),
        integer(
            "bigint",
            "-9223372036854775808",
            i64::MIN,
            "\"-9223372036854775808\"",
        ),
        integer(
            "bigint",
            "9223372036854775807",
            i64::MAX,
            "\"9223372036854775807\"",
        ),
        integer("bigint", "9007199254740992", 1 << 53, "9007199254740992"),
        integer(
            "bigint",
            "9007199254740993",
            (1 << 53) + 1,
            "\"9007199254740993\"",
        ),
        float("real", "0.1", f64::from(0.1_f32), "0.10000000149011612"),
        float("real", "NaN", f64::NAN, "\"NaN\""),
        float("double precision", "-0", -0.0, "-0.0"),
        float("double precision", "3", 3.0, "3.0"),
        float("double precision", "0.1", 0.1, "0.1"),
        float(
            "double precision",
            "1.7976931348623157e308",
            f64::MAX,
            "1.7976931348623157e308",
        ),
        float("double precision", "5e-324", 5e-324, "5e-324"),
        float("double precision", "NaN", f64::NAN, "\"NaN\""),
        float(
            "double precision",
            "Infinity",
            f64::INFINITY,
            "\"Infinity\"",
        ),
        float(
            "double precision",
            "-Infinity",
            f64::NEG_INFINITY,
            "\"-Infinity\"",
        ),
    ]
}

fn decimals() -> Vec<Sample> {
    let number = |native, digits: &str| {
        let literal = format!("'{digits}'::{native}");
        Sample::new(native, literal, decimal(digits), "decimal", quoted(digits))
    };
    vec![
        number("numeric(38, 0)", "99999999999999999999999999999999999999"),
        number(
            "numeric(38, 38)",
            "-0.99999999999999999999999999999999999999",
        ),
        number("numeric", "-12345678901234567890.123456789012345678"),
        number("numeric", "0.00000000000000000000000000000000000001"),
        number("numeric", "18446744073709551615"),
        number("numeric", "100000000000000000000000000000000000000"),
        number("numeric(10, 3)", "1.500"),
        number("numeric(10, 3)", "0.000"),
        number("numeric", "NaN"),
        number("numeric", "Infinity"),
        number("numeric", "-Infinity"),
        number("amount", "12.50"),
    ]
}

fn texts_and_bytes() -> Vec<Sample> {
    let string = |native, literal: &str, value: &str, json: &str| {
        Sample::new(native, literal, text(value), "text", json)
    };
    let blob = |literal: &str, value: &[u8], base64: &str| {
        Sample::new("bytea", literal, bytes(value), "bytes", quoted(base64))
    };
    let long = format!("repeat('ü🙂', {LONG_TEXT_TURNS})");
    vec![
        string("text", "''::text", "", "\"\""),
        string(
            "text",
            r#"E'ünï 🙂 ''quoted'' \\ \n\x01"x"'::text"#,
            "ünï 🙂 'quoted' \\ \n\u{1}\"x\"",
            r#""ünï 🙂 'quoted' \\ \n\u0001\"x\"""#,
        ),
        string("text", "'null'::text", "null", "\"null\""),
        string(
            "varchar(20)",
            "'9223372036854775807'::varchar(20)",
            "9223372036854775807",
            "\"9223372036854775807\"",
        ),
        string("char(5)", "'ab'::char(5)", "ab   ", "\"ab   \""),
        string(
            "mood",
            "'sad, or not'::mood",
            "sad, or not",
            "\"sad, or not\"",
        ),
        Sample::new("text", long, text(long_text()), "text", quoted(long_text())),
        blob("'\\x'::bytea", &[], ""),
        blob("'\\x00ff00'::bytea", &[0, 255, 0], "AP8A"),
        Sample::new(
            "uuid",
            format!("'{UUID_TEXT}'::uuid"),
            Value::Uuid(UUID),
            "uuid",
            quoted(UUID_TEXT),
        ),
    ]
}

fn days_and_times() -> Vec<Sample> {
    let day = |literal: &str, value, json: &str| {
        Sample::new(
            "date",
            format!("'{literal}'::date"),
            value,
            "date",
            quoted(json),
        )
    };
    let clock = |native, literal: &str, value, json: &str| {
        Sample::new(
            native,
            format!("'{literal}'::{native}"),
            value,
            "time",
            quoted(json),
        )
    };
    vec![
        day("4714-11-24 BC", date(-2_440_588), "-4713-11-24"),
        day("0001-12-31 BC", date(-719_163), "0000-12-31"),
        day("5874897-12-31", date(2_145_042_905), "+5874897-12-31"),
        day("infinity", Value::Date(Finite::Infinity), "infinity"),
        day(
            "-infinity",
            Value::Date(Finite::NegativeInfinity),
            "-infinity",
        ),
        clock("time", "00:00:00", time(0, None), "00:00:00"),
        clock("time", "24:00:00", time(DAY, None), "24:00:00"),
        clock(
            "time",
            "23:59:59.999999",
            time(DAY - 1, None),
            "23:59:59.999999",
        ),
        clock(
            "timetz",
            "12:00:00+05:30",
            time(12 * HOUR, Some(19_800)),
            "12:00:00+05:30",
        ),
        clock(
            "timetz",
            "00:00:00-15:59:59",
            time(0, Some(-57_599)),
            "00:00:00-15:59:59",
        ),
    ]
}

fn moments() -> Vec<Sample> {
    let at = |literal: &str, value, json: &str| {
        Sample::new(
            "timestamp",
            format!("'{literal}'::timestamp"),
            value,
            "timestamp",
            quoted(json),
        )
    };
    let zoned = |literal: &str, value, json: &str| {
        let literal = format!("'{literal}'::timestamptz");
        Sample::new("timestamptz", literal, value, "timestamptz", quoted(json))
    };
    let last = "294276-12-31 23:59:59.999999";
    vec![
        at(
            "4714-11-24 00:00:00 BC",
            timestamp(-2_440_588 * DAY),
            "-4713-11-24T00:00:00",
        ),
        at(
            "1969-12-31 23:59:59.999999",
            timestamp(-1),
            "1969-12-31T23:59:59.999999",
        ),
        at(
            "294247-01-10 04:00:54.775807",
            timestamp(i64::MAX),
            "+294247-01-10T04:00:54.775807",
        ),
        // Beyond the microseconds since 1970 that 64 bits count.
        Sample::new(
            "timestamp",
            format!("'{last}'::timestamp"),
            other("timestamp", last),
            "other:timestamp",
            quoted(last),
        )
        .column("timestamp"),
        at("infinity", Value::Timestamp(Finite::Infinity), "infinity"),
        at(
            "-infinity",
            Value::Timestamp(Finite::NegativeInfinity),
            "-infinity",
        ),
        zoned(
            "4714-11-24 00:00:00+00 BC",
            moment(-2_440_588 * DAY),
            "-4713-11-24T00:00:00Z",
        ),
        zoned(
            "2026-11-29 23:15:00+05:30",
            moment(1_795_974_300_000_000),
            "2026-11-29T17:45:00Z",
        ),
        zoned(
            "294247-01-10 04:00:54.775807+00",
            moment(i64::MAX),
            "+294247-01-10T04:00:54.775807Z",
        ),
        zoned("infinity", Value::TimestampTz(Finite::Infinity), "infinity"),
        zoned(
            "-infinity",
            Value::TimestampTz(Finite::NegativeInfinity),
            "-infinity",
        ),
    ]
}

fn spans_and_documents() -> Vec<Sample> {
    let span = |literal: &str, value, json: &str| {
        Sample::new(
            "interval",
            format!("'{literal}'::interval"),
            value,
            "interval",
            quoted(json),
        )
    };
    let document = |native, written: &str, held: &str, shown: &str| {
        Sample::new(
            native,
            format!("'{written}'::{native}"),
            json(held),
            "json",
            shown,
        )
    };
    vec![
        span("0", interval(0, 0, 0), "PT0S"),
        span(
            "1 year 2 mons -3 days 04:05:06.789",
            interval(14, -3, 14_706_789_000),
            "P1Y2M-3DT4H5M6.789S",
        ),
        span(
            "-1 mon 1 day -0.000001 sec",
            interval(-1, 1, -1),
            "P-1M1DT-0.000001S",
        ),
        span(
            "178000000 years",
            interval(2_136_000_000, 0, 0),
            "P178000000Y",
        ),
        span("2147483647 days", interval(0, i32::MAX, 0), "P2147483647D"),
        span(
            "2562047788:00:54.775807",
            interval(0, 0, i64::MAX),
            "PT2562047788H54.775807S",
        ),
        document(
            "json",
            "{\"b\": 1,  \"a\": 1}",
            "{\"b\": 1,  \"a\": 1}",
            r#""{\"b\": 1,  \"a\": 1}""#,
        ),
        document("jsonb", "{\"b\":1}", "{\"b\": 1}", r#""{\"b\": 1}""#),
        document(
            "jsonb",
            "[123456789012345678901234567890.10, null]",
            "[123456789012345678901234567890.10, null]",
            "\"[123456789012345678901234567890.10, null]\"",
        ),
        document("jsonb", "null", "null", "\"null\""),
    ]
}

fn others() -> Vec<Sample> {
    let named = |native, literal: &str, type_name, name: &str, shown: &str| {
        let literal = format!("'{literal}'::{native}");
        Sample::new(
            native,
            literal,
            other(name, shown),
            type_name,
            quoted(shown),
        )
    };
    vec![
        named(
            "inet",
            "2001:db8::1/64",
            "other:inet",
            "inet",
            "2001:db8::1/64",
        ),
        named("cidr", "10.1.0.0/16", "other:cidr", "cidr", "10.1.0.0/16"),
        named(
            "macaddr",
            "08:00:2b:01:02:03",
            "other:macaddr",
            "macaddr",
            "08:00:2b:01:02:03",
        ),
        named("bit(10)", "1010101011", "other:bit", "bit", "1010101011"),
        named("varbit", "", "other:varbit", "varbit", ""),
        named("oid", "4294967295", "other:oid", "oid", "4294967295"),
        named(
            "pg_lsn",
            "16/B374D848",
            "other:pg_lsn",
            "pg_lsn",
            "16/B374D848",
        ),
        named(
            "int4range",
            "[1,10)",
            "other:int4range",
            "int4range",
            "[1,10)",
        ),
        named("point", "(1.5,2)", "other:point", "point", "(1.5,2)"),
        named("tsvector", "cat:1", "other:tsvector", "tsvector", "'cat':1"),
        named("money", "12.34", "other:money", "money", "$12.34"),
    ]
}
