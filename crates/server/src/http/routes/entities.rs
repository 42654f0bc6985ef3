//! Entities of a source: what the database says about its tables and views, and making and dropping them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use mainstay_sql::ColumnType;
use mainstay_sql::catalog::{Entity, EntityColumn, EntityName, ForeignKey, Index};
use mainstay_sql::verbs::Verbs;
use serde::{Deserialize, Serialize};

use super::call::CallOptions;
use super::place::Place;
use crate::http::answer::{Shape, respond};
use crate::http::app::App;
use crate::http::body::{Json as Body, Params};
use crate::http::caller::Caller;
use crate::http::object::{object, objects};
use crate::problem::Problem;

#[derive(Serialize)]
pub(super) struct NameList {
    entities: Vec<NameShown>,
}

#[derive(Serialize)]
struct NameShown {
    schema: Option<String>,
    name: String,
    is_view: bool,
}

impl From<EntityName> for NameShown {
    fn from(entity: EntityName) -> Self {
        NameShown {
            schema: entity.schema,
            name: entity.name,
            is_view: entity.is_view,
        }
    }
}

pub(super) async fn list(place: Place) -> Result<Json<NameList>, Problem> {
    let names = place.served.proxy().entities().await?;
    Ok(Json(NameList {
        entities: names.into_iter().map(Into::into).collect(),
    }))
}

/// A table or view, in answers and, for making one, in bodies.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntityShown {
    #[serde(default)]
    schema: Option<String>,
    name: String,
    #[serde(default)]
    is_view: bool,
    #[serde(deserialize_with = "objects")]
    columns: Vec<ColumnShown>,
    #[serde(default)]
    primary_key: Vec<String>,
    #[serde(default, deserialize_with = "objects")]
    indexes: Vec<IndexShown>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnShown {
    name: String,
    #[serde(rename = "type")]
    column_type: String,
    #[serde(default)]
    native: String,
    #[serde(default = "yes")]
    nullable: bool,
    #[serde(default)]
    default: Option<String>,
    #[serde(default)]
    generated: bool,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexShown {
    name: String,
    columns: Vec<String>,
    #[serde(default)]
    unique: bool,
}

impl From<&Entity> for EntityShown {
    fn from(entity: &Entity) -> Self {
        let columns = entity.columns.iter().map(|column| ColumnShown {
            name: column.name.clone(),
            column_type: column.column_type.to_string(),
            native: column.native.clone(),
            nullable: column.nullable,
            default: column.default.clone(),
            generated: column.generated,
        });
        let indexes = entity.indexes.iter().map(|index| IndexShown {
            name: index.name.clone(),
            columns: index.columns.clone(),
            unique: index.unique,
        });
        EntityShown {
            schema: entity.schema.clone(),
            name: entity.name.clone(),
            is_view: entity.is_view,
            columns: columns.collect(),
            primary_key: entity.primary_key.clone(),
            indexes: indexes.collect(),
        }
    }
}

impl EntityShown {
    fn entity(self) -> Result<Entity, Problem> {
        let own = [&self.name].into_iter().chain(&self.schema);
        let of_columns = self.columns.iter().map(|column| &column.name);
        let of_indexes = self.indexes.iter().map(|index| &index.name);
        own.chain(of_columns)
            .chain(of_indexes)
            .try_for_each(|name| check_name(name))?;
        let columns: Result<Vec<_>, _> =
            self.columns.into_iter().map(ColumnShown::column).collect();
        let indexes = self.indexes.into_iter().map(|index| Index {
            name: index.name,
            columns: index.columns,
            unique: index.unique,
        });
        Ok(Entity {
            schema: self.schema,
            name: self.name,
            is_view: self.is_view,
            columns: columns?,
            primary_key: self.primary_key,
            indexes: indexes.collect(),
        })
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    if !name.is_empty() && !name.contains('\0') {
        return Ok(());
    }
    Err(Problem::bad_request(
        format!("{name:.80?} is no name"),
        "give names of at least one character, without NUL",
    ))
}

impl ColumnShown {
    fn column(self) -> Result<EntityColumn, Problem> {
        let column_type = ColumnType::parse(&self.column_type).ok_or_else(|| {
            Problem::bad_request(
                format!(
                    "the column {:?} has the unknown type {:?}",
                    self.name, self.column_type
                ),
                "use the types of answers, such as i64, text, decimal, timestamp, json",
            )
        })?;
        Ok(EntityColumn {
            name: self.name,
            column_type,
            native: self.native,
            nullable: self.nullable,
            default: self.default,
            generated: self.generated,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EntityParams {
    refresh: bool,
}

pub(super) async fn one(
    place: Place,
    Params(params): Params<EntityParams>,
) -> Result<Json<EntityShown>, Problem> {
    let name = place.name("entity")?;
    let entity = place.served.proxy().entity(name, params.refresh).await?;
    Ok(Json(EntityShown::from(&*entity)))
}

#[derive(Serialize)]
pub(super) struct Relations {
    entity: String,
    relations: Vec<Relation>,
}

#[derive(Serialize)]
struct Relation {
    name: Option<String>,
    from_entity: String,
    from_columns: Vec<String>,
    to_entity: String,
    to_columns: Vec<String>,
    on_delete: String,
}

fn relations(entity: &str, keys: Vec<ForeignKey>) -> Json<Relations> {
    let relations = keys.into_iter().map(|key| Relation {
        name: key.name,
        from_entity: key.from_entity,
        from_columns: key.from_columns,
        to_entity: key.to_entity,
        to_columns: key.to_columns,
        on_delete: key.on_delete,
    });
    Json(Relations {
        entity: entity.to_owned(),
        relations: relations.collect(),
    })
}

pub(super) async fn children(place: Place) -> Result<Json<Relations>, Problem> {
    let name = place.name("entity")?;
    let keys = place.served.proxy().children(name).await?;
    Ok(relations(name, keys))
}

pub(super) async fn foreign_keys(place: Place) -> Result<Json<Relations>, Problem> {
    let name = place.name("entity")?;
    let keys = place.served.proxy().foreign_keys(name).await?;
    Ok(relations(name, keys))
}

#[derive(Serialize)]
pub(super) struct Ddl {
    entity: String,
    sql: String,
}

pub(super) async fn ddl(place: Place) -> Result<Json<Ddl>, Problem> {
    let name = place.name("entity")?;
    let sql = place.served.proxy().ddl_for(&[name]).await?;
    Ok(Json(Ddl {
        entity: name.to_owned(),
        sql,
    }))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateBody {
    #[serde(deserialize_with = "object")]
    entity: EntityShown,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<CreateBody>,
) -> Result<Response, Problem> {
    let entity = body.entity.entity()?;
    let options = body.options.complete(&caller, &app)?;
    let answer = place.served.proxy().create_entity(&entity, options).await?;
    respond(&answer, Shape::Script, app.settings().answer_max)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DropBody {
    entity: String,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn drop_entity(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<DropBody>,
) -> Result<Response, Problem> {
    let options = body.options.complete(&caller, &app)?;
    let proxy = place.served.proxy();
    let answer = proxy.drop_entity(&body.entity, options).await?;
    respond(&answer, Shape::Script, app.settings().answer_max)
}
