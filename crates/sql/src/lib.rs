//! The data face of Mainstay: SQL sources behind one facade.
//!
//! A driver implements [`Driver`] and [`Connection`]; pooled, it is a [`Database`]; a proxy over several
//! endpoints is a [`Database`] as well.

mod advice;
pub mod catalog;
pub mod connection;
pub mod database;
mod ddl;
pub mod dialect;
pub mod error;
pub mod filter;
pub mod lent;
mod nearest;
pub mod plain;
pub mod proof;
pub mod proxy;
mod remembered;
pub mod schema;
pub mod select;
mod sql_text;
pub mod statement;
pub mod stray;
pub mod stream;
pub mod transaction;
pub mod value;
pub mod verbs;

pub use advice::advice;
pub use connection::{Cancel, Connection, Driver, HandedOver};
pub use database::{
    Access, Answer, AnswerMax, BoxFuture, CacheUse, Collected, Database, Meta, Options, Position,
    Probe, Request, Scope, State, StatementResult, Work,
};
pub use dialect::Dialect;
pub use error::{Code, SqlError, Verdict};
pub use filter::{Filter, Operator, Order, Page};
pub use lent::{Borrower, Lent, Loan};
pub use plain::Plain;
pub use proof::{
    CommitProof, Fate, IdempotencyTable, Lineage, Mark, ProofForm, Proving, TableName,
};
pub use proxy::{DataProxy, DataProxyBuilder, TransactionLimits};
pub use schema::Schema;
pub use select::{Find, PageOf, Paged};
pub use statement::{Class, Classifier, Kind, split_script};
pub use stream::{Batch, BatchMax, RowStream};
pub use transaction::{Begin, Isolation, Transaction};
pub use value::{Column, ColumnType, Decimal, Row, Value};
pub use verbs::{Change, Progress, Record, Verbs};
