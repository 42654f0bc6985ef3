//! What a database holds, exactly, in one set of types for all databases.

mod calendar;
mod column_type;
mod json;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

pub use json::{
    INTEGER_MAX, cell_from_json, cell_to_json, from_json, is_typed_by, to_json, write_plain,
};

/// One value of a row or a parameter. What a database gives comes back the same through every surface;
/// what a database cannot hold is refused by its driver, never bent.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// SQL NULL of any type.
    Null,
    /// true or false
    Bool(bool),
    /// Any signed integer up to 64 bits.
    I64(i64),
    /// Unsigned 64-bit integers (MySQL).
    U64(u64),
    /// IEEE 754 double, with NaN and infinities where the database has them.
    F64(f64),
    /// An exact decimal number as it was written, scale included.
    Decimal(Decimal),
    /// text
    Text(String),
    /// bytes
    Bytes(Bytes),
    /// uuid
    Uuid(uuid::Uuid),
    /// A calendar day.
    Date(Finite<Day>),
    /// A time of day, or of any length for MySQL, in microseconds.
    Time(TimeOfDay),
    /// A point in time without a zone, in microseconds since 1970-01-01 00:00.
    Timestamp(Finite<Micros>),
    /// A point in time, in microseconds since 1970-01-01 00:00 UTC.
    TimestampTz(Finite<Micros>),
    /// A span of months, days and microseconds, which do not convert into each other.
    Interval(Interval),
    /// JSON as the database wrote it.
    Json(String),
    /// Values of one type.
    Array(Vec<Value>),
    /// Anything else, as the database's own text with the type's name.
    Other {
        /// The database's name of the type.
        type_name: Arc<str>,
        /// The database's text.
        text: String,
    },
}

impl Value {
    /// About how many bytes it holds in memory, for bounds of answers and batches.
    pub fn size(&self) -> usize {
        let beside = match self {
            Value::Decimal(decimal) => decimal.as_str().len(),
            Value::Text(text) | Value::Json(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Other { text, .. } => text.len(),
            Value::Array(items) => items.iter().map(Value::size).sum(),
            _ => 0,
        };
        size_of::<Value>() + beside
    }
}

/// An exact decimal: digits with an optional sign, point and exponent-free, or `NaN`, `Infinity`,
/// `-Infinity` where the database has them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Decimal(pub(crate) Box<str>);

impl Decimal {
    /// Takes a text over if it is a decimal number.
    pub fn parse(text: &str) -> Option<Self> {
        if matches!(text, "NaN" | "Infinity" | "-Infinity") {
            return Some(Decimal(text.into()));
        }
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        let is_number = !(whole.is_empty() && part.is_empty())
            && all_digits(whole)
            && all_digits(part)
            && !(digits.ends_with('.'));
        is_number.then(|| Decimal(text.strip_prefix('+').unwrap_or(text).into()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value of a type that has infinities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Finite<T> {
    /// Before everything.
    NegativeInfinity,
    /// A value.
    At(T),
    /// After everything.
    Infinity,
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Day(pub i32);

/// Microseconds since 1970-01-01 00:00.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Micros(pub i64);

/// A time of day, with an optional offset from UTC in seconds east.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeOfDay {
    /// Microseconds since midnight; may be negative or beyond a day for MySQL.
    pub micros: i64,
    /// Offset from UTC in seconds, east positive (PostgreSQL `timetz`).
    pub offset: Option<i32>,
}

/// A span of time whose parts do not convert into each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interval {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds.
    pub micros: i64,
}

/// The type of a column, in the words of [`Value`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// The database did not say (SQLite expressions): each value tells for itself.
    Any,
    /// [`Value::Bool`]
    Bool,
    /// [`Value::I64`]
    I64,
    /// [`Value::U64`]
    U64,
    /// [`Value::F64`]
    F64,
    /// [`Value::Decimal`]
    Decimal,
    /// [`Value::Text`]
    Text,
    /// [`Value::Bytes`]
    Bytes,
    /// [`Value::Uuid`]
    Uuid,
    /// [`Value::Date`]
    Date,
    /// [`Value::Time`]
    Time,
    /// [`Value::Timestamp`]
    Timestamp,
    /// [`Value::TimestampTz`]
    TimestampTz,
    /// [`Value::Interval`]
    Interval,
    /// [`Value::Json`]
    Json,
    /// [`Value::Array`] of that type.
    Array(Box<ColumnType>),
    /// [`Value::Other`] of the type with that name.
    Other(Arc<str>),
}

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name that the database gave it.
    pub name: Arc<str>,
    /// Its type.
    pub column_type: ColumnType,
    /// The database's own name of the type (`int4`, `VARCHAR(20)`).
    pub native: Arc<str>,
}

/// One row.
pub type Row = Vec<Value>;
