//! Rows of entities: find, insert, update, delete.

use std::sync::Arc;

use mainstay_engine::Safety;

use crate::catalog::Entity;
use crate::database::{Answer, Database, Options, Request, Scope, Work};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError};
use crate::filter::{Filter, cover_key, write_filters};
use crate::select::{Find, PageOf, Paged};
use crate::sql_text::SqlText;
use crate::stream::RowStream;
use crate::value::Value;

use super::is_stale_schema;
use super::many::ManyBy;
use super::statement::{check, check_keyed, request};

/// Names of columns with their values.
pub type Record = Vec<(String, Value)>;

/// Told how many rows of a batch are done, of how many.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Send + Sync);

/// New values for the rows that filters fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Conditions that must all hold; at least one.
    pub filters: Vec<Filter>,
    /// The new values.
    pub set: Record,
}

/// A text with its parameters and what it means to run it again.
pub(super) struct Written {
    pub(super) text: String,
    pub(super) params: Vec<Value>,
    pub(super) safety: Safety,
}

/// Writes a text by the description of an entity, and runs it. If the description was a remembered one
/// and does not fit any more, it is asked for once more.
async fn with_entity<D, T>(
    database: &D,
    name: &str,
    run: impl AsyncEntity<T>,
) -> Result<T, SqlError>
where
    D: Database + ?Sized,
    T: Send,
{
    let was_remembered = database.schema().entity(name).is_some();
    let entity = super::catalog::entity(database, name, false).await?;
    match run.call(entity).await {
        Err(error) if was_remembered && is_stale_schema(&error) => {
            let entity = super::catalog::entity(database, name, true).await?;
            run.call(entity).await
        }
        ended => ended,
    }
}

/// Work by the description of an entity, which may be run twice.
pub(super) trait AsyncEntity<T>: Send + Sync {
    fn call(&self, entity: Arc<Entity>) -> impl Future<Output = Result<T, SqlError>> + Send;
}

fn ask(name: &'static str, written: Written, options: &Options) -> Request {
    let work = Work::Statement {
        text: Arc::from(written.text),
        params: written.params,
    };
    request(name, work, written.safety, options.clone())
}

fn ask_read(
    name: &'static str,
    (text, params): (String, Vec<Value>),
    options: &Options,
) -> Request {
    let written = Written {
        text,
        params,
        safety: Safety::Read,
    };
    ask(name, written, options)
}

struct FindBy<'a, D: ?Sized> {
    database: &'a D,
    find: &'a Find,
    options: &'a Options,
}

impl<D: Database + ?Sized> AsyncEntity<Paged> for FindBy<'_, D> {
    async fn call(&self, entity: Arc<Entity>) -> Result<Paged, SqlError> {
        let dialect = self.database.dialect();
        let select = ask_read("find", self.find.select(dialect, &entity)?, self.options);
        let Some(page) = self.find.page else {
            let answer = self.database.collect(&select, Scope::default()).await?;
            return Ok(Paged { answer, page: None });
        };
        let count = ask_read("find", self.find.count(dialect, &entity)?, self.options);
        let counted = self.database.collect(&count, Scope::default()).await?;
        let total = match counted.rows.first().and_then(|row| row.first()) {
            Some(Value::I64(total)) => u64::try_from(*total).unwrap_or(0),
            Some(Value::U64(total)) => *total,
            _ => return Err(SqlError::internal("count(*) gave no number")),
        };
        let answer = self.database.collect(&select, Scope::default()).await?;
        let page = Some(PageOf::new(page, total));
        Ok(Paged { answer, page })
    }
}

pub(super) async fn find<D: Database + ?Sized>(
    database: &D,
    find: &Find,
    options: Options,
) -> Result<Paged, SqlError> {
    check(&options)?;
    if let Some(page) = find.page {
        page.offset()?;
    }
    let by = FindBy {
        database,
        find,
        options: &options,
    };
    with_entity(database, &find.entity, by).await
}

struct StreamBy<'a, D: ?Sized> {
    database: &'a D,
    find: &'a Find,
    options: &'a Options,
}

impl<D: Database + ?Sized> AsyncEntity<RowStream> for StreamBy<'_, D> {
    async fn call(&self, entity: Arc<Entity>) -> Result<RowStream, SqlError> {
        let written = self.find.select(self.database.dialect(), &entity)?;
        let request = ask_read("stream", written, self.options);
        self.database.stream(&request, Scope::default()).await
    }
}

pub(super) async fn stream<D: Database + ?Sized>(
    database: &D,
    find: &Find,
    options: Options,
) -> Result<RowStream, SqlError> {
    check(&options)?;
    if find.page.is_some() {
        return Err(SqlError::caller(
            Code::BadRequest,
            "a stream has no pages",
            "leave the page out, or use find",
        ));
    }
    let by = StreamBy {
        database,
        find,
        options: &options,
    };
    with_entity(database, &find.entity, by).await
}

/// Runs what a function writes by the description of an entity.
struct WriteBy<'a, D: ?Sized, W> {
    database: &'a D,
    name: &'static str,
    write: W,
    options: &'a Options,
}

impl<D, W> AsyncEntity<Answer> for WriteBy<'_, D, W>
where
    D: Database + ?Sized,
    W: Fn(Dialect, &Entity) -> Result<Written, SqlError> + Send + Sync,
{
    async fn call(&self, entity: Arc<Entity>) -> Result<Answer, SqlError> {
        let written = (self.write)(self.database.dialect(), &entity)?;
        let request = ask(self.name, written, self.options);
        self.database.collect(&request, Scope::default()).await
    }
}

fn insert_text(
    dialect: Dialect,
    entity: &Entity,
    record: &Record,
    returns_key: bool,
) -> Result<Written, SqlError> {
    let mut names = Vec::with_capacity(record.len());
    for (field, _) in record {
        let name = entity.column(field)?.name.as_str();
        if names.contains(&name) {
            return Err(named_twice(name));
        }
        names.push(name);
    }
    let mut text = SqlText::new(dialect);
    text.push("INSERT INTO ").entity(entity);
    match (record.is_empty(), dialect) {
        (true, Dialect::MySql) => {
            text.push(" () VALUES ()");
        }
        (true, _) => {
            text.push(" DEFAULT VALUES");
        }
        (false, _) => {
            let values: Vec<Value> = record.iter().map(|(_, value)| value.clone()).collect();
            text.push(" (").names(names).push(") VALUES (");
            text.bind_list(&values).push(")");
        }
    }
    if returns_key && dialect != Dialect::MySql && !entity.primary_key.is_empty() {
        text.push(" RETURNING ");
        text.names(entity.primary_key.iter().map(String::as_str));
    }
    let (text, params) = text.finish();
    Ok(Written {
        text,
        params,
        safety: Safety::Write,
    })
}

fn named_twice(name: &str) -> SqlError {
    SqlError::caller(
        Code::BadRequest,
        format!("column {name:?} is named twice"),
        "name each column once",
    )
}

/// Moves a returned primary key from the rows to the keys.
fn keys_of(mut answer: Answer) -> Answer {
    if answer.rows.is_empty() {
        return answer;
    }
    let rows = std::mem::take(&mut answer.rows);
    answer.affected = answer.affected.or(Some(rows.len() as u64));
    answer.keys = rows
        .into_iter()
        .map(|mut row| {
            if row.len() == 1 {
                row.swap_remove(0)
            } else {
                Value::Array(row)
            }
        })
        .collect();
    answer.columns = Arc::default();
    answer
}

pub(super) async fn insert<D: Database + ?Sized>(
    database: &D,
    entity: &str,
    record: &Record,
    options: Options,
) -> Result<Answer, SqlError> {
    check_keyed(database, &options)?;
    let by = WriteBy {
        database,
        name: "insert",
        write: |dialect, entity: &Entity| insert_text(dialect, entity, record, true),
        options: &options,
    };
    with_entity(database, entity, by).await.map(keys_of)
}

pub(super) async fn insert_many<D: Database + ?Sized>(
    database: &D,
    entity: &str,
    records: &[Record],
    options: Options,
    progress: Option<Progress<'_>>,
) -> Result<Answer, SqlError> {
    check_keyed(database, &options)?;
    let by = ManyBy {
        database,
        name: "insert_many",
        count: records.len(),
        write: |dialect, entity: &Entity, index: usize| {
            insert_text(dialect, entity, &records[index], true)
        },
        options: &options,
        progress,
    };
    with_entity(database, entity, by).await.map(keys_of)
}

fn require_filters(filters: &[Filter], verb: &str) -> Result<(), SqlError> {
    if filters.is_empty() {
        return Err(SqlError::caller(
            Code::BadRequest,
            format!("{verb} without a filter would touch every row"),
            "give a filter, or say it in SQL with execute",
        ));
    }
    Ok(())
}

fn update_text(dialect: Dialect, entity: &Entity, change: &Change) -> Result<Written, SqlError> {
    require_filters(&change.filters, "update")?;
    if change.set.is_empty() {
        return Err(SqlError::caller(
            Code::BadRequest,
            "update without new values changes nothing",
            "name at least one column to set",
        ));
    }
    let mut text = SqlText::new(dialect);
    text.push("UPDATE ").entity(entity).push(" SET ");
    let mut names: Vec<&str> = Vec::new();
    for (index, (field, value)) in change.set.iter().enumerate() {
        let name = entity.column(field)?.name.as_str();
        if names.contains(&name) {
            return Err(named_twice(name));
        }
        names.push(name);
        if index > 0 {
            text.push(", ");
        }
        text.name(name).push(" = ").bind(value.clone());
    }
    write_filters(&mut text, &change.filters, entity)?;
    let (text, params) = text.finish();
    Ok(Written {
        text,
        params,
        safety: Safety::Write,
    })
}

pub(super) async fn update<D: Database + ?Sized>(
    database: &D,
    entity: &str,
    change: &Change,
    options: Options,
) -> Result<Answer, SqlError> {
    check_keyed(database, &options)?;
    let by = WriteBy {
        database,
        name: "update",
        write: |dialect, entity: &Entity| update_text(dialect, entity, change),
        options: &options,
    };
    with_entity(database, entity, by).await
}

pub(super) async fn update_many<D: Database + ?Sized>(
    database: &D,
    entity: &str,
    changes: &[Change],
    options: Options,
    progress: Option<Progress<'_>>,
) -> Result<Answer, SqlError> {
    check_keyed(database, &options)?;
    let by = ManyBy {
        database,
        name: "update_many",
        count: changes.len(),
        write: |dialect, entity: &Entity, index: usize| {
            update_text(dialect, entity, &changes[index])
        },
        options: &options,
        progress,
    };
    with_entity(database, entity, by).await
}

fn delete_text(dialect: Dialect, entity: &Entity, filters: &[Filter]) -> Result<Written, SqlError> {
    require_filters(filters, "delete")?;
    let mut text = SqlText::new(dialect);
    text.push("DELETE FROM ").entity(entity);
    write_filters(&mut text, filters, entity)?;
    let (text, params) = text.finish();
    Ok(Written {
        text,
        params,
        safety: if cover_key(filters, entity) {
            Safety::IdempotentWrite
        } else {
            Safety::Write
        },
    })
}

pub(super) async fn delete<D: Database + ?Sized>(
    database: &D,
    entity: &str,
    filters: &[Filter],
    options: Options,
) -> Result<Answer, SqlError> {
    check_keyed(database, &options)?;
    let by = WriteBy {
        database,
        name: "delete",
        write: |dialect, entity: &Entity| delete_text(dialect, entity, filters),
        options: &options,
    };
    with_entity(database, entity, by).await
}
