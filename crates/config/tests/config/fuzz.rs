//! Seeded mutations of valid files: nothing panics, nothing runs away, problems stay in the file.

use std::time::Duration;

use fastrand::Rng;
use mainstay_config::{check, init_text};

use super::given::{COMPUTE, ORDERS, options};
use super::original;

const YAML: &str = include_str!("mistakes.yaml");
const JSON: &str = include_str!("mistakes.json");
const TOML: &str = include_str!("mistakes.toml");

/// Bits of syntax that turn a text into another kind of text.
const BITS: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    ":",
    ": ",
    "=",
    ",",
    "\n",
    "\t",
    "  ",
    "- ",
    "#",
    "&a ",
    "*a",
    "!!x ",
    "|",
    ">",
    "---\n",
    "...\n",
    "? ",
    "%YAML 9\n",
    "\\u",
    "\\ud800",
    "\u{0}",
    "\u{feff}",
    "\u{2028}",
    "😀",
    "é",
    "\r",
    "null",
    "true",
    "1e999",
    "-0",
    "0x",
    "99999999999999999999999999999999999999999",
    "nan",
    "inf",
    "5m",
    "1000000000h",
    "env:",
    "file:",
    "postgres://",
    "%",
    "..",
    "[[a]]",
    "a.b.c",
    "<<",
    "`",
    "@",
];

fn mutated(text: &str, rng: &mut Rng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(0..=chars.len());
        let end = (at + rng.usize(0..40)).min(chars.len());
        match rng.u8(0..6) {
            0 => drop(chars.drain(at..end)),
            1 | 2 => {
                let bit = BITS[rng.usize(0..BITS.len())];
                drop(chars.splice(at..at, bit.chars()));
            }
            3 => {
                let copied: Vec<char> = chars[at..end].to_vec();
                let to = rng.usize(0..=chars.len());
                drop(chars.splice(to..to, copied));
            }
            4 => {
                if at < chars.len() {
                    chars[at] = rng.char(..);
                }
            }
            _ => chars.truncate(chars.len().saturating_sub(rng.usize(0..30))),
        }
    }
    chars.into_iter().collect()
}

#[test]
fn mutated_files_in_each_format_never_panic_and_problems_stay_inside_the_file() {
    let init = init_text().replace('#', "");
    let seeds = [
        ("a.toml", TOML),
        ("a.toml", ORDERS),
        ("a.toml", init.as_str()),
        ("a.yaml", YAML),
        ("a.json", JSON),
        ("a.toml", COMPUTE),
        ("a.yaml", original::YAML),
        ("a.json", original::JSON),
    ];
    let seed = 0x6d61_696e;
    let mut rng = Rng::with_seed(seed);
    for round in 0..1_000 {
        for (name, text) in seeds {
            let text = mutated(text, &mut rng);
            let begun = std::time::SystemTime::now();
            let problems = check(options(&[(name, &text)]));
            let took = begun.elapsed().unwrap_or_default();
            assert!(
                took < Duration::from_secs(5),
                "seed {seed} round {round}: {took:?}\n{text}"
            );
            let lines = u32::try_from(text.split('\n').count()).unwrap();
            for problem in &problems {
                // The YAML parser counts a lone carriage return as a line, too.
                let extra =
                    u32::try_from(text.matches(['\r', '\u{2028}', '\u{85}']).count()).unwrap() + 1;
                assert!(
                    problem
                        .line
                        .is_none_or(|line| line >= 1 && line <= lines + extra),
                    "{problem}\n{text:?}"
                );
                assert!(!problem.message.is_empty());
                assert!(
                    !problem.to_string().chars().any(char::is_control),
                    "{problem:?}"
                );
            }
        }
    }
}

#[test]
fn variables_of_any_name_and_value_never_panic() {
    let mut rng = Rng::with_seed(11);
    let names = [
        "MAINSTAY_SERVER__LISTEN",
        "MAINSTAY_SOURCES__ORDERS__ENDPOINTS__A__URL",
        "mainstay_policy__retry__on",
    ];
    for _ in 0..5_000 {
        let mut given = options(&[("a.toml", ORDERS)]);
        for _ in 0..rng.usize(1..4) {
            let name = names[rng.usize(0..names.len())];
            let name = if rng.bool() {
                mutated(name, &mut rng)
            } else {
                name.to_owned()
            };
            given
                .environment
                .push((name, mutated("postgres://u:p@h:1/d", &mut rng)));
        }
        for problem in check(given) {
            assert!(
                !problem.to_string().chars().any(char::is_control),
                "{problem:?}"
            );
        }
    }
}

#[test]
fn json_is_read_as_serde_json_reads_it() {
    let mut rng = Rng::with_seed(7);
    for _ in 0..3_000 {
        let text = mutated(JSON, &mut rng);
        let right = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text);
        let found = check(options(&[("a.json", &text)]));
        let broken = found
            .iter()
            .any(|problem| problem.path.is_empty() && problem.is_error());
        assert_eq!(right.is_err(), broken, "{right:?} {found:?}\n{text}");
    }
}
