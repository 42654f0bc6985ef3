//! What a database says about its tables, views and functions.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Code, SqlError};
use crate::nearest::nearest;
use crate::value::ColumnType;

/// A question to the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Describe {
    /// Names of tables and views that a caller may use, without system ones.
    Entities,
    /// One table or view; as `name` or `schema.name`.
    Entity(Arc<str>),
    /// Foreign keys of this entity to others.
    ForeignKeys(Arc<str>),
    /// Foreign keys of others to this entity.
    Children(Arc<str>),
    /// What a view is made of.
    View(Arc<str>),
    /// Volatility of every function by its lower-case name.
    Functions,
}

/// The catalog's answer, of the kind that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Description {
    /// To [`Describe::Entities`].
    Entities(Vec<EntityName>),
    /// To [`Describe::Entity`]; `None`: there is no such entity.
    Entity(Option<Arc<Entity>>),
    /// To [`Describe::ForeignKeys`] and [`Describe::Children`]; `None`: there is no such entity.
    Relations(Option<Vec<ForeignKey>>),
    /// To [`Describe::View`]: the statement that creates it, without a semicolon at its end; `None`: there
    /// is no such view, or the database does not tell.
    View(Option<String>),
    /// To [`Describe::Functions`].
    Functions(Arc<HashMap<String, Volatility>>),
}

/// Name and kind of a table or view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityName {
    /// Schema, where the database has them.
    pub schema: Option<String>,
    /// Name.
    pub name: String,
    /// Whether it is a view.
    pub is_view: bool,
}

/// A table or view.
#[derive(Debug, Clone, PartialEq)]
pub struct Entity {
    /// Schema, where the database has them.
    pub schema: Option<String>,
    /// Name as the database writes it.
    pub name: String,
    /// Whether it is a view.
    pub is_view: bool,
    /// Columns in order.
    pub columns: Vec<EntityColumn>,
    /// Columns of the primary key in order; empty: none.
    pub primary_key: Vec<String>,
    /// Indexes.
    pub indexes: Vec<Index>,
}

impl Entity {
    /// The column of that name: as written, else in another case if that is one column only.
    ///
    /// # Errors
    /// `unknown_column`, with the name that was probably meant.
    pub fn column(&self, name: &str) -> Result<&EntityColumn, SqlError> {
        if let Some(column) = self.columns.iter().find(|column| column.name == name) {
            return Ok(column);
        }
        let mut alike = self
            .columns
            .iter()
            .filter(|column| column.name.to_lowercase() == name.to_lowercase());
        match (alike.next(), alike.next()) {
            (Some(column), None) => Ok(column),
            _ => Err(self.unknown_column(name)),
        }
    }

    fn unknown_column(&self, name: &str) -> SqlError {
        let names = self.columns.iter().map(|column| column.name.as_str());
        let hint = match nearest(name, names.clone()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => {
                let known: Vec<&str> = names.take(20).collect();
                format!("it has {}", known.join(", "))
            }
        };
        let message = format!("{:?} has no column {name:?}", self.name);
        SqlError::caller(Code::UnknownColumn, message, hint).place("column", name)
    }
}

/// A column of an entity.
#[derive(Debug, Clone, PartialEq)]
pub struct EntityColumn {
    /// Name as the database writes it.
    pub name: String,
    /// Type in our words.
    pub column_type: ColumnType,
    /// Type in the database's words.
    pub native: String,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// Default expression, if any.
    pub default: Option<String>,
    /// The database makes up its value where none is given.
    pub generated: bool,
}

/// An index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Name.
    pub name: String,
    /// Columns in order; an expression as its text.
    pub columns: Vec<String>,
    /// Whether values are unique.
    pub unique: bool,
}

/// A foreign key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignKey {
    /// Name, where the database has one.
    pub name: Option<String>,
    /// The entity that refers.
    pub from_entity: String,
    /// Its columns.
    pub from_columns: Vec<String>,
    /// The entity referred to.
    pub to_entity: String,
    /// Its columns.
    pub to_columns: Vec<String>,
    /// What happens on delete, in the database's words.
    pub on_delete: String,
}

/// What a function may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    /// Same answer for the same arguments, always.
    Immutable,
    /// Same answer within one statement.
    Stable,
    /// May do anything, also write.
    Volatile,
}
