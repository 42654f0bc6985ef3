//! Values in and out, exactly: what SQLite cannot hold is refused, and a text becomes a typed value only
//! where writing that value gives the same text again.

mod declared;
mod text;

use std::sync::Arc;

use bytes::Bytes;
use mainstay_engine::{Category, Failure, Sent};
use mainstay_sql::{Code, ColumnType, Decimal, SqlError, Value};
use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};

pub(crate) use declared::column_type;

/// A parameter as SQLite takes it, owned so that it can cross to the worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Param {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Bytes),
}

impl ToSql for Param {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Param::Null => ValueRef::Null,
            Param::Integer(value) => ValueRef::Integer(*value),
            Param::Real(value) => ValueRef::Real(*value),
            Param::Text(value) => ValueRef::Text(value.as_bytes()),
            Param::Blob(value) => ValueRef::Blob(value),
        }))
    }
}

/// Converts all parameters, before anything is handed over.
pub(crate) fn params(values: &[Value]) -> Result<Vec<Param>, SqlError> {
    let convert = |(index, value)| param(value).map_err(|why| bad_value(index, value, why));
    values.iter().enumerate().map(convert).collect()
}

fn bad_value(index: usize, value: &Value, (message, hint): Refusal) -> SqlError {
    let message = format!("parameter {}: {message}", index + 1);
    let failure = Failure::new(Category::Persistent, message).sent(Sent::No);
    SqlError::new(Code::BadValue, failure)
        .hint(hint)
        .place("parameter", (index + 1).to_string())
        .place("type", type_name(value))
}

type Refusal = (&'static str, &'static str);

const AS_TEXT: &str = "send it as text in the form that the statement expects";

fn param(value: &Value) -> Result<Param, Refusal> {
    Ok(match value {
        Value::Null => Param::Null,
        Value::Bool(value) => Param::Integer(i64::from(*value)),
        Value::I64(value) => Param::Integer(*value),
        Value::U64(value) => Param::Integer(i64::try_from(*value).map_err(|_| {
            (
                "SQLite has no integer that large",
                "send it as text or decimal",
            )
        })?),
        Value::F64(value) if value.is_nan() => {
            return Err(("SQLite would store NaN as NULL", "send NULL or a number"));
        }
        Value::F64(value) => Param::Real(*value),
        Value::Decimal(value) => Param::Text(decimal(value)?),
        Value::Text(value) | Value::Json(value) => Param::Text(value.clone()),
        Value::Bytes(value) => Param::Blob(value.clone()),
        Value::Uuid(value) => Param::Text(value.hyphenated().to_string()),
        Value::Date(value) => Param::Text(text::date(*value).ok_or(NO_DATE)?),
        Value::Time(value) => Param::Text(text::time(*value).ok_or(NO_TIME)?),
        Value::Timestamp(value) => Param::Text(text::timestamp(*value).ok_or(NO_DATE)?),
        Value::TimestampTz(value) => Param::Text(text::timestamp_tz(*value).ok_or(NO_DATE)?),
        Value::Interval(_) => return Err(("SQLite has no intervals", AS_TEXT)),
        Value::Array(_) => return Err(("SQLite has no arrays", "send JSON, or one value a row")),
        Value::Other { .. } => return Err(("SQLite does not know this type", AS_TEXT)),
    })
}

const NO_DATE: Refusal = (
    "SQLite has no infinite dates and none outside the years 0 to 9999",
    "send NULL or a date in that range",
);
const NO_TIME: Refusal = (
    "SQLite has no times outside one day and no offsets with seconds",
    AS_TEXT,
);

fn decimal(value: &Decimal) -> Result<String, Refusal> {
    match value.as_str() {
        "NaN" | "Infinity" | "-Infinity" => Err((
            "SQLite has no decimal that is not finite",
            "send NULL or a number",
        )),
        digits => Ok(digits.to_owned()),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::I64(_) => "i64",
        Value::U64(_) => "u64",
        Value::F64(_) => "f64",
        Value::Decimal(_) => "decimal",
        Value::Text(_) => "text",
        Value::Bytes(_) => "bytes",
        Value::Uuid(_) => "uuid",
        Value::Date(_) => "date",
        Value::Time(_) => "time",
        Value::Timestamp(_) => "timestamp",
        Value::TimestampTz(_) => "timestamptz",
        Value::Interval(_) => "interval",
        Value::Json(_) => "json",
        Value::Array(_) => "array",
        Value::Other { .. } => "other",
    }
}

/// What SQLite holds, as the column's declared type lets us read it.
pub(crate) fn read(held: ValueRef<'_>, column: &ColumnType) -> Value {
    match held {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => integer(value, column),
        ValueRef::Real(value) => Value::F64(value),
        ValueRef::Blob(value) => Value::Bytes(Bytes::copy_from_slice(value)),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => typed(text, column).unwrap_or_else(|| Value::Text(text.to_owned())),
            Err(_) => not_utf8(bytes),
        },
    }
}

fn integer(value: i64, column: &ColumnType) -> Value {
    match (column, value) {
        (ColumnType::Bool, 0) => Value::Bool(false),
        (ColumnType::Bool, 1) => Value::Bool(true),
        (ColumnType::Decimal, _) => {
            Decimal::parse(&value.to_string()).map_or(Value::I64(value), Value::Decimal)
        }
        _ => Value::I64(value),
    }
}

fn typed(held: &str, column: &ColumnType) -> Option<Value> {
    match column {
        ColumnType::Decimal => text::parse_decimal(held).map(Value::Decimal),
        ColumnType::Uuid => text::parse_uuid(held).map(Value::Uuid),
        ColumnType::Date => text::parse_date(held).map(Value::Date),
        ColumnType::Time => text::parse_time(held).map(Value::Time),
        ColumnType::Timestamp => text::parse_timestamp(held).map(Value::Timestamp),
        ColumnType::TimestampTz => text::parse_timestamp_tz(held).map(Value::TimestampTz),
        ColumnType::Json => text::is_json(held).then(|| Value::Json(held.to_owned())),
        _ => None,
    }
}

/// TEXT of another encoding is no text for us; its bytes are given as SQLite's own literal.
fn not_utf8(bytes: &[u8]) -> Value {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len() * 2 + 3);
    text.push_str("x'");
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    Value::Other {
        type_name: Arc::from("text that is not UTF-8"),
        text,
    }
}

#[cfg(test)]
mod tests;
