//! What is known about a statement beside its prepared form: computed once, kept with its text.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_sql::Column;
use rusqlite::Statement;

use crate::value::column_type;

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
    let mut words = Words(text);
    let Some(Word::Bare(first)) = words.next() else {
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

/// The words of a statement, without white space and comments.
struct Words<'a>(&'a str);

#[derive(Debug, PartialEq)]
enum Word<'a> {
    Bare(&'a str),
    Quoted { text: &'a str, quote: char },
    Sign(char),
}

impl Word<'_> {
    fn is(&self, name: &str) -> bool {
        matches!(self, Word::Bare(word) if word.eq_ignore_ascii_case(name))
    }

    fn name(&self) -> Option<String> {
        match self {
            Word::Bare(name) => Some((*name).to_owned()),
            Word::Quoted { text, quote: ']' } => Some((*text).to_owned()),
            Word::Quoted { text, quote } => {
                let twice: String = [*quote, *quote].iter().collect();
                Some(text.replace(&twice, &quote.to_string()))
            }
            Word::Sign(_) => None,
        }
    }
}

impl<'a> Words<'a> {
    /// Takes the text up to `at`, and drops `skip` bytes behind it.
    fn take(&mut self, at: usize, skip: usize) -> &'a str {
        let (word, rest) = self.0.split_at(at);
        self.0 = rest.get(skip..).unwrap_or("");
        word
    }

    fn quoted(&mut self, quote: char) -> Word<'a> {
        self.0 = &self.0[1..];
        let mut from = 0;
        while let Some(found) = self.0[from..].find(quote) {
            let end = from + found;
            let is_doubled = quote != ']' && self.0[end + 1..].starts_with(quote);
            if !is_doubled {
                let text = self.take(end, 1);
                return Word::Quoted { text, quote };
            }
            from = end + 2;
        }
        let text = self.take(self.0.len(), 0);
        Word::Quoted { text, quote }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        loop {
            self.0 = self.0.trim_start_matches(|c: char| c.is_ascii_whitespace());
            if self.0.starts_with("--") {
                let end = self.0.find('\n').unwrap_or(self.0.len());
                self.take(end, 1);
            } else if self.0.starts_with("/*") {
                let end = self.0.find("*/").unwrap_or(self.0.len());
                self.take(end, 2);
            } else {
                break;
            }
        }
        let first = self.0.chars().next()?;
        match first {
            '"' | '`' | '\'' => return Some(self.quoted(first)),
            '[' => return Some(self.quoted(']')),
            _ => {}
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        let end = self.0.find(|c| !is_part(c)).unwrap_or(self.0.len());
        if end == 0 {
            self.take(first.len_utf8(), 0);
            return Some(Word::Sign(first));
        }
        Some(Word::Bare(self.take(end, 0)))
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
