//! What the database says about its schema.

use std::sync::Arc;

use crate::catalog::{Describe, Description, Entity, EntityName, ForeignKey};
use crate::database::{Database, Scope};
use crate::error::{Code, SqlError};
use crate::nearest::nearest;

fn foreign_answer() -> SqlError {
    SqlError::internal("the catalog answered another question than was asked")
}

pub(super) async fn entities<D: Database + ?Sized>(
    database: &D,
) -> Result<Vec<EntityName>, SqlError> {
    match database
        .describe(&Describe::Entities, Scope::default())
        .await?
    {
        Description::Entities(names) => Ok(names),
        _ => Err(foreign_answer()),
    }
}

async fn ask<D: Database + ?Sized>(
    database: &D,
    name: &str,
) -> Result<Option<Arc<Entity>>, SqlError> {
    check_name(name)?;
    let what = Describe::Entity(Arc::from(name));
    match database.describe(&what, Scope::default()).await? {
        Description::Entity(entity) => Ok(entity),
        _ => Err(foreign_answer()),
    }
}

fn check_name(name: &str) -> Result<(), SqlError> {
    if name.is_empty() || name.contains('\0') {
        return Err(SqlError::caller(
            Code::BadRequest,
            format!("{name:?} is no name of an entity"),
            "give the name of a table or view, as `name` or `schema.name`",
        ));
    }
    Ok(())
}

pub(super) async fn entity<D: Database + ?Sized>(
    database: &D,
    name: &str,
    refresh: bool,
) -> Result<Arc<Entity>, SqlError> {
    let schema = database.schema();
    if !refresh && let Some(known) = schema.entity(name) {
        return Ok(known);
    }
    match ask(database, name).await? {
        Some(entity) => {
            schema.remember_entity(name, Arc::clone(&entity));
            Ok(entity)
        }
        None => {
            schema.forget(Some(name));
            Err(unknown_entity(database, name).await)
        }
    }
}

/// The description of an entity where it is known or can be had; a failure only makes the answer less
/// exact.
pub(super) async fn remembered<D: Database + ?Sized>(
    database: &D,
    name: &str,
) -> Option<Arc<Entity>> {
    let plain = name.replace(['"', '`', '[', ']'], "");
    if let Some(known) = database.schema().entity(&plain) {
        return Some(known);
    }
    let entity = ask(database, &plain).await.ok().flatten()?;
    database
        .schema()
        .remember_entity(&plain, Arc::clone(&entity));
    Some(entity)
}

async fn unknown_entity<D: Database + ?Sized>(database: &D, name: &str) -> SqlError {
    let known = entities(database).await.unwrap_or_default();
    let hint = match nearest(name, known.iter().map(|entity| entity.name.as_str())) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None => "ask for `entities` to see their names".to_owned(),
    };
    let message = format!("there is no table or view {name:?}");
    SqlError::caller(Code::UnknownEntity, message, hint).place("entity", name)
}

pub(super) async fn exists<D: Database + ?Sized>(
    database: &D,
    name: &str,
) -> Result<bool, SqlError> {
    Ok(ask(database, name).await?.is_some())
}

/// The statement that creates a view, without a semicolon at its end.
pub(super) async fn view<D: Database + ?Sized>(
    database: &D,
    name: &str,
) -> Result<String, SqlError> {
    match database
        .describe(&Describe::View(Arc::from(name)), Scope::default())
        .await?
    {
        Description::View(Some(text)) => Ok(text),
        Description::View(None) => Err(SqlError::caller(
            Code::NotAvailable,
            format!("the database does not tell what the view {name:?} is made of"),
            "write its statement by hand",
        )
        .place("entity", name)),
        _ => Err(foreign_answer()),
    }
}

pub(super) async fn relations<D: Database + ?Sized>(
    database: &D,
    name: &str,
    to_it: bool,
) -> Result<Vec<ForeignKey>, SqlError> {
    check_name(name)?;
    let what = if to_it {
        Describe::Children(Arc::from(name))
    } else {
        Describe::ForeignKeys(Arc::from(name))
    };
    match database.describe(&what, Scope::default()).await? {
        Description::Relations(Some(keys)) => Ok(keys),
        Description::Relations(None) => Err(unknown_entity(database, name).await),
        _ => Err(foreign_answer()),
    }
}
