//! Answers as JSON, written value by value into one buffer: no tree is made of the rows.

use std::io::Write;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use mainstay_sql::{Answer, Column, ColumnType, Meta, PageOf, Row, Value, value};

use crate::problem::{Problem, TOO_LARGE_HINT};

/// What a row takes at least; a first guess of the buffer's size.
const VALUE_BYTES: usize = 12;
/// At an answer that was given before, to the same request with the same idempotency key.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Everything beside rows.
const FRAME_BYTES: usize = 512;

/// What an answer shows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape<'a> {
    /// Columns, rows and, if one was asked for, the page.
    Rows(Option<&'a PageOf>),
    /// Affected rows and keys; rows too where the statement gave some.
    Change,
    /// The one value.
    Scalar,
    /// A result for each statement.
    Script,
}

/// A JSON answer.
///
/// # Errors
/// `answer_too_large` beyond `max` bytes.
pub(super) fn respond(answer: &Answer, shape: Shape<'_>, max: u64) -> Result<Response, Problem> {
    let width = answer.columns.len().max(1);
    let guess = FRAME_BYTES + answer.rows.len() * width * VALUE_BYTES;
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let mut writer = Writer {
        buffer: Vec::with_capacity(guess.min(max)),
        max,
        scratch: String::new(),
    };
    match (writer.answer(answer, shape), shape) {
        (Ok(()), _) => Ok(told(json(writer.buffer), &answer.meta)),
        (Err(problem), Shape::Change | Shape::Script) => Err(problem.carried_out()),
        (Err(problem), Shape::Rows(_) | Shape::Scalar) => Err(problem),
    }
}

/// Says of a stored answer that it is one.
pub(super) fn told(mut response: Response, meta: &Meta) -> Response {
    if meta.replayed {
        let yes = HeaderValue::from_static("true");
        response.headers_mut().insert(REPLAYED, yes);
    }
    response
}

/// A body that is JSON already.
pub(super) fn json(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn type_of(column: Option<&Column>) -> &ColumnType {
    column.map_or(&ColumnType::Any, |column| &column.column_type)
}

/// Writes into one buffer.
pub(super) struct Writer {
    buffer: Vec<u8>,
    max: usize,
    /// Where a value is written before it is quoted.
    scratch: String,
}

impl Writer {
    /// One for the lines of a stream, which is not bounded as a whole.
    pub(super) fn unbounded() -> Self {
        Writer {
            buffer: Vec::new(),
            max: usize::MAX,
            scratch: String::new(),
        }
    }

    /// How much is written.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// What is written; goes on with an empty buffer of about that size.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let next = Vec::with_capacity(self.buffer.len());
        std::mem::replace(&mut self.buffer, next)
    }

    /// The first line of a stream.
    pub(super) fn header_line(&mut self, columns: &[Column]) {
        self.raw("{");
        self.columns(columns);
        self.raw("}\n");
    }

    /// A line for each row.
    pub(super) fn row_lines(&mut self, columns: &[Column], rows: &[Row]) {
        for row in rows {
            self.row(columns, row);
            self.raw("\n");
        }
    }

    /// The last line of a stream that ended well.
    pub(super) fn done_line(&mut self, rows: u64, affected: Option<u64>, meta: &Meta) {
        self.number("{\"done\":{\"rows\":", Some(rows));
        if affected.is_some() {
            self.number(",\"affected\":", affected);
        }
        self.raw(",");
        self.meta_members(meta);
        self.raw("}}\n");
    }

    /// The last line of a stream that broke.
    pub(super) fn problem_line(&mut self, document: &[u8]) {
        self.raw("{\"problem\":");
        self.buffer.extend_from_slice(document);
        self.raw("}\n");
    }

    fn answer(&mut self, answer: &Answer, shape: Shape<'_>) -> Result<(), Problem> {
        self.raw("{");
        match shape {
            Shape::Rows(page) => {
                self.table(&answer.columns, &answer.rows)?;
                // A statement without rows would otherwise say nothing of what it did.
                if answer.columns.is_empty() && answer.affected.is_some() {
                    self.number(",\"affected\":", answer.affected);
                }
                if let Some(page) = page {
                    self.page(page);
                }
            }
            Shape::Change => {
                self.number("\"affected\":", answer.affected);
                self.raw(",\"keys\":");
                self.row(&[], &answer.keys);
                if !answer.columns.is_empty() {
                    self.raw(",");
                    self.table(&answer.columns, &answer.rows)?;
                }
            }
            Shape::Scalar => self.scalar(answer),
            Shape::Script => self.results(answer),
        }
        self.raw(",\"meta\":");
        self.meta(&answer.meta);
        self.raw("}");
        self.check()
    }

    fn columns(&mut self, columns: &[Column]) {
        self.raw("\"columns\":[");
        for (index, column) in columns.iter().enumerate() {
            self.raw(if index == 0 {
                "{\"name\":"
            } else {
                ",{\"name\":"
            });
            self.text(&column.name);
            self.raw(",\"type\":");
            self.display(&column.column_type);
            self.raw("}");
        }
        self.raw("]");
    }

    fn table(&mut self, columns: &[Column], rows: &[Row]) -> Result<(), Problem> {
        self.columns(columns);
        self.raw(",\"rows\":[");
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                self.raw(",");
            }
            self.row(columns, row);
            self.check()?;
        }
        self.raw("]");
        Ok(())
    }

    /// Values that have no column have no type that is known beforehand.
    fn row(&mut self, columns: &[Column], row: &[Value]) {
        self.raw("[");
        for (index, value) in row.iter().enumerate() {
            if index > 0 {
                self.raw(",");
            }
            self.value(value, type_of(columns.get(index)));
        }
        self.raw("]");
    }

    fn value(&mut self, value: &Value, column: &ColumnType) {
        if !value::is_typed_by(value, column) {
            return self.json(&value::cell_to_json(value, column));
        }
        match value {
            Value::Null => self.raw("null"),
            // Written from where they are: only what needs another form is made anew.
            Value::Text(text) | Value::Json(text) | Value::Other { text, .. } => self.text(text),
            Value::Bool(value) => self.raw(if *value { "true" } else { "false" }),
            Value::I64(number) if number.unsigned_abs() <= value::INTEGER_MAX => self.json(number),
            Value::F64(number) if number.is_finite() => self.json(number),
            value => {
                self.scratch.clear();
                if value::write_plain(value, &mut self.scratch) {
                    self.buffer.push(b'"');
                    self.buffer.extend_from_slice(self.scratch.as_bytes());
                    self.buffer.push(b'"');
                } else {
                    self.json(&value::to_json(value));
                }
            }
        }
    }

    /// The type is the column's if it says how to read the value, else the value's own.
    fn scalar(&mut self, answer: &Answer) {
        let found = answer.rows.first().and_then(|row| row.first());
        let value = found.unwrap_or(&Value::Null);
        let column = answer.columns.first().map(|column| &column.column_type);
        let own = column
            .filter(|column| !value::is_typed_by(value, column))
            .map(|_| ColumnType::of(value));
        let told = own.as_ref().or(column);
        self.raw("\"value\":");
        self.value(value, told.unwrap_or(&ColumnType::Any));
        self.raw(",\"found\":");
        self.raw(if found.is_some() { "true" } else { "false" });
        self.raw(",\"type\":");
        match told {
            Some(told) => self.display(told),
            None => self.raw("null"),
        }
    }

    fn page(&mut self, page: &PageOf) {
        let page = serde_json::json!({
            "number": page.number,
            "size": page.size,
            "total_rows": page.total_rows,
            "total_pages": page.total_pages,
            "has_next": page.has_next,
            "has_previous": page.has_previous,
        });
        self.raw(",\"page\":");
        self.json(&page);
    }

    fn results(&mut self, answer: &Answer) {
        self.raw("\"results\":[");
        for (index, result) in answer.results.iter().enumerate() {
            self.raw(if index == 0 { "{" } else { ",{" });
            self.number("\"affected\":", result.affected);
            self.number(",\"rows\":", Some(result.rows));
            self.raw("}");
        }
        self.raw("]");
    }

    fn meta(&mut self, meta: &Meta) {
        self.raw("{");
        self.meta_members(meta);
        self.raw("}");
    }

    fn meta_members(&mut self, meta: &Meta) {
        self.raw("\"endpoint\":");
        match &meta.endpoint {
            Some(endpoint) => self.text(endpoint),
            None => self.raw("null"),
        }
        self.number(",\"attempts\":", Some(meta.attempts.into()));
        self.raw(",\"cache\":");
        self.text(if meta.cache.is_empty() {
            "off"
        } else {
            meta.cache
        });
        let micros = meta.elapsed.as_micros();
        self.formatted(format_args!(
            ",\"elapsed_ms\":{}.{:03}",
            micros / 1000,
            micros % 1000
        ));
        self.raw(",\"correlation_id\":");
        match meta.correlation_id {
            Some(id) => self.formatted(format_args!("\"{id}\"")),
            None => self.raw("null"),
        }
        self.number(",\"policy_version\":", Some(meta.policy_version));
        if meta.last_resort {
            self.raw(",\"last_resort\":true");
        }
    }

    fn number(&mut self, before: &str, number: Option<u64>) {
        self.raw(before);
        match number {
            Some(number) => self.formatted(format_args!("{number}")),
            None => self.raw("null"),
        }
    }

    fn raw(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn text(&mut self, text: &str) {
        self.json(text);
    }

    fn display(&mut self, value: &impl std::fmt::Display) {
        self.json(&value.to_string());
    }

    fn json(&mut self, value: &(impl serde::Serialize + ?Sized)) {
        // A buffer in memory takes everything, and all that comes here can be written as JSON.
        let _ = serde_json::to_writer(&mut self.buffer, value);
    }

    fn formatted(&mut self, arguments: std::fmt::Arguments<'_>) {
        let _ = self.buffer.write_fmt(arguments);
    }

    fn check(&self) -> Result<(), Problem> {
        if self.buffer.len() <= self.max {
            return Ok(());
        }
        Err(Problem::new(
            "answer_too_large",
            format!("the answer has more than {} bytes of JSON", self.max),
            TOO_LARGE_HINT,
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mainstay_engine::{CorrelationId, Sent};
    use mainstay_sql::Decimal;

    use super::*;

    fn answer(rows: Vec<Row>) -> Answer {
        let column = |name: &str, column_type| Column {
            name: name.into(),
            column_type,
            native: "".into(),
        };
        Answer {
            columns: Arc::from([
                column("a\"b", ColumnType::Any),
                column("n", ColumnType::I64),
            ]),
            rows,
            meta: Box::new(Meta {
                endpoint: Some("one".into()),
                attempts: 2,
                cache: "off",
                elapsed: Duration::from_micros(1_005),
                correlation_id: Some(CorrelationId(7)),
                policy_version: 3,
                last_resort: false,
                replayed: false,
            }),
            ..Answer::default()
        }
    }

    fn written(answer: &Answer, shape: Shape<'_>) -> serde_json::Value {
        let mut writer = Writer::unbounded();
        writer.answer(answer, shape).unwrap();
        serde_json::from_slice(&writer.buffer).unwrap()
    }

    #[test]
    fn every_value_is_written_as_the_data_face_writes_it() {
        let values = [
            Value::Null,
            Value::Bool(true),
            Value::I64(i64::MIN),
            Value::I64(-5),
            Value::U64(u64::MAX),
            Value::F64(0.1),
            Value::F64(f64::NAN),
            Value::Decimal(Decimal::parse("1.10").unwrap()),
            Value::Text("a\"\\\n\u{1}é".into()),
            Value::Bytes(vec![0, 255].into()),
            Value::Json("{\"a\": [1]}".into()),
            Value::Array(vec![Value::I64(1), Value::Null]),
            Value::Other {
                type_name: "inet".into(),
                text: "::1".into(),
            },
        ];
        for value in values {
            let shown = written(
                &answer(vec![vec![value.clone(), Value::I64(1)]]),
                Shape::Rows(None),
            );
            let expected = value::cell_to_json(&value, &ColumnType::Any);
            assert_eq!(shown["rows"][0][0], expected, "{value:?}");
        }
    }

    #[test]
    fn an_answer_says_where_it_came_from() {
        let shown = written(&answer(Vec::new()), Shape::Rows(None));
        let expected = serde_json::json!({
            "columns": [{"name": "a\"b", "type": "any"}, {"name": "n", "type": "i64"}],
            "rows": [],
            "meta": {
                "endpoint": "one", "attempts": 2, "cache": "off", "elapsed_ms": 1.005,
                "correlation_id": "00000000000000000000000000000007", "policy_version": 3
            }
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_answer_beyond_the_limit_is_refused() {
        let rows = vec![vec![Value::Text("x".repeat(100)), Value::Null]; 10];
        let refused = respond(&answer(rows), Shape::Rows(None), 500).unwrap_err();
        assert_eq!(refused.code(), "answer_too_large");
        assert_eq!(refused.sent(), Sent::No);
    }

    #[test]
    fn an_answer_of_a_change_that_is_too_large_says_that_the_change_was_carried_out() {
        let rows = vec![vec![Value::Text("x".repeat(100)), Value::Null]; 10];
        let refused = respond(&answer(rows), Shape::Change, 500).unwrap_err();
        assert_eq!(refused.code(), "answer_too_large");
        assert_eq!(refused.sent(), Sent::Maybe);
    }
}
