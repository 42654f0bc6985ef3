//! Transactions and streams as plain values.

use std::sync::Arc;

use mainstay_engine::EndpointId;
use mainstay_sql::{
    Answer, Batch, Column, Meta, Options, Request, RowStream, Schema, SqlError, Value,
};

use super::Runtime;

/// A transaction within [`Database::transaction`](super::Database::transaction), or one from
/// [`Database::begin`](super::Database::begin). Dropping it rolls back in the background.
pub struct Transaction<'a> {
    inner: Inner<'a>,
    schema: &'a Schema,
    runtime: &'a Arc<Runtime>,
}

enum Inner<'a> {
    Lent(&'a mut dyn mainstay_sql::Transaction),
    /// `None` only once it was ended.
    Own(Option<Box<dyn mainstay_sql::Transaction>>),
}

impl<'a> Transaction<'a> {
    pub(super) fn lent(
        inner: &'a mut dyn mainstay_sql::Transaction,
        schema: &'a Schema,
        runtime: &'a Arc<Runtime>,
    ) -> Self {
        Transaction {
            inner: Inner::Lent(inner),
            schema,
            runtime,
        }
    }

    pub(super) fn own(
        inner: Box<dyn mainstay_sql::Transaction>,
        schema: &'a Schema,
        runtime: &'a Arc<Runtime>,
    ) -> Self {
        Transaction {
            inner: Inner::Own(Some(inner)),
            schema,
            runtime,
        }
    }

    fn inner(&mut self) -> &mut dyn mainstay_sql::Transaction {
        match &mut self.inner {
            Inner::Lent(inner) => *inner,
            Inner::Own(Some(inner)) => inner.as_mut(),
            Inner::Own(None) => unreachable!("whoever ends a transaction gives it away"),
        }
    }

    /// Columns and rows of a statement.
    ///
    /// # Errors
    /// What the database says; `transaction_lost` once the transaction is gone.
    pub fn query(&mut self, sql: &str, params: Vec<Value>) -> Result<Answer, SqlError> {
        self.run("query", sql, params)
    }

    /// Runs a statement for what it changes.
    ///
    /// # Errors
    /// As [`Transaction::query`].
    pub fn execute(&mut self, sql: &str, params: Vec<Value>) -> Result<Answer, SqlError> {
        self.run("execute", sql, params)
    }

    /// The one value of a statement's one row; `None`: there was no row.
    ///
    /// # Errors
    /// As [`Transaction::query`]; `bad_request` if there is more than one row or column.
    pub fn scalar(&mut self, sql: &str, params: Vec<Value>) -> Result<Option<Value>, SqlError> {
        self.run("scalar", sql, params)?.into_scalar()
    }

    fn run(
        &mut self,
        name: &'static str,
        sql: &str,
        params: Vec<Value>,
    ) -> Result<Answer, SqlError> {
        let request = Request::within(self.schema, name, sql, params, Options::default());
        let result = self.run_request(&request);
        request
            .class
            .iter()
            .for_each(|class| self.schema.note_run(class));
        result
    }

    /// Runs a request of any kind.
    ///
    /// # Errors
    /// As [`Transaction::query`].
    pub fn run_request(&mut self, request: &Request) -> Result<Answer, SqlError> {
        let runtime = self.runtime;
        runtime.wait(self.inner().run(request))
    }

    /// Sets a savepoint.
    ///
    /// # Errors
    /// As [`Transaction::query`].
    pub fn savepoint(&mut self, name: &str) -> Result<(), SqlError> {
        let runtime = self.runtime;
        runtime.wait(self.inner().savepoint(name))
    }

    /// Goes back to a savepoint, which stays.
    ///
    /// # Errors
    /// As [`Transaction::query`].
    pub fn rollback_to(&mut self, name: &str) -> Result<(), SqlError> {
        let runtime = self.runtime;
        runtime.wait(self.inner().rollback_to(name))
    }

    /// Forgets a savepoint.
    ///
    /// # Errors
    /// As [`Transaction::query`].
    pub fn release(&mut self, name: &str) -> Result<(), SqlError> {
        let runtime = self.runtime;
        runtime.wait(self.inner().release(name))
    }

    /// The endpoint it is pinned to; empty for a plain driver.
    pub fn endpoint(&mut self) -> Option<EndpointId> {
        self.inner().endpoint()
    }

    fn take(&mut self) -> Option<Box<dyn mainstay_sql::Transaction>> {
        match &mut self.inner {
            Inner::Lent(_) => None,
            Inner::Own(inner) => inner.take(),
        }
    }
}

/// A transaction that its holder ends.
pub struct OwnTransaction<'a>(pub(super) Transaction<'a>);

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let inner = self.take();
        // Its rollback is a task of the runtime.
        self.runtime.enter(|| drop(inner));
    }
}

impl OwnTransaction<'_> {
    /// Commits.
    ///
    /// # Errors
    /// `outcome_unknown` if the answer was lost.
    pub fn commit(mut self) -> Result<Answer, SqlError> {
        match self.0.take() {
            Some(inner) => self.0.runtime.wait(inner.commit()),
            None => unreachable!("whoever ends a transaction gives it away"),
        }
    }

    /// Rolls back.
    ///
    /// # Errors
    /// If the connection is gone; then nothing was committed either.
    pub fn rollback(mut self) -> Result<(), SqlError> {
        match self.0.take() {
            Some(inner) => self.0.runtime.wait(inner.rollback()),
            None => unreachable!("whoever ends a transaction gives it away"),
        }
    }
}

impl<'a> std::ops::Deref for OwnTransaction<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.0
    }
}

impl std::ops::DerefMut for OwnTransaction<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for OwnTransaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnTransaction").finish_non_exhaustive()
    }
}

/// An answer whose rows come in batches, as an iterator. After an error nothing more comes; an answer
/// that ended without one is whole. Dropping it cancels at the server.
pub struct Rows {
    /// `None` only while it is being dropped.
    stream: Option<RowStream>,
    runtime: Arc<Runtime>,
}

impl Rows {
    pub(super) fn new(stream: RowStream, runtime: &Arc<Runtime>) -> Self {
        Rows {
            stream: Some(stream),
            runtime: Arc::clone(runtime),
        }
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        self.stream.as_ref().map_or(&[], |stream| &stream.columns)
    }

    /// Where the rows come from; `None` once they have ended.
    pub fn meta(&self) -> Option<&Meta> {
        self.stream.as_ref().map(|stream| &stream.meta)
    }
}

impl Iterator for Rows {
    type Item = Result<Batch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        let stream = self.stream.as_mut()?;
        self.runtime.wait(stream.next()).transpose()
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        let stream = self.stream.take();
        // Its cancellation is a task of the runtime.
        self.runtime.enter(|| drop(stream));
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows")
            .field("columns", &self.columns())
            .finish_non_exhaustive()
    }
}
