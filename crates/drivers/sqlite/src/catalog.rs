//! Tables, views and functions, from the schema table and the table-valued pragmas. Only the file itself is
//! looked at: temporary and attached tables belong to one session.

mod functions;

use std::sync::Arc;

use mainstay_sql::catalog::{
    Describe, Description, Entity, EntityColumn, EntityName, ForeignKey, Index,
};
use rusqlite::{Params, Row};

use crate::error::{Fault, Stage, fault};
use crate::session::Session;
use crate::value::column_type;
use crate::words::index_expressions;

/// What the schema calls a usable table or view; shadow tables belong to a virtual one.
const USABLE: &str = "schema = 'main' AND type IN ('table', 'view', 'virtual') \
                      AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";

/// A table or view that exists.
struct Found {
    name: String,
    is_view: bool,
    has_row_numbers: bool,
}

impl Session {
    /// Asks the catalog.
    pub(crate) fn describe(&self, what: &Describe) -> Result<Description, Fault> {
        let answer = match what {
            Describe::Entities => self.entities().map(Description::Entities),
            Describe::Entity(name) => self
                .about(name, |found| self.entity(found).map(Arc::new))
                .map(Description::Entity),
            Describe::ForeignKeys(name) => self
                .about(name, |found| self.foreign_keys(&found.name))
                .map(Description::Relations),
            Describe::Children(name) => self
                .about(name, |found| self.children(&found.name))
                .map(Description::Relations),
            Describe::View(name) => self
                .about(name, |found| self.view(&found.name))
                .map(|text| Description::View(text.flatten())),
            Describe::Functions => self
                .functions()
                .map(|functions| Description::Functions(Arc::new(functions))),
        };
        answer.map_err(|error| fault(Stage::Statement, &error))
    }

    fn entities(&self) -> rusqlite::Result<Vec<EntityName>> {
        let text = format!("SELECT name, type FROM pragma_table_list WHERE {USABLE} ORDER BY name");
        self.collect(&text, [], |row| {
            Ok(EntityName {
                schema: None,
                name: row.get(0)?,
                is_view: row.get::<_, String>(1)? == "view",
            })
        })
    }

    fn about<T>(
        &self,
        name: &str,
        tell: impl FnOnce(&Found) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        let found = match self.find(name)? {
            Some(found) => Some(found),
            None => match name.split_once('.') {
                Some((schema, name)) if schema.eq_ignore_ascii_case("main") => self.find(name)?,
                _ => None,
            },
        };
        found.as_ref().map(tell).transpose()
    }

    fn find(&self, name: &str) -> rusqlite::Result<Option<Found>> {
        let text = format!(
            "SELECT name, type, wr FROM pragma_table_list WHERE {USABLE} AND name = ?1 COLLATE NOCASE"
        );
        let found = self.collect(&text, [name], |row| {
            Ok(Found {
                name: row.get(0)?,
                is_view: row.get::<_, String>(1)? == "view",
                has_row_numbers: !row.get::<_, bool>(2)?,
            })
        })?;
        Ok(found.into_iter().next())
    }

    fn entity(&self, found: &Found) -> rusqlite::Result<Entity> {
        let indexes = self.indexes(&found.name)?;
        let has_own_index = indexes.iter().any(|(_, origin)| origin == "pk");
        let mut columns = self.columns(&found.name)?;
        let mut keys: Vec<_> = columns.iter().filter(|(_, place)| *place > 0).collect();
        keys.sort_by_key(|(_, place)| *place);
        let primary_key: Vec<String> = keys.iter().map(|(key, _)| key.name.clone()).collect();
        // The key that is the row's number: one column, no index of its own.
        if primary_key.len() == 1 && found.has_row_numbers && !has_own_index {
            for (column, _) in columns.iter_mut().filter(|(_, place)| *place > 0) {
                column.generated = true;
                column.nullable = false;
            }
        }
        Ok(Entity {
            schema: None,
            name: found.name.clone(),
            is_view: found.is_view,
            columns: columns.into_iter().map(|(column, _)| column).collect(),
            primary_key,
            indexes: indexes.into_iter().map(|(index, _)| index).collect(),
        })
    }

    /// As it was created.
    fn view(&self, name: &str) -> rusqlite::Result<Option<String>> {
        let text = "SELECT sql FROM main.sqlite_master WHERE type = 'view' AND name = ?1";
        let texts = self.collect(text, [name], |row| row.get(0))?;
        Ok(texts.into_iter().next())
    }

    /// The columns, each with its place in the primary key (0: none). Hidden ones of virtual tables are left
    /// out.
    fn columns(&self, table: &str) -> rusqlite::Result<Vec<(EntityColumn, i64)>> {
        let text = "SELECT name, type, \"notnull\", dflt_value, pk, hidden \
                    FROM pragma_table_xinfo(?1, 'main') WHERE hidden <> 1 ORDER BY cid";
        self.collect(text, [table], |row| {
            let native: String = row.get(1)?;
            let column = EntityColumn {
                name: row.get(0)?,
                column_type: column_type(Some(&native)),
                native,
                nullable: !row.get::<_, bool>(2)?,
                default: row.get(3)?,
                generated: row.get::<_, i64>(5)? != 0,
            };
            Ok((column, row.get(4)?))
        })
    }

    /// The indexes, each with what made it: `c` a statement, `u` a constraint, `pk` the primary key.
    fn indexes(&self, table: &str) -> rusqlite::Result<Vec<(Index, String)>> {
        let text = "SELECT l.name, l.\"unique\", l.origin, m.sql \
                    FROM pragma_index_list(?1, 'main') AS l LEFT JOIN main.sqlite_master AS m \
                    ON m.type = 'index' AND m.name = l.name ORDER BY l.seq DESC";
        let listed = self.collect(text, [table], |row| {
            let sql: Option<String> = row.get(3)?;
            let index = Index {
                name: row.get(0)?,
                columns: Vec::new(),
                unique: row.get(1)?,
            };
            Ok((index, row.get(2)?, sql))
        })?;
        let mut indexes = Vec::with_capacity(listed.len());
        for (mut index, origin, sql) in listed {
            index.columns = self.index_columns(&index.name, sql.as_deref())?;
            indexes.push((index, origin));
        }
        Ok(indexes)
    }

    fn index_columns(&self, index: &str, sql: Option<&str>) -> rusqlite::Result<Vec<String>> {
        let text = "SELECT name FROM pragma_index_xinfo(?1, 'main') WHERE key = 1 ORDER BY seqno";
        let names = self.collect(text, [index], |row| row.get::<_, Option<String>>(0))?;
        let expressions = sql.map(index_expressions).unwrap_or_default();
        let named = names.into_iter().enumerate().map(|(place, name)| {
            name.or_else(|| expressions.get(place).cloned())
                .unwrap_or_default()
        });
        Ok(named.collect())
    }

    fn foreign_keys(&self, table: &str) -> rusqlite::Result<Vec<ForeignKey>> {
        // The pragma counts them from the last one declared.
        let text = "SELECT id, \"table\", \"from\", \"to\", on_delete \
                    FROM pragma_foreign_key_list(?1, 'main') ORDER BY id DESC, seq";
        let parts = self.collect(text, [table], Part::read)?;
        let mut keys: Vec<(i64, ForeignKey)> = Vec::new();
        for part in parts {
            let is_next = keys.last().is_some_and(|(id, _)| *id == part.id);
            if !is_next {
                keys.push((part.id, part.key(table)));
            }
            if let Some((_, key)) = keys.last_mut() {
                key.from_columns.push(part.from);
                key.to_columns.extend(part.to);
            }
        }
        keys.into_iter()
            .map(|(_, key)| self.complete(key))
            .collect()
    }

    /// A key without the other side's columns means its primary key; names are written as that table does.
    fn complete(&self, mut key: ForeignKey) -> rusqlite::Result<ForeignKey> {
        if let Some(parent) = self.find(&key.to_entity)? {
            if key.to_columns.is_empty() {
                key.to_columns = self.entity(&parent)?.primary_key;
            }
            key.to_entity = parent.name;
        }
        Ok(key)
    }

    fn children(&self, table: &str) -> rusqlite::Result<Vec<ForeignKey>> {
        let text = format!(
            "SELECT DISTINCT t.name FROM (SELECT name FROM pragma_table_list WHERE {USABLE} \
             AND type = 'table') AS t, pragma_foreign_key_list(t.name, 'main') AS f \
             WHERE f.\"table\" = ?1 COLLATE NOCASE ORDER BY t.name"
        );
        let tables = self.collect(&text, [table], |row| row.get::<_, String>(0))?;
        let mut keys = Vec::new();
        for child in tables {
            let own = self.foreign_keys(&child)?.into_iter();
            keys.extend(own.filter(|key| key.to_entity == table));
        }
        Ok(keys)
    }

    fn collect<T>(
        &self,
        text: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        let mut statement = self.connection.prepare_cached(text)?;
        statement.query_map(params, read)?.collect()
    }
}

/// One column of a foreign key.
struct Part {
    id: i64,
    table: String,
    from: String,
    to: Option<String>,
    on_delete: String,
}

impl Part {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Part {
            id: row.get(0)?,
            table: row.get(1)?,
            from: row.get(2)?,
            to: row.get(3)?,
            on_delete: row.get(4)?,
        })
    }

    fn key(&self, from_entity: &str) -> ForeignKey {
        ForeignKey {
            name: None,
            from_entity: from_entity.to_owned(),
            from_columns: Vec::new(),
            to_entity: self.table.clone(),
            to_columns: Vec::new(),
            on_delete: self.on_delete.clone(),
        }
    }
}
