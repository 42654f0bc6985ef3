use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::value::{Day, Finite, Interval, Micros, TimeOfDay};

/// Values with the name of the type that a column of them has.
fn values() -> impl Strategy<Value = (Value, String)> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(|v| (Value::Bool(v), "bool")),
        any::<i64>().prop_map(|v| (Value::I64(v), "i64")),
        any::<u64>().prop_map(|v| (Value::U64(v), "u64")),
        any::<f64>()
            .prop_filter("NaN equals nothing", |v| !v.is_nan())
            .prop_map(|v| (Value::F64(v), "f64")),
        "-?[0-9]{1,30}(\\.[0-9]{1,30})?"
            .prop_map(|v| (Value::Decimal(Decimal::parse(&v).unwrap()), "decimal")),
        ".*".prop_map(|v| (Value::Text(v), "text")),
        any::<Vec<u8>>().prop_map(|v| (Value::Bytes(Bytes::from(v)), "bytes")),
        any::<u128>().prop_map(|v| (Value::Uuid(uuid::Uuid::from_u128(v)), "uuid")),
        any::<i32>().prop_map(|v| (Value::Date(Finite::At(Day(v))), "date")),
        (0..=86_400_000_000i64, prop::option::of(-86_399..86_400i32))
            .prop_map(|(micros, offset)| (Value::Time(TimeOfDay { micros, offset }), "time")),
        any::<i64>().prop_map(|v| (Value::Timestamp(Finite::At(Micros(v))), "timestamp")),
        any::<i64>().prop_map(|v| (Value::TimestampTz(Finite::At(Micros(v))), "timestamptz")),
        (any::<i32>(), any::<i32>(), any::<i64>()).prop_map(|(months, days, micros)| {
            let interval = Interval {
                months,
                days,
                micros,
            };
            (Value::Interval(interval), "interval")
        }),
        any::<i64>().prop_map(|v| (Value::Json(format!("{{\"a\": {v}}}")), "json")),
        ".*".prop_map(|text| {
            let type_name = Arc::from("inet");
            (Value::Other { type_name, text }, "other:inet")
        }),
    ];
    let leaf = leaf.prop_map(|(value, name)| (value, name.to_owned()));
    leaf.prop_recursive(3, 16, 4, |inner| {
        (inner, 0..4usize).prop_map(|((value, name), count)| {
            (Value::Array(vec![value; count]), format!("array<{name}>"))
        })
    })
}

proptest! {
    #[test]
    fn every_value_comes_back_the_same((value, name) in values()) {
        let written = serde_json::to_string(&to_json(&value)).unwrap();
        let json: Json = serde_json::from_str(&written).unwrap();
        let declared = from_json(&json, Some(&name)).unwrap();
        prop_assert_eq!(&declared, &value);
        let wrapped = json!({"type": name, "value": json});
        prop_assert_eq!(from_json(&wrapped, None).unwrap(), value);
    }

    #[test]
    fn a_cell_is_read_back_whatever_its_column_is((value, name) in values(), other in 0..6usize) {
        let other = ["any", "bool", "text", "i64", "json", "array<text>"][other];
        for column in [name.as_str(), other] {
            let column = ColumnType::parse(column).unwrap();
            let written = serde_json::to_string(&cell_to_json(&value, &column)).unwrap();
            let json: Json = serde_json::from_str(&written).unwrap();
            let read = cell_from_json(&json, &column).unwrap();
            // A small number without a sign is a number like any other where nothing says more.
            let expected = match (&value, &column) {
                (Value::U64(number), ColumnType::Any) if *number <= INTEGER_MAX => {
                    Value::I64(i64::try_from(*number).unwrap())
                }
                _ => value.clone(),
            };
            prop_assert_eq!(format!("{:?}", read), format!("{:?}", expected), "{}", written);
        }
    }

    #[test]
    fn no_json_makes_the_reader_panic(text in ".*", name in "(bytes|date|time|timestamp|timestamptz|interval|decimal|uuid|i64|json|array<time>)") {
        let _ = from_json(&Json::String(text.clone()), Some(&name));
        let _ = from_json(&json!([text]), Some(&name));
    }
}

#[test]
fn values_have_the_form_that_the_documentation_says() {
    let at = |days: i32| Value::Date(Finite::At(Day(days)));
    let time = |micros, offset| Value::Time(TimeOfDay { micros, offset });
    for (value, expected) in [
        (Value::Null, json!(null)),
        (Value::I64(1 << 53), json!(9007199254740992i64)),
        (Value::I64((1 << 53) + 1), json!("9007199254740993")),
        (Value::I64(-(1 << 53) - 1), json!("-9007199254740993")),
        (Value::U64(u64::MAX), json!("18446744073709551615")),
        (Value::F64(0.5), json!(0.5)),
        (Value::F64(f64::NAN), json!("NaN")),
        (Value::F64(f64::NEG_INFINITY), json!("-Infinity")),
        (
            Value::Decimal(Decimal::parse("1.50").unwrap()),
            json!("1.50"),
        ),
        (Value::Bytes(Bytes::from_static(b"\0\xff")), json!("AP8=")),
        (at(0), json!("1970-01-01")),
        (at(-719_528 - 15_997), json!("-0044-03-15")),
        (at(2_932_897), json!("+10000-01-01")),
        (Value::Date(Finite::Infinity), json!("infinity")),
        (
            Value::Timestamp(Finite::NegativeInfinity),
            json!("-infinity"),
        ),
        (
            Value::Timestamp(Finite::At(Micros(-1))),
            json!("1969-12-31T23:59:59.999999"),
        ),
        (
            Value::TimestampTz(Finite::At(Micros(500_000))),
            json!("1970-01-01T00:00:00.5Z"),
        ),
        (time(86_400_000_000, None), json!("24:00:00")),
        (time(-3_020_399_000_000, None), json!("-838:59:59")),
        (time(0, Some(-5400)), json!("00:00:00-01:30")),
        (
            Value::Interval(Interval {
                months: 14,
                days: -3,
                micros: 3_661_500_000,
            }),
            json!("P1Y2M-3DT1H1M1.5S"),
        ),
        (Value::Interval(Interval::default()), json!("PT0S")),
        (
            Value::Json("{\"a\": 1e400}".into()),
            json!("{\"a\": 1e400}"),
        ),
        (
            Value::Array(vec![Value::I64(1), Value::Null]),
            json!([1, null]),
        ),
    ] {
        assert_eq!(to_json(&value), expected, "{value:?}");
    }
}

#[test]
fn plain_json_is_taken_for_what_it_is() {
    for (json, expected) in [
        (json!(null), Value::Null),
        (json!(7), Value::I64(7)),
        (json!(u64::MAX), Value::U64(u64::MAX)),
        (json!(0.5), Value::F64(0.5)),
        (json!("2026-11-29"), Value::Text("2026-11-29".into())),
        (
            json!([1, "a"]),
            Value::Array(vec![Value::I64(1), Value::Text("a".into())]),
        ),
        (
            json!({"type": "i64"}),
            Value::Json("{\"type\":\"i64\"}".into()),
        ),
        (json!({"type": "i64", "value": "7"}), Value::I64(7)),
        (
            json!({"type": "json", "value": [1]}),
            Value::Json("[1]".into()),
        ),
        (
            json!({"type": "decimal", "value": 1.5}),
            Value::Decimal(Decimal::parse("1.5").unwrap()),
        ),
        (json!({"type": "date", "value": null}), Value::Null),
    ] {
        assert_eq!(from_json(&json, None).unwrap(), expected, "{json}");
    }
}

#[test]
fn what_does_not_fit_its_type_is_refused_with_a_hint() {
    for (json, declared) in [
        (json!(1.5), "i64"),
        (json!("x"), "i64"),
        (json!(true), "i64"),
        (json!(-1), "u64"),
        (json!(1), "bool"),
        (json!("1e9"), "decimal"),
        (json!("not base64!"), "bytes"),
        (json!("abc"), "uuid"),
        (json!("29.11.2026"), "date"),
        (json!("2026-11-29T00:00:00"), "timestamptz"),
        (json!("{"), "json"),
        (json!("a"), "array<text>"),
        (json!([1, "x"]), "array<i64>"),
        (json!(7), "text"),
        (json!("inf"), "f64"),
        (json!(9_007_199_254_740_993_i64), "f64"),
        (json!(u64::MAX), "f64"),
        (json!(1), "number"),
        (
            json!(1),
            "array<array<array<array<array<array<array<i64>>>>>>>",
        ),
        (json!("x".repeat(1000)), "date"),
        (json!("é".repeat(1000)), "date"),
    ] {
        let error = from_json(&json, Some(declared)).unwrap_err();
        assert_eq!(error.code(), Code::BadValue, "{json}");
        assert!(
            error.detail().hint.is_some() && error.to_string().len() < 400,
            "{error}"
        );
    }
}

#[test]
fn cells_name_their_type_where_the_column_does_not_say_it() {
    let other = |text: &str| Value::Other {
        type_name: "date".into(),
        text: text.into(),
    };
    let text = |text: &str| Value::Text(text.into());
    for (value, column, expected) in [
        (Value::I64(7), "any", json!(7)),
        (text("7"), "any", json!("7")),
        (Value::F64(7.0), "any", json!(7.0)),
        (
            Value::I64(i64::MAX),
            "any",
            json!({"type": "i64", "value": "9223372036854775807"}),
        ),
        (
            Value::F64(f64::INFINITY),
            "any",
            json!({"type": "f64", "value": "Infinity"}),
        ),
        (
            Value::Bytes(Bytes::from_static(b"\0")),
            "any",
            json!({"type": "bytes", "value": "AA=="}),
        ),
        (
            Value::Bytes(Bytes::from_static(b"\0")),
            "text",
            json!({"type": "bytes", "value": "AA=="}),
        ),
        (text("x"), "i64", json!({"type": "text", "value": "x"})),
        (
            other("0000-00-00"),
            "date",
            json!({"type": "other:date", "value": "0000-00-00"}),
        ),
        (
            Value::Array(vec![Value::Array(vec![Value::I64(1), Value::Null])]),
            "array<i64>",
            json!([[1, null]]),
        ),
        (
            Value::Array(vec![Value::I64(1), text("a")]),
            "any",
            json!({"type": "array<any>", "value": [1, "a"]}),
        ),
        (Value::Null, "i64", json!(null)),
    ] {
        let column = ColumnType::parse(column).unwrap();
        assert_eq!(
            cell_to_json(&value, &column),
            expected,
            "{value:?} {column}"
        );
        assert_eq!(
            cell_from_json(&expected, &column).unwrap(),
            value,
            "{expected}"
        );
    }
}

#[test]
fn type_names_are_read_back() {
    for name in [
        "any",
        "bool",
        "i64",
        "u64",
        "f64",
        "decimal",
        "text",
        "bytes",
        "uuid",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "interval",
        "json",
        "array<array<i64>>",
        "other:inet",
        "array<other:my type>",
    ] {
        assert_eq!(ColumnType::parse(name).unwrap().to_string(), name);
    }
    for name in ["", "I64", "int", "array", "array<>", "array<i64", "other:"] {
        assert_eq!(ColumnType::parse(name), None, "{name}");
    }
}
