//! What the catalog says about tables, views and functions.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_sql::catalog::{
    Describe, Description, Entity, EntityColumn, EntityName, ForeignKey, Index, Volatility,
};
use mainstay_sql::{ColumnType, Dialect, Row, SqlError, Value};

use crate::session::Session;

/// Tables and views outside the system's schemas that this user may see; those of the session's own
/// database first.
const ENTITIES: &str = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE LIKE '%VIEW' \
     FROM information_schema.TABLES \
     WHERE TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') \
       AND TABLE_TYPE IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED') \
     ORDER BY NOT (TABLE_SCHEMA <=> DATABASE()), TABLE_SCHEMA, TABLE_NAME";

/// The entity that a name means: in the session's own database, else as `schema.name`.
const RESOLVE: &str = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE LIKE '%VIEW' \
     FROM information_schema.TABLES \
     WHERE TABLE_TYPE IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED') \
       AND ((TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?) \
         OR (TABLE_SCHEMA = ? AND TABLE_NAME = ?)) \
     ORDER BY TABLE_SCHEMA <=> DATABASE() DESC LIMIT 1";

const COLUMNS: &str = "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE = 'YES', COLUMN_DEFAULT, \
       EXTRA LIKE '%auto_increment%' OR EXTRA LIKE '%GENERATED%' AND EXTRA NOT LIKE 'DEFAULT_GENERATED%' \
     FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? \
     ORDER BY ORDINAL_POSITION";

/// One row a column of an index.
const INDEXES: &str = "SELECT INDEX_NAME, NON_UNIQUE = 0, COALESCE(COLUMN_NAME, '?') \
     FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? \
     ORDER BY INDEX_NAME, SEQ_IN_INDEX";

/// One row a column of a foreign key.
const RELATIONS: &str = "SELECT k.CONSTRAINT_NAME, k.TABLE_SCHEMA, k.TABLE_NAME, k.COLUMN_NAME, \
       k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME, r.DELETE_RULE, \
       COALESCE(DATABASE(), '') \
     FROM information_schema.KEY_COLUMN_USAGE k \
     JOIN information_schema.REFERENTIAL_CONSTRAINTS r \
       ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME \
      AND r.TABLE_NAME = k.TABLE_NAME \
     WHERE ";
const OF_THIS: &str = "k.TABLE_SCHEMA = ? AND k.TABLE_NAME = ? \
       AND k.REFERENCED_TABLE_NAME IS NOT NULL";
const OF_OTHERS: &str = "k.REFERENCED_TABLE_SCHEMA = ? AND k.REFERENCED_TABLE_NAME = ?";
const RELATIONS_ORDER: &str =
    " ORDER BY k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.ORDINAL_POSITION";

const VIEW: &str = "SELECT VIEW_DEFINITION FROM information_schema.VIEWS \
     WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?";

/// What a function says of itself. `CONTAINS SQL` is what one says that says nothing.
const FUNCTIONS: &str = "SELECT LOWER(ROUTINE_NAME), \
       MAX(CASE WHEN SQL_DATA_ACCESS = 'NO SQL' AND IS_DETERMINISTIC = 'YES' THEN 0 \
                WHEN SQL_DATA_ACCESS IN ('NO SQL', 'READS SQL DATA') THEN 1 ELSE 2 END) \
     FROM information_schema.ROUTINES WHERE ROUTINE_TYPE = 'FUNCTION' GROUP BY 1";

/// Answers a question.
pub(crate) async fn describe(
    session: &mut Session,
    what: &Describe,
) -> Result<Description, SqlError> {
    match what {
        Describe::Entities => entities(session).await,
        Describe::Entity(name) => entity(session, name).await,
        Describe::ForeignKeys(name) => relations(session, name, OF_THIS).await,
        Describe::Children(name) => relations(session, name, OF_OTHERS).await,
        Describe::View(name) => view(session, name).await,
        Describe::Functions => functions(session).await,
    }
}

async fn entities(session: &mut Session) -> Result<Description, SqlError> {
    let rows = session.ask(ENTITIES, &[]).await?;
    let names = rows.iter().map(|row| {
        let mut fields = Fields(row.iter());
        Some(EntityName {
            schema: Some(fields.text()?),
            name: fields.text()?,
            is_view: fields.flag()?,
        })
    });
    Ok(Description::Entities(understood(names)?))
}

struct Resolved {
    schema: String,
    name: String,
    is_view: bool,
}

impl Resolved {
    fn key(&self) -> [Value; 2] {
        [
            Value::Text(self.schema.clone()),
            Value::Text(self.name.clone()),
        ]
    }
}

async fn resolve(session: &mut Session, name: &Arc<str>) -> Result<Option<Resolved>, SqlError> {
    let (schema, rest) = name.split_once('.').unwrap_or(("", name));
    let params = [&**name, schema, rest].map(|text| Value::Text(text.to_owned()));
    let rows = session.ask(RESOLVE, &params).await?;
    let found = rows.iter().map(|row| {
        let mut fields = Fields(row.iter());
        Some(Resolved {
            schema: fields.text()?,
            name: fields.text()?,
            is_view: fields.flag()?,
        })
    });
    Ok(understood(found)?.pop())
}

async fn entity(session: &mut Session, name: &Arc<str>) -> Result<Description, SqlError> {
    let Some(found) = resolve(session, name).await? else {
        return Ok(Description::Entity(None));
    };
    let key = found.key();
    let types = column_types(session, &found).await?;
    let rows = session.ask(COLUMNS, &key).await?;
    let columns = understood(rows.iter().map(|row| entity_column(row, &types)))?;
    let rows = session.ask(INDEXES, &key).await?;
    let indexes = indexes(&rows)?;
    let primary = indexes.iter().find(|index| index.name == "PRIMARY");
    let entity = Entity {
        primary_key: primary
            .map(|index| index.columns.clone())
            .unwrap_or_default(),
        schema: Some(found.schema),
        name: found.name,
        is_view: found.is_view,
        columns,
        indexes,
    };
    Ok(Description::Entity(Some(Arc::new(entity))))
}

/// The types that a query over the entity gives.
async fn column_types(
    session: &mut Session,
    found: &Resolved,
) -> Result<HashMap<String, ColumnType>, SqlError> {
    let quoted = |name: &str| Dialect::MySql.quote(name);
    let text = format!(
        "SELECT * FROM {}.{} LIMIT 0",
        quoted(&found.schema),
        quoted(&found.name)
    );
    let columns = session.columns_of(&text).await?;
    let typed = columns
        .iter()
        .map(|column| (column.name.to_string(), column.column_type.clone()));
    Ok(typed.collect())
}

fn entity_column(row: &Row, types: &HashMap<String, ColumnType>) -> Option<EntityColumn> {
    let mut fields = Fields(row.iter());
    let name = fields.text()?;
    let native = fields.text()?;
    let nullable = fields.flag()?;
    // MariaDB writes the expression NULL where there is no other default.
    let default = fields.optional_text()?.filter(|default| default != "NULL");
    Some(EntityColumn {
        column_type: types
            .get(&name)
            .cloned()
            .unwrap_or_else(|| ColumnType::Other(native.as_str().into())),
        name,
        native,
        nullable,
        default,
        generated: fields.flag()?,
    })
}

fn indexes(rows: &[Row]) -> Result<Vec<Index>, SqlError> {
    let parts = rows.iter().map(|row| {
        let mut fields = Fields(row.iter());
        Some((fields.text()?, fields.flag()?, fields.text()?))
    });
    let mut indexes: Vec<Index> = Vec::new();
    for (name, unique, column) in understood(parts)? {
        match indexes.last_mut().filter(|index| index.name == name) {
            Some(index) => index.columns.push(column),
            None => indexes.push(Index {
                name,
                unique,
                columns: vec![column],
            }),
        }
    }
    Ok(indexes)
}

async fn relations(
    session: &mut Session,
    name: &Arc<str>,
    whose: &str,
) -> Result<Description, SqlError> {
    let Some(found) = resolve(session, name).await? else {
        return Ok(Description::Relations(None));
    };
    let text = format!("{RELATIONS}{whose}{RELATIONS_ORDER}");
    let rows = session.ask(&text, &found.key()).await?;
    let mut keys: Vec<ForeignKey> = Vec::new();
    for part in understood(rows.iter().map(foreign_key))? {
        let is_same =
            |key: &ForeignKey| key.name == part.name && key.from_entity == part.from_entity;
        match keys.last_mut().filter(|key| is_same(key)) {
            Some(key) => {
                key.from_columns.extend(part.from_columns);
                key.to_columns.extend(part.to_columns);
            }
            None => keys.push(part),
        }
    }
    Ok(Description::Relations(Some(keys)))
}

/// A foreign key with one of its columns.
fn foreign_key(row: &Row) -> Option<ForeignKey> {
    let mut fields = Fields(row.iter());
    let name = fields.optional_text()?;
    let (from_schema, from, from_column) = (fields.text()?, fields.text()?, fields.text()?);
    let (to_schema, to, to_column) = (fields.text()?, fields.text()?, fields.text()?);
    let on_delete = fields.text()?;
    let own = fields.text()?;
    let shown = |schema: String, name: String| match schema == own {
        true => name,
        false => format!("{schema}.{name}"),
    };
    Some(ForeignKey {
        name,
        from_entity: shown(from_schema, from),
        from_columns: vec![from_column],
        to_entity: shown(to_schema, to),
        to_columns: vec![to_column],
        on_delete,
    })
}

/// The statement that makes a view. The server shows it to few: an empty text is none.
async fn view(session: &mut Session, name: &Arc<str>) -> Result<Description, SqlError> {
    let Some(found) = resolve(session, name).await?.filter(|it| it.is_view) else {
        return Ok(Description::View(None));
    };
    let rows = session.ask(VIEW, &found.key()).await?;
    let texts = understood(rows.iter().map(|row| Fields(row.iter()).text()))?;
    let text = texts.into_iter().next().filter(|text| !text.is_empty());
    let name = Dialect::MySql.quote(&found.name);
    let made = text.map(|text| format!("CREATE VIEW {name} AS {text}"));
    Ok(Description::View(made))
}

async fn functions(session: &mut Session) -> Result<Description, SqlError> {
    let rows = session.ask(FUNCTIONS, &[]).await?;
    let functions = rows.iter().map(|row| {
        let volatility = match row.get(1)? {
            Value::I64(0) => Volatility::Immutable,
            Value::I64(1) => Volatility::Stable,
            _ => Volatility::Volatile,
        };
        Some((Fields(row.iter()).text()?, volatility))
    });
    let functions: Vec<_> = understood(functions)?;
    Ok(Description::Functions(Arc::new(
        functions.into_iter().collect(),
    )))
}

/// The fields of a catalog row, one after the other; `None`: not what was asked for.
struct Fields<'a>(std::slice::Iter<'a, Value>);

impl Fields<'_> {
    fn text(&mut self) -> Option<String> {
        self.optional_text()?
    }

    fn optional_text(&mut self) -> Option<Option<String>> {
        match self.0.next()? {
            Value::Text(text) => Some(Some(text.clone())),
            // MySQL keeps some texts of the catalog as bytes.
            Value::Bytes(bytes) => Some(Some(String::from_utf8_lossy(bytes).into_owned())),
            Value::Null => Some(None),
            _ => None,
        }
    }

    fn flag(&mut self) -> Option<bool> {
        match self.0.next()? {
            Value::I64(flag) => Some(*flag != 0),
            _ => None,
        }
    }
}

fn understood<T>(found: impl Iterator<Item = Option<T>>) -> Result<Vec<T>, SqlError> {
    let found: Option<Vec<T>> = found.collect();
    found.ok_or_else(|| SqlError::internal("the catalog's answer is not what was asked for"))
}
