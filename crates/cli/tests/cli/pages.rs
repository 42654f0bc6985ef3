//! Pages of the documentation that are made from the program, so that they stay true. `MAINSTAY_BLESS=1`
//! writes them anew.

use std::path::{Path, PathBuf};

use super::program::Place;

const COMMANDS: [&str; 12] = [
    "init",
    "serve",
    "start",
    "stop",
    "check",
    "explain",
    "query",
    "status",
    "demo",
    "key",
    "key new",
    "completions",
];

const CLI_HEAD: &str = "# The program `mainstay`

What `--help` says, command by command. Exit codes: 0 all well, 1 it failed, 2 a configuration has errors,
64 wrong usage. Answers go to stdout; complaints and logs go to stderr, and a complaint ends in what to do
about it. `NO_COLOR` is respected; colours and redrawn pictures appear only on a terminal.
";

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/reference")
        .join(name)
}

fn compare(name: &str, expected: &str) {
    let path = page(name);
    if std::env::var_os("MAINSTAY_BLESS").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == expected,
        "docs/reference/{name} is not what the program says: run MAINSTAY_BLESS=1 cargo test -p mainstay-cli pages"
    );
}

#[test]
fn the_page_of_the_configuration_is_true() {
    compare("configuration.md", &mainstay_config::reference_text());
}

#[test]
fn the_page_of_the_program_is_true() {
    let place = Place::new();
    let mut text = CLI_HEAD.to_owned();
    for command in COMMANDS {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = place.run(&words).out;
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        text.push_str(&format!(
            "\n## `mainstay {command}`\n\n```text\n{}\n```\n",
            lines.join("\n")
        ));
    }
    compare("cli.md", &text);
}
