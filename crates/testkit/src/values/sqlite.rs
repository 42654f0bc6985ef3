use mainstay_sql::Value;
use mainstay_sql::value::{Finite, Interval};

use super::{
    DAY, HOUR, LONG_TEXT_TURNS, Refused, Sample, UUID, UUID_TEXT, bytes, date, decimal, json,
    long_text, moment, quoted, refused, text, time, timestamp,
};

/// SQLite holds integers, doubles, texts and bytes; what is more is told by the column.
pub fn sqlite() -> Vec<Sample> {
    let mut samples = numbers();
    samples.extend(texts_and_bytes());
    samples.extend(declared());
    samples.extend(declared_times());
    samples.extend(strangers());
    samples
}

/// An integer whose expression names no type.
fn integer(number: i64) -> Sample {
    let digits = number.to_string();
    // The least integer cannot be written as one.
    let literal = match number {
        i64::MIN => "(-9223372036854775807 - 1)".to_owned(),
        number => number.to_string(),
    };
    let is_large = number.unsigned_abs() > 1 << 53;
    let plain = if is_large { quoted(&digits) } else { digits };
    let sample = Sample::new("INTEGER", literal, Value::I64(number), "i64", &plain);
    let cell = match is_large {
        true => sample.param(),
        false => plain,
    };
    sample.bare(Value::I64(number), "any", cell)
}

fn float(literal: &str, number: f64, json: &str) -> Sample {
    let sample = Sample::new("REAL", literal, Value::F64(number), "f64", json);
    let cell = match number.is_finite() {
        true => json.to_owned(),
        false => sample.param(),
    };
    sample.bare(Value::F64(number), "any", cell)
}

fn numbers() -> Vec<Sample> {
    vec![
        integer(i64::MIN),
        integer(i64::MAX),
        integer((1 << 53) + 1),
        integer(-(1 << 53)),
        integer(0),
        float("-0.1", -0.1, "-0.1"),
        float("3.0", 3.0, "3.0"),
        float(
            "0.30000000000000004",
            0.300_000_000_000_000_04,
            "0.30000000000000004",
        ),
        float("1.7976931348623157e308", f64::MAX, "1.7976931348623157e308"),
        float("4.9406564584124654e-324", 5e-324, "5e-324"),
        float("9e999", f64::INFINITY, "\"Infinity\""),
        float("-9e999", f64::NEG_INFINITY, "\"-Infinity\""),
    ]
}

fn string(literal: impl Into<String>, value: String, json: String) -> Sample {
    let cell = json.clone();
    Sample::new("TEXT", literal, text(value.clone()), "text", json).bare(text(value), "any", cell)
}

fn blob(literal: &str, value: &[u8], base64: &str) -> Sample {
    let sample = Sample::new("BLOB", literal, bytes(value), "bytes", quoted(base64));
    let cell = sample.param();
    sample.bare(bytes(value), "any", cell)
}

fn texts_and_bytes() -> Vec<Sample> {
    let long = format!("replace(hex(zeroblob({LONG_TEXT_TURNS})), '00', 'ü🙂')");
    vec![
        string("''", String::new(), quoted("")),
        string(
            "'ünï 🙂 ''quoted'' \\ ' || char(10, 1) || '\"x\"'",
            "ünï 🙂 'quoted' \\ \n\u{1}\"x\"".to_owned(),
            r#""ünï 🙂 'quoted' \\ \n\u0001\"x\"""#.to_owned(),
        ),
        string(
            "'a' || char(0) || 'b'",
            "a\0b".to_owned(),
            r#""a\u0000b""#.to_owned(),
        ),
        string(
            "'9223372036854775807'",
            i64::MAX.to_string(),
            quoted(i64::MAX.to_string()),
        ),
        string("'null'", "null".to_owned(), quoted("null")),
        string(long, long_text(), quoted(long_text())),
        blob("x'00ff00'", &[0, 255, 0], "AP8A"),
        blob("x''", &[], ""),
    ]
}

/// A text that its column's declaration makes another type of.
fn written(
    native: &'static str,
    shown: &str,
    value: Value,
    type_name: &'static str,
    json: &str,
) -> Sample {
    let literal = format!("'{shown}'");
    Sample::new(native, literal, value, type_name, quoted(json)).bare(
        text(shown),
        "any",
        quoted(shown),
    )
}

/// Texts and integers that their column's declaration makes another type of.
fn declared() -> Vec<Sample> {
    let digits = "99999999999999999999999999999999999999";
    let small = "-0.00000000000000000000000000000000000001";
    let object = "{\"a\": [1, 2.50]}";
    vec![
        Sample::new("BOOLEAN", "1", Value::Bool(true), "bool", "true").bare(
            Value::I64(1),
            "any",
            "1",
        ),
        Sample::new("BOOLEAN", "0", Value::Bool(false), "bool", "false").bare(
            Value::I64(0),
            "any",
            "0",
        ),
        written("DECIMAL TEXT", digits, decimal(digits), "decimal", digits),
        written("DECIMAL TEXT", small, decimal(small), "decimal", small),
        written(
            "DECIMAL TEXT",
            "1.500",
            decimal("1.500"),
            "decimal",
            "1.500",
        ),
        written("UUID TEXT", UUID_TEXT, Value::Uuid(UUID), "uuid", UUID_TEXT),
        Sample::new(
            "JSON TEXT",
            format!("'{object}'"),
            json(object),
            "json",
            r#""{\"a\": [1, 2.50]}""#,
        )
        .bare(text(object), "any", r#""{\"a\": [1, 2.50]}""#),
        Sample::new("JSON TEXT", "'null'", json("null"), "json", "\"null\"").bare(
            text("null"),
            "any",
            "\"null\"",
        ),
    ]
}

fn declared_times() -> Vec<Sample> {
    vec![
        written(
            "DATE TEXT",
            "0000-01-01",
            date(-719_528),
            "date",
            "0000-01-01",
        ),
        written(
            "DATE TEXT",
            "9999-12-31",
            date(2_932_896),
            "date",
            "9999-12-31",
        ),
        written(
            "TIME TEXT",
            "23:59:59.999999",
            time(DAY - 1, None),
            "time",
            "23:59:59.999999",
        ),
        written(
            "TIME TEXT",
            "01:00:00-08:30",
            time(HOUR, Some(-30_600)),
            "time",
            "01:00:00-08:30",
        ),
        written(
            "TIMESTAMP TEXT",
            "0000-01-01 00:00:00",
            timestamp(-719_528 * DAY),
            "timestamp",
            "0000-01-01T00:00:00",
        ),
        written(
            "TIMESTAMP TEXT",
            "9999-12-31 23:59:59.999999",
            timestamp(2_932_897 * DAY - 1),
            "timestamp",
            "9999-12-31T23:59:59.999999",
        ),
        written(
            "TIMESTAMPTZ TEXT",
            "1969-12-31 23:59:59.999999+00:00",
            moment(-1),
            "timestamptz",
            "1969-12-31T23:59:59.999999Z",
        ),
    ]
}

/// A column holds whatever it is given.
fn strangers() -> Vec<Sample> {
    vec![
        Sample::new("TEXT", "x'00'", bytes(&[0]), "bytes", quoted("AA=="))
            .column("text")
            .bare(bytes(&[0]), "any", r#"{"type": "bytes", "value": "AA=="}"#),
        Sample::new("INTEGER", "'a'", text("a"), "text", quoted("a"))
            .column("i64")
            .bare(text("a"), "any", quoted("a")),
        Sample::new("INTEGER", "1.5", Value::F64(1.5), "f64", "1.5")
            .column("i64")
            .bare(Value::F64(1.5), "any", "1.5"),
        Sample::new("BOOLEAN", "2", Value::I64(2), "i64", "2")
            .column("bool")
            .bare(Value::I64(2), "any", "2"),
        Sample::new("DATE TEXT", "'soon'", text("soon"), "text", quoted("soon"))
            .column("date")
            .bare(text("soon"), "any", quoted("soon")),
        Sample::new("", "x'ff'", bytes(&[255]), "bytes", quoted("/w=="))
            .column("any")
            .bare(
                bytes(&[255]),
                "any",
                r#"{"type": "bytes", "value": "/w=="}"#,
            ),
    ]
}

/// What SQLite has no form for.
pub fn sqlite_refused() -> Vec<Refused> {
    let number = |json: &str| format!("{{\"type\": \"f64\", \"value\": {json}}}");
    let typed =
        |name: &str, value: &str| format!("{{\"type\": \"{name}\", \"value\": \"{value}\"}}");
    vec![
        refused("REAL", Value::F64(f64::NAN), number("\"NaN\"")),
        refused(
            "INTEGER",
            Value::U64(u64::MAX),
            typed("u64", "18446744073709551615"),
        ),
        refused("DECIMAL TEXT", decimal("NaN"), typed("decimal", "NaN")),
        refused(
            "DECIMAL TEXT",
            decimal("-Infinity"),
            typed("decimal", "-Infinity"),
        ),
        refused(
            "DATE TEXT",
            Value::Date(Finite::Infinity),
            typed("date", "infinity"),
        ),
        refused("DATE TEXT", date(-719_529), typed("date", "-0001-12-31")),
        refused("DATE TEXT", date(2_932_897), typed("date", "+10000-01-01")),
        refused("TIME TEXT", time(DAY, None), typed("time", "24:00:00")),
        refused(
            "TIME TEXT",
            time(-1, None),
            typed("time", "-00:00:00.000001"),
        ),
        refused(
            "TIME TEXT",
            time(0, Some(1)),
            typed("time", "00:00:00+00:00:01"),
        ),
        refused(
            "TIMESTAMPTZ TEXT",
            Value::TimestampTz(Finite::NegativeInfinity),
            typed("timestamptz", "-infinity"),
        ),
        refused(
            "TEXT",
            Value::Interval(Interval::default()),
            typed("interval", "PT0S"),
        ),
        refused("TEXT", Value::Array(vec![Value::I64(1)]), "[1]"),
        refused(
            "TEXT",
            super::other("inet", "::1"),
            typed("other:inet", "::1"),
        ),
    ]
}
