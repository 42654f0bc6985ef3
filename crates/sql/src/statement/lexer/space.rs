//! What separates lexemes: spaces and comments.

use super::Lexer;
use crate::dialect::Dialect;

/// The six that all databases know.
pub(super) fn is_ascii_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Digits of a version behind `/*!`.
const VERSION_DIGITS: std::ops::RangeInclusive<usize> = 5..=6;

impl Lexer<'_> {
    pub(super) fn skip_space_and_comments(&mut self) {
        loop {
            let len = self.space_len() + self.line_comment_len(self.space_len());
            if len == 0 && !self.skip_block() {
                return;
            }
            self.at += len;
        }
    }

    /// Beyond ASCII only SQLite knows a space, the mark of byte order.
    fn space_len(&self) -> usize {
        let is_sqlite = self.dialect == Dialect::Sqlite;
        let is_space = |c: char| match u8::try_from(c) {
            Ok(byte) => is_ascii_space(byte),
            Err(_) => is_sqlite && c == '\u{feff}',
        };
        super::run_len(self.rest(), is_space)
    }

    /// Length of the comment that begins `ahead` and goes to the end of its line; 0: there is none.
    fn line_comment_len(&self, ahead: usize) -> usize {
        let bytes = &self.rest().as_bytes()[ahead..];
        let begins = match (self.dialect, bytes) {
            (Dialect::MySql, [b'#', ..]) => true,
            // `5--1` is a sum there.
            (Dialect::MySql, [b'-', b'-', rest @ ..]) => rest
                .first()
                .is_none_or(|b| *b == b' ' || b.is_ascii_control()),
            (Dialect::Postgres | Dialect::Sqlite, [b'-', b'-', ..]) => true,
            _ => false,
        };
        let is_postgres = self.dialect == Dialect::Postgres;
        let ends = |b: &u8| *b == b'\n' || (is_postgres && *b == b'\r');
        match begins {
            true => bytes.iter().position(ends).unwrap_or(bytes.len()),
            false => 0,
        }
    }

    /// Skips a comment in `/* … */`, or the beginning or end of one that MySQL executes.
    fn skip_block(&mut self) -> bool {
        let rest = self.rest();
        if self.is_executing && rest.starts_with("*/") {
            self.is_executing = false;
            self.at += 2;
            return true;
        }
        if !rest.starts_with("/*") {
            return false;
        }
        self.at += match self.executable_mark(rest) {
            Some(mark) if self.executes => {
                self.is_executing = true;
                mark
            }
            Some(_) => block_len(rest.as_bytes(), 2),
            None if self.dialect == Dialect::Postgres => block_len(rest.as_bytes(), usize::MAX),
            None => block_len(rest.as_bytes(), 1),
        };
        true
    }

    /// Length of what begins a comment that MySQL or MariaDB executes, with its version.
    fn executable_mark(&self, text: &str) -> Option<usize> {
        if !self.is_mysql() {
            return None;
        }
        let mark = ["/*!", "/*M!"].into_iter().find(|m| text.starts_with(m))?;
        let digits = super::digits_len(&text.as_bytes()[mark.len()..]).min(*VERSION_DIGITS.end());
        let version = match VERSION_DIGITS.contains(&digits) {
            true => digits,
            false => 0,
        };
        Some(mark.len() + version)
    }
}

/// Length of a comment with at most so many within each other.
fn block_len(bytes: &[u8], depth_max: usize) -> usize {
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
            (b'/', Some(b'*')) if depth < depth_max => {
                depth += 1;
                at += 2;
            }
            _ => at += 1,
        }
    }
    bytes.len()
}
