use mainstay_sql::Value;
use mainstay_sql::value::{Finite, Interval};

use super::{
    DAY, HOUR, LONG_TEXT_TURNS, Refused, Sample, UUID, UUID_TEXT, bytes, date, decimal, json,
    long_text, moment, other, quoted, refused, text, time, timestamp,
};

/// `838:59:59.999999`
const TIME_MAX: i64 = 839 * HOUR - 1;

/// Every type of MariaDB that has values of its own here, and some that are given as text.
pub fn mariadb() -> Vec<Sample> {
    let mut samples = integers();
    samples.extend(fractions());
    samples.extend(texts());
    samples.extend(bytes_and_others());
    samples.extend(days_and_times());
    samples
}

/// Dates that do not exist, which a session without `NO_ZERO_DATE` takes.
pub fn mariadb_zero_dates() -> Vec<Sample> {
    let zero = |native, name: &str, type_name, column, shown: &str| {
        let literal = format!("'{shown}'");
        Sample::new(
            native,
            literal,
            other(name, shown),
            type_name,
            quoted(shown),
        )
        .column(column)
        .bare(text(shown), "text", quoted(shown))
    };
    let never = "0000-00-00 00:00:00";
    vec![
        zero("DATE", "date", "other:date", "date", "0000-00-00"),
        zero("DATE", "date", "other:date", "date", "2020-00-10"),
        zero("DATETIME", "datetime", "other:datetime", "timestamp", never),
        zero(
            "TIMESTAMP NULL",
            "timestamp",
            "other:timestamp",
            "timestamptz",
            never,
        ),
    ]
}

fn integers() -> Vec<Sample> {
    let integer = |native, number: i64| {
        let shown = number.to_string();
        Sample::new(native, shown.clone(), Value::I64(number), "i64", shown)
    };
    let large = |number: i64| {
        let shown = number.to_string();
        Sample::new(
            "BIGINT",
            shown.clone(),
            Value::I64(number),
            "i64",
            quoted(shown),
        )
    };
    vec![
        integer("TINYINT(1)", 1),
        integer("BOOLEAN", 0),
        integer("TINYINT UNSIGNED", 255),
        integer("SMALLINT", -32_768),
        integer("MEDIUMINT UNSIGNED", 16_777_215),
        integer("INT", -2_147_483_648),
        integer("INT UNSIGNED", 4_294_967_295),
        integer("YEAR", 2155),
        large(i64::MIN),
        large(i64::MAX),
        large((1 << 53) + 1),
        Sample::new(
            "BIGINT UNSIGNED",
            "18446744073709551615",
            Value::U64(u64::MAX),
            "u64",
            quoted("18446744073709551615"),
        ),
        Sample::new("BIGINT UNSIGNED", "0", Value::U64(0), "u64", "0").bare(
            Value::I64(0),
            "i64",
            "0",
        ),
    ]
}

fn fractions() -> Vec<Sample> {
    let float = |literal: &str, number, json: &str| {
        Sample::new("DOUBLE", literal, Value::F64(number), "f64", json)
    };
    let number = |native, digits: &str| {
        Sample::new(native, digits, decimal(digits), "decimal", quoted(digits))
    };
    vec![
        Sample::new("FLOAT", "0.5e0", Value::F64(0.5), "f64", "0.5"),
        float("-0.1e0", -0.1, "-0.1"),
        float("3e0", 3.0, "3.0"),
        float("1.7976931348623157e308", f64::MAX, "1.7976931348623157e308"),
        float(
            "2.2250738585072014e-308",
            f64::MIN_POSITIVE,
            "2.2250738585072014e-308",
        ),
        number("DECIMAL(38, 0)", "99999999999999999999999999999999999999"),
        number(
            "DECIMAL(38, 38)",
            "-0.99999999999999999999999999999999999999",
        ),
        number(
            "DECIMAL(65, 30)",
            "-12345678901234567890.123456789012345678901234567890",
        ),
        number(
            "DECIMAL(65, 0)",
            "99999999999999999999999999999999999999999999999999999999999999999",
        ),
        number("DECIMAL(10, 3)", "1.500"),
        number("DECIMAL(5, 2)", "0.00"),
    ]
}

fn texts() -> Vec<Sample> {
    let string = |native, literal: &str, value: &str, json: &str| {
        Sample::new(native, literal, text(value), "text", json)
    };
    let long = format!("REPEAT('ü🙂', {LONG_TEXT_TURNS})");
    let document = "{\"b\": 1,  \"a\": [1, null]}";
    let shown = r#""{\"b\": 1,  \"a\": [1, null]}""#;
    vec![
        string("TEXT", "''", "", "\"\""),
        string(
            "TEXT",
            r#"'ünï 🙂 ''quoted'' \\ \n\Z"x"'"#,
            "ünï 🙂 'quoted' \\ \n\u{1a}\"x\"",
            r#""ünï 🙂 'quoted' \\ \n\u001a\"x\"""#,
        ),
        string("VARCHAR(10)", r"'a\0b'", "a\0b", r#""a\u0000b""#),
        string(
            "VARCHAR(20)",
            "'18446744073709551615'",
            "18446744073709551615",
            "\"18446744073709551615\"",
        ),
        string(
            "VARCHAR(10) CHARACTER SET latin1",
            "'größe'",
            "größe",
            "\"größe\"",
        ),
        string("CHAR(4)", "'ab'", "ab", "\"ab\""),
        string("ENUM('x', 'y,z')", "'y,z'", "y,z", "\"y,z\""),
        string("SET('x', 'y')", "'x,y'", "x,y", "\"x,y\""),
        string("SET('x', 'y')", "''", "", "\"\""),
        Sample::new(
            "LONGTEXT",
            long,
            text(long_text()),
            "text",
            quoted(long_text()),
        ),
        Sample::new(
            "JSON",
            format!("'{document}'"),
            json(document),
            "json",
            shown,
        )
        .bare(text(document), "text", shown),
        Sample::new("JSON", "'null'", json("null"), "json", "\"null\"").bare(
            text("null"),
            "text",
            "\"null\"",
        ),
    ]
}

fn bytes_and_others() -> Vec<Sample> {
    let blob = |native, literal: &str, value: &[u8], base64: &str| {
        Sample::new(native, literal, bytes(value), "bytes", quoted(base64))
    };
    vec![
        blob("LONGBLOB", "X'00ff00'", &[0, 255, 0], "AP8A"),
        blob("VARBINARY(3)", "X''", &[], ""),
        blob("BINARY(3)", "X'010203'", &[1, 2, 3], "AQID"),
        Sample::new(
            "UUID",
            format!("CAST('{UUID_TEXT}' AS UUID)"),
            Value::Uuid(UUID),
            "uuid",
            quoted(UUID_TEXT),
        ),
        Sample::new(
            "BIT(9)",
            "b'100000001'",
            other("bit", "100000001"),
            "other:bit",
            quoted("100000001"),
        )
        .bare(bytes(&[1, 1]), "bytes", quoted("AQE=")),
        Sample::new(
            "INET6",
            "CAST('2001:db8::1' AS INET6)",
            other("inet6", "2001:db8::1"),
            "other:inet6",
            quoted("2001:db8::1"),
        ),
    ]
}

fn days_and_times() -> Vec<Sample> {
    let clock = |native, shown: &str, micros| {
        Sample::new(
            native,
            format!("TIME'{shown}'"),
            time(micros, None),
            "time",
            quoted(shown),
        )
    };
    let at = |native, literal: &str, micros, json: &str| {
        let literal = format!("TIMESTAMP'{literal}'");
        Sample::new(
            native,
            literal,
            timestamp(micros),
            "timestamp",
            quoted(json),
        )
    };
    let point = |literal: &str, micros, json: &str| {
        let zoned = format!("{json}Z");
        let alone = format!("TIMESTAMP'{literal}'");
        Sample::new(
            "TIMESTAMP(6) NULL",
            alone,
            moment(micros),
            "timestamptz",
            quoted(zoned),
        )
        .bare(timestamp(micros), "timestamp", quoted(json))
    };
    vec![
        Sample::new(
            "DATE",
            "DATE'0001-01-01'",
            date(-719_162),
            "date",
            quoted("0001-01-01"),
        ),
        Sample::new(
            "DATE",
            "DATE'9999-12-31'",
            date(2_932_896),
            "date",
            quoted("9999-12-31"),
        ),
        clock("TIME(6)", "838:59:59.999999", TIME_MAX),
        clock("TIME(6)", "-838:59:59.999999", -TIME_MAX),
        clock("TIME", "25:00:00", 25 * HOUR),
        clock("TIME(3)", "-00:00:00.001", -1000),
        clock("TIME", "00:00:00", 0),
        at(
            "DATETIME(6)",
            "0001-01-01 00:00:00",
            -719_162 * DAY,
            "0001-01-01T00:00:00",
        ),
        at(
            "DATETIME(6)",
            "9999-12-31 23:59:59.999999",
            2_932_897 * DAY - 1,
            "9999-12-31T23:59:59.999999",
        ),
        at(
            "DATETIME",
            "1969-12-31 23:59:59",
            -1_000_000,
            "1969-12-31T23:59:59",
        ),
        point("1970-01-01 00:00:01", 1_000_000, "1970-01-01T00:00:01"),
        point(
            "2038-01-19 03:14:07.999999",
            2_147_483_647_999_999,
            "2038-01-19T03:14:07.999999",
        ),
    ]
}

/// What a column of that type cannot hold.
pub fn mariadb_refused() -> Vec<Refused> {
    let typed = |name: &str, json: &str| format!("{{\"type\": \"{name}\", \"value\": {json}}}");
    vec![
        refused("TINYINT", Value::I64(128), "128"),
        refused("INT UNSIGNED", Value::I64(-1), "-1"),
        refused(
            "BIGINT",
            Value::U64(u64::MAX),
            typed("u64", "\"18446744073709551615\""),
        ),
        refused("BIGINT UNSIGNED", Value::I64(-1), "-1"),
        refused("INT", text("seven"), "\"seven\""),
        refused("DOUBLE", Value::F64(f64::NAN), typed("f64", "\"NaN\"")),
        refused(
            "DOUBLE",
            Value::F64(f64::INFINITY),
            typed("f64", "\"Infinity\""),
        ),
        refused("FLOAT", Value::F64(1e300), "1e300"),
        refused(
            "DECIMAL(65, 0)",
            decimal("NaN"),
            typed("decimal", "\"NaN\""),
        ),
        refused(
            "DECIMAL(3, 0)",
            decimal("1000"),
            typed("decimal", "\"1000\""),
        ),
        refused("VARCHAR(3)", text("four"), "\"four\""),
        refused("VARCHAR(3) CHARACTER SET latin1", text("🙂"), "\"🙂\""),
        refused("ENUM('a', 'b')", text("c"), "\"c\""),
        refused("SET('a', 'b')", text("a,c"), "\"a,c\""),
        refused("UUID", text("none"), "\"none\""),
        refused(
            "BIT(3)",
            other("bit", "1000"),
            typed("other:bit", "\"1000\""),
        ),
        refused("BIT(3)", other("bit", "12"), typed("other:bit", "\"12\"")),
        refused("JSON", text("{"), "\"{\""),
        refused(
            "DATE",
            Value::Date(Finite::Infinity),
            typed("date", "\"infinity\""),
        ),
        refused("DATE", date(-719_529), typed("date", "\"-0001-12-31\"")),
        refused("DATE", date(2_932_897), typed("date", "\"+10000-01-01\"")),
        refused(
            "TIME(6)",
            time(TIME_MAX + 1, None),
            typed("time", "\"839:00:00\""),
        ),
        refused(
            "TIME",
            time(0, Some(3600)),
            typed("time", "\"00:00:00+01:00\""),
        ),
        refused(
            "TIMESTAMP(6) NULL",
            moment(-1),
            typed("timestamptz", "\"1969-12-31T23:59:59.999999Z\""),
        ),
        refused(
            "TIMESTAMP(6) NULL",
            moment(4_294_967_296_000_000),
            typed("timestamptz", "\"2106-02-07T06:28:16Z\""),
        ),
        refused(
            "TEXT",
            Value::Interval(Interval::default()),
            typed("interval", "\"PT0S\""),
        ),
        refused("TEXT", Value::Array(vec![Value::I64(1)]), "[1]"),
    ]
}
