use super::program::{Place, run};

#[test]
fn wrong_usage_ends_with_64_and_says_what_to_do() {
    let place = Place::new();
    for (arguments, expected) in [
        (&[][..], "Usage: mainstay"),
        (&["srve"], "serve"),
        (&["serve", "--prot", "1"], "--help"),
        (&["check"], "<FILE>"),
        (&["demo", "--seconds", "1"], "5..=600"),
        (&["completions", "basic"], "bash"),
        (&["status", "--url", "https://localhost"], "--ca FILE"),
        (
            &["query", "SELECT ?", "--source", "s", "--param", "1e400"],
            "--param 1e400: number out of range",
        ),
        (&["explain", "nowhere", "orders"], "files come first"),
        (&["explain", "--source", "demo"], "--sql"),
    ] {
        let ended = place.run(arguments);
        assert_eq!(ended.code, 64, "{arguments:?}: {ended:?}");
        assert!(!ended.err.contains("Examples: mainstay"), "{ended:?}");
        assert!(ended.err.contains(expected), "{arguments:?}: {ended:?}");
        assert_eq!(ended.out, "", "{arguments:?}");
    }
}

#[test]
fn help_and_version_are_answers_with_examples() {
    let place = Place::new();
    let version = place.run(&["--version"]);
    assert_eq!(version.code, 0);
    assert_eq!(
        version.out,
        format!("mainstay {}\n", env!("CARGO_PKG_VERSION"))
    );
    for command in [
        "init",
        "serve",
        "check",
        "explain",
        "query",
        "status",
        "demo",
        "completions",
    ] {
        let help = place.run(&[command, "--help"]);
        assert_eq!(help.code, 0, "{command}");
        assert!(
            help.out.contains("Examples:\n  mainstay"),
            "{command}: {}",
            help.out
        );
    }
    let help = place.run(&["--help"]).out;
    for line in help.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]);
        assert_eq!(script.code, 0, "{shell}");
        assert!(script.out.contains("completions"), "{shell}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_error() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_mainstay");
    for command in ["init -", "completions bash"] {
        let line = format!("{{ {program} {command}; echo \"code $?\" >&2; }} | head -n 0");
        let mut shell = std::process::Command::new("sh");
        let ended = run(shell.arg("-c").arg(line).current_dir(place.path()));
        assert_eq!(ended.err, "code 0\n", "{command}");
    }
}

#[test]
fn a_new_key_comes_with_a_table_that_a_configuration_takes() {
    let place = Place::new();
    let made = place.run(&["key", "new", "ci", "--role", "write"]);
    assert_eq!(made.code, 0, "{made:?}");
    let (key, table) = made.out.split_once("\n\n").unwrap();
    assert!(key.starts_with("ms_") && key.len() == 67, "{key}");
    assert!(!table.contains(key), "{table}");
    let text = format!(
        "{table}\n[server]\nlisten = \"0.0.0.0:7717\"\n[sources.s]\ndriver = \"sqlite\"\n[sources.s.endpoints.a]\npath = \"a.db\"\n"
    );
    place.write("keyed.toml", &text);
    let checked = place.run(&["check", "keyed.toml"]);
    assert!(!checked.err.contains("server."), "{checked:?}");
    assert!(!checked.out.contains("server."), "{checked:?}");
}
