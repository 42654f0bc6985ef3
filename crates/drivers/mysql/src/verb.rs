//! What a statement's text tells about its effect, by its words alone. The text has been parsed by nobody
//! yet.

use mainstay_sql::statement::lexer::{Lexeme, Lexer};
use mainstay_sql::{Code, Dialect, SqlError};

/// Names that are looked up when a statement has failed, so that its tables are known.
pub(crate) const NAMES_MAX: usize = 64;

/// What the words say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verb {
    /// Its answer counts changed rows, and its tables decide whether an error undoes all of it.
    pub(crate) counts: bool,
    /// An error answer proves that nothing took effect, if its tables are transactional.
    pub(crate) is_atomic: bool,
    /// It commits the transaction that it stands in, also where it fails, as DDL does.
    pub(crate) commits: bool,
}

impl Verb {
    /// Reads a text.
    pub(crate) fn read(text: &str) -> Verb {
        let words: Vec<(&str, usize)> = words(text).collect();
        let first = words.first().map_or("", |(word, _)| word);
        let changing = ["INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"];
        let main = if is_one(first, &["WITH"]) {
            let depth = words[0].1;
            let mains = ["SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE"];
            let found = words.iter().skip(1);
            found
                .into_iter()
                .find(|(word, at)| *at == depth && is_one(word, &mains))
                .map_or("SELECT", |(word, _)| *word)
        } else {
            first
        };
        // They may commit midway, or do several things that do not undo each other.
        let never = [
            "CALL", "DO", "COMMIT", "OPTIMIZE", "REPAIR", "ANALYZE", "EXECUTE",
        ];
        let second = words.get(1).map_or("", |(word, _)| word);
        let is_block = is_one(first, &["BEGIN"]) && is_one(second, &["NOT"]);
        let committing = [
            "ALTER",
            "ANALYZE",
            "CACHE",
            "CHANGE",
            "CHECK",
            "CREATE",
            "DROP",
            "FLUSH",
            "GRANT",
            "INSTALL",
            "LOCK",
            "OPTIMIZE",
            "RENAME",
            "REPAIR",
            "RESET",
            "REVOKE",
            "TRUNCATE",
            "UNINSTALL",
            "UNLOCK",
        ];
        let drops_several = is_one(first, &["DROP"]) && has_comma(text);
        Verb {
            counts: is_one(main, &changing),
            is_atomic: !is_one(first, &never) && !drops_several && !is_block,
            commits: is_one(first, &committing),
        }
    }
}

fn is_one(word: &str, wanted: &[&str]) -> bool {
    wanted.iter().any(|w| word.eq_ignore_ascii_case(w))
}

fn has_comma(text: &str) -> bool {
    Lexer::new(Dialect::MySql, text).any(|placed| placed.lexeme == Lexeme::Symbol(','))
}

/// Words with the number of parentheses around them.
fn words(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut depth = 0_usize;
    Lexer::new(Dialect::MySql, text).filter_map(move |placed| {
        match placed.lexeme {
            Lexeme::Symbol('(') => depth += 1,
            Lexeme::Symbol(')') => depth = depth.saturating_sub(1),
            Lexeme::Word(text) => return Some((text, depth)),
            _ => {}
        }
        None
    })
}

/// Every word and quoted name, which may be that of a table; `None`: there are too many.
pub(crate) fn names(text: &str) -> Option<Vec<String>> {
    let mut found: Vec<String> = Lexer::new(Dialect::MySql, text)
        .filter_map(|placed| match placed.lexeme {
            Lexeme::Word(name) => Some(name.to_owned()),
            Lexeme::Quoted(name) => Some(name.trim_matches('`').replace("``", "`")),
            _ => None,
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    (found.len() <= NAMES_MAX).then_some(found)
}

/// Refuses what cannot be sent.
pub(crate) fn admit(text: &str) -> Result<Verb, SqlError> {
    if text.contains('\0') {
        return Err(SqlError::caller(
            Code::BadStatement,
            "the statement contains the character U+0000",
            "remove it; pass values as parameters",
        ));
    }
    Ok(Verb::read(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_statement_tell_what_it_counts() {
        let table = [
            ("SELECT 1", false),
            ("  -- INSERT\n select 1", false),
            ("# INSERT\nselect 1", false),
            ("/* a */ insert into t values (1)", true),
            ("REPLACE INTO t VALUES (1)", true),
            ("WITH a AS (SELECT 1) DELETE FROM t", true),
            ("WITH a AS (SELECT 1) SELECT * FROM a", false),
            ("CREATE TABLE t (a int)", false),
            ("", false),
        ];
        for (text, counts) in table {
            assert_eq!(Verb::read(text).counts, counts, "{text}");
        }
    }

    #[test]
    fn statements_of_several_steps_are_not_atomic() {
        for text in [
            "CALL p()",
            "do sleep(1)",
            "DROP TABLE a, b",
            "OPTIMIZE TABLE t",
            "BEGIN NOT ATOMIC COMMIT; END",
        ] {
            assert!(!Verb::read(text).is_atomic, "{text}");
        }
        for text in [
            "INSERT INTO t VALUES ('CALL')",
            "SELECT `do`",
            "BEGIN",
            "DROP TABLE a",
            "ALTER TABLE t ADD c int",
        ] {
            assert!(Verb::read(text).is_atomic, "{text}");
        }
    }

    #[test]
    fn ddl_commits_by_itself() {
        for text in [
            "create table t (a int)",
            "/* x */ TRUNCATE t",
            "UNLOCK TABLES",
        ] {
            assert!(Verb::read(text).commits, "{text}");
        }
        for text in [
            "COMMIT",
            "CALL p()",
            "INSERT INTO t VALUES ('DROP')",
            "SET a = 1",
        ] {
            assert!(!Verb::read(text).commits, "{text}");
        }
    }

    #[test]
    fn names_are_found_quoted_and_unquoted_and_not_in_strings() {
        let found = names("INSERT INTO `a``b` SELECT c FROM d.e WHERE f = 'g'").unwrap();
        for name in ["a`b", "c", "d", "e", "f"] {
            assert!(found.iter().any(|n| n == name), "{name}: {found:?}");
        }
        assert!(!found.iter().any(|n| n == "g"));
        assert_eq!(names(&"a1 ".repeat(3)).map(|n| n.len()), Some(1));
        let many: String = (0..100).map(|n| format!("n{n} ")).collect();
        assert_eq!(names(&many), None);
    }
}
