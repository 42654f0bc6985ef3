//! Strings, quoted names and dollar quotes.

use super::{Lexeme, Lexer, space};
use crate::dialect::Dialect;

impl<'a> Lexer<'a> {
    /// A literal with a letter before its quote.
    pub(super) fn prefixed_literal(&mut self) -> Option<Lexeme<'a>> {
        let bytes = self.rest().as_bytes();
        let (prefix, escapes) = match (self.dialect, bytes) {
            (Dialect::Postgres, [b'e' | b'E', b'\'', ..]) => (1, true),
            (Dialect::Postgres, [b'u' | b'U', b'&', b'\'', ..]) => (2, false),
            (Dialect::Postgres, [b'b' | b'B' | b'n' | b'N', b'\'', ..])
            | (Dialect::MySql, [b'b' | b'B', b'\'', ..])
            | (_, [b'x' | b'X', b'\'', ..]) => (1, false),
            (Dialect::MySql, [b'n' | b'N', b'\'', ..]) => (1, true),
            _ => return None,
        };
        let mut len = prefix + quoted_len(&bytes[prefix..], b'\'', escapes);
        if escapes && self.dialect == Dialect::Postgres {
            // `E'a'` goes on with `'b'` on another line, with escapes there too.
            while let Some(gap) = continuation_gap(&bytes[len..]) {
                len += gap + quoted_len(&bytes[len + gap..], b'\'', true);
            }
        }
        Some(Lexeme::Literal(self.take(len)))
    }

    pub(super) fn quoted(&mut self, first: char) -> Option<Lexeme<'a>> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        // MySQL's default sql_mode: backslashes escape, double quotes are strings.
        let mysql = self.is_mysql();
        match first {
            '$' if self.dialect == Dialect::Postgres => {
                let len = dollar_len(rest)?;
                Some(Lexeme::Literal(self.take(len)))
            }
            '\'' => {
                let len = quoted_len(bytes, b'\'', mysql);
                Some(Lexeme::Literal(self.take(len)))
            }
            '"' if mysql => {
                let len = quoted_len(bytes, b'"', true);
                Some(Lexeme::Literal(self.take(len)))
            }
            '"' => {
                let len = quoted_len(bytes, b'"', false);
                Some(Lexeme::Quoted(self.take(len)))
            }
            '`' if self.dialect != Dialect::Postgres => {
                let len = quoted_len(bytes, b'`', false);
                Some(Lexeme::Quoted(self.take(len)))
            }
            '[' if self.dialect == Dialect::Sqlite => {
                let len = quoted_len(bytes, b']', false);
                Some(Lexeme::Quoted(self.take(len)))
            }
            _ => None,
        }
    }
}

/// Length of a quoted run whose first byte is the quote, up to and with the closing one.
fn quoted_len(bytes: &[u8], close: u8, backslash: bool) -> usize {
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

/// What stands between the parts of one literal of PostgreSQL: spaces and `--` comments with at least one
/// end of a line, and then a quote.
fn continuation_gap(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut has_line_end) = (0, false);
    loop {
        match bytes.get(at..)? {
            [b'\'', ..] => return has_line_end.then_some(at),
            [b'-', b'-', rest @ ..] => {
                let is_end = |b: &u8| matches!(b, b'\n' | b'\r');
                at += 2 + rest.iter().position(is_end)?;
            }
            [byte, ..] if space::is_ascii_space(*byte) => {
                has_line_end |= matches!(byte, b'\n' | b'\r');
                at += 1;
            }
            _ => return None,
        }
    }
}

/// Length of a dollar-quoted literal at the beginning of `text`, if there is one.
fn dollar_len(text: &str) -> Option<usize> {
    let tag_end = text[1..].find('$')? + 2;
    let tag = &text[..tag_end];
    let name = &tag[1..tag_end - 1];
    let is_name = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || c == '_';
    if name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(is_name) {
        return None;
    }
    let close = text[tag_end..].find(tag);
    Some(close.map_or(text.len(), |at| tag_end + at + tag.len()))
}
