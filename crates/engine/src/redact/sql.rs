//! Statements without their literals, by scanning: no parser, so that broken and foreign statements are
//! treated as safely as good ones.

use std::borrow::Cow;

/// How a dialect quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quoting {
    /// `"name"` is an identifier: PostgreSQL, SQLite, the standard.
    #[default]
    Ansi,
    /// `"text"` is a string and `#` begins a comment: MySQL, MariaDB.
    MySql,
}

/// The statement with every literal (strings in all their forms, numbers, hexadecimal) replaced by `?`
/// and every comment by a blank; quoted identifiers stay. A quote that is never closed takes all that
/// follows with it, and so does one whose end the dialects see in different places. Borrowed if there
/// is nothing to replace. Takes any text.
pub fn redact_sql(text: &str) -> Cow<'_, str> {
    redact_sql_in(text, Quoting::Ansi)
}

/// [`redact_sql`] for a dialect.
pub fn redact_sql_in(text: &str, quoting: Quoting) -> Cow<'_, str> {
    let mut scan = Scan {
        text,
        bytes: text.as_bytes(),
        at: 0,
        copied: 0,
        redacted: String::new(),
        quoting,
    };
    while scan.at < scan.bytes.len() {
        scan.step();
    }
    scan.finish()
}

/// Every place at which it stops or cuts is an ASCII byte, so that it never splits a character.
struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Everything before is in `redacted`.
    copied: usize,
    redacted: String,
    quoting: Quoting,
}

fn begins_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii()
}

fn continues_name(byte: u8) -> bool {
    begins_name(byte) || byte.is_ascii_digit() || byte == b'$'
}

impl<'a> Scan<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        // A NUL stands for the end; in a text it is just another byte that begins nothing.
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn step(&mut self) {
        let start = self.at;
        match (self.peek(0), self.peek(1)) {
            (b'\'', _) => self.string(start, false),
            (b'"', _) if self.quoting == Quoting::MySql => self.string(start, false),
            (quote @ (b'"' | b'`'), _) => self.identifier(quote),
            (b'$', _) => self.dollar(),
            (b'[', _) => self.bracket(),
            (b'-', b'-') if self.begins_comment() => self.line_comment(),
            (b'#', _) if self.quoting == Quoting::MySql => self.line_comment(),
            (b'/', b'*') => self.block_comment(),
            (b'?' | b':' | b'@', next) if next.is_ascii_digit() => self.placeholder(),
            (b'0'..=b'9', _) => self.number(),
            (b'.', b'0'..=b'9') => self.number(),
            (byte, _) if begins_name(byte) => self.word(),
            _ => self.at += 1,
        }
    }

    /// Replaces what lies between `start` and here.
    fn replace(&mut self, start: usize, by: &str) {
        self.redacted.push_str(&self.text[self.copied..start]);
        self.redacted.push_str(by);
        self.copied = self.at;
    }

    /// Replaces everything from `start` on.
    fn replace_rest(&mut self, start: usize) {
        self.at = self.bytes.len();
        self.replace(start, "?");
    }

    /// A string whose quote is here; `start` is its prefix. Where a backslash stands before a quote
    /// and the string is not known to have escapes, dialects disagree on its end.
    fn string(&mut self, start: usize, escapes: bool) {
        let quote = self.peek(0);
        self.at += 1;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'\\', _) if escapes => self.at += 2,
                (b'\\', next) if next == quote => break,
                (b'\\', b'\\') => self.at += 2,
                (byte, next) if byte == quote && next == quote => self.at += 2,
                (byte, _) if byte == quote => {
                    self.at += 1;
                    return self.replace(start, "?");
                }
                _ => self.at += 1,
            }
        }
        self.replace_rest(start);
    }

    fn identifier(&mut self, quote: u8) {
        let start = self.at;
        self.at += 1;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (byte, next) if byte == quote && next == quote => self.at += 2,
                (byte, _) if byte == quote => {
                    self.at += 1;
                    return;
                }
                _ => self.at += 1,
            }
        }
        self.replace_rest(start);
    }

    /// `$1` stays, `$tag$…$tag$` is a string.
    fn dollar(&mut self) {
        let start = self.at;
        if self.peek(1).is_ascii_digit() {
            return self.placeholder();
        }
        let mut end = self.at + 1;
        while self
            .bytes
            .get(end)
            .is_some_and(|b| continues_name(*b) && *b != b'$')
        {
            end += 1;
        }
        if self.bytes.get(end) != Some(&b'$') {
            self.at += 1;
            return;
        }
        let tag = &self.text[start..=end];
        let body = end + 1;
        match self.text[body..].find(tag) {
            Some(length) => {
                self.at = body + length + tag.len();
                self.replace(start, "?");
            }
            None => self.replace_rest(start),
        }
    }

    /// SQLite and SQL Server quote names in brackets, PostgreSQL begins an array with one. What could
    /// be read in two ways ends the reading.
    fn bracket(&mut self) {
        let start = self.at;
        self.at += 1;
        let Some(length) = self.text[self.at..].find(']') else {
            return;
        };
        let inside = &self.text[self.at..self.at + length];
        let odd = |quote: char| inside.matches(quote).count() % 2 == 1;
        let comment = ["--", "/*", "#"].iter().any(|mark| inside.contains(mark));
        if comment || inside.contains("$") || ['\'', '"', '`'].into_iter().any(odd) {
            self.replace_rest(start);
        }
    }

    /// MySQL wants a blank after the dashes: `1--1` is 2 there.
    fn begins_comment(&self) -> bool {
        let after = self.bytes.get(self.at + 2);
        self.quoting == Quoting::Ansi || after.is_none_or(|byte| *byte <= b' ')
    }

    fn placeholder(&mut self) {
        self.at += 1;
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn line_comment(&mut self) {
        let start = self.at;
        while self.at < self.bytes.len() && !matches!(self.peek(0), b'\n' | b'\r') {
            self.at += 1;
        }
        self.replace(start, " ");
    }

    /// PostgreSQL nests comments and others do not: if one is opened within another, they disagree on
    /// the end, and all that follows goes.
    fn block_comment(&mut self) {
        let start = self.at;
        let rest = &self.text[start + 2..];
        let Some(length) = rest.find("*/").filter(|end| !rest[..*end].contains("/*")) else {
            return self.replace_rest(start);
        };
        self.at = start + 2 + length + 2;
        self.replace(start, " ");
    }

    fn number(&mut self) {
        let start = self.at;
        let is_hexadecimal = self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'X');
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'e' | b'E', b'+' | b'-') if !is_hexadecimal => self.at += 2,
                (b'$', _) => break,
                (byte, _) if continues_name(byte) || byte == b'.' => self.at += 1,
                _ => break,
            }
        }
        self.replace(start, "?");
    }

    /// A name or keyword, or the prefix of a string.
    fn word(&mut self) {
        let start = self.at;
        while self.at < self.bytes.len() && continues_name(self.peek(0)) {
            self.at += 1;
        }
        let word = &self.bytes[start..self.at];
        if word.eq_ignore_ascii_case(b"u") && self.peek(0) == b'&' && self.peek(1) == b'\'' {
            self.at += 1;
            return self.string(start, false);
        }
        if self.peek(0) != b'\'' {
            return;
        }
        let is = |prefix: &[u8]| word.eq_ignore_ascii_case(prefix);
        if is(b"e") {
            self.string(start, true);
        } else if is(b"n") || is(b"x") || is(b"b") {
            self.string(start, false);
        }
    }

    fn finish(mut self) -> Cow<'a, str> {
        if self.redacted.is_empty() && self.copied == 0 {
            return Cow::Borrowed(self.text);
        }
        self.redacted.push_str(&self.text[self.copied..]);
        Cow::Owned(self.redacted)
    }
}
