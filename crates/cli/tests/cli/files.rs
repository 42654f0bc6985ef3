use serde_json::Value;

use super::program::Place;

const MISTAKES: &str = include_str!("../../../config/tests/config/mistakes.toml");

/// The lines of the mistakes in that file.
const LINES: [u64; 12] = [2, 3, 4, 5, 8, 10, 12, 16, 19, 22, 24, 26];

#[test]
fn the_file_of_init_has_no_problems() {
    let place = Place::new();
    let wrote = place.run(&["init"]);
    assert_eq!(wrote.code, 0, "{wrote:?}");
    assert!(
        wrote.out.contains("/mainstay serve --config mainstay.toml"),
        "{wrote:?}"
    );
    let checked = place.run(&["check", "mainstay.toml"]);
    assert_eq!((checked.code, checked.out.as_str()), (0, "no problems\n"));
}

#[test]
fn init_overwrites_nothing_unless_it_is_told_to() {
    let place = Place::new();
    place.write("own.toml", "mine");
    let refused = place.run(&["init", "own.toml"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("--force"), "{refused:?}");
    assert_eq!(place.read("own.toml"), "mine");
    assert_eq!(place.run(&["init", "own.toml", "--force"]).code, 0);
    assert!(place.read("own.toml").contains("[sources.demo]"));
    let nowhere = place.run(&["init", "no/such/folder.toml"]);
    assert_eq!(nowhere.code, 1, "{nowhere:?}");
    assert!(
        nowhere.err.contains("make it with `mkdir -p no/such`"),
        "{nowhere:?}"
    );
}

#[test]
fn a_file_with_twelve_mistakes_gives_twelve_problems_with_their_lines() {
    let place = Place::new();
    place.write("mistakes.toml", MISTAKES);
    let text = place.run(&["check", "mistakes.toml"]);
    assert_eq!(text.code, 2, "{text:?}");
    let errors: Vec<&str> = text
        .out
        .lines()
        .filter(|line| line.contains(": error: "))
        .collect();
    assert_eq!(errors.len(), 12, "{}", text.out);
    assert!(text.out.ends_with("12 errors\n"), "{}", text.out);
    for (line, error) in LINES.iter().zip(&errors) {
        assert!(
            error.starts_with(&format!("mistakes.toml:{line}:")),
            "{line}: {error}"
        );
    }

    let json = place.run(&["check", "mistakes.toml", "--format", "json"]);
    assert_eq!(json.code, 2, "{json:?}");
    let report: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (&report["errors"], &report["warnings"]),
        (&12.into(), &0.into())
    );
    let problems = report["problems"].as_array().unwrap();
    let lines: Vec<u64> = problems
        .iter()
        .map(|problem| problem["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, LINES);
    for problem in problems {
        assert!(
            problem["path"].is_string() && problem["message"].is_string(),
            "{problem}"
        );
        assert!(problem.get("hint").is_some(), "{problem}");
    }
}

#[test]
fn files_that_cannot_be_read_are_problems() {
    let place = Place::new();
    let missing = place.run(&["check", "missing.toml"]);
    assert_eq!(missing.code, 2, "{missing:?}");
    assert!(missing.out.contains("missing.toml"), "{missing:?}");
    place.write("broken.toml", "[server\nlisten = 1\n");
    let broken = place.run(&["check", "broken.toml"]);
    assert_eq!(broken.code, 2, "{broken:?}");
    assert!(broken.out.contains("broken.toml:1:"), "{broken:?}");
}

#[test]
fn explain_tells_each_value_with_its_layer_and_line() {
    let place = Place::new();
    place.write(
        "a.toml",
        "[policy.retry]\nattempts_max = 4\n[sources.orders]\ndriver = \"sqlite\"\npath = \"o.db\"\n[sources.orders.endpoints.a]\n",
    );
    place.write("b.toml", "[sources.orders.policy.retry]\ndelay = \"1s\"\n");
    let told = place.run(&["explain", "a.toml", "b.toml", "orders.a"]);
    assert_eq!(told.code, 0, "{told:?}");
    let line = |key: &str| {
        let found = told.out.lines().find(|line| line.starts_with(key));
        let found = found.unwrap_or_else(|| panic!("{key}: {}", told.out));
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        line("policy.retry.attempts_max"),
        "policy.retry.attempts_max 4 [policy] a.toml:2"
    );
    assert_eq!(
        line("policy.retry.delay "),
        "policy.retry.delay 1s [sources.orders.policy] b.toml:2"
    );

    let json = place.run(&["explain", "a.toml", "--json"]);
    let all: Value = serde_json::from_str(&json.out).unwrap();
    assert!(
        all["orders"]
            .as_array()
            .is_some_and(|lines| lines.len() > 40),
        "{json:?}"
    );

    let unknown = place.run(&["explain", "a.toml", "order"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(
        unknown.err.contains("known: orders, orders.a"),
        "{unknown:?}"
    );
    place.write("mistakes.toml", MISTAKES);
    assert_eq!(place.run(&["explain", "mistakes.toml"]).code, 2);
}

#[test]
fn variables_are_laid_above_files() {
    let place = Place::new();
    place.write(
        "a.toml",
        "[sources.s]\ndriver = \"sqlite\"\npath = \"o.db\"\n[sources.s.endpoints.a]\n",
    );
    let mut command = place.command(&["check", "a.toml"]);
    let ended = super::program::run(command.env("MAINSTAY_SERVER__LISTEN", "0.0.0.0:1"));
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.out.contains("MAINSTAY_SERVER__LISTEN"), "{ended:?}");
}

#[test]
fn a_database_file_that_is_missing_is_a_warning_with_what_to_do() {
    let place = Place::new();
    let source = |name: &str, path: &str, more: &str| {
        format!(
            "[sources.{name}]\ndriver = \"sqlite\"\npath = {path:?}\n{more}[sources.{name}.endpoints.a]\n"
        )
    };
    let made = "options = { create = true }\n";
    place.write("there.db", "");
    place.write(
        "a.toml",
        &[
            source("new", "./new.db", ""),
            source("there", "there.db", ""),
            source("made", "made.db", made),
            source("lost", "no/such.db", made),
        ]
        .concat(),
    );
    let checked = place.run(&["check", "a.toml"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    let lines: Vec<&str> = checked.out.lines().collect();
    assert_eq!(
        lines,
        [
            "a.toml:3:1: warning: sources.new.path: the file ./new.db is missing (make the file, or set options.create = true)",
            "a.toml:16:1: warning: sources.lost.path: the folder no is missing (make it with `mkdir -p no`)",
            "no errors, 2 warnings",
        ]
    );
    place.write(
        "a.toml",
        &source("new", "new.db", "options = { creat = true }\n"),
    );
    let checked = place.run(&["check", "a.toml"]);
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(
        checked.out.starts_with(
            "a.toml:4:13: error: sources.new.options.creat: unknown key (did you mean create?)"
        ),
        "{checked:?}"
    );
}

#[test]
fn what_cannot_be_looked_at_is_not_called_missing() {
    let place = Place::new();
    std::os::unix::fs::symlink("loop", place.path().join("loop")).unwrap();
    place.write("text", "");
    let table = [
        ("a", "loop/a.db", "the folder loop cannot be looked at: "),
        ("b", "loop", "the file loop cannot be looked at: "),
        ("c", "text/a.db", "the folder text is none"),
        ("d", "no/a.db", "the folder no is missing"),
    ];
    let source = |(name, path, _): &(&str, &str, &str)| {
        format!(
            "[sources.{name}]\ndriver = \"sqlite\"\npath = {path:?}\n[sources.{name}.endpoints.a]\n"
        )
    };
    place.write("a.toml", &table.iter().map(source).collect::<String>());
    let checked = place.run(&["check", "a.toml"]);
    assert_eq!(checked.code, 0, "{checked:?}");
    let lines: Vec<&str> = checked.out.lines().collect();
    assert_eq!(lines.len(), table.len() + 1, "{checked:?}");
    for ((name, _, part), line) in table.iter().zip(lines) {
        let expected = format!("warning: sources.{name}.path: {part}");
        assert!(line.contains(&expected), "{expected}: {line}");
    }
}

#[test]
fn what_can_never_be_a_database_is_an_error_of_check() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("folder")).unwrap();
    place.write(
        "text.db",
        "this is a text, and a longer one than the head of a database",
    );
    place.write("short.db", "text");
    let mut text = String::new();
    for (name, path) in [
        ("a", "folder"),
        ("b", "text.db"),
        ("c", "short.db"),
        ("d", "/dev/null"),
    ] {
        text.push_str(&format!(
            "[sources.{name}]\ndriver = \"sqlite\"\npath = {path:?}\n[sources.{name}.endpoints.a]\n"
        ));
    }
    place.write("a.toml", &text);
    let checked = place.run(&["check", "a.toml"]);
    assert_eq!(checked.code, 2, "{checked:?}");
    let lines: Vec<&str> = checked.out.lines().collect();
    assert_eq!(
        lines,
        [
            "a.toml:3:1: error: sources.a.path: folder is a folder (name a file in it, such as orders.db)",
            "a.toml:7:1: error: sources.b.path: text.db is no SQLite database (name another file, or restore it from a backup)",
            "a.toml:11:1: error: sources.c.path: short.db is no SQLite database (name another file, or restore it from a backup)",
            "a.toml:15:1: error: sources.d.path: /dev/null is no file (name a file)",
            "4 errors",
        ]
    );
}

#[test]
fn an_empty_file_is_named_and_served_with_a_greeting_that_says_how_to_add_a_source() {
    let place = Place::new();
    place.write("empty.toml", "");
    let checked = place.run(&["check", "empty.toml"]);
    assert!(
        checked.out.starts_with("empty.toml: warning: "),
        "{checked:?}"
    );
    let server = place.serve(&["--config", "empty.toml"]);
    let said = server
        .greeting
        .iter()
        .find(|line| line.starts_with("Sources: none"));
    assert!(
        said.is_some_and(|line| line.contains("[sources.NAME]")),
        "{:?}",
        server.greeting
    );
}
