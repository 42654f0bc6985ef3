//! Tables of cases, one for each rule of each database.

use super::*;

/// The lexemes of a text, joined by `|`; literals in `<>`, quoted names in `{}`, placeholders with `^`.
fn cut(dialect: Dialect, text: &str) -> String {
    shown(Lexer::new(dialect, text))
}

fn shown(lexer: Lexer<'_>) -> String {
    let show = |placed: Placed<'_>| match placed.lexeme {
        Lexeme::Word(text) | Lexeme::Number(text) => text.to_owned(),
        Lexeme::Literal(text) => format!("<{text}>"),
        Lexeme::Quoted(text) => format!("{{{text}}}"),
        Lexeme::Placeholder(text) => format!("^{text}"),
        Lexeme::Symbol(symbol) => symbol.to_string(),
    };
    lexer.map(show).collect::<Vec<_>>().join("|")
}

fn check(dialect: Dialect, table: &[(&str, &str)]) {
    for (text, expected) in table {
        assert_eq!(cut(dialect, text), *expected, "{dialect:?} {text:?}");
    }
}

#[test]
fn postgresql_is_cut_as_its_scanner_does_it() {
    let table = [
        // A comment ends at either end of a line.
        ("--\rBEGIN", "BEGIN"),
        ("--\nBEGIN", "BEGIN"),
        ("--\r\nBEGIN", "BEGIN"),
        ("--\u{2028}BEGIN\u{b}\u{c}x", ""),
        ("--x", ""),
        ("a+--b\rc", "a|+|c"),
        // Comments nest.
        ("/* /* */ a */ b", "b"),
        ("/*/ a */ b", "b"),
        ("/**/a/* b", "a"),
        ("*/*a*/b", "*|b"),
        ("/*! a */ b", "b"),
        ("# a", "#|a"),
        // Six spaces, and nothing beyond ASCII.
        ("\t\n\u{b}\u{c}\r a", "a"),
        ("\u{feff}BEGIN", "\u{feff}BEGIN"),
        ("\u{a0}BEGIN", "\u{a0}BEGIN"),
        ("a\u{3000}b🙂$1", "a\u{3000}b🙂$1"),
        // Strings: backslashes only behind E.
        ("'a\\' b", "<'a\\'>|b"),
        ("'a''b' c", "<'a''b'>|c"),
        ("E'a\\'b' c", "<E'a\\'b'>|c"),
        ("e'a\\\\' c", "<e'a\\\\'>|c"),
        ("aE'\\' c", "aE|<'\\'>|c"),
        ("1E'\\'b' c", "1|<E'\\'b'>|c"),
        ("1e5E'\\'b' c", "1e5|<E'\\'b'>|c"),
        ("$1E'\\'b' c", "^$1|<E'\\'b'>|c"),
        (
            "x'1f' B'1' n'a' U&'d\\' c",
            "<x'1f'>|<B'1'>|<n'a'>|<U&'d\\'>|c",
        ),
        // A literal goes on behind the end of a line, with its escapes.
        ("E'a'\n'\\'b' c", "<E'a'\n'\\'b'>|c"),
        ("E'a' -- x\r '\\'b' c", "<E'a' -- x\r '\\'b'>|c"),
        ("E'a' '\\' c", "<E'a'>|<'\\'>|c"),
        ("E'a' /*\n*/ '\\' c", "<E'a'>|<'\\'>|c"),
        ("'a'\n'\\' c", "<'a'>|<'\\'>|c"),
        // Names.
        ("\"a\"\"b\\\" c", "{\"a\"\"b\\\"}|c"),
        ("`a` [b]", "`|a|`|[|b|]"),
        // Dollar quotes.
        ("$$ ' $$ a", "<$$ ' $$>|a"),
        ("$a$ $b$a$ c", "<$a$ $b$a$>|c"),
        ("$é$ ' $é$ c", "<$é$ ' $é$>|c"),
        ("$1$$ ' $$ c", "^$1|<$$ ' $$>|c"),
        ("$1a$ c", "^$1|a$|c"),
        ("a$$b$$ c", "a$$b$$|c"),
        ("$a b$", "$|a|b$"),
        ("$12", "^$12"),
        // Numbers.
        ("1.5e-3 .5 1..2", "1.5e-3|.|5|1|.|.|2"),
        ("1 ? :a @b", "1|?|:|a|@|b"),
    ];
    check(Dialect::Postgres, &table);
}

#[test]
fn sqlite_is_cut_as_its_tokenizer_does_it() {
    let table = [
        // A comment ends at a line feed alone.
        ("--\rBEGIN", ""),
        ("--\nBEGIN", "BEGIN"),
        ("a--b", "a"),
        // Comments do not nest.
        ("/* /* */ a", "a"),
        ("/*/ a */ b", "b"),
        ("/* a", ""),
        ("/*! a */ b", "b"),
        // The mark of byte order is a space, unless it stands in a word.
        ("\u{feff}COMMIT", "COMMIT"),
        (" \u{feff}\u{feff} COMMIT", "COMMIT"),
        ("COMMIT\u{feff}", "COMMIT\u{feff}"),
        ("'\u{feff}'\u{feff}b", "<'\u{feff}'>|b"),
        ("\u{a0}COMMIT", "\u{a0}COMMIT"),
        ("\t\n\u{c}\r a", "a"),
        // Strings and names.
        ("'a\\' b", "<'a\\'>|b"),
        ("E'a\\' b", "E|<'a\\'>|b"),
        ("x'1f' y'1'", "<x'1f'>|y|<'1'>"),
        ("\"a\"\"b\" `c``d` [e]f", "{\"a\"\"b\"}|{`c``d`}|{[e]}|f"),
        ("[a]]b", "{[a]}|]|b"),
        ("$$ ' $$", "^$$|<' $$>"),
        // Variables.
        ("?1 ? ?a", "^?1|^?|^?|a"),
        (":a @b $c #d", "^:a|^@b|^$c|^#d"),
        ("$a::b(')) c", "^$a::b(')|)|c"),
        ("$a(b c)", "^$a(b|c|)"),
        ("$a($é", "^$a($é"),
        (": $ ::a", ":|$|:|^:a"),
        // Numbers.
        ("1.5 0x1F 1e5a b", "1.5|0x1F|1e5a|b"),
        ("# a", "#|a"),
    ];
    check(Dialect::Sqlite, &table);
}

#[test]
fn mysql_is_cut_as_its_lexer_does_it() {
    let table = [
        // `--` needs a space or a control character behind it.
        ("-- BEGIN", ""),
        ("--\rBEGIN", ""),
        ("--\u{7f}BEGIN\nx", "x"),
        ("--\nBEGIN", "BEGIN"),
        ("a --", "a"),
        ("5--1", "5|-|-|1"),
        ("5--'\n'", "5|-|-|<'\n'>"),
        ("# a\rb\nc", "c"),
        ("a#b", "a"),
        // Comments do not nest.
        ("/* /* */ a", "a"),
        ("/*/ a */ b", "b"),
        ("/*+ a */ b", "b"),
        // What is executed is read.
        ("/*! COMMIT */", "COMMIT"),
        ("/*!50000 COMMIT*/", "COMMIT"),
        ("/*!100100COMMIT*/ a", "COMMIT|a"),
        ("/*M!100100 COMMIT */ a", "COMMIT|a"),
        ("/*!123 */ a", "123|a"),
        ("/*! a /* */ b */ c", "a|b|c"),
        ("/*! a", "a"),
        ("a */ b", "a|*|/|b"),
        // Spaces.
        ("\t\n\u{b}\u{c}\r a", "a"),
        ("\u{feff}COMMIT", "\u{feff}COMMIT"),
        ("\u{a0}COMMIT", "\u{a0}COMMIT"),
        // Strings: backslashes escape, and double quotes are strings.
        ("'a\\'b' c", "<'a\\'b'>|c"),
        ("\"a\\\"b\" c", "<\"a\\\"b\">|c"),
        ("\"a\"\"b\" c", "<\"a\"\"b\">|c"),
        ("`a``b\\` c", "{`a``b\\`}|c"),
        ("n'a\\'' x'1f' b'1' c", "<n'a\\''>|<x'1f'>|<b'1'>|c"),
        ("E'a' _utf8'b'", "E|<'a'>|_utf8|<'b'>"),
        ("[a] $$ $a$b", "[|a|]|$$|$a$b"),
        ("? ?1 @a @`b`", "^?|^?|1|@|a|@|{`b`}"),
        ("1a 1.5", "1a|1.5"),
    ];
    check(Dialect::MySql, &table);
}

#[test]
fn a_server_of_another_version_takes_executable_comments_for_comments() {
    for (text, expected) in [
        ("/*!99999 ' */ COMMIT /*!99999 ' */", "COMMIT"),
        ("/*!99999 a /* b */ c */ COMMIT", "COMMIT"),
        ("/* /* */ a /*M! b */", "a"),
        ("SELECT '/*!' a", "SELECT|<'/*!'>|a"),
    ] {
        let lexer = Lexer::without_executable(Dialect::MySql, text);
        assert_eq!(shown(lexer), expected, "{text:?}");
    }
}
