//! Splits a script into its statements.

use std::sync::Arc;

use super::lexer::{Lexeme, Lexer, Placed};
use crate::dialect::Dialect;

/// Splits a text into its statements at the semicolons that end them: not those in strings, quoted names,
/// comments, dollar quotes, parentheses, trigger bodies or `BEGIN ATOMIC` bodies. Empty statements are
/// left out. Accepts every text.
pub fn split_script(dialect: Dialect, text: &str) -> Vec<Arc<str>> {
    pieces(Lexer::new(dialect, text))
        .iter()
        .map(|piece| Arc::from(&text[piece.start..piece.end]))
        .collect()
}

/// Whether a text can stand as one type or expression in the middle of a statement: it has something in it,
/// its quotes and parentheses are closed, and it has no semicolon and no comment.
pub(crate) fn is_one_expression(dialect: Dialect, text: &str) -> bool {
    let (mut depth, mut covered, mut count) = (0usize, 0usize, 0usize);
    for Placed { lexeme, start, end } in Lexer::new(dialect, text) {
        // Only spaces between two pieces: a comment would swallow what follows.
        if !text[covered..start].trim().is_empty() {
            return false;
        }
        covered = end;
        count += 1;
        match lexeme {
            Lexeme::Symbol(';') => return false,
            Lexeme::Symbol('(' | '[') => depth += 1,
            Lexeme::Symbol(')' | ']') if depth == 0 => return false,
            Lexeme::Symbol(')' | ']') => depth -= 1,
            Lexeme::Literal(piece) | Lexeme::Quoted(piece) if !is_closed(piece) => return false,
            _ => {}
        }
    }
    count > 0 && depth == 0 && text[covered..].trim().is_empty()
}

fn is_closed(piece: &str) -> bool {
    let close = match piece.chars().next() {
        Some('[') => ']',
        Some(quote @ ('"' | '`' | '$')) => quote,
        _ => '\'',
    };
    // A closing quote that is the opening one, or half of a doubled one, closes nothing.
    let quotes = piece.chars().filter(|c| *c == close).count();
    piece.len() > 1 && piece.ends_with(close) && (close == ']' || quotes.is_multiple_of(2))
}

/// One statement of a text.
pub(crate) struct Piece<'a> {
    /// Where it begins and ends, without its semicolon.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// What it consists of.
    pub(crate) lexemes: Vec<Lexeme<'a>>,
}

/// Follows the blocks of one statement, so that a semicolon inside them ends nothing.
#[derive(Default)]
struct Nesting {
    parentheses: usize,
    /// `BEGIN` and `CASE` that wait for their `END`.
    blocks: usize,
    has_body: bool,
}

impl Nesting {
    fn follow(&mut self, before: &[Lexeme<'_>], lexeme: Lexeme<'_>) {
        match lexeme {
            Lexeme::Symbol('(') => self.parentheses += 1,
            Lexeme::Symbol(')') => self.parentheses = self.parentheses.saturating_sub(1),
            Lexeme::Word(_) if before.len() < 8 && creates(before) && is_routine(lexeme) => {
                self.has_body = true;
            }
            Lexeme::Word(_) if self.has_body => self.follow_block(lexeme),
            _ => {}
        }
    }

    fn follow_block(&mut self, lexeme: Lexeme<'_>) {
        if lexeme.is("begin") || (self.blocks > 0 && lexeme.is("case")) {
            self.blocks += 1;
        } else if lexeme.is("end") {
            self.blocks = self.blocks.saturating_sub(1);
        }
    }

    fn is_closed(&self) -> bool {
        self.parentheses == 0 && self.blocks == 0
    }
}

fn creates(before: &[Lexeme<'_>]) -> bool {
    before.first().is_some_and(|first| first.is("create"))
}

fn is_routine(lexeme: Lexeme<'_>) -> bool {
    ["trigger", "function", "procedure", "event"]
        .iter()
        .any(|keyword| lexeme.is(keyword))
}

/// The statements that a reader of a text finds.
pub(crate) fn pieces(lexer: Lexer<'_>) -> Vec<Piece<'_>> {
    let mut split = Split {
        text: lexer.text(),
        keeps_comments: lexer.may_execute(),
        found: Vec::new(),
        lexemes: Vec::new(),
        range: 0..0,
    };
    let mut nesting = Nesting::default();
    let mut begins_at = 0;
    for Placed { lexeme, start, end } in lexer {
        if lexeme == Lexeme::Symbol(';') && nesting.is_closed() {
            split.finish(begins_at..start);
            nesting = Nesting::default();
            begins_at = end;
            continue;
        }
        nesting.follow(&split.lexemes, lexeme);
        if split.lexemes.is_empty() {
            split.range.start = start;
        }
        split.range.end = end;
        split.lexemes.push(lexeme);
    }
    split.finish(begins_at..split.text.len());
    split.found
}

struct Split<'a> {
    text: &'a str,
    /// A comment around a statement may belong to it.
    keeps_comments: bool,
    found: Vec<Piece<'a>>,
    /// Of the statement that is being read, from its first to its last.
    lexemes: Vec<Lexeme<'a>>,
    range: std::ops::Range<usize>,
}

impl Split<'_> {
    /// Ends a statement; `all`: with everything between its semicolons.
    fn finish(&mut self, all: std::ops::Range<usize>) {
        if self.lexemes.is_empty() {
            return;
        }
        if self.keeps_comments {
            let text = &self.text[all.clone()];
            self.range.start = all.start + (text.len() - text.trim_start().len());
            self.range.end = all.start + text.trim_end().len();
        }
        self.found.push(Piece {
            start: self.range.start,
            end: self.range.end,
            lexemes: std::mem::take(&mut self.lexemes),
        });
    }
}
