//! Cuts SQL text into lexemes without understanding it, by the rules of the database that will read it:
//! strings, quoted names, dollar quotes and comments are never mistaken for anything else. It accepts every
//! text.

mod quotes;
mod space;
#[cfg(test)]
mod tests;

use crate::dialect::Dialect;

/// One piece of a text that is not space or comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lexeme<'a> {
    /// A word that is not quoted: keyword or name.
    Word(&'a str),
    /// A quoted name, with its quotes.
    Quoted(&'a str),
    /// A string, dollar-quoted or binary literal, with its quotes.
    Literal(&'a str),
    /// A number.
    Number(&'a str),
    /// A placeholder with its number or name.
    Placeholder(&'a str),
    /// Any other character.
    Symbol(char),
}

impl Lexeme<'_> {
    /// Whether it is this keyword, in any case.
    pub fn is(&self, keyword: &str) -> bool {
        matches!(self, Lexeme::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

/// A lexeme with the place where it begins and ends, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'a> {
    /// What it is.
    pub lexeme: Lexeme<'a>,
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

/// Walks over a text.
pub struct Lexer<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
    /// Whether what stands in MySQL's `/*! … */` is read.
    executes: bool,
    is_executing: bool,
}

impl<'a> Lexer<'a> {
    /// From the beginning of a text. What stands in MySQL's executable comments (`/*! … */`) is read like the
    /// rest.
    pub fn new(dialect: Dialect, text: &'a str) -> Self {
        Lexer {
            text,
            at: 0,
            dialect,
            executes: true,
            is_executing: false,
        }
    }

    /// The text as a server reads it that takes MySQL's executable comments for comments, because its version
    /// is another one.
    pub fn without_executable(dialect: Dialect, text: &'a str) -> Self {
        Lexer {
            executes: false,
            ..Lexer::new(dialect, text)
        }
    }

    /// The whole text.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Whether there is something in the text that some servers run and others take for a comment.
    pub fn may_execute(&self) -> bool {
        self.is_mysql() && (self.text.contains("/*!") || self.text.contains("/*M!"))
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn is_mysql(&self) -> bool {
        self.dialect == Dialect::MySql
    }

    fn take(&mut self, len: usize) -> &'a str {
        // A length may end inside a character only if an escape stood before it: go on to its end.
        let mut end = (self.at + len).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        let piece = &self.text[self.at..end];
        self.at = end;
        piece
    }

    fn lexeme(&mut self) -> Option<Lexeme<'a>> {
        let rest = self.rest();
        let first = rest.chars().next()?;
        if let Some(found) = self
            .prefixed_literal()
            .or_else(|| self.quoted(first))
            .or_else(|| self.placeholder(first))
        {
            return Some(found);
        }
        if first.is_ascii_digit() {
            let len = match self.dialect {
                Dialect::Postgres => decimal_len(rest.as_bytes()),
                // A name may begin with digits (MySQL), or the whole is refused (SQLite).
                Dialect::Sqlite | Dialect::MySql => run_len(rest, |c| c == '.' || is_part(c)),
            };
            return Some(Lexeme::Number(self.take(len)));
        }
        if is_part(first) && (first != '$' || self.is_mysql()) {
            return Some(Lexeme::Word(self.take(run_len(rest, is_part))));
        }
        self.take(first.len_utf8());
        Some(Lexeme::Symbol(first))
    }

    fn placeholder(&mut self, first: char) -> Option<Lexeme<'a>> {
        let rest = self.rest();
        let len = match (self.dialect, first) {
            (Dialect::Postgres, '$') => match digits_len(&rest.as_bytes()[1..]) {
                0 => return None,
                digits => 1 + digits,
            },
            (Dialect::MySql, '?') => 1,
            (Dialect::Sqlite, '?') => 1 + digits_len(&rest.as_bytes()[1..]),
            (Dialect::Sqlite, ':' | '@' | '$' | '#') => variable_len(rest)?,
            _ => return None,
        };
        Some(Lexeme::Placeholder(self.take(len)))
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Placed<'a>;

    fn next(&mut self) -> Option<Placed<'a>> {
        self.skip_space_and_comments();
        let start = self.at;
        let lexeme = self.lexeme()?;
        Some(Placed {
            lexeme,
            start,
            end: self.at,
        })
    }
}

/// Whether a character may stand in a word. Beyond ASCII everything may, also what looks like a space.
fn is_part(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_alphanumeric() || c == '_' || c == '$'
}

fn run_len(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

fn digits_len(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_digit()).count()
}

/// PostgreSQL: digits, a fraction, an exponent. What follows is a lexeme of its own, even a literal with a
/// letter before its quote.
fn decimal_len(bytes: &[u8]) -> usize {
    let mut len = digits_len(bytes);
    if bytes.get(len) == Some(&b'.') && bytes.get(len + 1) != Some(&b'.') {
        len += 1;
        len += digits_len(&bytes[len..]);
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let digits = digits_len(bytes.get(len + 1 + signed..).unwrap_or_default());
        if digits > 0 {
            len += 1 + signed + digits;
        }
    }
    len
}

/// SQLite: `:name`, `@name`, `$name`, with `::` in the name and, as Tcl writes it, `(…)` without spaces behind.
fn variable_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut is_named) = (1, false);
    loop {
        match bytes.get(at) {
            Some(b'(') if is_named => {
                let inside = &bytes[at + 1..];
                let len = inside
                    .iter()
                    .take_while(|b| **b != b')' && !space::is_ascii_space(**b))
                    .count();
                let closes = inside.get(len) == Some(&b')');
                return Some(at + 1 + len + usize::from(closes));
            }
            Some(b':') if bytes.get(at + 1) == Some(&b':') => at += 2,
            Some(byte) if is_part(char::from(*byte)) => {
                is_named = true;
                at += 1;
            }
            _ => return is_named.then_some(at),
        }
    }
}
