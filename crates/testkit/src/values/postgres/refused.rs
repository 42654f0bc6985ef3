//! Values beyond what a column holds.

use mainstay_sql::Value;

use crate::values::{DAY, Refused, date, decimal, json, moment, other, refused, text, time};

/// What a column of that type cannot hold.
pub fn postgres_refused() -> Vec<Refused> {
    let typed = |name: &str, json: &str| format!("{{\"type\": \"{name}\", \"value\": {json}}}");
    vec![
        refused("smallint", Value::I64(32_768), "32768"),
        refused("integer", Value::I64(-2_147_483_649), "-2147483649"),
        refused(
            "bigint",
            Value::U64(u64::MAX),
            typed("u64", "\"18446744073709551615\""),
        ),
        refused(
            "bigint",
            decimal("9223372036854775808"),
            typed("decimal", "\"9223372036854775808\""),
        ),
        refused("bigint", Value::F64(1.5), "1.5"),
        refused("integer", text("seven"), "\"seven\""),
        refused("real", Value::F64(1e300), "1e300"),
        refused(
            "double precision",
            Value::I64((1 << 53) + 1),
            typed("i64", "\"9007199254740993\""),
        ),
        refused(
            "numeric(3, 0)",
            decimal("1000"),
            typed("decimal", "\"1000\""),
        ),
        refused("boolean", Value::I64(1), "1"),
        refused("text", text("a\0b"), "\"a\\u0000b\""),
        refused("text", Value::I64(1), "1"),
        refused("varchar(3)", text("four"), "\"four\""),
        refused("mood", text("angry"), "\"angry\""),
        refused("amount", decimal("-1"), typed("decimal", "\"-1\"")),
        refused("uuid", text("none"), "\"none\""),
        refused("date", date(-2_440_589), typed("date", "\"-4713-11-23\"")),
        refused(
            "date",
            date(2_145_042_906),
            typed("date", "\"+5874898-01-01\""),
        ),
        refused(
            "timestamp",
            moment(0),
            typed("timestamptz", "\"1970-01-01T00:00:00Z\""),
        ),
        refused(
            "time",
            time(DAY + 1, None),
            typed("time", "\"24:00:00.000001\""),
        ),
        refused(
            "time",
            time(-1, None),
            typed("time", "\"-00:00:00.000001\""),
        ),
        refused(
            "time",
            time(0, Some(0)),
            typed("time", "\"00:00:00+00:00\""),
        ),
        refused("timetz", time(0, None), typed("time", "\"00:00:00\"")),
        refused("json", text("{"), "\"{\""),
        refused(
            "jsonb",
            json("\"\\u0000\""),
            typed("json", r#""\"\\u0000\"""#),
        ),
        refused(
            "integer[]",
            Value::Array(vec![Value::I64(i64::MAX)]),
            typed("array<i64>", "[\"9223372036854775807\"]"),
        ),
        refused("integer", Value::Array(vec![]), "[]"),
        refused(
            "inet",
            other("cidr", "10.0.0.0/8"),
            typed("other:cidr", "\"10.0.0.0/8\""),
        ),
    ]
}
