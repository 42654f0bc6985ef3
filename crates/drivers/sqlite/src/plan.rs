//! What is known about a statement beside its prepared form: computed once, kept with its text.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_sql::Column;
use rusqlite::Statement;

use crate::value::column_type;
use crate::words::{Word, Words};

/// The kind of a statement, by its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// INSERT or REPLACE.
    Insert,
    /// UPDATE, DELETE, or either or an INSERT after WITH.
    Change,
    /// COMMIT, END or RELEASE as a plain statement: it may commit.
    Commit,
    /// Anything else.
    Other,
}

/// What is known about one text.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) verb: Verb,
    pub(crate) columns: Arc<[Column]>,
    /// One inserted row has a key that SQLite made or took: the table's INTEGER PRIMARY KEY.
    pub(crate) gives_key: bool,
}

/// Plans by text, at most as many as there are prepared statements.
#[derive(Debug)]
pub(crate) struct Plans {
    by_text: HashMap<Box<str>, Plan>,
    max: usize,
}

impl Plans {
    pub(crate) fn new(max: usize) -> Self {
        Plans {
            by_text: HashMap::new(),
            max,
        }
    }

    /// The plan of this text if it still fits what SQLite prepared: a change of the schema gives a kept
    /// statement other columns.
    pub(crate) fn get(&self, text: &str, statement: &Statement<'_>) -> Option<&Plan> {
        let plan = self.by_text.get(text)?;
        fits(&plan.columns, statement).then_some(plan)
    }

    /// Keeps a plan. A full table is emptied: texts that are in use come back at once.
    pub(crate) fn put(&mut self, text: &str, plan: Plan) {
        if self.by_text.len() >= self.max {
            self.by_text.clear();
        }
        self.by_text.insert(text.into(), plan);
    }

    /// Forgets everything; the schema changed.
    pub(crate) fn clear(&mut self) {
        self.by_text.clear();
    }
}

fn fits(columns: &[Column], statement: &Statement<'_>) -> bool {
    let now = statement.columns();
    now.len() == columns.len()
        && now.zip(columns).all(|(now, kept)| {
            now.name() == &*kept.name && now.decl_type().unwrap_or("") == &*kept.native
        })
}

/// The columns of a prepared statement.
pub(crate) fn columns(statement: &Statement<'_>) -> Arc<[Column]> {
    let column = |column: rusqlite::Column<'_>| Column {
        name: column.name().into(),
        column_type: column_type(column.decl_type()),
        native: column.decl_type().unwrap_or("").into(),
    };
    statement.columns().map(column).collect()
}

/// The kind of a statement.
pub(crate) fn verb(text: &str) -> Verb {
    let Some(Word::Bare(first)) = Words(text).next() else {
        return Verb::Other;
    };
    let is = |names: &[&str]| names.iter().any(|name| first.eq_ignore_ascii_case(name));
    if is(&["INSERT", "REPLACE"]) {
        Verb::Insert
    } else if is(&["UPDATE", "DELETE", "WITH"]) {
        Verb::Change
    } else if is(&["COMMIT", "END", "RELEASE"]) {
        Verb::Commit
    } else {
        Verb::Other
    }
}

/// The table that a plain INSERT fills; `None` where the number of the last row would not be its key: with
/// an upsert, which may have changed another row.
pub(crate) fn insert_target(text: &str) -> Option<String> {
    let upserts = Words(text).any(|word| word.is("CONFLICT"));
    if upserts {
        return None;
    }
    let mut words = Words(text).skip_while(|word| !word.is("INTO")).skip(1);
    let first = words.next()?.name()?;
    match words.next() {
        Some(Word::Sign('.')) => words.next()?.name(),
        _ => Some(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_tells_the_kind() {
        let table = [
            (" insert into t values (1)", Verb::Insert),
            ("-- why\n/* so */ REPLACE INTO t VALUES (1)", Verb::Insert),
            ("WITH a AS (SELECT 1) DELETE FROM t", Verb::Change),
            ("update t set a = 1", Verb::Change),
            ("SELECT 1", Verb::Other),
            ("release s", Verb::Commit),
            ("\u{feff}/*/ x */ --\r\n\u{feff}COMMIT", Verb::Commit),
            ("VACUUM", Verb::Other),
            ("", Verb::Other),
            ("-- only", Verb::Other),
            ("/* open", Verb::Other),
            ("'x", Verb::Other),
        ];
        for (text, expected) in table {
            assert_eq!(verb(text), expected, "{text}");
        }
    }

    #[test]
    fn the_target_of_an_insert_is_found_under_odd_names() {
        let table = [
            ("INSERT INTO t VALUES (1)", Some("t")),
            ("INSERT OR IGNORE INTO main.t(a) VALUES (1)", Some("t")),
            ("INSERT INTO \"a \"\"b\" VALUES (1)", Some("a \"b")),
            ("INSERT INTO [a.b] VALUES (1)", Some("a.b")),
            ("insert into `main` . `x``y` values (1)", Some("x`y")),
            ("INSERT INTO tä VALUES ('a', \"b\")", Some("tä")),
            ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", None),
            ("INSERT INTO t VALUES ('ON CONFLICT')", Some("t")),
            ("INSERT", None),
            ("INSERT INTO", None),
            ("INSERT INTO \"open", Some("open")),
        ];
        for (text, expected) in table {
            assert_eq!(insert_target(text).as_deref(), expected, "{text}");
        }
    }
}
