//! What SQLite names in a message: it gives constraint, table and column nowhere else.

use rusqlite::ffi;

type Place = (&'static str, String);

/// The things that the message of this code names.
pub(super) fn named(extended: i32, message: &str) -> Vec<Place> {
    if extended == ffi::SQLITE_CONSTRAINT_DATATYPE {
        let column = message.rsplit_once(" column ").map(|(_, column)| column);
        return column.map(columns).unwrap_or_default();
    }
    if extended & 0xff == ffi::SQLITE_CONSTRAINT {
        return of_constraint(message);
    }
    let known = [("no such table: ", "table"), ("no such column: ", "column")];
    known
        .iter()
        .find_map(|(prefix, kind)| {
            let name = message.strip_prefix(prefix)?;
            Some(vec![(*kind, name.to_owned())])
        })
        .unwrap_or_default()
}

fn of_constraint(message: &str) -> Vec<Place> {
    let Some((kind, rest)) = message.split_once(" constraint failed: ") else {
        return Vec::new();
    };
    if kind == "CHECK" {
        return vec![("constraint", rest.to_owned())];
    }
    if let Some(index) = rest
        .strip_prefix("index '")
        .and_then(|r| r.strip_suffix('\''))
    {
        return vec![("constraint", index.to_owned())];
    }
    columns(rest)
}

/// `t.a, t.b` as the table and its columns.
fn columns(list: &str) -> Vec<Place> {
    let mut places = Vec::new();
    for item in list.split(", ") {
        let Some((table, column)) = item.split_once('.') else {
            continue;
        };
        if places.is_empty() {
            places.push(("table", table.to_owned()));
        }
        places.push(("column", column.to_owned()));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_their_places() {
        let table = [
            (
                ffi::SQLITE_CONSTRAINT_UNIQUE,
                "UNIQUE constraint failed: t.a, t.b",
                "table=t column=a column=b",
            ),
            (
                ffi::SQLITE_CONSTRAINT_UNIQUE,
                "UNIQUE constraint failed: index 'i x'",
                "constraint=i x",
            ),
            (
                ffi::SQLITE_CONSTRAINT_NOTNULL,
                "NOT NULL constraint failed: t.a",
                "table=t column=a",
            ),
            (
                ffi::SQLITE_CONSTRAINT_CHECK,
                "CHECK constraint failed: price > 0.5",
                "constraint=price > 0.5",
            ),
            (
                ffi::SQLITE_CONSTRAINT_FOREIGNKEY,
                "FOREIGN KEY constraint failed",
                "",
            ),
            (
                ffi::SQLITE_CONSTRAINT_DATATYPE,
                "cannot store TEXT value in INTEGER column t.a",
                "table=t column=a",
            ),
            (ffi::SQLITE_ERROR, "no such table: nope", "table=nope"),
            (ffi::SQLITE_ERROR, "no such column: nope", "column=nope"),
            (ffi::SQLITE_ERROR, "near \"x\": syntax error", ""),
        ];
        for (code, message, expected) in table {
            let places = named(code, message);
            let shown: Vec<String> = places.iter().map(|(k, n)| format!("{k}={n}")).collect();
            assert_eq!(shown.join(" "), expected, "{message}");
        }
    }
}
