use mainstay_config::{Configuration, check, explain};

use super::given::{ORDERS, lines, loaded, toml};

fn with(variables: &[(&str, &str)]) -> mainstay_config::LoadOptions {
    let mut options = toml(ORDERS);
    options.environment = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    options
}

#[test]
fn a_variable_names_a_key_in_any_case_and_its_value_takes_the_type_of_the_key() {
    for (name, value, target, path, expected) in [
        (
            "MAINSTAY_POLICY__RETRY__ATTEMPTS_MAX",
            "7",
            "orders",
            "policy.retry.attempts_max",
            "7",
        ),
        (
            "mainstay_policy__retry__attempts_max",
            "7",
            "orders",
            "policy.retry.attempts_max",
            "7",
        ),
        (
            "Mainstay_Sources__Orders__User",
            "other",
            "orders.a",
            "user",
            "other",
        ),
        (
            "MAINSTAY_SOURCES__ORDERS__USER",
            "123",
            "orders.a",
            "user",
            "123",
        ),
        (
            "MAINSTAY_SOURCES__ORDERS__USER",
            "\"quoted\"",
            "orders.a",
            "user",
            "quoted",
        ),
        (
            "MAINSTAY_SOURCES__ORDERS__USER",
            "true",
            "orders.a",
            "user",
            "true",
        ),
        (
            "MAINSTAY_SOURCES__ORDERS__USER",
            "2024-01-01",
            "orders.a",
            "user",
            "2024-01-01",
        ),
        (
            "MAINSTAY_SOURCES__ORDERS__ENDPOINTS__A__PORT",
            "6000",
            "orders.a",
            "port",
            "6000",
        ),
        (
            "MAINSTAY_POLICY__RETRY__DEADLINE",
            "5s",
            "orders",
            "policy.retry.deadline",
            "5s",
        ),
        (
            "MAINSTAY_POLICY__RETRY__DEADLINE",
            "\"90s\"",
            "orders",
            "policy.retry.deadline",
            "90s",
        ),
        (
            "MAINSTAY_POLICY__RETRY__DEADLINE",
            "none",
            "orders",
            "policy.retry.deadline",
            "none",
        ),
        (
            "MAINSTAY_POLICY__CIRCUIT__PROBE_REOPENS",
            "false",
            "orders",
            "policy.circuit.probe_reopens",
            "false",
        ),
        (
            "MAINSTAY_POLICY__CIRCUIT__FAILURE_RATIO",
            "0.25",
            "orders",
            "policy.circuit.failure_ratio",
            "0.25",
        ),
        (
            "MAINSTAY_POLICY__RETRY__ON",
            "[\"A\", 5]",
            "orders",
            "policy.retry.on",
            "[A, 5]",
        ),
        (
            "MAINSTAY_POLICY__RETRY__ON",
            "40001",
            "orders",
            "policy.retry.on",
            "[40001]",
        ),
        (
            "MAINSTAY_SOURCES__ORDERS__OPTIONS__APPLICATION_NAME",
            "x",
            "orders.b",
            "options.application_name",
            "x",
        ),
        (
            "MAINSTAY_SOURCES__ORDERS__PASSWORD",
            "env:ORDERS_PASSWORD",
            "orders.a",
            "password",
            "(secret from env:ORDERS_PASSWORD)",
        ),
        (
            "MAINSTAY_SOURCES__ORDERS__PASSWORD",
            "1234",
            "orders.a",
            "password",
            "(secret)",
        ),
    ] {
        let loaded = loaded(with(&[(name, value)]));
        assert_eq!(
            lines(
                &loaded
                    .warnings
                    .iter()
                    .filter(|w| !w.path.contains("attempt_timeout"))
                    .cloned()
                    .collect::<Vec<_>>()
            ),
            "",
            "{name}"
        );
        let all = explain(&loaded.configuration, target).unwrap();
        let line = all.iter().find(|line| line.path == path).unwrap();
        assert_eq!(line.value, expected, "{name}={value}");
        assert_eq!(line.origin, name);
        assert_eq!(line.line, None);
    }
}

#[test]
fn a_variable_that_names_no_key_or_has_a_wrong_value_is_a_problem_that_names_it() {
    for (name, value, path, message) in [
        (
            "MAINSTAY_SERVER__LISTN",
            "127.0.0.1:1",
            "server.listn",
            "unknown key (did you mean listen?)",
        ),
        (
            "MAINSTAY_SERVR__LISTEN",
            "x",
            "servr",
            "unknown key (did you mean server?)",
        ),
        (
            "MAINSTAY_SERVER__LISTEN",
            "0.0.0.0:1",
            "server.listen",
            "0.0.0.0:1 can be reached",
        ),
        (
            "MAINSTAY_SERVER__DRAIN_TIMEOUT",
            "5",
            "server.drain_timeout",
            "5 has no unit",
        ),
        (
            "MAINSTAY_POLICY__RETRY__ATTEMPTS_MAX",
            "many",
            "policy.retry.attempts_max",
            "expected a whole number",
        ),
        (
            "MAINSTAY_POLICY__RETRY",
            "3",
            "policy.retry",
            "expected a table, got text",
        ),
        ("MAINSTAY_POLICY__", "3", "policy.", "names no key"),
        ("MAINSTAY___X", "3", ".x", "names no key"),
        (
            "MAINSTAY__SERVER",
            "3",
            "_server",
            "unknown key (did you mean server?)",
        ),
        (
            "MAINSTAY_SERVER____LISTEN",
            "3",
            "server..listen",
            "names no key",
        ),
        (
            "MAINSTAY_SOURCES__ORDRES__USER",
            "x",
            "sources.ordres",
            "there is no source ordres (did you mean orders?)",
        ),
        (
            "MAINSTAY_SHARD_SETS__X",
            "x",
            "shard_sets",
            "shard_sets is not available in this version",
        ),
        (
            "MAINSTAY_SOURCES__ORDERS__PASSWORD",
            "env:NOWHERE",
            "sources.orders.password",
            "does not resolve",
        ),
    ] {
        let problems = check(with(&[(name, value)]));
        let all = lines(&problems);
        let begins = format!("{name}: error: {path}: {message}");
        assert!(
            problems
                .iter()
                .any(|problem| problem.to_string().starts_with(&begins)),
            "{name}={value}\n{all}"
        );
    }
}

#[test]
fn names_without_a_double_underscore_and_names_of_others_are_never_configuration() {
    let plain = loaded(with(&[]));
    let others = loaded(with(&[
        ("MAINSTAY_LOG", "debug"),
        ("MAINSTAY_SERVER_LISTEN", "0.0.0.0:1"),
        ("MAINSTAY", "x"),
        ("MAINSTAY_", "x"),
        ("OTHER_SERVER__LISTEN", "x"),
        ("XMAINSTAY_SERVER__LISTEN", "x"),
        ("", ""),
        ("ÄÖÜÄÖÜ__X", "x"),
        ("MAINSTAŸ__X", "x"),
    ]));
    assert_eq!(plain, others);
}

#[test]
fn two_variables_for_one_key_are_a_problem_and_so_are_ids_that_differ_only_in_case() {
    let problems = check(with(&[
        ("MAINSTAY_SERVER__LISTEN", "127.0.0.1:1"),
        ("mainstay_server__listen", "127.0.0.1:2"),
    ]));
    assert!(
        lines(&problems).contains("already given by MAINSTAY_SERVER__LISTEN"),
        "{}",
        lines(&problems)
    );
    let mut options = toml(&format!("{ORDERS}\n{}", ORDERS.replace("orders", "Orders")));
    options
        .environment
        .push(("MAINSTAY_SOURCES__ORDERS__USER".into(), "x".into()));
    let problems = check(options);
    assert!(
        lines(&problems).contains("could mean Orders or orders"),
        "{}",
        lines(&problems)
    );
}

#[test]
fn the_embedded_source_takes_the_environment_too() {
    let mut options = with(&[
        ("MAINSTAY_SERVER__DATA_DIR", "/var/lib/mainstay"),
        ("MAINSTAY_SERVER__LISTEN", "localhost:0"),
    ]);
    options.files.clear();
    let loaded = Configuration::load(options).unwrap();
    assert_eq!(
        loaded.configuration.server.listen.to_string(),
        "127.0.0.1:0"
    );
    let writer = &loaded.configuration.sources["demo"].endpoints["writer"];
    assert_eq!(
        writer.path().unwrap().to_str(),
        Some("/var/lib/mainstay/demo.db")
    );
}
