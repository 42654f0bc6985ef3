//! No text hurts the classifier, however odd, deep or long.

use super::*;

/// Pieces of SQL and of nonsense that a seeded generator strings together.
const CRUMBS: &[&str] = &[
    "SELECT",
    "INSERT INTO",
    "t",
    "(",
    ")",
    "[",
    "]",
    "'",
    "\"",
    "`",
    "$$",
    "$a$",
    "$1",
    "?",
    ";",
    ",",
    "--",
    "\n",
    "/*",
    "*/",
    "BEGIN",
    "END",
    "CASE",
    "WHEN",
    "create trigger",
    "NOT",
    "-",
    "+",
    "=",
    "é",
    "🙂",
    "\\",
    "E'",
    "\0",
    "1e9",
    "0x",
    "WITH",
    "AS",
    "FROM",
    "WHERE",
    "AND",
    "::",
    "{",
    "}",
    "ON CONFLICT",
    "DO UPDATE SET",
    "VALUES",
    ".",
    "*",
    "#",
    "@",
    ":",
    "EXPLAIN",
    "ARRAY[",
    "INTERVAL",
    "IS",
    "NULL",
    "OVER",
    "\u{a0}",
    "U&'",
    "LATERAL",
    "UNION",
];

#[test]
fn no_text_makes_the_classifier_panic() {
    for seed in 0..5_000u64 {
        let mut state = seed;
        let mut draw = |bound: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        let length = 1 + draw(24);
        let mut text = String::new();
        for _ in 0..length {
            text.push_str(CRUMBS[draw(CRUMBS.len())]);
            if draw(3) > 0 {
                text.push(' ');
            }
        }
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql] {
            parse::classify(dialect, &text, None);
            let parts = split_script(dialect, &text);
            assert!(
                parts.iter().all(|part| text.contains(part.as_ref())),
                "seed {seed}"
            );
        }
    }
}

/// What no table of cases thinks of: any character beside the pieces of SQL, without spaces between.
#[test]
fn no_text_of_any_characters_makes_the_lexer_or_the_classifier_panic() {
    const ODD: &[&str] = &[
        "TABLE",
        "(TABLE t)",
        "/* é*/",
        "/*!50000",
        "/*M!",
        "--\r",
        "\r",
        "\u{feff}",
        "\u{2028}",
        "\u{b}",
        "\u{10ffff}",
        "e\u{301}",
        "E'\\",
        "'\n'",
        "$é$",
        "$1$",
        "$a(",
        ":a::",
        "1.e",
        "1..",
        "x'",
        "n'",
        "COMMIT",
        "SET",
        "START TRANSACTION",
        "ON CONFLICT (é) DO NOTHING",
    ];
    for seed in 0..5_000u64 {
        let chance = mainstay_engine::Chance::seeded(seed);
        let draw = |bound: usize| (chance.draw() >> 11) as usize % bound;
        let mut text = String::new();
        for _ in 0..=draw(16) {
            match draw(3) {
                0 => text.push_str(CRUMBS[draw(CRUMBS.len())]),
                1 => text.push_str(ODD[draw(ODD.len())]),
                _ => text.extend(char::from_u32(draw(0x3000) as u32)),
            }
        }
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql] {
            let said = format!("seed {seed} {dialect:?} {text:?}");
            for lexer in [
                lexer::Lexer::new(dialect, &text),
                lexer::Lexer::without_executable(dialect, &text),
            ] {
                let mut last_end = 0;
                for placed in lexer {
                    assert!(last_end <= placed.start, "{said}");
                    assert!(placed.start < placed.end, "{said}");
                    assert!(text.get(placed.start..placed.end).is_some(), "{said}");
                    last_end = placed.end;
                }
            }
            parse::classify(dialect, &text, None);
            let parts = split_script(dialect, &text);
            assert!(
                parts.iter().all(|part| text.contains(part.as_ref())),
                "{said}"
            );
            let _ = is_one_expression(dialect, &text);
        }
    }
}

#[test]
fn deep_and_long_texts_stay_within_a_small_stack() {
    let on_small_stack = |text: String| {
        std::thread::Builder::new()
            .stack_size(2 * 1024 * 1024)
            .spawn(move || {
                for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql] {
                    parse::classify(dialect, &text, None);
                }
            })
            .unwrap()
            .join()
            .unwrap();
    };
    for n in [60, parse::OPERATORS_MAX, parse::OPERATORS_MAX + 50, 5_000] {
        on_small_stack(format!("SELECT {}1{}", "(".repeat(n), ")".repeat(n)));
        on_small_stack(format!("SELECT {}1", "NOT ".repeat(n)));
        on_small_stack(format!("SELECT {}1", "- ".repeat(n)));
        on_small_stack(format!("SELECT 1{}", " + 1".repeat(n)));
        on_small_stack(format!("SELECT 1{}", " UNION SELECT 1".repeat(n)));
        on_small_stack(format!("SELECT a{}", "[1]".repeat(n)));
        on_small_stack(format!("SELECT a{}", "::int".repeat(n)));
        on_small_stack(format!("SELECT a{}", " -> 'b'".repeat(n)));
        on_small_stack(format!("SELECT a{}", " IS NULL".repeat(n)));
        on_small_stack(format!("SELECT a{}", ".b".repeat(n)));
        on_small_stack(format!("SELECT {}1{}", "f(".repeat(n), ")".repeat(n)));
        on_small_stack(format!(
            "SELECT {}1{}",
            "CASE WHEN ".repeat(n),
            " THEN 1 END".repeat(n)
        ));
        on_small_stack(format!("SELECT {}1{}", "(SELECT ".repeat(n), ")".repeat(n)));
        on_small_stack(format!("SELECT 1 FROM {}t{}", "(".repeat(n), ")".repeat(n)));
        on_small_stack(format!("SELECT 1 FROM t{}", " JOIN t ON true".repeat(n)));
        on_small_stack(format!("{}SELECT 1", "EXPLAIN ".repeat(n)));
        on_small_stack(format!("SELECT INTERVAL {}1", "INTERVAL ".repeat(n)));
        on_small_stack(format!("SELECT a{}", " COLLATE b".repeat(n)));
        on_small_stack(format!("SELECT a{}", " AT TIME ZONE 'b'".repeat(n)));
        on_small_stack(format!("SELECT ARRAY{}1{}", "[".repeat(n), "]".repeat(n)));
        on_small_stack(format!("SELECT PRIOR {}1", "PRIOR ".repeat(n)));
        on_small_stack(format!(
            "SELECT a::{}int{}",
            "array<".repeat(n),
            ">".repeat(n)
        ));
        on_small_stack(format!("SELECT a ISNULL{}", " NOTNULL".repeat(n)));
    }
}
