//! What the catalog says about tables, views and functions.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_sql::catalog::{
    Describe, Description, Entity, EntityColumn, EntityName, ForeignKey, Index, Volatility,
};
use mainstay_sql::{ColumnType, Row, SqlError, Value};

use crate::decode::{Decoder, native_name};
use crate::errors::Phase;
use crate::session::Session;

/// Tables, views, materialized views and foreign tables outside the system's schemas that this user may
/// use in some way; those of the search path first.
const ENTITIES: &str = "SELECT n.nspname, c.relname, c.relkind IN ('v', 'm') \
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') \
       AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)' \
       AND has_schema_privilege(n.oid, 'USAGE') \
       AND (has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE') \
            OR has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE')) \
     ORDER BY NOT pg_catalog.pg_table_is_visible(c.oid), n.nspname, c.relname";

/// The entity that a name means: as the search path finds it, else as `schema.name`.
const RESOLVE: &str = "SELECT c.oid::int8, n.nspname, c.relname, c.relkind IN ('v', 'm') \
     FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') \
       AND ((c.relname = $1 AND pg_catalog.pg_table_is_visible(c.oid)) OR n.nspname || '.' || c.relname = $1) \
     ORDER BY c.relname = $1 DESC LIMIT 1";

const COLUMNS: &str = "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), \
       NOT (a.attnotnull OR t.typnotnull), pg_catalog.pg_get_expr(d.adbin, d.adrelid), \
       a.attidentity <> '' OR a.attgenerated <> '' \
         OR coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%', false) \
     FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
     LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
     WHERE a.attrelid = ($1::int8)::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// Key columns only; an expression as its text.
const INDEXES: &str = "SELECT c.relname, i.indisunique, i.indisprimary, \
       (SELECT array_agg(coalesce(a.attname::text, pg_catalog.pg_get_indexdef(i.indexrelid, k.n::int4, true)) \
                         ORDER BY k.n) \
        FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, n) \
        LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum <> 0 \
        WHERE k.n <= i.indnkeyatts) \
     FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
     WHERE i.indrelid = ($1::int8)::oid AND i.indislive ORDER BY c.relname";

/// `$2`: whether those of others to this entity are meant.
const RELATIONS: &str = "SELECT k.conname, fn.nspname, f.relname, \
       pg_catalog.pg_table_is_visible(f.oid), \
       (SELECT array_agg(a.attname::text ORDER BY x.n) FROM unnest(k.conkey) WITH ORDINALITY x(attnum, n) \
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = x.attnum), \
       tn.nspname, t.relname, pg_catalog.pg_table_is_visible(t.oid), \
       (SELECT array_agg(a.attname::text ORDER BY x.n) FROM unnest(k.confkey) WITH ORDINALITY x(attnum, n) \
        JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = x.attnum), \
       CASE k.confdeltype WHEN 'r' THEN 'RESTRICT' WHEN 'c' THEN 'CASCADE' WHEN 'n' THEN 'SET NULL' \
         WHEN 'd' THEN 'SET DEFAULT' ELSE 'NO ACTION' END \
     FROM pg_catalog.pg_constraint k \
     JOIN pg_catalog.pg_class f ON f.oid = k.conrelid JOIN pg_catalog.pg_namespace fn ON fn.oid = f.relnamespace \
     JOIN pg_catalog.pg_class t ON t.oid = k.confrelid JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace \
     WHERE k.contype = 'f' AND k.conparentid = 0 \
       AND CASE WHEN $2::bool THEN k.confrelid ELSE k.conrelid END = ($1::int8)::oid \
     ORDER BY fn.nspname, f.relname, k.conname";

/// Its query, which names what the search path finds without a schema; its kind; its options.
const VIEW: &str = "SELECT pg_catalog.pg_get_viewdef(c.oid, true), c.relkind = 'm', \
       pg_catalog.array_to_string(c.reloptions, ', ') \
     FROM pg_catalog.pg_class c WHERE c.oid = ($1::int8)::oid";

/// The worst over all functions of a name, whatever their schema or case.
const FUNCTIONS: &str = "SELECT lower(proname), \
       max(CASE provolatile WHEN 'v' THEN 2 WHEN 's' THEN 1 ELSE 0 END) FROM pg_catalog.pg_proc GROUP BY 1";

/// Answers a question.
pub(crate) async fn describe(
    session: &mut Session,
    what: &Describe,
) -> Result<Description, SqlError> {
    match what {
        Describe::Entities => entities(session).await,
        Describe::Entity(name) => entity(session, name).await,
        Describe::ForeignKeys(name) => relations(session, name, false).await,
        Describe::Children(name) => relations(session, name, true).await,
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
    oid: Value,
    schema: String,
    name: String,
    is_view: bool,
}

async fn resolve(session: &mut Session, name: &Arc<str>) -> Result<Option<Resolved>, SqlError> {
    let rows = session
        .ask(RESOLVE, &[Value::Text(name.to_string())])
        .await?;
    let found = rows.iter().map(|row| {
        let mut fields = Fields(row.iter());
        let oid = fields.0.next()?.clone();
        Some(Resolved {
            oid,
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
    let oid = [found.oid.clone()];
    let types = column_types(session, &found).await?;
    let rows = session.ask(COLUMNS, &oid).await?;
    let columns = understood(rows.iter().map(|row| entity_column(row, &types)))?;
    let rows = session.ask(INDEXES, &oid).await?;
    let indexes = understood(rows.iter().map(index))?;
    let primary = indexes.iter().find(|(_, is_primary)| *is_primary);
    let entity = Entity {
        schema: Some(found.schema),
        name: found.name,
        is_view: found.is_view,
        columns,
        primary_key: primary
            .map(|(index, _)| index.columns.clone())
            .unwrap_or_default(),
        indexes: indexes.into_iter().map(|(index, _)| index).collect(),
    };
    Ok(Description::Entity(Some(Arc::new(entity))))
}

/// The types that a query over the entity gives; the server is only asked to parse one.
async fn column_types(
    session: &Session,
    found: &Resolved,
) -> Result<HashMap<String, ColumnType>, SqlError> {
    let text = format!(
        "SELECT * FROM {}.{}",
        quoted(&found.schema),
        quoted(&found.name)
    );
    let statement = session
        .client()
        .prepare(&text)
        .await
        .map_err(|e| session.failed(&e, Phase::Control))?;
    let typed = statement.columns().iter().map(|column| {
        let known = Decoder::of(column.type_()).map(|decoder| decoder.column_type());
        (
            column.name().to_owned(),
            known.unwrap_or_else(|| ColumnType::Other(native_name(column.type_()))),
        )
    });
    Ok(typed.collect())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn entity_column(row: &Row, types: &HashMap<String, ColumnType>) -> Option<EntityColumn> {
    let mut fields = Fields(row.iter());
    let name = fields.text()?;
    let native = fields.text()?;
    Some(EntityColumn {
        column_type: types
            .get(&name)
            .cloned()
            .unwrap_or_else(|| ColumnType::Other(native.as_str().into())),
        name,
        native,
        nullable: fields.flag()?,
        default: fields.optional_text()?,
        generated: fields.flag()?,
    })
}

fn index(row: &Row) -> Option<(Index, bool)> {
    let mut fields = Fields(row.iter());
    let (name, unique, is_primary) = (fields.text()?, fields.flag()?, fields.flag()?);
    Some((
        Index {
            name,
            unique,
            columns: fields.texts()?,
        },
        is_primary,
    ))
}

async fn relations(
    session: &mut Session,
    name: &Arc<str>,
    of_others: bool,
) -> Result<Description, SqlError> {
    let Some(found) = resolve(session, name).await? else {
        return Ok(Description::Relations(None));
    };
    let rows = session
        .ask(RELATIONS, &[found.oid, Value::Bool(of_others)])
        .await?;
    let keys = understood(rows.iter().map(foreign_key))?;
    Ok(Description::Relations(Some(keys)))
}

fn foreign_key(row: &Row) -> Option<ForeignKey> {
    let mut fields = Fields(row.iter());
    Some(ForeignKey {
        name: fields.optional_text()?,
        from_entity: fields.entity()?,
        from_columns: fields.texts()?,
        to_entity: fields.entity()?,
        to_columns: fields.texts()?,
        on_delete: fields.text()?,
    })
}

async fn view(session: &mut Session, name: &Arc<str>) -> Result<Description, SqlError> {
    let found = resolve(session, name).await?;
    let Some(found) = found.filter(|found| found.is_view) else {
        return Ok(Description::View(None));
    };
    let name = format!("{}.{}", quoted(&found.schema), quoted(&found.name));
    let rows = session.ask(VIEW, &[found.oid]).await?;
    let texts = rows.iter().map(|row| {
        let mut fields = Fields(row.iter());
        let (query, is_kept, options) = (fields.text()?, fields.flag()?, fields.optional_text()?);
        let kind = if is_kept { "MATERIALIZED VIEW" } else { "VIEW" };
        let options = options.map(|options| format!(" WITH ({options})"));
        let query = query.trim().trim_end_matches(';');
        let options = options.unwrap_or_default();
        Some(format!("CREATE {kind} {name}{options} AS\n{query}"))
    });
    Ok(Description::View(understood(texts)?.pop()))
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
            Value::Null => Some(None),
            _ => None,
        }
    }

    fn flag(&mut self) -> Option<bool> {
        match self.0.next()? {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    fn texts(&mut self) -> Option<Vec<String>> {
        match self.0.next()? {
            Value::Array(items) => {
                let mut inner = Fields(items.iter());
                items.iter().map(|_| inner.text()).collect()
            }
            Value::Null => Some(Vec::new()),
            _ => None,
        }
    }

    /// Schema, name and whether the name alone is enough.
    fn entity(&mut self) -> Option<String> {
        let (schema, name, is_visible) = (self.text()?, self.text()?, self.flag()?);
        Some(if is_visible {
            name
        } else {
            format!("{schema}.{name}")
        })
    }
}

fn understood<T>(found: impl Iterator<Item = Option<T>>) -> Result<Vec<T>, SqlError> {
    let found: Option<Vec<T>> = found.collect();
    found.ok_or_else(|| SqlError::internal("the catalog's answer is not what was asked for"))
}
