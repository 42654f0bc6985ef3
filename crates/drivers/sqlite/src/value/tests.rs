use mainstay_sql::value::{Day, Finite, Interval, Micros, TimeOfDay};

use super::*;

#[test]
fn what_sqlite_cannot_hold_is_refused_before_anything_is_sent() {
    let other = Value::Other {
        type_name: "point".into(),
        text: "(1,2)".into(),
    };
    let time = |micros, offset| Value::Time(TimeOfDay { micros, offset });
    let table = [
        Value::U64(i64::MAX as u64 + 1),
        Value::F64(f64::NAN),
        Value::Decimal(Decimal::parse("NaN").unwrap()),
        Value::Decimal(Decimal::parse("-Infinity").unwrap()),
        Value::Date(Finite::Infinity),
        Value::Date(Finite::At(Day(i32::MAX))),
        Value::Timestamp(Finite::NegativeInfinity),
        Value::Timestamp(Finite::At(Micros(i64::MIN))),
        Value::TimestampTz(Finite::At(Micros(i64::MAX))),
        time(-1, None),
        time(86_400_000_000, None),
        time(0, Some(1)),
        time(0, Some(i32::MIN)),
        Value::Interval(Interval::default()),
        Value::Array(vec![]),
        other,
    ];
    for value in table {
        let error = params(&[Value::Null, value.clone()]).unwrap_err();
        assert_eq!(error.code(), Code::BadValue, "{value:?}");
        assert_eq!(error.sent(), Sent::No, "{value:?}");
        assert!(error.to_string().contains("parameter 2"), "{error}");
        assert!(error.detail().hint.is_some());
    }
}

#[test]
fn what_sqlite_holds_is_bound_as_it_is() {
    let table = [
        (Value::U64(i64::MAX as u64), Param::Integer(i64::MAX)),
        (Value::Bool(true), Param::Integer(1)),
        (Value::F64(f64::INFINITY), Param::Real(f64::INFINITY)),
        (Value::Text("a\0b".into()), Param::Text("a\0b".into())),
        (
            Value::Decimal(Decimal::parse("12.50").unwrap()),
            Param::Text("12.50".into()),
        ),
        (
            Value::Timestamp(Finite::At(Micros(-1))),
            Param::Text("1969-12-31 23:59:59.999999".into()),
        ),
    ];
    for (value, expected) in table {
        assert_eq!(params(&[value]).unwrap(), [expected]);
    }
}

#[test]
fn text_that_is_not_utf8_is_given_as_its_bytes() {
    let value = read(ValueRef::Text(b"a\xff"), &ColumnType::Text);
    let expected = Value::Other {
        type_name: "text that is not UTF-8".into(),
        text: "x'61ff'".into(),
    };
    assert_eq!(value, expected);
}

#[test]
fn integers_are_read_by_the_declared_type_only_where_exact() {
    let read = |value, column| super::read(ValueRef::Integer(value), &column);
    assert_eq!(read(1, ColumnType::Bool), Value::Bool(true));
    assert_eq!(read(2, ColumnType::Bool), Value::I64(2));
    let decimal = Decimal::parse("-7").unwrap();
    assert_eq!(read(-7, ColumnType::Decimal), Value::Decimal(decimal));
    assert_eq!(read(7, ColumnType::Json), Value::I64(7));
}
