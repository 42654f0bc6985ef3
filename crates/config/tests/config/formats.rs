use mainstay_config::{Configuration, Format, Origin, Problem, Tree, check};

use super::given::{ORDERS, lines, loaded, options};

fn problems(name: &str, text: &str) -> Vec<Problem> {
    check(options(&[(name, text)]))
}

#[test]
fn the_same_configuration_in_each_format_is_the_same_configuration() {
    let toml = format!(
        "{ORDERS}[policy.retry]\ndelay = \"2s\"\nfactor = 1.5\non = [\"A\", \"😀\"]\nbudget = false\n"
    );
    let yaml = "# a comment\nsources:\n  orders:\n    driver: postgres\n    database: 'orders'\n    user: \"a\\u0070p\"\n    endpoints:\n      a: {host: db1.internal, role: primary}\n      b:\n        host: db2.internal\npolicy:\n  retry:\n    delay: 2s\n    factor: 1.5\n    on:\n      - A\n      - 😀\n    budget: false\n";
    let json = "\u{feff}{\"sources\": {\"orders\": {\"driver\": \"postgres\", \"database\": \"orders\", \"user\": \"a\\u0070p\",\n \"endpoints\": {\"a\": {\"host\": \"db1.internal\", \"role\": \"primary\"}, \"b\": {\"host\": \"db2.internal\"}}}},\n \"policy\": {\"retry\": {\"delay\": \"2s\", \"factor\": 15e-1, \"on\": [\"A\", \"\\ud83d\\ude00\"], \"budget\": false}}}\n";
    let first = loaded(options(&[("a.toml", &toml)])).configuration;
    for (name, text) in [("a.yaml", yaml), ("a.yml", yaml), ("A.JSON", json)] {
        let other = loaded(options(&[(name, text)])).configuration;
        assert_eq!(first.sources, other.sources, "{name}");
        assert_eq!(first.server, other.server, "{name}");
    }
    assert_eq!(first.sources["orders"].policy.retry.on, ["A", "😀"]);
}

#[test]
fn wrong_syntax_is_told_with_its_line_and_ends_there() {
    for (name, text, line) in [
        ("a.toml", "[server]\nlisten = \n", 2),
        ("a.toml", "[server\n", 1),
        ("a.toml", "a = 1\nb = 'x\n", 2),
        ("a.toml", "\n\n\u{0}", 3),
        ("a.json", "{\n \"server\": {,}}", 2),
        ("a.json", "{\n\n \"a\": 1,\n}", 4),
        ("a.json", "", 1),
        ("a.json", "{\"a\": \"\\ud800\"}", 1),
        ("a.json", "{\"a\": 01}", 1),
        ("a.json", "{\"a\": 1} x", 1),
        ("a.yaml", "server:\n\tlisten: x\n", 2),
        ("a.yaml", "a: [1, 2\n", 2),
        ("a.yaml", "a: \"x\nb: 1", 2),
    ] {
        let found = problems(name, text);
        assert_eq!(found.len(), 1, "{text:?}\n{}", lines(&found));
        let problem = &found[0];
        assert!(problem.message.starts_with("not "), "{problem}");
        assert!(problem.hint.is_some(), "{problem}");
        assert_eq!(problem.origin.to_string(), name);
        let near = problem.line.unwrap().abs_diff(line);
        assert!(
            near <= u32::from(name.ends_with("yaml")),
            "{text:?} {problem}"
        );
    }
}

#[test]
fn a_key_that_stands_twice_is_a_problem_at_the_second_place_and_the_rest_is_still_read() {
    for (name, text, line, path) in [
        (
            "a.toml",
            "[server]\nrows_max = 1\nrows_max = 2\ncolour = 1\n",
            3,
            "server.rows_max",
        ),
        (
            "a.toml",
            "[server]\nrows_max = 1\n[server]\ncolour = 1\n",
            3,
            "server",
        ),
        (
            "a.toml",
            "[server]\ncolour = 1\n[sources.demo]\nsafety = \"write\"\n[sources.other]\n[ sources.\"demo\" ]\n",
            6,
            "sources.demo",
        ),
        (
            "a.yaml",
            "server:\n  rows_max: 1\n  colour: 1\n  rows_max: 2\n",
            4,
            "server.rows_max",
        ),
        (
            "a.json",
            "{\"server\": {\n\"rows_max\": 1,\n\"colour\": 1, \"rows_max\": 2}}",
            3,
            "server.rows_max",
        ),
    ] {
        let found = problems(name, text);
        let all = lines(&found);
        let twice: Vec<_> = found
            .iter()
            .filter(|p| p.message.starts_with("given twice"))
            .collect();
        assert_eq!(twice.len(), 1, "{all}");
        assert_eq!(
            (twice[0].line, twice[0].path.as_str()),
            (Some(line), path),
            "{all}"
        );
        let first = twice[0].message.strip_prefix("given twice, first in line ");
        assert!(
            first.is_some_and(|first| first < line.to_string().as_str()),
            "{all}"
        );
        assert!(all.contains("server.colour: unknown key"), "{all}");
    }
}

#[test]
fn what_only_yaml_has_is_refused_and_words_are_read_by_the_core_schema() {
    for (text, message) in [
        ("a: &x 1\nb: *x\n", "anchors, aliases and tags are not read"),
        ("a: !!str 1\n", "anchors, aliases and tags are not read"),
        ("server: {}\n---\nserver: {}\n", "a second document"),
        ("? [a]\n: 1\n", "a key that is not plain text"),
        ("- a\n", "expected a mapping, got a list"),
        ("a\n", "expected a mapping, got text"),
    ] {
        let all = lines(&problems("a.yaml", text));
        assert!(all.contains(message), "{text:?}: {all}");
    }
    for (value, message) in [
        ("yes", Some("expected true or false, got \"yes\"")),
        ("on", Some("expected true or false, got \"on\"")),
        ("True", None),
        ("'true'", Some("expected true or false, got \"true\"")),
        ("~", Some("expected true or false, got nothing")),
        ("", Some("expected true or false, got nothing")),
        ("0x1F", Some("expected true or false, got 31")),
        ("1_000", Some("expected true or false, got \"1_000\"")),
        ("+12", Some("expected true or false, got 12")),
        ("1e3", Some("expected true or false, got 1000")),
        (".5", Some("expected true or false, got 0.5")),
        ("1.2.3", Some("expected true or false, got \"1.2.3\"")),
        (".inf", Some("expected true or false, got inf")),
    ] {
        let all = lines(&problems(
            "a.yaml",
            &format!("policy:\n  retry:\n    budget: {value}\n"),
        ));
        match message {
            Some(message) => assert!(all.contains(message), "{value}: {all}"),
            None => assert!(!all.contains("error"), "{value}: {all}"),
        }
    }
    // An empty file, and tables that say nothing, are no mistakes.
    for text in ["", "# only this\n", "server:\npolicy:\n", "---\n"] {
        assert!(
            problems("a.yaml", text)
                .iter()
                .all(|problem| !problem.is_error()),
            "{text:?}"
        );
    }
}

#[test]
fn what_is_too_long_or_too_deep_is_refused() {
    for (name, text) in [
        (
            "a.json",
            format!("{{\"a\": {}1{}}}", "[".repeat(100), "]".repeat(100)),
        ),
        ("a.json", format!("{{\"a\": {}", "[".repeat(100_000))),
        (
            "a.yaml",
            format!("a: {}1{}", "[".repeat(100), "]".repeat(100)),
        ),
        ("a.yaml", format!("a: {}", "[".repeat(100_000))),
        ("a.yaml", format!("a: {}", "{a: ".repeat(10_000))),
        (
            "a.toml",
            format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000)),
        ),
        ("a.toml", format!("{}a = 1", "a.".repeat(100_000))),
        ("a.toml", format!("[{}a]", "a.".repeat(100_000))),
        ("a.toml", "#".repeat(5 << 20)),
    ] {
        let found = problems(name, &text);
        assert!(found.iter().any(Problem::is_error), "{name} {}", text.len());
    }
}

#[test]
fn a_tree_is_read_alone_for_changes_at_run_time() {
    let origin = Origin::Runtime("runtime.toml".into());
    assert!(Tree::parse(origin.clone(), Format::Toml, "[server]\nrows_max = 1").is_ok());
    let problems = Tree::parse(origin, Format::Toml, "a = 1\na = 2").unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(
        problems[0].to_string(),
        "runtime.toml:2:1: error: a: given twice, first in line 1 (keep one of the two)"
    );
}

#[test]
fn a_file_that_is_missing_or_not_text_is_told_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let latin = folder.path().join("latin.toml");
    std::fs::write(&latin, b"a = \"\xe4\"").unwrap();
    let right = folder.path().join("right.toml");
    std::fs::write(&right, ORDERS).unwrap();
    let missing = folder.path().join("missing.toml");
    let mut given = options(&[]);
    given.files = vec![latin.into(), missing.into(), right.clone().into()];
    let found = check(given.clone());
    let all = lines(&found);
    assert_eq!(found.len(), 2, "{all}");
    assert!(
        all.contains("latin.toml: error: cannot be read") && all.contains("write it as UTF-8"),
        "{all}"
    );
    assert!(all.contains("missing.toml: error: cannot be read"), "{all}");
    given.files = vec![right.into()];
    assert!(Configuration::load(given).is_ok());
}

#[test]
fn a_problem_is_one_line_as_text_and_an_object_as_json() {
    let found = problems("a.toml", "[server]\ncolour = 1\n");
    let colour = &found[1];
    assert_eq!(
        serde_json::to_value(colour).unwrap()["path"],
        serde_json::json!("server.colour"),
    );
    let object = serde_json::to_value(colour).unwrap();
    assert_eq!(object["origin"], "a.toml");
    assert_eq!(object["line"], 2);
    assert_eq!(object["column"], 1);
    assert_eq!(object["severity"], "error");
    assert_eq!(object["message"], "unknown key");
    assert!(
        colour
            .to_string()
            .starts_with("a.toml:2:1: error: server.colour: unknown key (")
    );
    let whole = serde_json::to_value(&problems("a.ini", "")[0]).unwrap();
    assert!(whole["line"].is_null() && whole["hint"].is_string());
}

#[test]
fn keys_that_hold_control_characters_are_told_in_one_line() {
    let found = problems(
        "a.json",
        "{\"a\\n\\u001b[31mb\": 1, \"sources\": {\"x\\ny\": {\"driver\": \"a\\tb\"}}}",
    );
    assert!(found.len() >= 2);
    for problem in &found {
        assert!(
            !problem.to_string().chars().any(char::is_control),
            "{problem:?}"
        );
    }
}

#[test]
fn of_very_many_problems_the_first_thousand_are_told_and_that_there_are_more() {
    let keys: Vec<String> = (0..50_000).map(|n| format!("\"listen{n}\": 1")).collect();
    let found = problems("a.json", &format!("{{\"server\": {{{}}}}}", keys.join(",")));
    assert_eq!(found.len(), 1001);
    assert_eq!(found[1000].message, "more than 1000 problems");
    let tables: Vec<String> = (0..1001).map(|n| format!("[sources.s{n}]")).collect();
    let found = problems("a.toml", &tables.join("\n"));
    assert!(lines(&found).contains("more than 1000 sources"));
}

#[test]
fn a_tree_written_as_toml_and_read_again_says_the_same() {
    let json = r#"{"policy": {"retry": {"on": ["a\"b", 5], "factor": 1.5, "budget": true}},
                   "sources": {"o": {"driver": "sqlite", "path": "ä\\ö.db", "endpoints": {"a": {}}}}}"#;
    let tree = Tree::parse(Origin::file("a.json"), Format::Json, json).unwrap();
    let toml = tree.to_toml();
    let again = Tree::parse(Origin::file("a.json"), Format::Toml, &toml).unwrap();
    assert_eq!(again.to_toml(), toml);
    let one = loaded(options(&[("a.json", json)]));
    let other = loaded(options(&[("a.toml", &toml)]));
    assert_eq!(one.configuration, other.configuration, "{toml}");
}
