//! What people do with a database, the same for a plain driver and for a proxy.

mod catalog;
mod ddl;
mod many;
mod rerun;
mod rows;
mod run;
mod statement;

use std::future::Future;
use std::sync::Arc;

use mainstay_engine::Safety;

use crate::catalog::{Entity, EntityName, ForeignKey};
use crate::database::{Answer, BoxFuture, Database, Options};
use crate::error::{Code, SqlError};
use crate::filter::Filter;
use crate::lent::Lent;
use crate::select::{Find, Paged};
use crate::stream::RowStream;
use crate::transaction::{Begin, Transaction};
use crate::value::Value;

pub use rows::{Change, Progress, Record};

/// The verbs of every [`Database`].
///
/// Names of entities and columns are checked against the schema and quoted; values are always bound.
/// Descriptions are remembered; an unknown column or entity is looked up anew once before it is an error.
/// All futures are cancel safe as [`Database`] says.
pub trait Verbs: Database {
    /// Names of tables and views.
    fn entities(&self) -> impl Future<Output = Result<Vec<EntityName>, SqlError>> + Send {
        catalog::entities(self)
    }

    /// Columns, primary key and indexes of a table or view; `refresh` asks the database even if they are
    /// remembered.
    ///
    /// # Errors
    /// `unknown_entity`, with the name that was probably meant.
    fn entity(
        &self,
        name: &str,
        refresh: bool,
    ) -> impl Future<Output = Result<Arc<Entity>, SqlError>> + Send {
        catalog::entity(self, name, refresh)
    }

    /// Whether there is such a table or view, asked of the database now. Never `false` for a failure.
    fn exists(&self, name: &str) -> impl Future<Output = Result<bool, SqlError>> + Send {
        catalog::exists(self, name)
    }

    /// Foreign keys of other entities to this one.
    fn children(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Vec<ForeignKey>, SqlError>> + Send {
        catalog::relations(self, name, true)
    }

    /// Foreign keys of this entity to others.
    fn foreign_keys(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Vec<ForeignKey>, SqlError>> + Send {
        catalog::relations(self, name, false)
    }

    /// Rows of an entity, or one page of them with the totals.
    fn find(
        &self,
        find: &Find,
        options: Options,
    ) -> impl Future<Output = Result<Paged, SqlError>> + Send {
        rows::find(self, find, options)
    }

    /// Rows of an entity in batches, in bounded memory. A page is refused: the batches are the pages.
    fn stream_entity(
        &self,
        find: &Find,
        options: Options,
    ) -> impl Future<Output = Result<RowStream, SqlError>> + Send {
        rows::stream(self, find, options)
    }

    /// Rows of a statement in batches, in bounded memory. Only reads: what may change something is
    /// refused, unless the caller declares its safety.
    fn stream_query(
        &self,
        sql: &str,
        params: Vec<Value>,
        options: Options,
    ) -> impl Future<Output = Result<RowStream, SqlError>> + Send {
        statement::stream(self, sql, params, options)
    }

    /// Columns and rows of a statement. Text that may change anything is treated as a write.
    fn query(
        &self,
        sql: &str,
        params: Vec<Value>,
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        statement::run(self, "query", sql, params, options)
    }

    /// The one value of a statement's one row; `None`: there was no row.
    ///
    /// # Errors
    /// Beside those of [`Verbs::query`]: `bad_request` if there is more than one row or column.
    fn scalar(
        &self,
        sql: &str,
        params: Vec<Value>,
        options: Options,
    ) -> impl Future<Output = Result<Option<Value>, SqlError>> + Send {
        async move {
            let answer = statement::scalar(self, sql, params, options).await?;
            answer.into_scalar()
        }
    }

    /// Like [`Verbs::scalar`], with where the value came from: an answer of at most one value.
    ///
    /// # Errors
    /// As [`Verbs::scalar`].
    fn scalar_answer(
        &self,
        sql: &str,
        params: Vec<Value>,
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        statement::scalar(self, sql, params, options)
    }

    /// Runs a statement for what it changes: affected rows and generated keys.
    fn execute(
        &self,
        sql: &str,
        params: Vec<Value>,
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        statement::run(self, "execute", sql, params, options)
    }

    /// Inserts one row. The answer's keys are the values of its primary key, where the database gives
    /// them.
    fn insert(
        &self,
        entity: &str,
        record: &Record,
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        rows::insert(self, entity, record, options)
    }

    /// Inserts many rows in one transaction, which is run again as a whole as often as the policy repeats
    /// a call, if it met contention or was provably rolled back. `progress` is told after each thousand
    /// or so, and from the beginning again if the transaction is.
    fn insert_many(
        &self,
        entity: &str,
        records: &[Record],
        options: Options,
        progress: Option<Progress<'_>>,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        rows::insert_many(self, entity, records, options, progress)
    }

    /// Changes the rows that the filters fit. Without filters it is refused: use [`Verbs::execute`] to
    /// change every row.
    fn update(
        &self,
        entity: &str,
        change: &Change,
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        rows::update(self, entity, change, options)
    }

    /// Makes many changes in one transaction, which is run again as [`Verbs::insert_many`] says.
    fn update_many(
        &self,
        entity: &str,
        changes: &[Change],
        options: Options,
        progress: Option<Progress<'_>>,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        rows::update_many(self, entity, changes, options, progress)
    }

    /// Deletes the rows that the filters fit. Without filters it is refused: use [`Verbs::execute`] to
    /// delete every row.
    fn delete(
        &self,
        entity: &str,
        filters: &[Filter],
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        rows::delete(self, entity, filters, options)
    }

    /// Creates a table with its indexes. A column without a native type gets the one of the dialect that
    /// holds its values.
    fn create_entity(
        &self,
        entity: &Entity,
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        ddl::create(self, std::slice::from_ref(entity), options)
    }

    /// Creates several tables, in one transaction where the database can.
    fn create_entities(
        &self,
        entities: &[Entity],
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        ddl::create(self, entities, options)
    }

    /// Drops a table or view.
    fn drop_entity(
        &self,
        name: &str,
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        ddl::drop(self, name, options)
    }

    /// A script that creates these tables with their indexes and foreign keys, and after them these views,
    /// each after the views it reads. What they need beside must be there already.
    fn ddl_for(&self, names: &[&str]) -> impl Future<Output = Result<String, SqlError>> + Send {
        ddl::script_for(self, names)
    }

    /// Runs the statements of a text one after the other, stops at the first failure, in one transaction
    /// where the database can. The answer has a result for each.
    fn script(
        &self,
        text: &str,
        options: Options,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        statement::script(self, text, options)
    }

    /// Runs a closure on a lent connection and gives its result, with the engine's retries for the
    /// declared safety: a `Read` gets a read-only session and may be run again anywhere, an
    /// `IdempotentWrite` where the engine would repeat one. A `Write` is run again only as long as
    /// nothing of it was handed to a back end, whatever the failure proves: nobody knows what else the
    /// closure does.
    ///
    /// The declaration is audited; the whole is one call named `run`. Its statements are not in one
    /// transaction: use [`Verbs::transaction`] for that. A plain driver has one attempt.
    ///
    /// # Errors
    /// That of the closure, which says in `sent` what all its statements together may have done; and
    /// those of getting a connection.
    ///
    /// # Cancel safety
    /// Dropping the future drops the closure's; a statement under way is cancelled at the server.
    fn run<T, F, Fut>(
        &self,
        safety: Safety,
        options: Options,
        work: F,
    ) -> impl Future<Output = Result<T, SqlError>> + Send
    where
        T: Send,
        F: Fn(Lent) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, SqlError>> + Send,
    {
        run::run(self, safety, options, work)
    }

    /// Runs a closure in a transaction and commits. On contention, or if the transaction was lost before
    /// its commit was sent, the whole closure is run again, up to `reruns` times; after a commit was sent only if a
    /// proof shows that it did not take place. Any error of the closure rolls back.
    fn transaction<T, F>(
        &self,
        begin: Begin,
        reruns: u32,
        work: F,
    ) -> impl Future<Output = Result<T, SqlError>> + Send
    where
        T: Send,
        F: for<'t> Fn(&'t mut dyn Transaction) -> BoxFuture<'t, Result<T, SqlError>> + Send + Sync,
    {
        async move {
            let rerun = rerun::Rerun {
                database: self,
                begin,
                reruns,
                ends_at: None,
            };
            let (value, _) = rerun.run(&rerun::Closure(work)).await?;
            Ok(value)
        }
    }

    /// Runs one statement in a transaction that this database began: for closures of
    /// [`transaction`](Verbs::transaction) and for what [`begin`](Database::begin) gives.
    ///
    /// # Errors
    /// What the database says; `transaction_lost` once the transaction is gone.
    fn within(
        &self,
        transaction: &mut dyn Transaction,
        sql: &str,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        statement::within(self, transaction, sql, params)
    }

    /// Forgets cached answers.
    ///
    /// # Errors
    /// Always `not_available`: there is no cache in this version.
    fn invalidate(
        &self,
        _entity: Option<&str>,
    ) -> impl Future<Output = Result<(), SqlError>> + Send {
        std::future::ready(Err(statement::not_available_yet("invalidate")))
    }
}

impl<T: Database + ?Sized> Verbs for T {}

/// Whether an error to a text that was written here may say that the schema is another one than was
/// remembered. Some databases have no code of their own for a missing column.
fn is_stale_schema(error: &SqlError) -> bool {
    let codes = [Code::UnknownColumn, Code::UnknownEntity, Code::BadStatement];
    codes.contains(&error.code()) && error.sent().is_proven_harmless()
}
