//! Names of column types as text.

use std::fmt;
use std::sync::Arc;

use super::{ColumnType, Value};

/// Arrays of arrays of … that a name may have.
const NESTING_MAX: usize = 6;

/// `i64`, `decimal`, `array<i64>`, `other:inet` …: how a type stands in answers and parameters.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnType::Any => f.write_str("any"),
            ColumnType::Bool => f.write_str("bool"),
            ColumnType::I64 => f.write_str("i64"),
            ColumnType::U64 => f.write_str("u64"),
            ColumnType::F64 => f.write_str("f64"),
            ColumnType::Decimal => f.write_str("decimal"),
            ColumnType::Text => f.write_str("text"),
            ColumnType::Bytes => f.write_str("bytes"),
            ColumnType::Uuid => f.write_str("uuid"),
            ColumnType::Date => f.write_str("date"),
            ColumnType::Time => f.write_str("time"),
            ColumnType::Timestamp => f.write_str("timestamp"),
            ColumnType::TimestampTz => f.write_str("timestamptz"),
            ColumnType::Interval => f.write_str("interval"),
            ColumnType::Json => f.write_str("json"),
            ColumnType::Array(inner) => write!(f, "array<{inner}>"),
            ColumnType::Other(name) => write!(f, "other:{name}"),
        }
    }
}

impl ColumnType {
    /// The type that a value itself has: `any` for NULL and for arrays of different things.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Null => ColumnType::Any,
            Value::Bool(_) => ColumnType::Bool,
            Value::I64(_) => ColumnType::I64,
            Value::U64(_) => ColumnType::U64,
            Value::F64(_) => ColumnType::F64,
            Value::Decimal(_) => ColumnType::Decimal,
            Value::Text(_) => ColumnType::Text,
            Value::Bytes(_) => ColumnType::Bytes,
            Value::Uuid(_) => ColumnType::Uuid,
            Value::Date(_) => ColumnType::Date,
            Value::Time(_) => ColumnType::Time,
            Value::Timestamp(_) => ColumnType::Timestamp,
            Value::TimestampTz(_) => ColumnType::TimestampTz,
            Value::Interval(_) => ColumnType::Interval,
            Value::Json(_) => ColumnType::Json,
            Value::Array(items) => ColumnType::Array(Box::new(Self::of_all(items))),
            Value::Other { type_name, .. } => ColumnType::Other(Arc::clone(type_name)),
        }
    }

    /// The one type of several values and of what is in their arrays; NULL is of any.
    fn of_all(items: &[Value]) -> Self {
        let mut known = items
            .iter()
            .filter(|item| **item != Value::Null)
            .map(|item| match item {
                Value::Array(inner) => Self::of_all(inner),
                item => Self::of(item),
            });
        let first = known.next().unwrap_or(ColumnType::Any);
        match known.all(|other| other == first) {
            true => first,
            false => ColumnType::Any,
        }
    }

    /// The type of that name; `None`: there is none.
    pub fn parse(name: &str) -> Option<Self> {
        Self::parse_within(name, NESTING_MAX)
    }

    fn parse_within(name: &str, nesting: usize) -> Option<Self> {
        Some(match name {
            "any" => ColumnType::Any,
            "bool" => ColumnType::Bool,
            "i64" => ColumnType::I64,
            "u64" => ColumnType::U64,
            "f64" => ColumnType::F64,
            "decimal" => ColumnType::Decimal,
            "text" => ColumnType::Text,
            "bytes" => ColumnType::Bytes,
            "uuid" => ColumnType::Uuid,
            "date" => ColumnType::Date,
            "time" => ColumnType::Time,
            "timestamp" => ColumnType::Timestamp,
            "timestamptz" => ColumnType::TimestampTz,
            "interval" => ColumnType::Interval,
            "json" => ColumnType::Json,
            _ => {
                if let Some(other) = name.strip_prefix("other:") {
                    return (!other.is_empty()).then(|| ColumnType::Other(Arc::from(other)));
                }
                let inner = name.strip_prefix("array<")?.strip_suffix('>')?;
                let inner = Self::parse_within(inner, nesting.checked_sub(1)?)?;
                ColumnType::Array(Box::new(inner))
            }
        })
    }
}
