//! The verbs of a database as plain functions.

use std::error::Error;
use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainstay_engine::Safety;
use mainstay_sql::catalog::{Entity, EntityName, ForeignKey};
use mainstay_sql::{
    Answer, Begin, Change, Filter, Find, Options, Paged, Progress, Record, Scope, SqlError, State,
    Value, Verbs,
};

use super::transaction::OwnTransaction;
use super::{Lent, Rows, Runtime, Transaction};

/// A database, or a proxy over several, whose verbs wait on their thread. Copies share everything.
///
/// Every verb is that of [`Verbs`], with its errors. What was begun ends when it is done: a blocked
/// thread cannot drop a call, so give calls a deadline (`options.deadline`, or the policy's).
pub struct Database<D: mainstay_sql::Database + ?Sized + 'static = mainstay_sql::DataProxy> {
    /// `None` only while it is being dropped.
    database: Option<Arc<D>>,
    runtime: Arc<Runtime>,
}

/// A database that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gave no threads.
    #[error("no runtime could be started; look at the limit of threads")]
    Runtime(#[source] io::Error),
    /// What was to be made said no.
    #[error("the database could not be made; the settings that its source names need a change")]
    Make(#[source] Box<dyn Error + Send + Sync>),
}

impl<D: mainstay_sql::Database + 'static> Database<D> {
    /// Starts a runtime and makes a database in it.
    ///
    /// # Errors
    /// If there is no runtime, or what `make` says.
    pub fn start<E>(make: impl FnOnce() -> Result<D, E>) -> Result<Self, StartError>
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let runtime = Arc::new(Runtime::start().map_err(StartError::Runtime)?);
        let made = runtime.enter(make);
        let database = made.map_err(|error| StartError::Make(error.into()))?;
        Ok(Self::on(runtime, Arc::new(database)))
    }
}

/// Verbs that are handed on as they are.
macro_rules! verbs {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)+) => {
        $($(#[$meta])*
        pub fn $name(&self, $($argument: $type),*) -> Result<$result, SqlError> {
            self.runtime.wait(self.database().$name($($argument),*))
        })+
    };
}

impl<D: mainstay_sql::Database + ?Sized + 'static> Database<D> {
    /// A database that was made within `runtime` (see [`Runtime::enter`]), which must be one that goes
    /// on by itself ([`Runtime::start`]).
    pub fn on(runtime: Arc<Runtime>, database: Arc<D>) -> Self {
        Database {
            database: Some(database),
            runtime,
        }
    }

    /// The database itself.
    pub fn database(&self) -> &Arc<D> {
        match &self.database {
            Some(database) => database,
            None => unreachable!("it is taken out by drop alone"),
        }
    }

    /// The runtime it waits on.
    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    verbs! {
        /// Names of tables and views.
        fn entities() -> Vec<EntityName>;
        /// Columns, primary key and indexes of a table or view.
        fn entity(name: &str, refresh: bool) -> Arc<Entity>;
        /// Whether there is such a table or view. Never `false` for a failure.
        fn exists(name: &str) -> bool;
        /// Foreign keys of other entities to this one.
        fn children(name: &str) -> Vec<ForeignKey>;
        /// Foreign keys of this entity to others.
        fn foreign_keys(name: &str) -> Vec<ForeignKey>;
        /// Rows of an entity, or one page of them with the totals.
        fn find(find: &Find, options: Options) -> Paged;
        /// Columns and rows of a statement.
        fn query(sql: &str, params: Vec<Value>, options: Options) -> Answer;
        /// The one value of a statement's one row; `None`: there was no row.
        fn scalar(sql: &str, params: Vec<Value>, options: Options) -> Option<Value>;
        /// The same with where the value came from.
        fn scalar_answer(sql: &str, params: Vec<Value>, options: Options) -> Answer;
        /// Runs a statement for what it changes.
        fn execute(sql: &str, params: Vec<Value>, options: Options) -> Answer;
        /// Inserts one row.
        fn insert(entity: &str, record: &Record, options: Options) -> Answer;
        /// Inserts many rows in one transaction.
        fn insert_many(
            entity: &str,
            records: &[Record],
            options: Options,
            progress: Option<Progress<'_>>
        ) -> Answer;
        /// Changes the rows that the filters fit.
        fn update(entity: &str, change: &Change, options: Options) -> Answer;
        /// Makes many changes in one transaction.
        fn update_many(
            entity: &str,
            changes: &[Change],
            options: Options,
            progress: Option<Progress<'_>>
        ) -> Answer;
        /// Deletes the rows that the filters fit.
        fn delete(entity: &str, filters: &[Filter], options: Options) -> Answer;
        /// Creates a table with its indexes.
        fn create_entity(entity: &Entity, options: Options) -> Answer;
        /// Creates several tables, in one transaction where the database can.
        fn create_entities(entities: &[Entity], options: Options) -> Answer;
        /// Drops a table or view.
        fn drop_entity(name: &str, options: Options) -> Answer;
        /// A script that creates these tables and views.
        fn ddl_for(names: &[&str]) -> String;
        /// Runs the statements of a text one after the other.
        fn script(text: &str, options: Options) -> Answer;
    }

    /// Rows of a statement in batches, in bounded memory.
    ///
    /// # Errors
    /// As [`Verbs::stream_query`].
    pub fn stream_query(
        &self,
        sql: &str,
        params: Vec<Value>,
        options: Options,
    ) -> Result<Rows, SqlError> {
        let stream = self.database().stream_query(sql, params, options);
        Ok(Rows::new(self.runtime.wait(stream)?, &self.runtime))
    }

    /// Rows of an entity in batches, in bounded memory.
    ///
    /// # Errors
    /// As [`Verbs::stream_entity`].
    pub fn stream_entity(&self, find: &Find, options: Options) -> Result<Rows, SqlError> {
        let stream = self.database().stream_entity(find, options);
        Ok(Rows::new(self.runtime.wait(stream)?, &self.runtime))
    }

    /// Runs a closure on a lent connection, with the retries that the declared safety allows.
    ///
    /// # Errors
    /// As [`Verbs::run`].
    pub fn run<T: Send>(
        &self,
        safety: Safety,
        options: Options,
        work: impl Fn(&mut Lent<'_>) -> Result<T, SqlError> + Send + Sync,
    ) -> Result<T, SqlError> {
        let runtime = &*self.runtime;
        let work = |lent| {
            let done = work(&mut Lent { lent, runtime });
            ready(done)
        };
        runtime.wait(self.database().run(safety, options, work))
    }

    /// Runs a closure in a transaction and commits; again where it provably did nothing, up to `reruns`
    /// times. Any error of the closure rolls back.
    ///
    /// # Errors
    /// As [`Verbs::transaction`].
    pub fn transaction<T: Send>(
        &self,
        begin: Begin,
        reruns: u32,
        work: impl Fn(&mut Transaction<'_>) -> Result<T, SqlError> + Send + Sync,
    ) -> Result<T, SqlError> {
        let (runtime, database) = (&self.runtime, self.database());
        let schema = database.schema();
        // What the last run gave: a boxed future could give only what lives for ever.
        let given = Mutex::new(None);
        let put = |value| *given.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        runtime.wait(database.transaction(begin, reruns, |inner| {
            let done = work(&mut Transaction::lent(inner, schema, runtime)).map(put);
            Box::pin(ready(done))
        }))?;
        match given.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(value) => Ok(value),
            None => unreachable!("a transaction is committed after its closure gave a value"),
        }
    }

    /// Begins a transaction that its holder ends.
    ///
    /// # Errors
    /// Those of getting a connection.
    pub fn begin(&self, begin: &Begin) -> Result<OwnTransaction<'_>, SqlError> {
        let database = self.database();
        let inner = self.runtime.wait(database.begin(begin, Scope::default()))?;
        let transaction = Transaction::own(inner, database.schema(), &self.runtime);
        Ok(OwnTransaction(transaction))
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.database().state()
    }

    /// Ends everything it holds, at most after `limit`.
    pub fn close(&self, limit: Duration) {
        self.runtime.wait(self.database().close(limit));
    }
}

impl<D: mainstay_sql::Database + ?Sized + 'static> Clone for Database<D> {
    fn clone(&self) -> Self {
        Self::on(Arc::clone(&self.runtime), Arc::clone(self.database()))
    }
}

impl<D: mainstay_sql::Database + ?Sized + 'static> Drop for Database<D> {
    fn drop(&mut self) {
        let database = self.database.take();
        // Connections that are given up end in tasks of the runtime.
        self.runtime.enter(|| drop(database));
    }
}

impl<D: mainstay_sql::Database + ?Sized + 'static> std::fmt::Debug for Database<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}
