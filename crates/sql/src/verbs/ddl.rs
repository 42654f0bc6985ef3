//! Creating and dropping entities.

use std::sync::Arc;

use crate::catalog::Entity;
use crate::database::{Answer, Database, Options};
use crate::ddl::{create_entity, full_name};
use crate::error::SqlError;

use super::statement::run_script;

pub(super) async fn create<D: Database + ?Sized>(
    database: &D,
    entities: &[Entity],
    options: Options,
) -> Result<Answer, SqlError> {
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
    let entity = super::catalog::entity(database, name, true).await?;
    let kind = if entity.is_view { "VIEW" } else { "TABLE" };
    let text = format!("DROP {kind} {}", full_name(database.dialect(), &entity));
    run_script(database, "drop_entity", vec![Arc::from(text)], options).await
}

/// Tables with their indexes first, then what refers to others.
pub(super) async fn script_for<D: Database + ?Sized>(
    database: &D,
    names: &[&str],
) -> Result<String, SqlError> {
    let (mut tables, mut references) = (Vec::new(), Vec::new());
    for name in names {
        let entity = super::catalog::entity(database, name, true).await?;
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
    let mut script = String::new();
    for statement in tables {
        script.push_str(&statement);
        script.push_str(";\n");
    }
    Ok(script)
}
