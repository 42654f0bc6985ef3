//! The table of values that every surface must give back exactly: the ends of each type, and what lies
//! just beyond them. A driver's conformance checks and the tests of whole surfaces go through the same one.

mod mariadb;
mod postgres;
mod sqlite;

use mainstay_sql::value::{Day, Finite, Interval, Micros, TimeOfDay};
use mainstay_sql::{Decimal, Value};

pub use mariadb::{mariadb, mariadb_refused, mariadb_zero_dates};
pub use postgres::{POSTGRES_TYPES, postgres, postgres_refused};
pub use sqlite::{sqlite, sqlite_refused};

/// A mebibyte of text, of characters of two and four bytes.
pub const LONG_TEXT_TURNS: usize = 174_763;

/// One value in all its forms.
#[derive(Debug, Clone)]
pub struct Sample {
    /// The type of a column that holds it.
    pub native: &'static str,
    /// It as an expression of SQL.
    pub literal: String,
    /// It in the words of the data face.
    pub value: Value,
    /// The name of its own type.
    pub type_name: &'static str,
    /// The name of the type that its column has in an answer.
    pub column: &'static str,
    /// It as JSON, if the column says how to read it.
    pub json: String,
    /// What the expression alone is, where it is not the same.
    pub bare: Option<Bare>,
}

/// An expression that has another type than the column it is for.
#[derive(Debug, Clone)]
pub struct Bare {
    /// Its value.
    pub value: Value,
    /// The name of its type in an answer.
    pub column: &'static str,
    /// It as it stands in a row of JSON.
    pub cell: String,
}

impl Sample {
    fn new(
        native: &'static str,
        literal: impl Into<String>,
        value: Value,
        type_name: &'static str,
        json: impl Into<String>,
    ) -> Self {
        Sample {
            native,
            literal: literal.into(),
            value,
            type_name,
            column: type_name,
            json: json.into(),
            bare: None,
        }
    }

    /// In a column of another type than its own.
    fn column(mut self, column: &'static str) -> Self {
        self.column = column;
        self
    }

    /// Where the expression alone is another value.
    fn bare(mut self, value: Value, column: &'static str, cell: impl Into<String>) -> Self {
        self.bare = Some(Bare {
            value,
            column,
            cell: cell.into(),
        });
        self
    }

    /// It as JSON in a row: with its type where the column has another one.
    pub fn cell(&self) -> String {
        match self.type_name == self.column {
            true => self.json.clone(),
            false => self.param(),
        }
    }

    /// It as JSON for a parameter: with its type.
    pub fn param(&self) -> String {
        format!(
            "{{\"type\": \"{}\", \"value\": {}}}",
            self.type_name, self.json
        )
    }

    /// What the expression alone gives: value, type of the column, JSON in a row.
    pub fn alone(&self) -> Bare {
        let same = || Bare {
            value: self.value.clone(),
            column: self.column,
            cell: self.cell(),
        };
        self.bare.clone().unwrap_or_else(same)
    }
}

/// A value that a column cannot hold.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The type of the column.
    pub native: &'static str,
    /// The value.
    pub value: Value,
    /// It as JSON for a parameter.
    pub param: String,
}

fn refused(native: &'static str, value: Value, param: impl Into<String>) -> Refused {
    Refused {
        native,
        value,
        param: param.into(),
    }
}

fn decimal(text: &str) -> Value {
    Value::Decimal(Decimal::parse(text).expect("the table has decimals"))
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn json(text: &str) -> Value {
    Value::Json(text.to_owned())
}

fn bytes(bytes: &[u8]) -> Value {
    Value::Bytes(bytes.to_vec().into())
}

fn date(days: i32) -> Value {
    Value::Date(Finite::At(Day(days)))
}

fn time(micros: i64, offset: Option<i32>) -> Value {
    Value::Time(TimeOfDay { micros, offset })
}

fn timestamp(micros: i64) -> Value {
    Value::Timestamp(Finite::At(Micros(micros)))
}

fn moment(micros: i64) -> Value {
    Value::TimestampTz(Finite::At(Micros(micros)))
}

fn interval(months: i32, days: i32, micros: i64) -> Value {
    Value::Interval(Interval {
        months,
        days,
        micros,
    })
}

fn other(type_name: &str, text: &str) -> Value {
    Value::Other {
        type_name: type_name.into(),
        text: text.to_owned(),
    }
}

fn long_text() -> String {
    "ü🙂".repeat(LONG_TEXT_TURNS)
}

/// A text without characters that JSON escapes.
fn quoted(text: impl AsRef<str>) -> String {
    format!("\"{}\"", text.as_ref())
}

const HOUR: i64 = 3_600_000_000;
const DAY: i64 = 24 * HOUR;
const UUID: uuid::Uuid = uuid::Uuid::from_u128(0xa0ee_bc99_9c0b_4ef8_bb6d_6bb9_bd38_0a11);
const UUID_TEXT: &str = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
