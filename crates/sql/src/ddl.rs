//! The text that creates entities, by dialect.

use crate::catalog::{Entity, EntityColumn, ForeignKey};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError};
use crate::statement::is_one_expression;
use crate::value::ColumnType;

/// The statements that create a table and its indexes. Foreign keys are part of the table in SQLite, which
/// cannot add them later; elsewhere they are statements of their own, so that tables may refer to each
/// other in any order.
///
/// # Errors
/// `bad_request` for a view, for a table without columns, and for a type or default that is more than one
/// expression.
pub(crate) fn create_entity(
    dialect: Dialect,
    entity: &Entity,
    foreign_keys: &[ForeignKey],
) -> Result<Vec<String>, SqlError> {
    if entity.is_view || entity.columns.is_empty() {
        return Err(SqlError::caller(
            Code::BadRequest,
            format!("{:?} is not a table with columns", entity.name),
            "views are created by a script",
        ));
    }
    let mut parts = Vec::new();
    for column in &entity.columns {
        parts.push(column_text(dialect, entity, column)?);
    }
    if !entity.primary_key.is_empty() && !is_rowid(dialect, entity) {
        for key in &entity.primary_key {
            entity.column(key)?;
        }
        parts.push(format!(
            "PRIMARY KEY ({})",
            names(dialect, &entity.primary_key)
        ));
    }
    if dialect == Dialect::Sqlite {
        parts.extend(foreign_keys.iter().map(|key| foreign_key(dialect, key)));
    }
    let table = full_name(dialect, entity);
    let mut statements = vec![format!(
        "CREATE TABLE {table} (\n  {}\n)",
        parts.join(",\n  ")
    )];
    for index in &entity.indexes {
        let is_key = index.unique && index.columns == entity.primary_key;
        let is_named = !index.name.starts_with("sqlite_autoindex_");
        if is_key || (!is_named && !index.unique) {
            continue;
        }
        statements.push(create_index(dialect, entity, index)?);
    }
    if dialect != Dialect::Sqlite {
        statements.extend(
            foreign_keys
                .iter()
                .map(|key| format!("ALTER TABLE {table} ADD {}", foreign_key(dialect, key))),
        );
    }
    Ok(statements)
}

pub(crate) fn full_name(dialect: Dialect, entity: &Entity) -> String {
    match &entity.schema {
        Some(schema) => format!("{}.{}", dialect.quote(schema), dialect.quote(&entity.name)),
        None => dialect.quote(&entity.name),
    }
}

fn names(dialect: Dialect, names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| dialect.quote(name)).collect();
    quoted.join(", ")
}

pub(crate) fn create_index(
    dialect: Dialect,
    entity: &Entity,
    index: &crate::catalog::Index,
) -> Result<String, SqlError> {
    let mut columns = Vec::new();
    for column in &index.columns {
        columns.push(match entity.column(column) {
            Ok(known) => dialect.quote(&known.name),
            Err(_) => format!("({})", one_expression(dialect, column)?),
        });
    }
    let unique = if index.unique { "UNIQUE " } else { "" };
    let name = if index.name.is_empty() || index.name.starts_with("sqlite_autoindex_") {
        format!("{}_{}", entity.name, index.columns.join("_"))
    } else {
        index.name.clone()
    };
    Ok(format!(
        "CREATE {unique}INDEX {} ON {} ({})",
        dialect.quote(&name),
        full_name(dialect, entity),
        columns.join(", ")
    ))
}

fn foreign_key(dialect: Dialect, key: &ForeignKey) -> String {
    let name = key
        .name
        .as_ref()
        .map(|name| format!("CONSTRAINT {} ", dialect.quote(name)))
        .unwrap_or_default();
    let to: Vec<String> = key
        .to_entity
        .split('.')
        .map(|part| dialect.quote(part))
        .collect();
    let columns = if key.to_columns.is_empty() {
        String::new()
    } else {
        format!(" ({})", names(dialect, &key.to_columns))
    };
    let on_delete = match key.on_delete.to_uppercase().as_str() {
        action @ ("CASCADE" | "SET NULL" | "SET DEFAULT" | "RESTRICT") => {
            format!(" ON DELETE {action}")
        }
        _ => String::new(),
    };
    format!(
        "{name}FOREIGN KEY ({}) REFERENCES {}{columns}{on_delete}",
        names(dialect, &key.from_columns),
        to.join(".")
    )
}

/// SQLite makes up the values of a lone integer key by itself if it is written just so.
fn is_rowid(dialect: Dialect, entity: &Entity) -> bool {
    dialect == Dialect::Sqlite
        && matches!(entity.primary_key.as_slice(), [key]
            if entity.column(key).is_ok_and(|column| column.column_type == ColumnType::I64))
}

fn column_text(
    dialect: Dialect,
    entity: &Entity,
    column: &EntityColumn,
) -> Result<String, SqlError> {
    let name = dialect.quote(&column.name);
    let is_key = entity.primary_key.contains(&column.name);
    if is_key && is_rowid(dialect, entity) {
        return Ok(format!("{name} INTEGER PRIMARY KEY"));
    }
    let native = if column.native.is_empty() {
        type_name(dialect, &column.column_type)?
    } else {
        one_expression(dialect, &column.native)?.to_owned()
    };
    let mut text = format!("{name} {native}");
    if column.generated && column.column_type == ColumnType::I64 {
        text.push_str(match dialect {
            Dialect::Postgres => " GENERATED BY DEFAULT AS IDENTITY",
            Dialect::MySql => " AUTO_INCREMENT",
            Dialect::Sqlite => "",
        });
    } else if let Some(default) = &column.default {
        let default = one_expression(dialect, default)?;
        // SQLite and MySQL take an expression only in parentheses.
        match dialect {
            Dialect::Postgres => text.push_str(&format!(" DEFAULT {default}")),
            Dialect::Sqlite | Dialect::MySql => text.push_str(&format!(" DEFAULT ({default})")),
        }
    }
    if !column.nullable || is_key {
        text.push_str(" NOT NULL");
    }
    Ok(text)
}

/// A type or default as it stands in the middle of a statement: it must not be able to end it.
fn one_expression(dialect: Dialect, text: &str) -> Result<&str, SqlError> {
    if is_one_expression(dialect, text) {
        return Ok(text);
    }
    Err(SqlError::caller(
        Code::BadRequest,
        format!("{text:?} is not one type or expression"),
        "close its quotes and parentheses, and leave semicolons out",
    ))
}

/// The type that holds every value of ours. SQLite keeps decimals, uuids and times as TEXT, because its
/// numeric affinity would bend them.
fn type_name(dialect: Dialect, column_type: &ColumnType) -> Result<String, SqlError> {
    use ColumnType as T;
    let [sqlite, postgres, mysql] = match column_type {
        T::Bool => ["BOOLEAN", "boolean", "TINYINT(1)"],
        T::I64 => ["INTEGER", "bigint", "BIGINT"],
        T::U64 => ["TEXT", "numeric(20)", "BIGINT UNSIGNED"],
        T::F64 => ["REAL", "double precision", "DOUBLE"],
        T::Decimal => ["TEXT", "numeric", "DECIMAL(65, 30)"],
        T::Text | T::Any => ["TEXT", "text", "LONGTEXT"],
        T::Bytes => ["BLOB", "bytea", "LONGBLOB"],
        T::Uuid => ["TEXT", "uuid", "CHAR(36)"],
        T::Date => ["TEXT", "date", "DATE"],
        T::Time => ["TEXT", "time", "TIME(6)"],
        T::Timestamp => ["TEXT", "timestamp", "DATETIME(6)"],
        T::TimestampTz => ["TEXT", "timestamptz", "TIMESTAMP(6)"],
        T::Interval => ["TEXT", "interval", "TEXT"],
        T::Json => ["TEXT", "jsonb", "JSON"],
        T::Array(inner) if dialect == Dialect::Postgres => {
            return Ok(format!("{}[]", type_name(dialect, inner)?));
        }
        T::Array(_) => ["TEXT", "", "JSON"],
        T::Other(name) => {
            return one_expression(dialect, name).map(str::to_owned);
        }
    };
    Ok(match dialect {
        Dialect::Sqlite => sqlite,
        Dialect::Postgres => postgres,
        Dialect::MySql => mysql,
    }
    .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Index;

    fn column(name: &str, column_type: ColumnType) -> EntityColumn {
        EntityColumn {
            name: name.into(),
            column_type,
            native: String::new(),
            nullable: true,
            default: None,
            generated: false,
        }
    }

    fn orders() -> Entity {
        let mut id = column("id", ColumnType::I64);
        id.generated = true;
        let mut state = column("state", ColumnType::Text);
        state.default = Some("'new'".into());
        state.nullable = false;
        Entity {
            schema: None,
            name: "orders".into(),
            is_view: false,
            columns: vec![id, state, column("total", ColumnType::Decimal)],
            primary_key: vec!["id".into()],
            indexes: vec![Index {
                name: "by_state".into(),
                columns: vec!["state".into(), "lower(state)".into()],
                unique: false,
            }],
        }
    }

    fn to_customers() -> ForeignKey {
        ForeignKey {
            name: None,
            from_entity: "orders".into(),
            from_columns: vec!["total".into()],
            to_entity: "customers".into(),
            to_columns: vec!["id".into()],
            on_delete: "CASCADE".into(),
        }
    }

    #[test]
    fn each_dialect_gets_its_own_text() {
        let sqlite = create_entity(Dialect::Sqlite, &orders(), &[to_customers()]).unwrap();
        assert_eq!(
            sqlite,
            [
                "CREATE TABLE \"orders\" (\n  \"id\" INTEGER PRIMARY KEY,\n  \
                 \"state\" TEXT DEFAULT ('new') NOT NULL,\n  \"total\" TEXT,\n  \
                 FOREIGN KEY (\"total\") REFERENCES \"customers\" (\"id\") ON DELETE CASCADE\n)",
                "CREATE INDEX \"by_state\" ON \"orders\" (\"state\", (lower(state)))",
            ]
        );
        let postgres = create_entity(Dialect::Postgres, &orders(), &[to_customers()]).unwrap();
        assert_eq!(
            postgres,
            [
                "CREATE TABLE \"orders\" (\n  \
                 \"id\" bigint GENERATED BY DEFAULT AS IDENTITY NOT NULL,\n  \
                 \"state\" text DEFAULT 'new' NOT NULL,\n  \"total\" numeric,\n  \
                 PRIMARY KEY (\"id\")\n)",
                "CREATE INDEX \"by_state\" ON \"orders\" (\"state\", (lower(state)))",
                "ALTER TABLE \"orders\" ADD FOREIGN KEY (\"total\") REFERENCES \"customers\" \
                 (\"id\") ON DELETE CASCADE",
            ]
        );
    }

    #[test]
    fn types_and_defaults_cannot_end_the_statement() {
        for bad in [
            "text; DROP TABLE t",
            "'open",
            "now()) --",
            "text -- x",
            "",
            "/* x",
            "a)(b",
        ] {
            let mut entity = orders();
            entity.columns[1].default = Some(bad.into());
            let error = create_entity(Dialect::Postgres, &entity, &[]).unwrap_err();
            assert_eq!(error.code(), Code::BadRequest, "{bad}");
        }
        for good in [
            "varchar(20)",
            "timestamp with time zone",
            "numeric(10, 2)",
            "text[]",
        ] {
            let mut entity = orders();
            entity.columns[1].native = good.into();
            create_entity(Dialect::Postgres, &entity, &[]).unwrap();
        }
    }
}
