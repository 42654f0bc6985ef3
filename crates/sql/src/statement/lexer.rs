//! Cuts SQL text into lexemes without understanding it: strings, quoted names, dollar quotes and comments
//! are never mistaken for anything else. It accepts every text.

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
}

impl<'a> Lexer<'a> {
    /// From the beginning of a text.
    pub fn new(dialect: Dialect, text: &'a str) -> Self {
        Lexer {
            text,
            at: 0,
            dialect,
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space_and_comments(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("--") || (self.is_mysql() && trimmed.starts_with('#')) {
                self.at += trimmed.find('\n').map_or(trimmed.len(), |end| end + 1);
            } else if trimmed.starts_with("/*") && !self.is_executable_comment(trimmed) {
                self.at += self.comment_len(trimmed);
            } else {
                return;
            }
        }
    }

    fn is_mysql(&self) -> bool {
        self.dialect == Dialect::MySql
    }

    /// MySQL runs what stands in `/*! … */`.
    fn is_executable_comment(&self, text: &str) -> bool {
        self.is_mysql() && (text.starts_with("/*!") || text.starts_with("/*M!"))
    }

    fn comment_len(&self, text: &str) -> usize {
        let nests = self.dialect == Dialect::Postgres;
        let bytes = text.as_bytes();
        let (mut depth, mut at) = (1usize, 2usize);
        while at < bytes.len() {
            match (bytes[at], bytes.get(at + 1)) {
                (b'*', Some(b'/')) => {
                    depth -= 1;
                    at += 2;
                    if depth == 0 {
                        return at;
                    }
                }
                (b'/', Some(b'*')) if nests => {
                    depth += 1;
                    at += 2;
                }
                _ => at += 1,
            }
        }
        bytes.len()
    }

    /// Length of a quoted run whose first byte is the quote, up to and with the closing one.
    fn quoted_len(text: &str, close: u8, backslash: bool) -> usize {
        let bytes = text.as_bytes();
        let mut at = 1;
        while at < bytes.len() {
            if bytes[at] == b'\\' && backslash {
                at += 2;
            } else if bytes[at] == close {
                if bytes.get(at + 1) == Some(&close) && close != b']' {
                    at += 2;
                } else {
                    return at + 1;
                }
            } else {
                at += 1;
            }
        }
        bytes.len()
    }

    /// Length of a dollar-quoted literal at the beginning of `text`, if there is one.
    fn dollar_len(text: &str) -> Option<usize> {
        let tag_end = text[1..].find('$')? + 2;
        let tag = &text[..tag_end];
        let name = &tag[1..tag_end - 1];
        let starts_well = name
            .chars()
            .next()
            .is_none_or(|c| c.is_alphabetic() || c == '_');
        if !starts_well || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return None;
        }
        let close = text[tag_end..].find(tag);
        Some(close.map_or(text.len(), |at| tag_end + at + tag.len()))
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

    fn word_len(rest: &str) -> usize {
        rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
            .unwrap_or(rest.len())
    }

    /// A literal with a letter before its quote: `E'…'`, `x'…'`, `N'…'`, `U&'…'`.
    fn prefixed_literal(&mut self) -> Option<Lexeme<'a>> {
        let bytes = self.rest().as_bytes();
        let prefix = match bytes {
            [
                b'e' | b'E' | b'x' | b'X' | b'b' | b'B' | b'n' | b'N',
                b'\'',
                ..,
            ] => 1,
            [b'u' | b'U', b'&', b'\'', ..] => 2,
            _ => return None,
        };
        let escapes = self.is_mysql()
            || (matches!(bytes[0], b'e' | b'E') && self.dialect == Dialect::Postgres);
        let len = prefix + Self::quoted_len(&self.rest()[prefix..], b'\'', escapes);
        Some(Lexeme::Literal(self.take(len)))
    }

    fn quoted(&mut self, first: char) -> Option<Lexeme<'a>> {
        let rest = self.rest();
        let mysql = self.is_mysql();
        match first {
            '\'' => {
                let len = Self::quoted_len(rest, b'\'', mysql);
                Some(Lexeme::Literal(self.take(len)))
            }
            '"' if mysql => {
                let len = Self::quoted_len(rest, b'"', true);
                Some(Lexeme::Literal(self.take(len)))
            }
            '"' => {
                let len = Self::quoted_len(rest, b'"', false);
                Some(Lexeme::Quoted(self.take(len)))
            }
            '`' if self.dialect != Dialect::Postgres => {
                let len = Self::quoted_len(rest, b'`', false);
                Some(Lexeme::Quoted(self.take(len)))
            }
            '[' if self.dialect == Dialect::Sqlite => {
                let len = Self::quoted_len(rest, b']', false);
                Some(Lexeme::Quoted(self.take(len)))
            }
            _ => None,
        }
    }

    fn placeholder(&mut self, first: char) -> Option<Lexeme<'a>> {
        let rest = self.rest();
        match first {
            '$' if self.dialect == Dialect::Postgres => {
                if let Some(len) = Self::dollar_len(rest) {
                    return Some(Lexeme::Literal(self.take(len)));
                }
                let len = 1 + Self::word_len(&rest[1..]);
                Some(Lexeme::Placeholder(self.take(len)))
            }
            '?' if self.dialect != Dialect::Postgres => {
                let len = 1 + Self::word_len(&rest[1..]);
                Some(Lexeme::Placeholder(self.take(len)))
            }
            ':' | '@' | '$' if self.dialect == Dialect::Sqlite => {
                let len = 1 + Self::word_len(&rest[1..]);
                Some(Lexeme::Placeholder(self.take(len)))
            }
            _ => None,
        }
    }

    fn lexeme(&mut self) -> Option<Lexeme<'a>> {
        let first = self.rest().chars().next()?;
        if let Some(found) = self
            .prefixed_literal()
            .or_else(|| self.quoted(first))
            .or_else(|| self.placeholder(first))
        {
            return Some(found);
        }
        if first.is_ascii_digit() {
            let rest = self.rest();
            let len = rest
                .find(|c: char| !(c.is_alphanumeric() || c == '.' || c == '_'))
                .unwrap_or(rest.len());
            return Some(Lexeme::Number(self.take(len)));
        }
        if first.is_alphabetic() || first == '_' {
            let len = Self::word_len(self.rest());
            return Some(Lexeme::Word(self.take(len)));
        }
        self.take(first.len_utf8());
        Some(Lexeme::Symbol(first))
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
