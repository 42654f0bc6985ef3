//! What a statement's text tells about its effect, by its words alone. The text has been parsed by nobody
//! yet; comments, strings and quoted names are skipped as the server skips them.

/// What the words say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verb {
    /// Its command tag counts changed rows.
    pub(crate) counts: bool,
    /// An ERROR answer proves that nothing took effect.
    pub(crate) is_atomic: bool,
    /// It makes a statement of the session's own (`PREPARE`).
    pub(crate) prepares: bool,
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
        let words = words(text);
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
            is_atomic: is_atomic(first, second) && !has("CONCURRENTLY"),
            prepares: is(first, "PREPARE"),
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
        "CALL",
        "DO",
        "COMMIT",
        "END",
        "VACUUM",
        "CLUSTER",
        "REINDEX",
        "CHECKPOINT",
    ];
    let outside = ["DATABASE", "TABLESPACE", "SYSTEM", "SUBSCRIPTION"];
    !is_one(first, &never)
        && !(is_one(first, &["CREATE", "DROP", "ALTER"]) && is_one(second, &outside))
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

/// Words with the depth of parentheses around them.
fn words(text: &str) -> Vec<Word<'_>> {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut found) = (0, 0_usize, Vec::new());
    while at < bytes.len() {
        match bytes[at] {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b'\'' => {
                let escapes = at > 0 && matches!(bytes[at - 1], b'e' | b'E');
                at = quoted_end(bytes, at, b'\'', escapes);
                continue;
            }
            b'"' => {
                at = quoted_end(bytes, at, b'"', false);
                continue;
            }
            b'$' => {
                at = dollar_end(text, at);
                continue;
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                at = text[at..].find('\n').map_or(bytes.len(), |n| at + n);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = comment_end(bytes, at);
                continue;
            }
            first if is_word_start(first) => {
                let end = word_end(bytes, at);
                found.push(Word {
                    text: &text[at..end],
                    depth,
                });
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn word_end(bytes: &[u8], start: usize) -> usize {
    let continues = |b: &u8| is_word_start(*b) || b.is_ascii_digit() || *b == b'$';
    start + bytes[start..].iter().take_while(|b| continues(b)).count()
}

/// The place behind the closing quote; a doubled quote (or an escaped one) belongs to the inside.
fn quoted_end(bytes: &[u8], start: usize, quote: u8, escapes: bool) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            b if b == quote && bytes.get(at + 1) == Some(&quote) => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The place behind a dollar-quoted text, or behind a single `$`.
fn dollar_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let tag_end = start
        + 1
        + bytes[start + 1..]
            .iter()
            .take_while(|b| is_word_start(**b) || b.is_ascii_digit())
            .count();
    let is_tag = bytes.get(tag_end) == Some(&b'$') && !bytes[start + 1].is_ascii_digit();
    if !is_tag {
        return start + 1;
    }
    let tag = &text[start..=tag_end];
    let inside = tag_end + 1;
    text[inside..]
        .find(tag)
        .map_or(bytes.len(), |n| inside + n + tag.len())
}

/// The place behind a block comment, which may hold others.
fn comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'*')) => (at, depth) = (at + 2, depth + 1),
            (b'*', Some(b'/')) => {
                (at, depth) = (at + 2, depth - 1);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
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
        ];
        for text in not {
            assert!(!Verb::read(text).is_atomic, "{text}");
        }
        for text in [
            "INSERT INTO t VALUES ('CONCURRENTLY')",
            "CREATE TABLE t (a int)",
            "SELECT \"concurrently\"",
        ] {
            assert!(Verb::read(text).is_atomic, "{text}");
        }
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
