//! What a statement may do: may it go to a replica, may it be tried again, what does it touch.
//!
//! The answer is a guess from the text, on the strict side: what is not understood is a write. Views,
//! operators and stored functions hide writes; there the read-only session of the server is the backstop.

mod functions;
mod idempotent;
pub mod lexer;
mod parse;
mod scan;
mod script;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_bounds;

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_engine::Safety;

use crate::catalog::{Entity, Volatility};
use crate::database::Access;
use crate::dialect::Dialect;
use crate::remembered::{Remembered, remembered};
use crate::value::Value;

pub(crate) use script::is_one_expression;
pub use script::split_script;

/// Texts that a [`Classifier`] remembers by default: enough for every statement of a large application,
/// at most a few megabytes.
pub const CLASSES_MAX: usize = 4096;

/// Longer texts are not remembered, so that a few huge scripts cannot fill the memory.
const REMEMBERED_TEXT_MAX: usize = 16 * 1024;

/// What kind of statement a text is; of several the one that changes most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// SELECT, VALUES, TABLE, SHOW, EXPLAIN.
    Select,
    /// INSERT or REPLACE.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// Anything else, and what was not understood.
    Other,
    /// CREATE, ALTER, DROP and their kin: the schema may be another one afterwards.
    Ddl,
    /// BEGIN, COMMIT, SAVEPOINT, SET and their kin.
    Control,
}

/// What a text may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Whether it may be repeated, as far as the text tells; see [`Class::safety_with`].
    pub safety: Safety,
    /// What kind of session it needs.
    pub access: Access,
    /// What kind of statement it is.
    pub kind: Kind,
    /// Names of the tables, views and common table expressions that it reads, as written; a superset.
    pub reads: Vec<String>,
    /// Names of the tables that it changes, as written. Empty for a write: it cannot be told.
    pub writes: Vec<String>,
    /// Lower-case names of called functions of which it is not known whether they write.
    pub unknown_functions: Vec<String>,
    /// Number of statements in the text.
    pub statements: usize,
    /// One INSERT, UPDATE or DELETE that leaves nothing behind in its session.
    pub is_single_dml: bool,
    /// Begins or ends a transaction or a savepoint.
    pub is_transaction_control: bool,
    /// Changes the settings of its session.
    pub sets_session: bool,
    /// MySQL: names a variable of its session (`@a`), and may set it.
    pub uses_variables: bool,
    /// MySQL: SHOW WARNINGS or SHOW ERRORS, which tell of the statement before.
    pub asks_for_warnings: bool,
    /// An ERROR of the server to it proves that nothing happened.
    pub proves_on_error: bool,
    /// Whether the parser understood it.
    pub is_parsed: bool,
    /// A DELETE whose condition is nothing but equalities with constants: the entity and those columns.
    pub delete_by: Option<DeleteBy>,
    /// Equal for texts that differ only in literals, comments, spaces and the case of words.
    pub fingerprint: u64,
    /// The text, where it is remembered with what it may do.
    text: Option<Arc<str>>,
}

/// A DELETE by equalities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteBy {
    /// The entity as written.
    pub entity: String,
    /// The columns that are compared.
    pub columns: Vec<String>,
}

impl Class {
    /// Whether it commits the transaction that it stands in, or may: on MySQL and MariaDB all but reads and single
    /// statements that change rows.
    pub fn commits_by_itself(&self, dialect: Dialect) -> bool {
        dialect == Dialect::MySql && !self.is_single_dml && !self.safety.is_read()
    }

    /// Whether it may be repeated with these parameters, knowing the entity that it deletes from.
    ///
    /// An upsert with a NULL parameter is a `Write`: unique keys admit any number of NULLs. A delete
    /// whose equalities are the whole primary key is an `IdempotentWrite`.
    pub fn safety_with(&self, params: &[Value], entity: Option<&Entity>) -> Safety {
        match self.safety {
            Safety::IdempotentWrite if params.contains(&Value::Null) => Safety::Write,
            Safety::Write if self.is_delete_by_key(entity) => Safety::IdempotentWrite,
            safety => safety,
        }
    }

    /// The text that this was found from, without a copy where it is remembered.
    pub(crate) fn text(&self, text: &str) -> Arc<str> {
        match &self.text {
            Some(remembered) => Arc::clone(remembered),
            None => Arc::from(text),
        }
    }

    fn is_delete_by_key(&self, entity: Option<&Entity>) -> bool {
        let (Some(delete), Some(entity)) = (&self.delete_by, entity) else {
            return false;
        };
        let key = &entity.primary_key;
        !key.is_empty()
            && !entity.is_view
            && key.iter().all(|column| {
                delete
                    .columns
                    .iter()
                    .any(|c| c.eq_ignore_ascii_case(column))
            })
    }

    /// Whether its session is afterwards as it was, as far as the text tells.
    pub(crate) fn leaves_nothing(&self) -> bool {
        (self.is_single_dml || self.safety.is_read()) && !self.uses_variables
    }

    /// Whether it is refused outside a transaction.
    pub fn is_control(&self) -> bool {
        self.is_transaction_control || self.sets_session
    }
}

/// Finds out what texts may do and remembers it, bounded. Shared by reference; all methods take `&self`.
#[derive(Debug)]
pub struct Classifier {
    dialect: Dialect,
    classes: Remembered<Arc<str>, Arc<Class>>,
}

impl Classifier {
    /// For a dialect, remembering [`CLASSES_MAX`] texts.
    pub fn new(dialect: Dialect) -> Self {
        Classifier {
            dialect,
            classes: remembered(CLASSES_MAX),
        }
    }

    /// How its texts are written.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// What a text may do. `functions`: volatility by lower-case name, where the database's catalog is
    /// known; a function that is not in it may do anything.
    pub fn classify(
        &self,
        text: &str,
        functions: Option<&HashMap<String, Volatility>>,
    ) -> Arc<Class> {
        let known = self.classes.get(text);
        if let Some(class) = &known
            && (functions.is_none() || class.unknown_functions.is_empty())
        {
            return Arc::clone(class);
        }
        let mut class = parse::classify(self.dialect, text, functions);
        if text.len() > REMEMBERED_TEXT_MAX {
            return Arc::new(class);
        }
        let key: Arc<str> = match &known {
            Some(old) => old.text(text),
            None => Arc::from(text),
        };
        class.text = Some(Arc::clone(&key));
        match known {
            Some(old) if *old == class => old,
            _ => {
                let class = Arc::new(class);
                self.classes.insert(key, Arc::clone(&class));
                class
            }
        }
    }

    /// Forgets everything: to be called when functions may have changed.
    pub fn forget(&self) {
        self.classes.clear();
    }
}
