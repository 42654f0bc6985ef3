//! The declared type of a column in our words.

use mainstay_sql::ColumnType;

/// The type that a declaration means. A word beside `TEXT` (`DECIMAL TEXT`) gives a column that holds text
/// exactly as written and is read as that type; alone, `DECIMAL` makes SQLite turn texts into doubles.
pub(crate) fn column_type(declared: Option<&str>) -> ColumnType {
    let Some(declared) = declared else {
        return ColumnType::Any;
    };
    let upper = declared.to_ascii_uppercase();
    let name = upper.split('(').next().unwrap_or("").trim();
    let zoned = upper.contains("WITH TIME ZONE");
    let first = name.split_whitespace().next().unwrap_or("");
    match first {
        "BOOLEAN" | "BOOL" => ColumnType::Bool,
        "DECIMAL" | "NUMERIC" => ColumnType::Decimal,
        "UUID" => ColumnType::Uuid,
        "DATE" => ColumnType::Date,
        "TIME" => ColumnType::Time,
        "TIMESTAMPTZ" => ColumnType::TimestampTz,
        "TIMESTAMP" if zoned => ColumnType::TimestampTz,
        "TIMESTAMP" | "DATETIME" => ColumnType::Timestamp,
        "JSON" => ColumnType::Json,
        _ => by_affinity(&upper),
    }
}

/// SQLite's own rules, in its order.
fn by_affinity(upper: &str) -> ColumnType {
    let has = |words: &[&str]| words.iter().any(|word| upper.contains(word));
    if has(&["INT"]) {
        ColumnType::I64
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        ColumnType::Text
    } else if has(&["BLOB"]) {
        ColumnType::Bytes
    } else if has(&["REAL", "FLOA", "DOUB"]) {
        ColumnType::F64
    } else {
        ColumnType::Any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_have_their_types() {
        let table = [
            (None, ColumnType::Any),
            (Some(""), ColumnType::Any),
            (Some("boolean"), ColumnType::Bool),
            (Some("DECIMAL(10,2)"), ColumnType::Decimal),
            (Some("decimal text"), ColumnType::Decimal),
            (Some("NUMERIC"), ColumnType::Decimal),
            (Some("uuid TEXT"), ColumnType::Uuid),
            (Some("DATE"), ColumnType::Date),
            (Some("DATETIME"), ColumnType::Timestamp),
            (Some("TIMESTAMP(6)"), ColumnType::Timestamp),
            (Some("TIMESTAMP WITHOUT TIME ZONE"), ColumnType::Timestamp),
            (Some("timestamp(6) with time zone"), ColumnType::TimestampTz),
            (Some("TIMESTAMPTZ TEXT"), ColumnType::TimestampTz),
            (Some("JSON"), ColumnType::Json),
            (Some("BIGINT UNSIGNED"), ColumnType::I64),
            (Some("POINT"), ColumnType::I64),
            (Some("VARCHAR(20)"), ColumnType::Text),
            (Some("BLOB"), ColumnType::Bytes),
            (Some("DOUBLE PRECISION"), ColumnType::F64),
            (Some("MONEY"), ColumnType::Any),
        ];
        for (declared, expected) in table {
            assert_eq!(column_type(declared), expected, "{declared:?}");
        }
    }
}
