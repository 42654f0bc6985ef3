//! Lists, and lists of lists.

use mainstay_sql::Value;
use mainstay_sql::value::Finite;

use crate::values::{Sample, UUID, bytes, date, decimal, interval, json, moment, other, text};

pub(super) fn arrays() -> Vec<Sample> {
    let mut samples = nested();
    samples.extend(of_each_type());
    samples
}

fn list(
    native: &'static str,
    literal: &str,
    value: Vec<Value>,
    type_name: &'static str,
    json: &str,
) -> Sample {
    let literal = format!("'{literal}'::{native}");
    Sample::new(native, literal, Value::Array(value), type_name, json)
}

fn one(number: i64) -> Value {
    Value::I64(number)
}

fn null() -> Value {
    Value::Null
}

/// With NULLs, quotes, and lists in lists.
fn nested() -> Vec<Sample> {
    vec![
        list(
            "bigint[]",
            "{-9223372036854775808,NULL,7}",
            vec![one(i64::MIN), null(), one(7)],
            "array<i64>",
            "[\"-9223372036854775808\", null, 7]",
        ),
        list("text[]", "{}", vec![], "array<text>", "[]"),
        list(
            "text[]",
            "{NULL,\"NULL\",\"\",\"a,b\",\"\\\"\\\\\",ü}",
            vec![
                null(),
                text("NULL"),
                text(""),
                text("a,b"),
                text("\"\\"),
                text("ü"),
            ],
            "array<text>",
            r#"[null, "NULL", "", "a,b", "\"\\", "ü"]"#,
        ),
        list(
            "bigint[]",
            "{{1,NULL},{3,4}}",
            vec![
                Value::Array(vec![one(1), null()]),
                Value::Array(vec![one(3), one(4)]),
            ],
            "array<i64>",
            "[[1, null], [3, 4]]",
        ),
        list(
            "text[]",
            "{{{a},{NULL}}}",
            vec![Value::Array(vec![
                Value::Array(vec![text("a")]),
                Value::Array(vec![null()]),
            ])],
            "array<text>",
            "[[[\"a\"], [null]]]",
        ),
    ]
}

fn of_each_type() -> Vec<Sample> {
    vec![
        list(
            "boolean[]",
            "{t,NULL,f}",
            vec![Value::Bool(true), null(), Value::Bool(false)],
            "array<bool>",
            "[true, null, false]",
        ),
        list(
            "double precision[]",
            "{NaN,-Infinity,0.5}",
            vec![
                Value::F64(f64::NAN),
                Value::F64(f64::NEG_INFINITY),
                Value::F64(0.5),
            ],
            "array<f64>",
            "[\"NaN\", \"-Infinity\", 0.5]",
        ),
        list(
            "numeric[]",
            "{1.50,NaN}",
            vec![decimal("1.50"), decimal("NaN")],
            "array<decimal>",
            "[\"1.50\", \"NaN\"]",
        ),
        list(
            "bytea[]",
            r#"{"\\x00ff",NULL}"#,
            vec![bytes(&[0, 255]), null()],
            "array<bytes>",
            "[\"AP8=\", null]",
        ),
        list(
            "uuid[]",
            "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            vec![Value::Uuid(UUID)],
            "array<uuid>",
            "[\"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\"]",
        ),
        list(
            "timestamptz[]",
            "{infinity,\"1970-01-01 00:00:00.5+00\"}",
            vec![Value::TimestampTz(Finite::Infinity), moment(500_000)],
            "array<timestamptz>",
            "[\"infinity\", \"1970-01-01T00:00:00.5Z\"]",
        ),
        list(
            "date[]",
            "{\"4714-11-24 BC\"}",
            vec![date(-2_440_588)],
            "array<date>",
            "[\"-4713-11-24\"]",
        ),
        list(
            "interval[]",
            "{\"1 day\",NULL}",
            vec![interval(0, 1, 0), null()],
            "array<interval>",
            "[\"P1D\", null]",
        ),
        list(
            "jsonb[]",
            r#"{"{\"a\": null}",NULL}"#,
            vec![json("{\"a\": null}"), null()],
            "array<json>",
            r#"["{\"a\": null}", null]"#,
        ),
        list(
            "mood[]",
            "{\"sad, or not\",NULL}",
            vec![text("sad, or not"), null()],
            "array<text>",
            "[\"sad, or not\", null]",
        ),
        // Counted from 0: no list of ours.
        Sample::new(
            "text[]",
            "'[0:1]={a,\"b,c\"}'::text[]",
            other("text[]", "[0:1]={a,\"b,c\"}"),
            "other:text[]",
            r#""[0:1]={a,\"b,c\"}""#,
        )
        .column("array<text>"),
    ]
}
