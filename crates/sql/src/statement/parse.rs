//! From a text to its class: the lexer sees every statement, the parser only what it understands.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use mainstay_engine::Safety;
use sqlparser::ast::{Statement, UtilityOption};
use sqlparser::dialect::{Dialect as Grammar, MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

use super::functions::{Effect, effect_of};
use super::lexer::{Lexeme, Lexer};
use super::scan::Scan;
use super::script::{Piece, pieces};
use super::{Class, Kind, idempotent};
use crate::catalog::Volatility;
use crate::database::Access;
use crate::dialect::Dialect;

/// The parser builds a tree as deep as a chain of operators is long, and walks it by recursion. This
/// many are far below what the smallest thread's stack (2 MiB) holds; a longer text is not parsed.
pub(super) const OPERATORS_MAX: usize = 400;

/// A longer text is not parsed: it would hold the caller's thread for too long.
const PARSED_TEXT_MAX: usize = 1024 * 1024;

pub(super) fn classify(
    dialect: Dialect,
    text: &str,
    functions: Option<&HashMap<String, Volatility>>,
) -> Class {
    let lexer = Lexer::new(dialect, text);
    let may_execute = lexer.may_execute();
    let pieces = pieces(lexer);
    let mut class = class_of_words(dialect, &pieces);
    if may_execute {
        // Who reads it decides what it is.
        return strictest_reading(class, text);
    }
    let Some(statements) = parse(dialect, text, &pieces) else {
        return class;
    };
    class.is_parsed = true;
    class.statements = class.statements.max(statements.len());
    let mut safety = Safety::Read;
    let mut kind = Kind::Select;
    let mut effects = Vec::new();
    for statement in &statements {
        let scan = Scan::of(statement);
        let own = own_safety(statement, &scan);
        safety = safety.strictest(own);
        kind = kind.max(kind_of(statement));
        if !matches!(statement, Statement::Explain { .. }) {
            effects.extend(scan.functions.into_iter().map(|name| {
                let effect = effect_of(dialect, &name, functions);
                (name, effect)
            }));
        }
        class.reads.extend(scan.reads);
        class.writes.extend(scan.writes);
    }
    if effects.iter().any(|(_, effect)| *effect != Effect::Reads) {
        safety = Safety::Write;
    }
    class.unknown_functions = effects
        .iter()
        .filter(|(_, effect)| *effect == Effect::Unknown)
        .map(|(name, _)| name.last_part().to_owned())
        .collect();
    class.unknown_functions.sort();
    class.unknown_functions.dedup();
    let leaves_nothing = effects
        .iter()
        .all(|(_, effect)| matches!(effect, Effect::Reads | Effect::Sequence));
    if let [statement] = statements.as_slice() {
        class.is_single_dml = leaves_nothing
            && class.statements == 1
            && matches!(kind, Kind::Insert | Kind::Update | Kind::Delete);
        if class.statements == 1 && effects.is_empty() {
            class.delete_by = idempotent::delete_by(statement);
        }
    }
    class.is_transaction_control |= statements.iter().any(ends_or_begins);
    class.sets_session |= statements.iter().any(changes_session);
    class.kind = kind.max(if class.kind == Kind::Control {
        Kind::Control
    } else {
        Kind::Select
    });
    // What the words betray (a lone statement that the parser took for something else) stays a write.
    if class.is_control() || class.statements != statements.len() || statements.is_empty() {
        safety = Safety::Write;
    }
    class.safety = safety;
    class.access = if safety.is_read() {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    class
}

/// What the words alone tell: everything else is assumed to be a write.
fn class_of_words(dialect: Dialect, pieces: &[Piece<'_>]) -> Class {
    let is_transaction_control = pieces.iter().any(|piece| controls_transaction(piece));
    let sets_session = pieces.iter().any(|piece| sets_session(piece));
    let kind = if is_transaction_control || sets_session {
        Kind::Control
    } else {
        pieces
            .iter()
            .map(kind_of_words)
            .max()
            .unwrap_or(Kind::Other)
    };
    Class {
        safety: Safety::Write,
        access: Access::ReadWrite,
        kind,
        reads: Vec::new(),
        writes: Vec::new(),
        unknown_functions: Vec::new(),
        statements: pieces.len(),
        is_single_dml: false,
        is_transaction_control,
        sets_session,
        uses_variables: dialect == Dialect::MySql && pieces.iter().any(uses_variables),
        asks_for_warnings: dialect == Dialect::MySql && pieces.iter().any(asks_for_warnings),
        proves_on_error: proves_on_error(dialect, pieces),
        is_parsed: false,
        delete_by: None,
        fingerprint: fingerprint(pieces),
        text: None,
    }
}

fn first_is(piece: &Piece<'_>, keywords: &[&str]) -> bool {
    let first = piece.lexemes.iter().find(|l| **l != Lexeme::Symbol('('));
    first.is_some_and(|first| keywords.iter().any(|keyword| first.is(keyword)))
}

fn second_is(piece: &Piece<'_>, keywords: &[&str]) -> bool {
    let second = piece.lexemes.get(1);
    second.is_some_and(|second| keywords.iter().any(|keyword| second.is(keyword)))
}

fn controls_transaction(piece: &Piece<'_>) -> bool {
    const WORDS: &[&str] = &[
        "begin",
        "commit",
        "end",
        "rollback",
        "abort",
        "savepoint",
        "release",
        "xa",
    ];
    first_is(piece, WORDS)
        || (first_is(piece, &["start", "prepare"]) && second_is(piece, &["transaction"]))
}

/// What a text with executable comments may be at most: servers of one version run what those of another skip.
fn strictest_reading(mut class: Class, text: &str) -> Class {
    const WORDS: &[&str] = &[
        "begin",
        "commit",
        "rollback",
        "savepoint",
        "release",
        "start",
        "xa",
    ];
    let skipping = || Lexer::without_executable(Dialect::MySql, text);
    let mut all = Lexer::new(Dialect::MySql, text).chain(skipping());
    let others = pieces(skipping());
    class.is_transaction_control |= others.iter().any(controls_transaction)
        || all.any(|placed| WORDS.iter().any(|word| placed.lexeme.is(word)));
    class.sets_session |= others.iter().any(sets_session);
    class.proves_on_error &= proves_on_error(Dialect::MySql, &others);
    class.kind = match class.is_control() {
        true => Kind::Control,
        false => Kind::Ddl,
    };
    class
}

/// `@a`, but not `@@a`, which is the server's.
fn uses_variables(piece: &Piece<'_>) -> bool {
    let is_at = |at: usize| piece.lexemes.get(at) == Some(&Lexeme::Symbol('@'));
    (0..piece.lexemes.len()).any(|at| is_at(at) && !is_at(at + 1) && (at == 0 || !is_at(at - 1)))
}

fn asks_for_warnings(piece: &Piece<'_>) -> bool {
    let is_asked = |lexeme: &Lexeme<'_>| lexeme.is("warnings") || lexeme.is("errors");
    first_is(piece, &["show"]) && piece.lexemes.iter().any(is_asked)
}

fn sets_session(piece: &Piece<'_>) -> bool {
    first_is(piece, &["set", "reset", "discard", "use"])
}

fn kind_of_words(piece: &Piece<'_>) -> Kind {
    const DDL: &[&str] = &["create", "alter", "drop", "truncate", "rename", "comment"];
    if first_is(piece, DDL) {
        Kind::Ddl
    } else if first_is(piece, &["insert", "replace"]) {
        Kind::Insert
    } else if first_is(piece, &["update"]) {
        Kind::Update
    } else if first_is(piece, &["delete"]) {
        Kind::Delete
    } else {
        Kind::Other
    }
}

/// Whether a text is one statement that runs inside one transaction as a whole, so that the server's ERROR
/// means that all of it was undone.
fn proves_on_error(dialect: Dialect, pieces: &[Piece<'_>]) -> bool {
    let [piece] = pieces else {
        return false;
    };
    is_undone_whole(piece) || (dialect == Dialect::Postgres && is_undone_by_postgres(piece))
}

/// What only PostgreSQL undoes. EXECUTE runs a query there; a COPY that reads a file of the server writes rows
/// and nothing else, while one that writes a file, or talks to a program, has done so.
fn is_undone_by_postgres(piece: &Piece<'_>) -> bool {
    const UNDONE: &[&str] = &[
        "execute",
        "fetch",
        "move",
        "declare",
        "close",
        "lock",
        "checkpoint",
        "load",
        "refresh",
        "listen",
        "unlisten",
        "notify",
    ];
    const OUTSIDE: &[&str] = &["to", "program"];
    let mut depth = 0usize;
    let writes_outside = piece.lexemes.iter().any(|lexeme| {
        match lexeme {
            Lexeme::Symbol('(') => depth += 1,
            Lexeme::Symbol(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && OUTSIDE.iter().any(|word| lexeme.is(word))
    });
    first_is(piece, UNDONE) || (first_is(piece, &["copy"]) && !writes_outside)
}

fn is_undone_whole(piece: &Piece<'_>) -> bool {
    const UNDONE: &[&str] = &[
        "select", "insert", "replace", "update", "delete", "with", "values", "table", "merge",
        "create", "alter", "drop", "truncate", "grant", "revoke", "comment", "explain", "show",
    ];
    const OUTSIDE: &[&str] = &["database", "tablespace", "subscription", "system"];
    let concurrently = piece.lexemes.iter().any(|l| l.is("concurrently"));
    let explains_call = first_is(piece, &["explain"])
        && piece
            .lexemes
            .iter()
            .any(|l| l.is("call") || l.is("execute"));
    let runs_outside = first_is(piece, &["create", "alter", "drop"]) && second_is(piece, OUTSIDE);
    first_is(piece, UNDONE) && !concurrently && !explains_call && !runs_outside
}

fn fingerprint(pieces: &[Piece<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for piece in pieces {
        for lexeme in &piece.lexemes {
            match lexeme {
                Lexeme::Word(word) => {
                    0u8.hash(&mut hasher);
                    word.to_lowercase().hash(&mut hasher);
                }
                Lexeme::Quoted(name) => (1u8, name).hash(&mut hasher),
                Lexeme::Literal(_) | Lexeme::Number(_) => 2u8.hash(&mut hasher),
                Lexeme::Placeholder(name) => (3u8, name).hash(&mut hasher),
                Lexeme::Symbol(symbol) => (4u8, symbol).hash(&mut hasher),
            }
        }
        5u8.hash(&mut hasher);
    }
    hasher.finish()
}

fn parse(dialect: Dialect, text: &str, pieces: &[Piece<'_>]) -> Option<Vec<Statement>> {
    if text.len() > PARSED_TEXT_MAX {
        return None;
    }
    let grammar: &dyn Grammar = match dialect {
        Dialect::Sqlite => &SQLiteDialect {},
        Dialect::Postgres => &PostgreSqlDialect {},
        Dialect::MySql => &MySqlDialect {},
    };
    let tokens = match pieces {
        [piece] if first_is(piece, &["table"]) => {
            let select = table_as_select(dialect, text)?;
            Tokenizer::new(grammar, &select).tokenize().ok()?
        }
        _ => Tokenizer::new(grammar, text).tokenize().ok()?,
    };
    if longest_chain(&tokens) > OPERATORS_MAX {
        return None;
    }
    let mut parser = Parser::new(grammar).with_tokens(tokens);
    parser.parse_statements().ok()
}

/// The parser knows `TABLE t` only inside of others.
fn table_as_select(dialect: Dialect, text: &str) -> Option<String> {
    let table = Lexer::new(dialect, text).find(|placed| placed.lexeme.is("table"))?;
    let (before, after) = (&text[..table.start], &text[table.end..]);
    Some(format!("{before}SELECT * FROM{after}"))
}

/// The most operators and keywords in one run without a comma, within one pair of parentheses: more than
/// the depth that the parser's tree can reach there. Pairs within pairs are bounded by the parser.
fn longest_chain(tokens: &[Token]) -> usize {
    let mut open = vec![0usize];
    let mut longest = 0;
    for token in tokens {
        let steps = match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                open.push(0);
                0
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                if open.len() > 1 {
                    open.pop();
                }
                // What follows a closed pair may be one step more: `a[1][2][3]`.
                1
            }
            Token::Comma | Token::SemiColon => {
                if let Some(top) = open.last_mut() {
                    *top = 0;
                }
                0
            }
            Token::Word(word) if word.keyword == Keyword::NoKeyword => 0,
            Token::Whitespace(_) | Token::Number(..) | Token::SingleQuotedString(_) => 0,
            _ => 1,
        };
        if let Some(top) = open.last_mut() {
            *top += steps;
            longest = longest.max(*top);
        }
    }
    longest
}

fn ends_or_begins(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::StartTransaction { .. }
            | Statement::Commit { .. }
            | Statement::Rollback { .. }
            | Statement::Savepoint { .. }
            | Statement::ReleaseSavepoint { .. }
    )
}

fn changes_session(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Set(_) | Statement::Reset(_) | Statement::Discard { .. } | Statement::Use(_)
    )
}

fn own_safety(statement: &Statement, scan: &Scan) -> Safety {
    match statement {
        Statement::Query(_) if scan.changes => Safety::Write,
        Statement::Query(_)
        | Statement::ShowVariable { .. }
        | Statement::ShowVariables { .. }
        | Statement::ShowStatus { .. }
        | Statement::ShowCreate { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowDatabases { .. }
        | Statement::ShowSchemas { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowViews { .. }
        | Statement::ShowFunctions { .. }
        | Statement::ShowCollation { .. }
        | Statement::ExplainTable { .. } => Safety::Read,
        Statement::Explain {
            analyze, options, ..
        } if !*analyze && !options.as_deref().is_some_and(|o| o.iter().any(analyzes)) => {
            Safety::Read
        }
        Statement::Insert(insert) if idempotent::is_upsert(insert) => Safety::IdempotentWrite,
        _ => Safety::Write,
    }
}

/// `EXPLAIN (ANALYZE)`: any value is taken for true, on the strict side.
fn analyzes(option: &UtilityOption) -> bool {
    option.name.value.eq_ignore_ascii_case("analyze")
        || option.name.value.eq_ignore_ascii_case("analyse")
}

fn kind_of(statement: &Statement) -> Kind {
    match statement {
        Statement::Insert(_) => Kind::Insert,
        Statement::Update(_) => Kind::Update,
        Statement::Delete(_) => Kind::Delete,
        control if ends_or_begins(control) || changes_session(control) => Kind::Control,
        Statement::Query(_) | Statement::Explain { .. } | Statement::ExplainTable { .. } => {
            Kind::Select
        }
        Statement::Truncate(_)
        | Statement::Comment { .. }
        | Statement::RenameTable(_)
        | Statement::AttachDatabase { .. } => Kind::Ddl,
        other => kind_by_name(other),
    }
}

/// Dozens of CREATE, ALTER and DROP forms: told apart by the word they are written with.
fn kind_by_name(statement: &Statement) -> Kind {
    let written = statement.to_string();
    let first = written.split_whitespace().next().unwrap_or_default();
    match first.to_ascii_uppercase().as_str() {
        "CREATE" | "ALTER" | "DROP" => Kind::Ddl,
        "SHOW" => Kind::Select,
        _ => Kind::Other,
    }
}
