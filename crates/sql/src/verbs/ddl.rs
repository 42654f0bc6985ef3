//! Creating and dropping entities.

use std::sync::Arc;

use crate::catalog::Entity;
use crate::database::{Answer, Database, Options};
use crate::ddl::{create_entity, create_index, full_name};
use crate::error::SqlError;

use super::statement::{check, run_script};

pub(super) async fn create<D: Database + ?Sized>(
    database: &D,
    entities: &[Entity],
    options: Options,
) -> Result<Answer, SqlError> {
    check(&options)?;
    let mut statements: Vec<Arc<str>> = Vec::new();
    for entity in entities {
        let created = create_entity(database.dialect(), entity, &[])?;
        statements.extend(created.into_iter().map(Arc::from));
    }
    run_script(database, "create_entity", statements, options).await
}

pub(super) async fn drop<D: Database + ?Sized>(
    database: &D,
    name: &str,
    options: Options,
) -> Result<Answer, SqlError> {
    check(&options)?;
    let entity = super::catalog::entity(database, name, true).await?;
    let kind = if entity.is_view { "VIEW" } else { "TABLE" };
    let text = format!("DROP {kind} {}", full_name(database.dialect(), &entity));
    run_script(database, "drop_entity", vec![Arc::from(text)], options).await
}

/// Tables with their indexes first, then what refers to others, then views, each after those it reads.
pub(super) async fn script_for<D: Database + ?Sized>(
    database: &D,
    names: &[&str],
) -> Result<String, SqlError> {
    let (mut tables, mut references, mut views) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        let entity = super::catalog::entity(database, name, true).await?;
        if entity.is_view {
            views.push(View::of(database, name, &entity).await?);
            continue;
        }
        let keys = super::catalog::relations(database, name, false).await?;
        let statements = create_entity(database.dialect(), &entity, &keys)?;
        for statement in statements {
            if statement.starts_with("ALTER") {
                references.push(statement);
            } else {
                tables.push(statement);
            }
        }
    }
    tables.append(&mut references);
    tables.extend(in_order(views));
    let mut script = String::new();
    for statement in tables {
        script.push_str(&statement);
        script.push_str(";\n");
    }
    Ok(script)
}

/// A view with what creates it.
struct View {
    name: String,
    /// Names of what it reads, without schemas and quotes.
    reads: Vec<String>,
    statements: Vec<String>,
}

impl View {
    async fn of<D: Database + ?Sized>(
        database: &D,
        name: &str,
        entity: &Entity,
    ) -> Result<View, SqlError> {
        let text = super::catalog::view(database, name).await?;
        let reads = &database.schema().classify(&text).reads;
        let reads = reads.iter().map(|read| bare(read)).collect();
        let mut statements = vec![text];
        for index in &entity.indexes {
            statements.push(create_index(database.dialect(), entity, index)?);
        }
        Ok(View {
            name: entity.name.clone(),
            reads,
            statements,
        })
    }

    /// Whether it must wait for another one. A name that is in doubt is taken for the same.
    fn reads(&self, other: &View) -> bool {
        self.name != other.name
            && self
                .reads
                .iter()
                .any(|read| read.eq_ignore_ascii_case(&other.name))
    }
}

/// The last part of a name as it is written in SQL.
fn bare(name: &str) -> String {
    let quotes = ['"', '`', '[', ']'];
    let last = match name.ends_with(quotes) {
        // A quoted name may have dots of its own.
        true => {
            let inner = name.trim_end_matches(quotes);
            inner.rsplit(quotes).next()
        }
        false => name.rsplit('.').next(),
    };
    last.unwrap_or(name).to_owned()
}

fn in_order(mut views: Vec<View>) -> Vec<String> {
    let mut statements = Vec::new();
    while !views.is_empty() {
        let is_free = |view: &View| !views.iter().any(|other| view.reads(other));
        // None is free: names that are alike in two schemas. As they were asked for, then.
        let next = views.iter().position(is_free).unwrap_or(0);
        statements.extend(views.remove(next).statements);
    }
    statements
}
