//! A text that is being written in a dialect, with its parameters.

use crate::catalog::Entity;
use crate::dialect::Dialect;
use crate::value::Value;

/// SQL text and the parameters of its placeholders. Names are always quoted, values always bound.
pub(crate) struct SqlText {
    dialect: Dialect,
    text: String,
    params: Vec<Value>,
}

impl SqlText {
    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(crate) fn new(dialect: Dialect) -> Self {
        SqlText {
            dialect,
            text: String::new(),
            params: Vec::new(),
        }
    }

    /// Adds a piece of SQL that is written in this program.
    pub(crate) fn push(&mut self, sql: &str) -> &mut Self {
        self.text.push_str(sql);
        self
    }

    /// Adds a quoted name.
    pub(crate) fn name(&mut self, name: &str) -> &mut Self {
        let quoted = self.dialect.quote(name);
        self.push(&quoted)
    }

    /// Adds quoted names with commas.
    pub(crate) fn names<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> &mut Self {
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                self.push(", ");
            }
            self.name(name);
        }
        self
    }

    /// Adds an entity's name with its schema.
    pub(crate) fn entity(&mut self, entity: &Entity) -> &mut Self {
        if let Some(schema) = &entity.schema {
            self.name(schema).push(".");
        }
        self.name(&entity.name)
    }

    /// Adds a placeholder for a value.
    pub(crate) fn bind(&mut self, value: Value) -> &mut Self {
        self.params.push(value);
        let placeholder = self.dialect.placeholder(self.params.len());
        self.push(&placeholder)
    }

    /// Adds placeholders with commas.
    pub(crate) fn bind_list(&mut self, values: &[Value]) -> &mut Self {
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.push(", ");
            }
            self.bind(value.clone());
        }
        self
    }

    /// The text and its parameters.
    pub(crate) fn finish(self) -> (String, Vec<Value>) {
        (self.text, self.params)
    }
}
