//! Prepared statements of a session.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_sql::{Code, Column, Row, SqlError, Value};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use crate::decode::{Decoder, Garbled, Raw, native_name};
use crate::encode;
use crate::errors;
use crate::verb::{Refusal, Verb};

/// A statement that the server knows, with the way from its bytes to values.
pub(crate) struct Prepared {
    pub(crate) statement: Statement,
    pub(crate) columns: Arc<[Column]>,
    pub(crate) verb: Verb,
    decoders: Box<[Decoder]>,
}

impl Prepared {
    /// Has the server parse a text. Nothing is executed.
    pub(crate) async fn make(
        client: &Client,
        text: &str,
        verb: Verb,
    ) -> Result<Prepared, PrepareError> {
        let statement = client.prepare(text).await?;
        let found: Vec<Option<Decoder>> = statement
            .columns()
            .iter()
            .map(|c| Decoder::of(c.type_()))
            .collect();
        let columns: Arc<[Column]> = statement.columns().iter().zip(&found).map(column).collect();
        let statement = match found.iter().any(Option::is_none) {
            true => with_casts(client, text, &statement, &found).await?,
            false => statement,
        };
        let decoders = found
            .into_iter()
            .zip(&*columns)
            .map(|(decoder, column)| {
                decoder.unwrap_or_else(|| Decoder::Cast(column.native.clone()))
            })
            .collect();
        Ok(Prepared {
            statement,
            columns,
            verb,
            decoders,
        })
    }

    /// One row's values.
    pub(crate) fn decode(&self, row: &tokio_postgres::Row) -> Result<Row, SqlError> {
        let mut values = Vec::with_capacity(self.decoders.len());
        for (index, decoder) in self.decoders.iter().enumerate() {
            let Raw(field) = row.try_get(index).map_err(|_| self.garbled(index))?;
            values.push(match field {
                None => Value::Null,
                Some(bytes) => decoder
                    .decode(bytes)
                    .map_err(|Garbled| self.garbled(index))?,
            });
        }
        Ok(values)
    }

    fn garbled(&self, index: usize) -> SqlError {
        let (name, native) = self
            .columns
            .get(index)
            .map_or(("?", "?"), |c| (&*c.name, &*c.native));
        SqlError::internal(format!("the bytes of column {name} are no {native}"))
    }
}

/// Either the server or the driver refused.
pub(crate) enum PrepareError {
    Server(tokio_postgres::Error),
    Driver(SqlError),
}

impl From<tokio_postgres::Error> for PrepareError {
    fn from(error: tokio_postgres::Error) -> Self {
        PrepareError::Server(error)
    }
}

fn column((column, decoder): (&tokio_postgres::Column, &Option<Decoder>)) -> Column {
    let native = native_name(column.type_());
    Column {
        name: column.name().into(),
        column_type: match decoder {
            Some(decoder) => decoder.column_type(),
            None => mainstay_sql::ColumnType::Other(native.clone()),
        },
        native,
    }
}

/// Prepares the text again as a part of one that has the server write the columns as text whose binary
/// form the driver does not read.
async fn with_casts(
    client: &Client,
    text: &str,
    plain: &Statement,
    decoders: &[Option<Decoder>],
) -> Result<Statement, PrepareError> {
    let names: Vec<String> = (1..=decoders.len()).map(|n| format!("c{n}")).collect();
    let selected: Vec<String> = names
        .iter()
        .zip(decoders)
        .map(|(name, decoder)| {
            if decoder.is_some() {
                name.clone()
            } else {
                format!("CAST({name} AS text)")
            }
        })
        .collect();
    let body = text.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    let wrapped = format!(
        "WITH mainstay_rows ({}) AS (\n{body}\n) SELECT {} FROM mainstay_rows",
        names.join(", "),
        selected.join(", ")
    );
    let params: &[Type] = plain.params();
    match client.prepare_typed(&wrapped, params).await {
        Ok(statement) => Ok(statement),
        Err(error) if error.as_db_error().is_some_and(|e| !errors::is_fatal(e)) => {
            Err(PrepareError::Driver(needs_cast(plain, decoders)))
        }
        Err(error) => Err(error.into()),
    }
}

fn needs_cast(plain: &Statement, decoders: &[Option<Decoder>]) -> SqlError {
    let odd = plain
        .columns()
        .iter()
        .zip(decoders)
        .find(|(_, decoder)| decoder.is_none());
    let (name, native) = odd.map_or(("?", "?"), |(column, _)| {
        (column.name(), column.type_().name())
    });
    let message =
        format!("column {name} has the type {native}, which this kind of statement cannot return");
    SqlError::caller(
        Code::NotAvailable,
        message,
        format!("cast it in the statement: `{name}::text`"),
    )
}

/// The statements that a session keeps, the least recently used one leaving first. What leaves is closed
/// at the server.
pub(crate) struct Statements {
    by_text: HashMap<Box<str>, (Arc<Prepared>, u64)>,
    max: usize,
    clock: u64,
}

impl Statements {
    pub(crate) fn new(max: usize) -> Self {
        Statements {
            by_text: HashMap::new(),
            max: max.max(1),
            clock: 0,
        }
    }

    pub(crate) fn get(&mut self, text: &str) -> Option<Arc<Prepared>> {
        self.clock += 1;
        let (prepared, used) = self.by_text.get_mut(text)?;
        *used = self.clock;
        Some(prepared.clone())
    }

    pub(crate) fn insert(&mut self, text: &str, prepared: Arc<Prepared>) {
        if self.by_text.len() >= self.max {
            // A walk over a few hundred entries beside a round trip to the server.
            let oldest = self
                .by_text
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(text, _)| text.clone());
            if let Some(oldest) = oldest {
                self.by_text.remove(&oldest);
            }
        }
        self.by_text.insert(text.into(), (prepared, self.clock));
    }

    pub(crate) fn remove(&mut self, text: &str) {
        self.by_text.remove(text);
    }
}

/// Refuses what a shared session cannot run.
pub(crate) fn admit(text: &str) -> Result<Verb, SqlError> {
    if text.contains('\0') {
        let message = "the statement contains the character U+0000";
        return Err(SqlError::caller(
            Code::BadStatement,
            message,
            "remove it; pass values as parameters",
        ));
    }
    encode::check_text(text, encode::MESSAGE_MAX)?;
    let verb = Verb::read(text);
    encode::check_count(verb.placeholders)?;
    match verb.refusal {
        None => Ok(verb),
        Some(Refusal::CopyStream) => Err(SqlError::caller(
            Code::NotAvailable,
            "COPY FROM STDIN and COPY TO STDOUT are not available",
            "use insert_many to load and stream to read",
        )),
        Some(Refusal::Discard) => Err(SqlError::caller(
            Code::NotAvailable,
            "sessions are shared, so that statements which discard their state are refused",
            "leave it out; a session is reset by the pool",
        )),
    }
}
