//! Conditions on the rows of an entity, and the order they come in.

use crate::catalog::{Entity, EntityColumn};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError};
use crate::sql_text::SqlText;
use crate::value::{ColumnType, Value};

/// Values that one `in` may have; databases bound their parameters at 32 766 (SQLite) and above.
pub const IN_MAX: usize = 10_000;

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// From the first to the second value, both included.
    Between,
    /// One of the values; with no values: never.
    In,
    /// None of the values; with no values: always. NULL fields never match unless there are no values.
    NotIn,
    /// The database's own LIKE with `%` and `_` (SQLite ignores the case of ASCII letters).
    Like,
    /// Begins with this text, taken literally; case as in LIKE.
    StartsWith,
    /// Has this text in it, taken literally; case as in LIKE.
    Contains,
    /// Is NULL.
    IsNull,
    /// Is not NULL.
    IsNotNull,
}

impl Operator {
    /// Every operator with its text.
    pub const ALL: &'static [(Operator, &'static str)] = &[
        (Operator::Equal, "="),
        (Operator::NotEqual, "<>"),
        (Operator::Less, "<"),
        (Operator::LessOrEqual, "<="),
        (Operator::Greater, ">"),
        (Operator::GreaterOrEqual, ">="),
        (Operator::Between, "between"),
        (Operator::In, "in"),
        (Operator::NotIn, "not_in"),
        (Operator::Like, "like"),
        (Operator::StartsWith, "starts_with"),
        (Operator::Contains, "contains"),
        (Operator::IsNull, "is_null"),
        (Operator::IsNotNull, "is_not_null"),
    ];

    /// The operator of that text.
    ///
    /// # Errors
    /// `bad_request`, which lists the operators.
    pub fn parse(text: &str) -> Result<Self, SqlError> {
        let found = Self::ALL.iter().find(|(_, known)| *known == text);
        found.map(|(operator, _)| *operator).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|(_, text)| *text).collect();
            SqlError::caller(
                Code::BadRequest,
                format!("unknown operator {text:?}"),
                format!("use one of {}", known.join(", ")),
            )
        })
    }

    /// The text.
    pub fn as_str(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(operator, _)| *operator == self)
            .map_or("", |(_, text)| text)
    }
}

/// One condition. Conditions of a list must all hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// Name of the column.
    pub field: String,
    /// How it is compared.
    pub operator: Operator,
    /// What it is compared with, always bound as parameters.
    pub values: Vec<Value>,
}

impl Filter {
    /// A condition.
    pub fn new(field: impl Into<String>, operator: Operator, values: Vec<Value>) -> Self {
        Filter {
            field: field.into(),
            operator,
            values,
        }
    }

    /// `field = value`
    pub fn equal(field: impl Into<String>, value: Value) -> Self {
        Self::new(field, Operator::Equal, vec![value])
    }

    /// Adds the condition to a text.
    ///
    /// # Errors
    /// `unknown_column`, or `bad_request` and `bad_value` where values and operator do not fit.
    pub(crate) fn write(&self, text: &mut SqlText, entity: &Entity) -> Result<(), SqlError> {
        let column = entity.column(&self.field)?;
        self.check()?;
        self.check_type(column, text.dialect())?;
        let column = &column.name;
        if self.values.is_empty() && matches!(self.operator, Operator::In | Operator::NotIn) {
            let is_in = self.operator == Operator::In;
            text.push(if is_in { "1 = 0" } else { "1 = 1" });
            return Ok(());
        }
        text.name(column);
        match self.operator {
            Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => {
                text.push(" ").push(self.operator.as_str()).push(" ");
                text.bind(self.values[0].clone());
            }
            Operator::Between => {
                text.push(" BETWEEN ").bind(self.values[0].clone());
                text.push(" AND ").bind(self.values[1].clone());
            }
            Operator::In | Operator::NotIn => {
                let word = if self.operator == Operator::In {
                    " IN ("
                } else {
                    " NOT IN ("
                };
                text.push(word).bind_list(&self.values).push(")");
            }
            Operator::Like => {
                text.push(" LIKE ").bind(self.values[0].clone());
            }
            Operator::StartsWith | Operator::Contains => {
                text.push(" LIKE ").bind(self.pattern()?);
                // Not the backslash, which MySQL's strings take for themselves.
                text.push(" ESCAPE '!'");
            }
            Operator::IsNull => {
                text.push(" IS NULL");
            }
            Operator::IsNotNull => {
                text.push(" IS NOT NULL");
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), SqlError> {
        let (least, most) = match self.operator {
            Operator::Between => (2, 2),
            Operator::In | Operator::NotIn => (0, IN_MAX),
            Operator::IsNull | Operator::IsNotNull => (0, 0),
            _ => (1, 1),
        };
        let count = self.values.len();
        if count < least || count > most {
            let wanted = match (least, most) {
                (0, 0) => "no value".to_owned(),
                (1, 1) => "one value".to_owned(),
                (2, 2) => "two values".to_owned(),
                (_, most) => format!("at most {most} values"),
            };
            return Err(SqlError::caller(
                Code::BadRequest,
                format!(
                    "{} of {:?} got {count} values",
                    self.operator.as_str(),
                    self.field
                ),
                format!("give it {wanted}"),
            ));
        }
        if self.values.contains(&Value::Null) {
            return Err(SqlError::caller(
                Code::BadValue,
                format!(
                    "{:?} is compared with NULL, which nothing equals",
                    self.field
                ),
                "use is_null or is_not_null",
            ));
        }
        Ok(())
    }

    /// Refuses a value that a database would compare with the column after bending one of the two: on MySQL
    /// every text that is no number equals 0.
    fn check_type(&self, column: &EntityColumn, dialect: Dialect) -> Result<(), SqlError> {
        if matches!(
            self.operator,
            Operator::Like | Operator::StartsWith | Operator::Contains
        ) {
            return Ok(());
        }
        let misfit = |value: &&Value| misfits(&column.column_type, value, dialect);
        let Some(value) = self.values.iter().find(misfit) else {
            return Ok(());
        };
        let error = SqlError::caller(
            Code::BadValue,
            format!(
                "{:?} holds {}, and the filter gives {}",
                column.name,
                column.column_type,
                given(value)
            ),
            format!("give a value of the type {}", column.column_type),
        );
        Err(error.place("column", column.name.clone()))
    }

    /// The LIKE pattern of a literal text.
    fn pattern(&self) -> Result<Value, SqlError> {
        let Value::Text(literal) = &self.values[0] else {
            return Err(SqlError::caller(
                Code::BadValue,
                format!(
                    "{} of {:?} needs a text",
                    self.operator.as_str(),
                    self.field
                ),
                "give the value as text",
            ));
        };
        let mut pattern = String::with_capacity(literal.len() + 2);
        if self.operator == Operator::Contains {
            pattern.push('%');
        }
        for character in literal.chars() {
            if matches!(character, '%' | '_' | '!') {
                pattern.push('!');
            }
            pattern.push(character);
        }
        pattern.push('%');
        Ok(Value::Text(pattern))
    }
}

/// What a value is, in one word.
fn given(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "a bool",
        Value::I64(_) | Value::U64(_) | Value::F64(_) | Value::Decimal(_) => "a number",
        Value::Text(_) => "a text",
        Value::Bytes(_) => "bytes",
        Value::Array(_) => "an array",
        Value::Json(_) => "JSON",
        _ => "a value of another type",
    }
}

/// Whether a value is none that the column could hold. Of types whose values are written as text, the
/// database judges.
fn misfits(column: &ColumnType, value: &Value, dialect: Dialect) -> bool {
    match (column, value) {
        (ColumnType::I64 | ColumnType::U64 | ColumnType::F64 | ColumnType::Decimal, value) => {
            match value {
                Value::Text(text) => text.trim().parse::<f64>().is_err(),
                Value::Null | Value::Bool(_) | Value::Other { .. } => false,
                Value::I64(_) | Value::U64(_) | Value::F64(_) | Value::Decimal(_) => false,
                _ => true,
            }
        }
        // SQLite keeps decimals as text.
        (ColumnType::Text, Value::Decimal(_)) => dialect != Dialect::Sqlite,
        (ColumnType::Text, value) => matches!(
            value,
            Value::Bool(_)
                | Value::I64(_)
                | Value::U64(_)
                | Value::F64(_)
                | Value::Bytes(_)
                | Value::Array(_)
        ),
        _ => false,
    }
}

/// Adds ` WHERE …` for all filters.
pub(crate) fn write_filters(
    text: &mut SqlText,
    filters: &[Filter],
    entity: &Entity,
) -> Result<(), SqlError> {
    for (index, filter) in filters.iter().enumerate() {
        text.push(if index == 0 { " WHERE " } else { " AND " });
        filter.write(text, entity)?;
    }
    Ok(())
}

/// Whether the filters are equalities that cover the whole primary key, so that they fit one row at most.
pub(crate) fn cover_key(filters: &[Filter], entity: &Entity) -> bool {
    !entity.primary_key.is_empty()
        && !entity.is_view
        && entity.primary_key.iter().all(|key| {
            filters.iter().any(|filter| {
                filter.operator == Operator::Equal
                    && entity
                        .column(&filter.field)
                        .is_ok_and(|column| column.name == *key)
            })
        })
}

/// One column that rows are ordered by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Name of the column.
    pub field: String,
    /// From the greatest to the least.
    pub descending: bool,
}

impl Order {
    /// From the least to the greatest.
    pub fn ascending(field: impl Into<String>) -> Self {
        Order {
            field: field.into(),
            descending: false,
        }
    }

    /// From the greatest to the least.
    pub fn descending(field: impl Into<String>) -> Self {
        Order {
            field: field.into(),
            descending: true,
        }
    }
}

/// Which rows of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// From 1.
    pub number: u64,
    /// Rows of a page, at least 1.
    pub size: u64,
}

impl Page {
    /// Rows before the page.
    ///
    /// # Errors
    /// `bad_request` for page 0, size 0, and pages beyond what a database can count.
    pub(crate) fn offset(self) -> Result<u64, SqlError> {
        if self.number == 0 {
            return Err(SqlError::caller(
                Code::BadRequest,
                "there is no page 0",
                "pages are counted from 1",
            ));
        }
        if self.size == 0 {
            return Err(SqlError::caller(
                Code::BadRequest,
                "a page of size 0 has no rows",
                "give a size of at least 1",
            ));
        }
        let end = self.number.checked_mul(self.size);
        match end {
            Some(end) if i64::try_from(end).is_ok() => Ok(end - self.size),
            _ => Err(SqlError::caller(
                Code::BadRequest,
                format!("page {} of size {} is out of range", self.number, self.size),
                "number times size must fit 63 bits",
            )),
        }
    }
}

#[cfg(test)]
mod tests;
