//! Splits a script into its statements.

use std::sync::Arc;

use super::lexer::{Lexeme, Lexer, Placed};
use crate::dialect::Dialect;

/// Splits a text into its statements at the semicolons that end them: not those in strings, quoted names,
/// comments, dollar quotes, parentheses, trigger bodies or `BEGIN ATOMIC` bodies. Empty statements are
/// left out. Accepts every text.
pub fn split_script(dialect: Dialect, text: &str) -> Vec<Arc<str>> {
    pieces(dialect, text)
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

pub(crate) fn pieces(dialect: Dialect, text: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut lexemes: Vec<Lexeme<'_>> = Vec::new();
    let mut nesting = Nesting::default();
    let (mut start, mut last_end) = (0, 0);
    for Placed {
        lexeme,
        start: begins,
        end,
    } in Lexer::new(dialect, text)
    {
        if lexeme == Lexeme::Symbol(';') && nesting.is_closed() {
            if !lexemes.is_empty() {
                let lexemes = std::mem::take(&mut lexemes);
                found.push(Piece {
                    start,
                    end: last_end,
                    lexemes,
                });
            }
            nesting = Nesting::default();
            continue;
        }
        if lexemes.is_empty() {
            start = begins;
        }
        nesting.follow(&lexemes, lexeme);
        lexemes.push(lexeme);
        last_end = end;
    }
    if !lexemes.is_empty() {
        found.push(Piece {
            start,
            end: last_end,
            lexemes,
        });
    }
    found
}
