//! What a statement's text tells about its effect, by its words alone. The text has been parsed by nobody
//! yet.

use mainstay_sql::Dialect;
use mainstay_sql::statement::lexer::{Lexeme, Lexer};

/// What the words say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verb {
    /// Its command tag counts changed rows.
    pub(crate) counts: bool,
    /// An ERROR answer proves that nothing took effect.
    pub(crate) is_atomic: bool,
    /// It makes a statement of the session's own (`PREPARE`).
    pub(crate) prepares: bool,
    /// The highest number of a placeholder.
    pub(crate) placeholders: usize,
    /// Why it cannot run here.
    pub(crate) refusal: Option<Refusal>,
}

/// Statements that a shared session with prepared statements cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// `COPY … FROM STDIN`, `COPY … TO STDOUT`: bytes beside the rows.
    CopyStream,
    /// `DEALLOCATE`, `DISCARD`: would take away what the driver prepared.
    Discard,
}

impl Verb {
    /// Reads a text.
    pub(crate) fn read(text: &str) -> Verb {
        let (words, placeholders) = words(text);
        let first = words.first().map_or("", |w| w.text);
        let main = if is(first, "WITH") {
            let changes_or_reads = [
                "SELECT", "VALUES", "TABLE", "INSERT", "UPDATE", "DELETE", "MERGE",
            ];
            let found = words
                .iter()
                .skip(1)
                .find(|w| w.depth == words[0].depth && is_one(w.text, &changes_or_reads));
            found.map_or("SELECT", |w| w.text)
        } else {
            first
        };
        let has = |word: &str| words.iter().any(|w| is(w.text, word));
        let second = words.get(1).map_or("", |w| w.text);
        Verb {
            counts: is_one(main, &["INSERT", "UPDATE", "DELETE", "MERGE", "COPY"]),
            is_atomic: is_atomic(first, second)
                && !has("CONCURRENTLY")
                && !(is(first, "COPY") && copies_out(&words)),
            prepares: is(first, "PREPARE"),
            placeholders,
            refusal: match () {
                () if is(first, "COPY") && (has("STDIN") || has("STDOUT")) => {
                    Some(Refusal::CopyStream)
                }
                () if is_one(first, &["DEALLOCATE", "DISCARD"]) => Some(Refusal::Discard),
                () => None,
            },
        }
    }
}

/// Whether the server undoes all of it on an error. Procedures and blocks may commit midway; the others
/// work outside of transactions.
fn is_atomic(first: &str, second: &str) -> bool {
    let never = [
        "CALL", "DO", "COMMIT", "END", "VACUUM", "CLUSTER", "REINDEX",
    ];
    let outside = ["DATABASE", "TABLESPACE", "SYSTEM", "SUBSCRIPTION"];
    let is_outside = is_one(first, &["CREATE", "DROP", "ALTER"]) && is_one(second, &outside);
    !(is_one(first, &never) || is_outside)
}

/// `COPY … TO` and `COPY … PROGRAM` leave something outside of the database, which no error undoes.
fn copies_out(words: &[Word<'_>]) -> bool {
    words
        .iter()
        .any(|word| word.depth == 0 && is_one(word.text, &["TO", "PROGRAM"]))
}

fn is(word: &str, wanted: &str) -> bool {
    word.eq_ignore_ascii_case(wanted)
}

fn is_one(word: &str, wanted: &[&str]) -> bool {
    wanted.iter().any(|w| is(word, w))
}

struct Word<'a> {
    text: &'a str,
    depth: usize,
}

/// Words with the number of parentheses around them, and the highest number of a placeholder.
fn words(text: &str) -> (Vec<Word<'_>>, usize) {
    let (mut depth, mut placeholders) = (0_usize, 0);
    let mut found = Vec::new();
    for placed in Lexer::new(Dialect::Postgres, text) {
        match placed.lexeme {
            Lexeme::Symbol('(') => depth += 1,
            Lexeme::Symbol(')') => depth = depth.saturating_sub(1),
            Lexeme::Word(text) => found.push(Word { text, depth }),
            Lexeme::Placeholder(name) => {
                // A number that no integer holds is the server's to refuse.
                let number = name.trim_start_matches('$').parse().unwrap_or(0);
                placeholders = placeholders.max(number);
            }
            _ => {}
        }
    }
    (found, placeholders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_statement_tell_what_it_counts() {
        let table = [
            ("SELECT 1", false),
            ("  -- INSERT\n select 1", false),
            ("/* a /* b */ c */ insert into t values (1)", true),
            (
                "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a",
                false,
            ),
            ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", true),
            (
                "with a as (select ')' || $$ ( $$ || $x$ ) $x$) update t set a = 1",
                true,
            ),
            ("(SELECT 1) UNION SELECT 2", false),
            ("SELECT E'\\' INSERT ' ", false),
            ("CREATE TABLE t (a int)", false),
            ("", false),
            ("$", false),
            ("$1", false),
        ];
        for (text, counts) in table {
            assert_eq!(Verb::read(text).counts, counts, "{text}");
        }
    }

    #[test]
    fn only_statements_that_an_error_undoes_whole_are_atomic() {
        let not = [
            "CALL p()",
            "do $$ begin commit; end $$",
            "VACUUM t",
            "commit",
            "REINDEX TABLE t",
            "CREATE INDEX CONCURRENTLY i ON t (a)",
            "create database d",
            "ALTER SYSTEM SET a = 1",
            "COPY t TO '/tmp/t'",
            "COPY (SELECT 1) TO PROGRAM 'cat'",
            "copy t from program 'true'",
        ];
        for text in not {
            assert!(!Verb::read(text).is_atomic, "{text}");
        }
        for text in [
            "INSERT INTO t VALUES ('CONCURRENTLY')",
            "CREATE TABLE t (a int)",
            "SELECT \"concurrently\"",
            "COPY t (\"to\", a) FROM '/tmp/to' WITH (FORMAT csv)",
            "EXECUTE mine(1)",
            "FETCH 1 FROM c",
            "MOVE 1 IN c",
            "LOCK TABLE t",
            "CHECKPOINT",
            "LOAD 'nothing'",
        ] {
            assert!(Verb::read(text).is_atomic, "{text}");
        }
    }

    #[test]
    fn the_highest_placeholder_is_found_outside_of_strings() {
        let text = "SELECT $2, $70000::int, '$80000', \"$90000\" -- $90001";
        assert_eq!(Verb::read(text).placeholders, 70_000);
        assert_eq!(Verb::read("SELECT 1").placeholders, 0);
    }

    #[test]
    fn what_a_shared_session_cannot_run_is_refused() {
        assert_eq!(
            Verb::read("copy t from stdin").refusal,
            Some(Refusal::CopyStream)
        );
        assert_eq!(
            Verb::read("COPY (SELECT 1) TO STDOUT").refusal,
            Some(Refusal::CopyStream)
        );
        assert_eq!(Verb::read("COPY t FROM '/tmp/stdin'").refusal, None);
        assert_eq!(Verb::read("discard all").refusal, Some(Refusal::Discard));
    }
}
