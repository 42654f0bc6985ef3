//! Values as JSON, for HTTP and the command line. Nothing is bent: what a JSON number cannot hold goes as
//! text, and the column's type says how to read it.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use super::calendar::{
    date_text, interval_text, parse_date, parse_interval, parse_time, parse_timestamp, time_text,
    timestamp_text,
};
use super::{ColumnType, Decimal, Value};
use crate::error::{Code, SqlError};

/// The greatest integer up to which every integer is a double: what readers of JSON can hold.
pub const INTEGER_MAX: u64 = 1 << 53;

/// A value as JSON.
///
/// Decimals, integers beyond ±2^53, NaN and infinities, dates, times, intervals (ISO 8601), uuids and JSON
/// columns (the database's own text of them) are strings; bytes are strings in base64.
pub fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::I64(value) if value.unsigned_abs() <= INTEGER_MAX => Json::from(*value),
        Value::I64(value) => Json::String(value.to_string()),
        Value::U64(value) if *value <= INTEGER_MAX => Json::from(*value),
        Value::U64(value) => Json::String(value.to_string()),
        Value::F64(value) => float_json(*value),
        Value::Text(value) | Value::Json(value) => Json::String(value.clone()),
        Value::Array(items) => Json::Array(items.iter().map(to_json).collect()),
        Value::Other { text, .. } => Json::String(text.clone()),
        value => {
            let mut text = String::new();
            write_plain(value, &mut text);
            Json::String(text)
        }
    }
}

/// Writes a value behind `out` whose JSON is a string without anything to escape: a decimal, bytes, a uuid,
/// whatever of a day or a time. Gives `false` for the others, of which nothing is written.
pub fn write_plain(value: &Value, out: &mut String) -> bool {
    match value {
        Value::Decimal(value) => out.push_str(value.as_str()),
        Value::Bytes(value) => STANDARD.encode_string(value, out),
        Value::Uuid(value) => {
            let mut buffer = uuid::Uuid::encode_buffer();
            out.push_str(value.hyphenated().encode_lower(&mut buffer));
        }
        Value::Date(value) => date_text(out, *value),
        Value::Time(value) => time_text(out, *value),
        Value::Timestamp(value) => timestamp_text(out, *value, ""),
        Value::TimestampTz(value) => timestamp_text(out, *value, "Z"),
        Value::Interval(value) => interval_text(out, *value),
        _ => return false,
    }
    true
}

/// Whether the type of a column says how to read the JSON of a value in it.
///
/// Most values have the type of their column. SQLite's columns hold anything and its expressions have no
/// type, and what a type cannot hold (a date of MySQL that does not exist) is given as `other`.
pub fn is_typed_by(value: &Value, column: &ColumnType) -> bool {
    match (value, column) {
        (Value::Null, _) => true,
        // What JSON has a form of its own for.
        (Value::Bool(_) | Value::Text(_), ColumnType::Any) => true,
        (Value::I64(number), ColumnType::Any) => number.unsigned_abs() <= INTEGER_MAX,
        (Value::U64(number), ColumnType::Any) => *number <= INTEGER_MAX,
        (Value::F64(number), ColumnType::Any) => number.is_finite(),
        (Value::Bool(_), ColumnType::Bool)
        | (Value::I64(_), ColumnType::I64)
        | (Value::U64(_), ColumnType::U64)
        | (Value::F64(_), ColumnType::F64)
        | (Value::Decimal(_), ColumnType::Decimal)
        | (Value::Text(_), ColumnType::Text)
        | (Value::Bytes(_), ColumnType::Bytes)
        | (Value::Uuid(_), ColumnType::Uuid)
        | (Value::Date(_), ColumnType::Date)
        | (Value::Time(_), ColumnType::Time)
        | (Value::Timestamp(_), ColumnType::Timestamp)
        | (Value::TimestampTz(_), ColumnType::TimestampTz)
        | (Value::Interval(_), ColumnType::Interval)
        | (Value::Json(_), ColumnType::Json) => true,
        (Value::Other { type_name, .. }, ColumnType::Other(name)) => type_name == name,
        // Arrays of arrays have the type of arrays of what is in them.
        (Value::Array(items), ColumnType::Array(inner)) => {
            items.iter().all(|item| match (item, &**inner) {
                (_, ColumnType::Array(_)) => is_typed_by(item, inner),
                (Value::Array(_), _) => is_typed_by(item, column),
                (item, inner) => is_typed_by(item, inner),
            })
        }
        _ => false,
    }
}

/// A value in a row as JSON: the form of [`to_json`] where the column's type says how to read it, else an
/// object of `type` and `value`, as a parameter may be one.
pub fn cell_to_json(value: &Value, column: &ColumnType) -> Json {
    if is_typed_by(value, column) {
        return to_json(value);
    }
    let own = ColumnType::of(value);
    let inner = match (value, &own) {
        // Different things in one array: each says for itself what it is.
        (Value::Array(items), ColumnType::Array(inner)) if !is_typed_by(value, &own) => {
            Json::Array(items.iter().map(|item| cell_to_json(item, inner)).collect())
        }
        _ => to_json(value),
    };
    serde_json::json!({"type": own.to_string(), "value": inner})
}

/// A value from a row as [`cell_to_json`] writes it.
///
/// # Errors
/// `bad_value`: it is not of that form.
pub fn cell_from_json(json: &Json, column: &ColumnType) -> Result<Value, SqlError> {
    match json {
        Json::Object(_) => from_json(json, None),
        json => typed(json, column),
    }
}

fn float_json(value: f64) -> Json {
    match serde_json::Number::from_f64(value) {
        Some(number) => Json::Number(number),
        None if value.is_nan() => Json::String("NaN".to_owned()),
        None if value > 0.0 => Json::String("Infinity".to_owned()),
        None => Json::String("-Infinity".to_owned()),
    }
}

/// A parameter from JSON: a plain value, an object of exactly `type` and `value`, or, with a declared type,
/// a value of that type. Without a type strings are text, objects are JSON, arrays are arrays of what
/// their items are.
///
/// # Errors
/// `bad_value`, which names the type and what was given.
pub fn from_json(json: &Json, declared: Option<&str>) -> Result<Value, SqlError> {
    if let Some(name) = declared {
        let column_type = ColumnType::parse(name).ok_or_else(|| unknown_type(name))?;
        return typed(json, &column_type);
    }
    match json {
        Json::Null => Ok(Value::Null),
        Json::Bool(value) => Ok(Value::Bool(*value)),
        Json::Number(number) => plain_number(number),
        Json::String(text) => Ok(Value::Text(text.clone())),
        Json::Array(items) => {
            let items: Result<Vec<Value>, SqlError> =
                items.iter().map(|item| from_json(item, None)).collect();
            Ok(Value::Array(items?))
        }
        Json::Object(fields) => match (fields.get("type"), fields.get("value")) {
            (Some(Json::String(name)), Some(value)) if fields.len() == 2 => {
                from_json(value, Some(name))
            }
            _ => Ok(Value::Json(json.to_string())),
        },
    }
}

fn unknown_type(name: &str) -> SqlError {
    SqlError::caller(
        Code::BadValue,
        format!("there is no type {name:?}"),
        "use any, bool, i64, u64, f64, decimal, text, bytes, uuid, date, time, timestamp, \
         timestamptz, interval, json, array<…> or other:<the database's name>",
    )
}

fn plain_number(number: &serde_json::Number) -> Result<Value, SqlError> {
    if let Some(value) = number.as_i64() {
        return Ok(Value::I64(value));
    }
    if let Some(value) = number.as_u64() {
        return Ok(Value::U64(value));
    }
    match number.as_f64() {
        Some(value) => Ok(Value::F64(value)),
        None => Err(misfit(&Json::Number(number.clone()), &ColumnType::F64)),
    }
}

fn misfit(json: &Json, column_type: &ColumnType) -> SqlError {
    let mut given = json.to_string();
    if given.len() > 60 {
        let end = (0..=60).rev().find(|end| given.is_char_boundary(*end));
        given.truncate(end.unwrap_or(0));
        given.push('…');
    }
    let form = match column_type {
        ColumnType::Bool => "true or false",
        ColumnType::I64 => "an integer of 64 bits, as number or text",
        ColumnType::U64 => "an unsigned integer of 64 bits, as number or text",
        ColumnType::F64 => "a number, or \"NaN\", \"Infinity\", \"-Infinity\"",
        ColumnType::Decimal => "a decimal number as text, without exponent",
        ColumnType::Bytes => "base64 text with padding",
        ColumnType::Uuid => "a uuid as text",
        ColumnType::Date => "a day as \"2026-11-29\" or \"infinity\"",
        ColumnType::Time => "a time as \"23:15:00.5\", with an offset where it has one",
        ColumnType::Timestamp => "a time as \"2026-11-29T23:15:00\" without a zone",
        ColumnType::TimestampTz => "a time as \"2026-11-29T23:15:00Z\" with a zone",
        ColumnType::Interval => "a duration as \"P1Y2M3DT4H5M6S\"",
        ColumnType::Json => "JSON, or its text",
        ColumnType::Array(_) => "an array",
        ColumnType::Any | ColumnType::Text | ColumnType::Other(_) => "text",
    };
    SqlError::caller(
        Code::BadValue,
        format!("{given} is no {column_type}"),
        format!("give {form}"),
    )
}

fn typed(json: &Json, column_type: &ColumnType) -> Result<Value, SqlError> {
    if json.is_null() {
        return Ok(Value::Null);
    }
    let value = match (column_type, json) {
        (ColumnType::Any, _) => return from_json(json, None),
        (ColumnType::Bool, Json::Bool(value)) => Some(Value::Bool(*value)),
        (ColumnType::I64, Json::Number(number)) => number.as_i64().map(Value::I64),
        (ColumnType::I64, Json::String(text)) => text.parse().ok().map(Value::I64),
        (ColumnType::U64, Json::Number(number)) => number.as_u64().map(Value::U64),
        (ColumnType::U64, Json::String(text)) => text.parse().ok().map(Value::U64),
        (ColumnType::F64, Json::Number(number)) => exact_float(number).map(Value::F64),
        (ColumnType::F64, Json::String(text)) => float(text).map(Value::F64),
        (ColumnType::Decimal, Json::Number(number)) => {
            Decimal::parse(&number.to_string()).map(Value::Decimal)
        }
        (ColumnType::Json, Json::String(text)) => {
            serde_json::from_str::<serde::de::IgnoredAny>(text)
                .is_ok()
                .then(|| Value::Json(text.clone()))
        }
        (ColumnType::Json, json) => Some(Value::Json(json.to_string())),
        (ColumnType::Array(inner), Json::Array(items)) => {
            let item_type = |item: &Json| match (item, &**inner) {
                // Arrays of arrays have the type of arrays of what is in them.
                (Json::Array(_), inner) if !matches!(inner, ColumnType::Array(_)) => column_type,
                (_, inner) => inner,
            };
            let items: Result<Vec<Value>, SqlError> = items
                .iter()
                .map(|item| typed(item, item_type(item)))
                .collect();
            Some(Value::Array(items?))
        }
        (column_type, Json::String(text)) => from_text(text, column_type),
        _ => None,
    };
    value.ok_or_else(|| misfit(json, column_type))
}

/// A number as a double, if it is one: not the nearest to an integer that has more digits.
fn exact_float(number: &serde_json::Number) -> Option<f64> {
    let double = number.as_f64()?;
    let integer = number.as_i64().map(i128::from);
    let integer = integer.or_else(|| number.as_u64().map(i128::from));
    integer
        .is_none_or(|integer| double as i128 == integer)
        .then_some(double)
}

fn float(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => text.parse().ok().filter(|value: &f64| value.is_finite()),
    }
}

fn from_text(text: &str, column_type: &ColumnType) -> Option<Value> {
    match column_type {
        ColumnType::Decimal => Decimal::parse(text).map(Value::Decimal),
        ColumnType::Text => Some(Value::Text(text.to_owned())),
        ColumnType::Bytes => STANDARD.decode(text).ok().map(|b| Value::Bytes(b.into())),
        ColumnType::Uuid => uuid::Uuid::parse_str(text).ok().map(Value::Uuid),
        ColumnType::Date => parse_date(text).map(Value::Date),
        ColumnType::Time => parse_time(text).map(Value::Time),
        ColumnType::Timestamp => parse_timestamp(text, false).map(Value::Timestamp),
        ColumnType::TimestampTz => parse_timestamp(text, true).map(Value::TimestampTz),
        ColumnType::Interval => parse_interval(text).map(Value::Interval),
        ColumnType::Other(name) => Some(Value::Other {
            type_name: Arc::clone(name),
            text: text.to_owned(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
