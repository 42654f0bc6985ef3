//! A connection lent to a closure that is not asynchronous.

use mainstay_sql::{Answer, SqlError, Value};

use super::Runtime;

/// What a closure gets from [`Database::run`](super::Database::run): one connection, as
/// [`Lent`](mainstay_sql::Lent) says.
#[derive(Debug)]
pub struct Lent<'a> {
    pub(super) lent: mainstay_sql::Lent,
    pub(super) runtime: &'a Runtime,
}

impl Lent<'_> {
    /// Which attempt of the call this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.lent.attempt()
    }

    /// Columns and rows of a statement.
    ///
    /// # Errors
    /// As [`Lent::query`](mainstay_sql::Lent::query).
    pub fn query(&mut self, sql: &str, params: Vec<Value>) -> Result<Answer, SqlError> {
        self.runtime.wait(self.lent.query(sql, params))
    }

    /// Runs a statement for what it changes.
    ///
    /// # Errors
    /// As [`Lent::query`](mainstay_sql::Lent::query).
    pub fn execute(&mut self, sql: &str, params: Vec<Value>) -> Result<Answer, SqlError> {
        self.runtime.wait(self.lent.execute(sql, params))
    }

    /// The one value of a statement's one row; `None`: there was no row.
    ///
    /// # Errors
    /// As [`Lent::scalar`](mainstay_sql::Lent::scalar).
    pub fn scalar(&mut self, sql: &str, params: Vec<Value>) -> Result<Option<Value>, SqlError> {
        self.runtime.wait(self.lent.scalar(sql, params))
    }
}
