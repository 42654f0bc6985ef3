//! Answers as they are kept beside an idempotency key: every value with its type, so that a stored answer is the
//! same as the first one.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::database::{Answer, StatementResult};
use crate::error::{Code, SqlError};
use crate::value::{
    Column, ColumnType, Day, Decimal, Finite, Interval, Micros, Row, TimeOfDay, Value,
};

#[derive(Serialize, Deserialize)]
struct Stored {
    /// Name, type, the database's own type.
    columns: Vec<(String, String, String)>,
    rows: Vec<Vec<Json>>,
    affected: Option<u64>,
    keys: Vec<Json>,
    /// Rows changed and rows given of each statement.
    results: Vec<(Option<u64>, u64)>,
}

/// An answer as text.
///
/// # Errors
/// `answer_too_large` beyond `max` bytes; nothing of it may be committed then.
pub(crate) fn write_down(answer: &Answer, max: u64) -> Result<String, SqlError> {
    let columns = answer.columns.iter().map(|column| {
        (
            column.name.to_string(),
            column.column_type.to_string(),
            column.native.to_string(),
        )
    });
    let stored = Stored {
        columns: columns.collect(),
        rows: answer.rows.iter().map(|row| all_typed(row)).collect(),
        affected: answer.affected,
        keys: all_typed(&answer.keys),
        results: answer
            .results
            .iter()
            .map(|result| (result.affected, result.rows))
            .collect(),
    };
    let text = serde_json::to_string(&stored)
        .map_err(|problem| SqlError::internal(format!("an answer could not be kept: {problem}")))?;
    match text.len() as u64 > max {
        false => Ok(text),
        true => Err(SqlError::caller(
            Code::AnswerTooLarge,
            format!(
                "the answer takes {} bytes, and {max} are kept beside an idempotency key; the write was undone",
                text.len()
            ),
            "give less back (RETURNING fewer rows or columns), or raise idempotency_answer_max",
        )),
    }
}

/// The answer of a text that [`write_down`] made; `None`: it is none.
pub(crate) fn recall(text: &str) -> Option<Answer> {
    let stored: Stored = serde_json::from_str(text).ok()?;
    let columns = stored.columns.into_iter().map(|(name, kind, native)| {
        Some(Column {
            name: Arc::from(name),
            column_type: ColumnType::parse(&kind)?,
            native: Arc::from(native),
        })
    });
    let results = stored.results.into_iter();
    Some(Answer {
        columns: columns.collect::<Option<Vec<Column>>>()?.into(),
        rows: stored
            .rows
            .iter()
            .map(|row| all_read(row))
            .collect::<Option<Vec<Row>>>()?,
        affected: stored.affected,
        keys: all_read(&stored.keys)?,
        results: results
            .map(|(affected, rows)| StatementResult { affected, rows })
            .collect(),
        ..Answer::default()
    })
}

fn all_typed(values: &[Value]) -> Vec<Json> {
    values.iter().map(typed).collect()
}

fn all_read(values: &[Json]) -> Option<Vec<Value>> {
    values.iter().map(read).collect()
}

/// A value as a pair of its type and what it holds; numbers as text, so that nobody rounds them.
pub(crate) fn typed(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(["bool", value]),
        Value::I64(value) => json!(["i64", value.to_string()]),
        Value::U64(value) => json!(["u64", value.to_string()]),
        // Its shortest text is read as the same number.
        Value::F64(value) => json!(["f64", format!("{value:?}")]),
        Value::Decimal(value) => json!(["decimal", value.as_str()]),
        Value::Text(value) => json!(["text", value]),
        Value::Bytes(value) => json!(["bytes", STANDARD.encode(value)]),
        Value::Uuid(value) => json!(["uuid", value.to_string()]),
        Value::Date(value) => json!(["date", finite(*value, |day| i64::from(day.0))]),
        Value::Time(value) => json!(["time", [Some(value.micros), value.offset.map(i64::from)]]),
        Value::Timestamp(value) => json!(["timestamp", finite(*value, |at| at.0)]),
        Value::TimestampTz(value) => json!(["timestamptz", finite(*value, |at| at.0)]),
        Value::Interval(value) => {
            json!([
                "interval",
                [i64::from(value.months), i64::from(value.days), value.micros]
            ])
        }
        Value::Json(value) => json!(["json", value]),
        Value::Array(items) => json!(["array", all_typed(items)]),
        Value::Other { type_name, text } => json!(["other", [type_name, text]]),
    }
}

fn finite<T>(value: Finite<T>, number: impl Fn(T) -> i64) -> Json {
    match value {
        Finite::NegativeInfinity => json!("-infinity"),
        Finite::At(value) => json!(number(value)),
        Finite::Infinity => json!("infinity"),
    }
}

fn read_finite<T>(json: &Json, of: impl Fn(i64) -> Option<T>) -> Option<Finite<T>> {
    match json.as_str() {
        Some("-infinity") => Some(Finite::NegativeInfinity),
        Some("infinity") => Some(Finite::Infinity),
        _ => of(json.as_i64()?).map(Finite::At),
    }
}

fn read(json: &Json) -> Option<Value> {
    if json.is_null() {
        return Some(Value::Null);
    }
    let [kind, held] = json.as_array()?.as_slice() else {
        return None;
    };
    let text = held.as_str();
    let at = |index: usize| held.get(index);
    let number = |index: usize| at(index).and_then(Json::as_i64);
    let small = |index: usize| number(index).and_then(|number| i32::try_from(number).ok());
    Some(match kind.as_str()? {
        "bool" => Value::Bool(held.as_bool()?),
        "i64" => Value::I64(text?.parse().ok()?),
        "u64" => Value::U64(text?.parse().ok()?),
        "f64" => Value::F64(text?.parse().ok()?),
        "decimal" => Value::Decimal(Decimal::parse(text?)?),
        "text" => Value::Text(text?.to_owned()),
        "bytes" => Value::Bytes(STANDARD.decode(text?).ok()?.into()),
        "uuid" => Value::Uuid(uuid::Uuid::parse_str(text?).ok()?),
        "date" => Value::Date(read_finite(held, |day| i32::try_from(day).ok().map(Day))?),
        "time" => Value::Time(TimeOfDay {
            micros: number(0)?,
            offset: small(1),
        }),
        "timestamp" => Value::Timestamp(read_finite(held, |at| Some(Micros(at)))?),
        "timestamptz" => Value::TimestampTz(read_finite(held, |at| Some(Micros(at)))?),
        "interval" => Value::Interval(Interval {
            months: small(0)?,
            days: small(1)?,
            micros: number(2)?,
        }),
        "json" => Value::Json(text?.to_owned()),
        "array" => Value::Array(all_read(held.as_array()?)?),
        "other" => Value::Other {
            type_name: Arc::from(at(0)?.as_str()?),
            text: at(1)?.as_str()?.to_owned(),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Vec<Value> {
        vec![
            Value::Null,
            Value::Bool(true),
            Value::I64(i64::MIN),
            Value::I64(i64::MAX),
            Value::U64(u64::MAX),
            Value::F64(-0.0),
            Value::F64(0.1 + 0.2),
            Value::F64(f64::MIN_POSITIVE / 4.0),
            Value::F64(f64::MAX),
            Value::F64(f64::NEG_INFINITY),
            Value::Decimal(Decimal::parse("-12345678901234567890123456789012345678.90").unwrap()),
            Value::Decimal(Decimal::parse("NaN").unwrap()),
            Value::Text("\u{0}\"ü\u{1f600}\n".into()),
            Value::Bytes(vec![0, 255, 128].into()),
            Value::Uuid(uuid::Uuid::from_u128(7)),
            Value::Date(Finite::At(Day(i32::MIN))),
            Value::Date(Finite::Infinity),
            Value::Time(TimeOfDay {
                micros: -838 * 3_600_000_000,
                offset: None,
            }),
            Value::Time(TimeOfDay {
                micros: 1,
                offset: Some(-57_600),
            }),
            Value::Timestamp(Finite::At(Micros(i64::MIN))),
            Value::TimestampTz(Finite::At(Micros(i64::MAX))),
            Value::TimestampTz(Finite::NegativeInfinity),
            Value::Interval(Interval {
                months: i32::MIN,
                days: 400,
                micros: i64::MAX,
            }),
            Value::Json("{\"a\": 1.000000000000000000001, \"a\": 1e400}".into()),
            Value::Array(vec![Value::Null, Value::Array(vec![Value::I64(1)])]),
            Value::Other {
                type_name: "inet".into(),
                text: "::1".into(),
            },
        ]
    }

    fn answer() -> Answer {
        let column = |name: &str, kind: &str| Column {
            name: name.into(),
            column_type: ColumnType::parse(kind).unwrap(),
            native: kind.to_uppercase().into(),
        };
        Answer {
            columns: [column("a", "any"), column("b", "array<other:point>")].into(),
            rows: vec![values(), Vec::new()],
            affected: Some(u64::MAX),
            keys: values(),
            results: vec![
                StatementResult {
                    affected: None,
                    rows: 3,
                },
                StatementResult {
                    affected: Some(0),
                    rows: 0,
                },
            ],
            ..Answer::default()
        }
    }

    #[test]
    fn a_stored_answer_is_the_answer() {
        let first = answer();
        let again = recall(&write_down(&first, u64::MAX).unwrap()).unwrap();
        assert_eq!(again.columns, first.columns);
        // Text, which tells 0 from −0.
        assert_eq!(format!("{:?}", again.rows), format!("{:?}", first.rows));
        assert_eq!(format!("{:?}", again.keys), format!("{:?}", first.keys));
        assert_eq!(again.affected, first.affected);
        assert_eq!(again.results, first.results);
        let nan = Answer {
            keys: vec![Value::F64(f64::NAN)],
            ..Answer::default()
        };
        let again = recall(&write_down(&nan, 1000).unwrap()).unwrap();
        assert!(matches!(again.keys[0], Value::F64(number) if number.is_nan()));
    }

    #[test]
    fn an_answer_that_is_too_large_is_refused_and_what_is_none_is_not_read() {
        let refused = write_down(&answer(), 100).unwrap_err();
        assert_eq!(refused.code(), Code::AnswerTooLarge);
        for text in [
            "",
            "{}",
            "null",
            r#"{"columns":[["a","no","x"]],"rows":[],"affected":null,"keys":[],"results":[]}"#,
            r#"{"columns":[],"rows":[[["i64","x"]]],"affected":null,"keys":[],"results":[]}"#,
            r#"{"columns":[],"rows":[[["nothing","x"]]],"affected":null,"keys":[],"results":[]}"#,
        ] {
            assert!(recall(text).is_none(), "{text}");
        }
    }
}
