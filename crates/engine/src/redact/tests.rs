//! Tables of texts, and secrets planted in random ones.

use super::*;

#[test]
fn a_text_made_to_be_slow_is_bounded_and_loses_its_rest() {
    let redactor = Redactor::new();
    let text = "password=x ".repeat(1000) + "end";
    let redacted = redactor.redact(&text);
    assert!(redacted.starts_with("password=*** password=***"));
    assert!(!redacted.contains("end"));
    redactor.redact(&"password=".repeat(10_000));
}

fn check(cases: &[(&str, &str)], redact: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(redact(text), *expected, "of {text}");
    }
}

#[test]
fn secrets_are_masked_and_what_a_reader_needs_stays() {
    let redactor = Redactor::new();
    let cases = [
        (
            "cannot connect to http://db:5432/orders",
            "cannot connect to http://db:5432/orders",
        ),
        (
            "postgres://app:hunter2@db1:5432/orders",
            "postgres://app:***@db1:5432/orders",
        ),
        (
            "postgres://app:p@ss/w:rd@db1/orders?x=1",
            "postgres://app:***@db1/orders?x=1",
        ),
        (
            "https://ghp_token@example.test/a",
            "https://***@example.test/a",
        ),
        ("redis://:secret@cache", "redis://:***@cache"),
        (
            "host=db password=hunter2 dbname=x",
            "host=db password=*** dbname=x",
        ),
        (
            "Server=db;Password=hunter2;Database=x",
            "Server=db;Password=***;Database=x",
        ),
        ("PGPASSWORD='it''s' psql", "PGPASSWORD=*** psql"),
        ("/a?api_key=abc&page=2", "/a?api_key=***&page=2"),
        (
            r#"{"password": "a\"b c", "user": "x"}"#,
            r#"{"password": ***, "user": "x"}"#,
        ),
        (
            r#"{\"password\":\"abc\",\"user\":\"x\"}"#,
            r#"{\"password\":***\",\"user\":\"x\"}"#,
        ),
        (
            "Authorization: Basic dXNlcjpwYXNz\r\nHost: x",
            "Authorization: ***\r\nHost: x",
        ),
        (
            "curl -H 'authorization: Bearer abc.def'",
            "curl -H 'authorization: ***'",
        ),
        ("sent bearer abc.def to x", "sent bearer *** to x"),
        ("ALTER USER a PASSWORD 'x y'", "ALTER USER a PASSWORD ***"),
        (
            "CREATE USER a IDENTIFIED BY 'x'",
            "CREATE USER a IDENTIFIED BY ***",
        ),
        (
            "mysql --password hunter2 -h db",
            "mysql --password *** -h db",
        ),
        ("client_secret: abc", "client_secret: ***"),
        ("aws AKIAIOSFODNN7EXAMPLE here", "aws *** here"),
        ("jwt eyJhbGciOi.eyJzdWIi.c2ln end", "jwt *** end"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nx",
            "***\nx",
        ),
        ("key -----BEGIN PRIVATE KEY-----\nabc", "key ***"),
        (
            "mail to ann.o'neil+x@example.co.uk now",
            "mail to ann.o'*** now",
        ),
        ("card 4111 1111 1111 1111 refused", "card *** refused"),
        ("card_5500005555555559", "card_***"),
        ("on 2026-11-29 4111-1111-1111-1111.", "on 2026-11-29 ***."),
        (
            "4111 1111 1111 1112 is no card",
            "4111 1111 1111 1112 is no card",
        ),
        ("ssn 123-45-6789", "ssn ***"),
        ("000-12-3456 and 912-34-5678", "000-12-3456 and 912-34-5678"),
        (
            "password authentication failed for user \"app\"",
            "password authentication failed for user \"app\"",
        ),
    ];
    check(&cases, |text| redactor.redact(text).into_owned());
}

#[test]
fn ids_times_and_plain_texts_are_not_touched_nor_copied() {
    let redactor = Redactor::new();
    for text in [
        "",
        "connection reset by peer (os error 104)",
        "2026-11-29T23:59:59.123456789Z took 1234567 us",
        "call 0af7651916cd43dd8448eb211c80319c failed",
        "550e8400-e29b-41d4-a716-446655440000",
        "1764457200000000 us since 1970",
        "select a from b where c = $1",
        "größer als ½ · 漢字",
    ] {
        let redacted = redactor.redact(text);
        assert!(
            matches!(redacted, Cow::Borrowed(same) if same == text),
            "{text}"
        );
        assert!(matches!(redact_sql("select a from b"), Cow::Borrowed(_)));
    }
}

#[test]
fn every_literal_of_a_statement_becomes_a_question_mark() {
    let cases = [
        (
            "SELECT a1, $1, ?2, :3, @p FROM t2",
            "SELECT a1, $1, ?2, :3, @p FROM t2",
        ),
        ("a = 'x' AND b='it''s'", "a = ? AND b=?"),
        (
            "E'a\\'b' || e'\\\\' || N'x' || X'1F' || b'01' || U&'d\\0061'",
            "? || ? || ? || ? || ? || ?",
        ),
        ("_utf8'x' max'y'", "_utf8? max?"),
        ("$$it's$$ + $a$ $$ $b$ $a$ + x", "? + ? + x"),
        ("1 2.5 .5 1e-5 1E+5 0xFF-1 1_000 -7", "? ? ? ? ? ?-? ? -?"),
        ("x IN (1,2,'3')", "x IN (?,?,?)"),
        (
            "\"col 1\" = `c'2` AND \"a\"\"b\"",
            "\"col 1\" = `c'2` AND \"a\"\"b\"",
        ),
        ("a -- password 'x\nb /* 'y */ c", "a  \nb   c"),
        ("ARRAY['a', 'b'][1]", "ARRAY[?, ?][?]"),
        ("größe = 'ß' AND ŝ1 = 5", "größe = ? AND ŝ1 = ?"),
        ("doc->>'key' = 'v'::text", "doc->>? = ?::text"),
        // What is never closed, or closed in different places, takes the rest with it.
        ("a = 'secret", "a = ?"),
        ("a = \"secret", "a = ?"),
        ("a = $x$secret", "a = ?"),
        ("a = /* secret", "a = ?"),
        ("a = E'secret\\", "a = ?"),
        ("a = '\\', 'secret'", "a = ?"),
        ("a = '\\\\', b", "a = ?, b"),
        ("/* /* */ 'secret' */ secret", "?"),
        ("SELECT [it's], 'secret'", "SELECT ?"),
        ("1$$se cret$$", "??"),
    ];
    check(&cases, |text| redact_sql(text).into_owned());
}

#[test]
fn mysql_has_strings_in_double_quotes_and_other_comments() {
    let cases = [
        ("a = \"secret\" # it's\nb", "a = ?  \nb"),
        ("SELECT 1--'a\nsecret'", "SELECT ?--?"),
        ("SELECT 1 -- it's\nb", "SELECT ?  \nb"),
        ("a = \"x\\\" secret", "a = ?"),
    ];
    check(&cases, |text| {
        redact_sql_in(text, Quoting::MySql).into_owned()
    });
}

/// Pieces that mean something to the scanners, in any order.
const PIECES: &[&str] = &[
    "'",
    "\"",
    "`",
    "$",
    "$$",
    "$a$",
    "\\",
    "\\'",
    "''",
    "--",
    "/*",
    "*/",
    "#",
    "\n",
    "\r",
    " ",
    "[",
    "]",
    "E'",
    "N'",
    "U&'",
    "x'",
    "0x",
    "1",
    "4111",
    "-",
    ".",
    "e",
    "@",
    ":",
    "://",
    "?",
    "&",
    ";",
    ",",
    "(",
    ")",
    "=",
    "password",
    "token",
    "Bearer",
    "authorization: ",
    "select",
    "é",
    "漢",
    "\u{0}",
    "\u{2028}",
    "a@b.c",
    "-----BEGIN PRIVATE KEY-----",
];

fn noise(chance: &mut fastrand::Rng, pieces: &[&str]) -> String {
    let count = chance.usize(0..12);
    (0..count)
        .map(|_| match chance.u32(0..8) {
            0 => chance.char(..).to_string(),
            _ => pieces[chance.usize(0..pieces.len())].to_owned(),
        })
        .collect()
}

#[test]
fn no_text_makes_it_panic_and_a_redacted_one_stays_as_it_is() {
    let redactor = Redactor::new();
    let mut chance = fastrand::Rng::with_seed(11);
    for _ in 0..8_000 {
        let text = noise(&mut chance, PIECES);
        redactor.redact(&text);
        redactor.redact_sql(&text);
        redact_sql_in(&text, Quoting::MySql);
        let once = redact_sql(&text).into_owned();
        let twice = redact_sql(&once);
        assert_eq!(twice, redact_sql(&twice), "of {text:?}");
    }
}

/// Pieces of a statement that are whole in themselves, in every dialect of its quoting.
const WHOLE: &[&str] = &[
    " ",
    "\n",
    "select",
    "a1",
    "'x'",
    "'it''s'",
    "''",
    "1.5",
    "0xF",
    "(",
    ")",
    ",",
    "=",
    "||",
    "::",
    "\"c'd\"",
    "'/*'",
    "'--'",
    "'$$'",
    "/* it's */",
    "-- it's\n",
    "$1",
    "é",
    "漢字",
    "'\\\\'",
    "]",
    "?",
];

#[test]
fn a_secret_in_any_literal_of_any_statement_never_survives() {
    const SECRET: &str = "Sesam";
    let forms: &[fn(&str) -> String] = &[
        |s| format!("'{s}'"),
        |s| format!("'a''{s}'"),
        |s| format!("E'a\\'{s}'"),
        |s| format!("N'{s}'"),
        |s| format!("$$ it's {s}$$"),
        |s| format!("$t$ {s} $$ $t$"),
        |s| format!("'--{s}'"),
        |s| format!("'/*{s}'"),
        |s| format!("'\\' {s}'"),
        |s| format!("'{s}"),
        |s| format!("$q${s}"),
        |s| format!("/* {s} */"),
        |s| format!("-- {s}"),
    ];
    let mut chance = fastrand::Rng::with_seed(12);
    for _ in 0..30_000 {
        let before = noise_of(&mut chance, WHOLE);
        let literal = forms[chance.usize(0..forms.len())](SECRET);
        let text = format!("{before} {literal} {}", noise(&mut chance, PIECES));
        let redacted = redact_sql(&text);
        assert!(!redacted.contains(SECRET), "{text:?} became {redacted:?}");
    }
}

fn noise_of(chance: &mut fastrand::Rng, pieces: &[&str]) -> String {
    let count = chance.usize(0..12);
    let piece = |_| pieces[chance.usize(0..pieces.len())];
    (0..count).map(piece).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_secret_planted_in_any_text_never_survives() {
    const SECRET: &str = "S3sam+oeffne/dich=";
    let forms: &[fn(&str) -> String] = &[
        |s| format!("password={s}"),
        |s| format!("PASSWORD : {s}"),
        |s| format!("\"db_password\":\"{s}\""),
        |s| format!("api-key='{s}'"),
        |s| format!("access_token={s}&x=1"),
        |s| format!("Bearer {s}"),
        |s| format!("Authorization: Basic {s}"),
        |s| format!("postgres://app:{s}@db/x"),
        |s| format!("IDENTIFIED BY '{s}'"),
        |s| format!("-----BEGIN PRIVATE KEY-----\n{s}\n-----END PRIVATE KEY-----"),
    ];
    let numbers = [
        "4111111111111111",
        "4111-1111-1111-1111",
        "123-45-6789",
        "ann@example.org",
    ];
    let redactor = Redactor::new();
    let mut chance = fastrand::Rng::with_seed(13);
    for round in 0..6_000 {
        let (secret, form) = match round % 3 {
            0 => {
                let number = numbers[chance.usize(0..numbers.len())];
                (number, number.to_owned())
            }
            _ => (SECRET, forms[chance.usize(0..forms.len())](SECRET)),
        };
        let before = noise(&mut chance, PIECES);
        let text = format!("{before} <{form}> {}", noise(&mut chance, PIECES));
        let redacted = redactor.redact(&text);
        assert!(!redacted.contains(secret), "{text:?} became {redacted:?}");
    }
}
