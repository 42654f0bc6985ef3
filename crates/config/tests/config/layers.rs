//! Every key in every layer.

use std::fmt::Write;

use mainstay_config::{Configuration, Explained, Format, Origin, Tree, explain};
use mainstay_engine::policy::{KEYS, Key, Kind, Preset, Setting};

use super::given::{lines, loaded, options, toml};

/// The policy tables, weakest first.
const LAYERS: &[&str] = &[
    "policy",
    "data.policy",
    "sources.orders.policy",
    "sources.orders.endpoints.a.policy",
];

/// Different values for a key, in TOML, that are valid beside the defaults of all other keys.
fn values(key: &Key) -> Vec<String> {
    let quoted = |words: &[&str]| words.iter().map(|word| format!("{word:?}")).collect();
    match (key.path, key.kind) {
        ("retry.jitter", _) => quoted(&["none", "full", "equal", "up_to(50%)", "plus_minus(5%)"]),
        ("circuit.failure_ratio" | "circuit.slow_ratio", _) => ["0.1", "0.2", "0.3", "0.4", "0.6"]
            .map(str::to_owned)
            .into(),
        ("circuit.open_for", _) => quoted(&["11s", "12s", "13s", "14s", "15s"]),
        ("circuit.open_for_max", _) => quoted(&["2h", "3h", "4h", "5h", "6h"]),
        ("retry.delay_max", _) => quoted(&["none", "41s", "42s", "43s", "44s"]),
        ("retry.attempt_timeout", _) => quoted(&["none", "11s", "12s", "13s", "14s"]),
        ("pool.idle_max", _) => ["21", "22", "23", "24", "25"].map(str::to_owned).into(),
        (_, Kind::Bool) => ["true", "false", "true", "false", "true"]
            .map(str::to_owned)
            .into(),
        (_, Kind::Count) => ["1", "2", "3", "4", "6"].map(str::to_owned).into(),
        (_, Kind::Number) => ["1.5", "3.5", "4.0", "5", "6"].map(str::to_owned).into(),
        (_, Kind::Time) => quoted(&["10ms", "2s", "3s", "4s", "5500ms"]),
        (_, Kind::Choice(words)) => {
            let words: Vec<&str> = words
                .iter()
                .copied()
                .filter(|word| *word != "fibonacci")
                .collect();
            let turned = words.iter().cycle().take(5).copied().collect::<Vec<_>>();
            quoted(&turned)
        }
        (_, Kind::Text) => quoted(&["a", "b", "c", "d", "e"]),
        (_, Kind::List) => ["[\"1\"]", "[\"2\"]", "[\"3\"]", "[\"4\"]", "[]"]
            .map(str::to_owned)
            .into(),
    }
}

/// The value as `explain` shows it.
fn shown(value: &str) -> String {
    match value
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) => format!("[{}]", inner.replace('"', "")),
        None => match value.trim_matches('"') {
            "none" => "none".into(),
            number if number.ends_with(".0") => number.trim_end_matches(".0").to_owned(),
            text => text.to_owned(),
        },
    }
}

/// A value as files write it.
fn off_word(key: &Key, value: Setting) -> String {
    match (value, key.off) {
        (Setting::Off, Some(word)) => word.to_owned(),
        (value, _) => value.to_string(),
    }
}

fn source() -> &'static str {
    "[sources.orders]\ndriver = \"sqlite\"\npath = \"o.db\"\n[sources.orders.endpoints.a]\n"
}

fn line(lines: &[Explained], path: &str) -> Explained {
    let mut found = lines.iter().filter(|line| line.path == path);
    let line = found
        .next()
        .unwrap_or_else(|| panic!("{path} is not explained"));
    assert_eq!(found.next(), None, "{path} is explained twice");
    line.clone()
}

#[test]
fn the_strongest_layer_that_sets_a_key_wins_for_every_key_and_every_set_of_layers() {
    for key in KEYS {
        let values = values(key);
        for layers in 0_usize..1 << LAYERS.len() {
            let mut text = source().to_owned();
            let set: Vec<usize> = (0..LAYERS.len())
                .filter(|layer| layers & (1 << layer) != 0)
                .collect();
            for layer in &set {
                let (group, name) = key.path.split_once('.').unwrap();
                writeln!(
                    text,
                    "[{}.{group}]\n{name} = {}",
                    LAYERS[*layer], values[*layer]
                )
                .unwrap();
            }
            let loaded = loaded(toml(&text));
            let path = format!("policy.{}", key.path);
            for (target, strongest) in [("orders", 2), ("orders.a", 3)] {
                let line = line(&explain(&loaded.configuration, target).unwrap(), &path);
                match set.iter().rev().find(|layer| **layer <= strongest) {
                    Some(layer) => {
                        let expected = shown(&values[*layer]);
                        assert_eq!(line.value, expected, "{text}");
                        assert_eq!(line.layer, format!("[{}]", LAYERS[*layer]), "{text}");
                        let at = text.lines().nth(line.line.unwrap() as usize - 1).unwrap();
                        assert!(at.starts_with(key.path.split_once('.').unwrap().1), "{at}");
                    }
                    None => {
                        let default = off_word(key, (key.get)(&Preset::Balanced.settings()));
                        assert_eq!(
                            (line.value.as_str(), line.layer.as_str()),
                            (default.as_str(), "default")
                        );
                        assert_eq!((line.origin.as_str(), line.line), ("default", None));
                    }
                }
            }
        }
    }
}

#[test]
fn the_policy_that_comes_out_says_what_explain_says() {
    for key in KEYS {
        for value in values(key) {
            let (group, name) = key.path.split_once('.').unwrap();
            let text = format!(
                "{}[sources.orders.policy.{group}]\n{name} = {value}\n",
                source()
            );
            let loaded = loaded(toml(&text));
            let endpoint = &loaded.configuration.sources["orders"].endpoints["a"];
            let got = (key.get)(&endpoint.policy);
            let path = format!("policy.{}", key.path);
            let line = line(&explain(&loaded.configuration, "orders.a").unwrap(), &path);
            assert_eq!(off_word(key, got), line.value, "{text}");
        }
    }
}

#[test]
fn the_strongest_layer_that_names_a_preset_decides_for_every_key() {
    let named = [
        ("[policy]\npreset = \"conservative\"\n", 0),
        ("[data]\npreset = \"aggressive_failover\"\n", 1),
        ("[sources.orders.policy]\npreset = \"sharded\"\n", 2),
        (
            "[sources.orders.endpoints.a.policy]\npreset = \"component\"\n",
            3,
        ),
    ];
    let presets = [
        Preset::Conservative,
        Preset::AggressiveFailover,
        Preset::Sharded,
        Preset::Component,
    ];
    for set in 0_usize..1 << named.len() {
        let mut text = source().to_owned();
        let mut at_source = Preset::Balanced;
        let mut at_endpoint = Preset::Balanced;
        for (table, level) in named {
            if set & (1 << level) != 0 {
                text.push_str(table);
                at_endpoint = presets[level];
                if level < 3 {
                    at_source = presets[level];
                }
            }
        }
        let loaded = loaded(toml(&text));
        let orders = &loaded.configuration.sources["orders"];
        assert_eq!(orders.preset, at_source, "{text}");
        for key in KEYS {
            assert_eq!(
                (key.get)(&orders.policy),
                (key.get)(&at_source.settings()),
                "{}",
                key.path
            );
            let endpoint = &orders.endpoints["a"].policy;
            assert_eq!(
                (key.get)(endpoint),
                (key.get)(&at_endpoint.settings()),
                "{}",
                key.path
            );
        }
        assert_eq!(orders.policy.name, at_source.as_str());
    }
}

#[test]
fn connection_keys_come_from_the_strongest_layer_that_has_them() {
    let layers = [
        "connection",
        "data.connection",
        "sources.orders",
        "sources.orders.endpoints.a",
    ];
    let keys = [
        "host",
        "database",
        "user",
        "tls_ca",
        "options.application_name",
    ];
    for key in keys {
        for set in 1_usize..1 << layers.len() {
            let mut tables: Vec<String> = Vec::new();
            for (level, layer) in layers.iter().enumerate() {
                let mut table = format!("[{layer}]\n");
                if level == 0 {
                    for other in keys.iter().filter(|other| **other != key) {
                        writeln!(table, "{other} = \"other\"").unwrap();
                    }
                    table.push_str("driver = \"postgres\"\n");
                }
                if set & (1 << level) != 0 {
                    writeln!(table, "{key} = \"level-{level}\"").unwrap();
                }
                tables.push(table);
            }
            let text = tables.concat();
            let strongest = (0..layers.len())
                .rev()
                .find(|level| set & (1 << level) != 0)
                .unwrap();
            let loaded = loaded(toml(&text));
            let line = line(&explain(&loaded.configuration, "orders.a").unwrap(), key);
            assert_eq!(line.value, format!("level-{strongest}"), "{text}");
            assert_eq!(line.layer, format!("[{}]", layers[strongest]), "{text}");
        }
    }
}

#[test]
fn flags_beat_the_environment_which_beats_files_of_which_the_last_wins_and_runtime_beats_all() {
    let file = |depth: u32| format!("{}[policy.limits]\nqueue_depth = {depth}\n", source());
    let (first, second) = (file(1), file(2));
    let mut given = options(&[("a.toml", &first)]);
    let value = |given: &mainstay_config::LoadOptions| {
        let loaded = Configuration::load(given.clone()).unwrap();
        let lines = explain(&loaded.configuration, "orders.a").unwrap();
        let line = line(&lines, "policy.limits.queue_depth");
        (line.value.clone(), line.origin.clone(), line.layer.clone())
    };
    let is = |value: &str, origin: &str, layer: &str| {
        (value.to_owned(), origin.to_owned(), layer.to_owned())
    };
    assert_eq!(value(&given), is("1", "a.toml", "[policy]"));
    given.files.push(mainstay_config::Input::Text {
        name: "b.toml".into(),
        text: second,
    });
    assert_eq!(value(&given), is("2", "b.toml", "[policy]"));
    let name = "MAINSTAY_POLICY__LIMITS__QUEUE_DEPTH";
    given.environment.push((name.to_owned(), "3".into()));
    assert_eq!(value(&given), is("3", name, "[policy]"));
    given.flags.push(mainstay_config::Flag {
        name: "--queue".into(),
        path: "policy.limits.queue_depth".into(),
        value: "4".into(),
    });
    assert_eq!(value(&given), is("4", "--queue", "[policy]"));
    let origin = Origin::Runtime("mainstay-data/runtime.toml".into());
    let text = "[policy.limits]\nqueue_depth = 5\n";
    given.runtime = Some(Tree::parse(origin, Format::Toml, text).unwrap());
    assert_eq!(
        value(&given),
        is("5", "mainstay-data/runtime.toml", "runtime")
    );
}

#[test]
fn files_are_merged_key_by_key_and_each_value_keeps_its_file() {
    let base = "[sources.orders]\ndriver = \"postgres\"\ndatabase = \"orders\"\nuser = \"app\"\n\
                [sources.orders.endpoints.a]\nhost = \"db1\"\n[policy.retry]\non = [\"1\", \"2\"]\n";
    let yaml = "sources:\n  orders:\n    user: other\n    endpoints:\n      b: { host: db2 }\n\
                policy: { retry: { on: ['3'] } }\n";
    let json = r#"{"sources": {"orders": {"endpoints": {"b": {"port": 6000}}}}}"#;
    let loaded = loaded(options(&[
        ("a.toml", base),
        ("b.yaml", yaml),
        ("c.json", json),
    ]));
    let orders = &loaded.configuration.sources["orders"];
    assert_eq!(orders.endpoints.len(), 2);
    assert_eq!(orders.policy.retry.on, ["3"]);
    let lines = explain(&loaded.configuration, "orders.b").unwrap();
    for (path, value, origin, at) in [
        ("database", "orders", "a.toml", Some(3)),
        ("user", "other", "b.yaml", Some(3)),
        ("host", "db2", "b.yaml", Some(5)),
        ("port", "6000", "c.json", Some(1)),
        ("policy.retry.on", "[3]", "b.yaml", Some(6)),
    ] {
        let line = line(&lines, path);
        assert_eq!(
            (line.value.as_str(), line.origin.as_str(), line.line),
            (value, origin, at),
            "{path}"
        );
    }
}

#[test]
fn problems_of_several_files_are_told_together_each_with_its_file() {
    let problems = mainstay_config::check(options(&[
        ("b.toml", "[server]\nlisten = \n[policy\n"),
        ("a.json", "{\"server\": }"),
        ("c.ini", "x"),
    ]));
    let origins: Vec<String> = problems
        .iter()
        .map(|problem| problem.origin.to_string())
        .collect();
    assert_eq!(
        origins,
        ["a.json", "b.toml", "c.ini"],
        "{}",
        lines(&problems)
    );
}

#[test]
fn a_key_in_a_policy_table_that_hides_a_preset_of_a_stronger_layer_is_a_warning() {
    for (text, expected) in [
        (
            "[policy.retry]\nattempts_max = 4\n[sources.orders.policy]\npreset = \"conservative\"",
            Some(6),
        ),
        // The preset says the same.
        (
            "[policy.retry]\nattempts_max = 5\n[sources.orders.policy]\npreset = \"conservative\"",
            None,
        ),
        // The preset stands in the same table, or weaker: that is what keys are for.
        (
            "[policy]\npreset = \"conservative\"\n[policy.retry]\nattempts_max = 4",
            None,
        ),
        (
            "[policy]\npreset = \"conservative\"\n[sources.orders.policy.retry]\nattempts_max = 4",
            None,
        ),
        // No preset says anything about it.
        (
            "[policy.limits]\nqueue_depth = 4\n[sources.orders.policy]\npreset = \"conservative\"",
            None,
        ),
        // A key of the source decides.
        (
            "[policy.retry]\nattempts_max = 4\n[sources.orders.policy]\npreset = \"conservative\"\n[sources.orders.policy.retry]\nattempts_max = 2",
            None,
        ),
    ] {
        let loaded = loaded(toml(&format!("{}{text}", source())));
        let at: Vec<_> = loaded.warnings.iter().map(|warning| warning.line).collect();
        let expected: Vec<_> = expected.into_iter().map(Some).collect();
        // The source and its endpoint both say so, about the same line.
        let mut once = at.clone();
        once.dedup();
        assert_eq!(once, expected, "{text}\n{}", lines(&loaded.warnings));
    }
}

#[test]
fn switching_the_budget_off_holds_whatever_is_said_about_its_parts() {
    let text = format!(
        "{}[policy.retry]\nbudget = false\n[sources.orders.policy.retry]\nbudget_ratio = 0.5\n",
        source()
    );
    let loaded = loaded(toml(&text));
    assert_eq!(
        loaded.configuration.sources["orders"].policy.retry.budget,
        None
    );
    let setting = (mainstay_engine::policy::key("retry.budget").unwrap().get)(
        &loaded.configuration.sources["orders"].policy,
    );
    assert_eq!(setting, Setting::Bool(false));
}

#[test]
fn explain_tells_the_keys_of_a_source_and_of_an_endpoint_too() {
    let text = "[sources.orders]\ndriver = \"sqlite\"\npath = \"o.db\"\npreset = \"conservative\"\n\
                transactions_max = 7\n[sources.orders.endpoints.a]\nweight = 2\n\
                [sources.keyed]\ndriver = \"postgres\"\nhost = \"h\"\ndatabase = \"d\"\nuser = \"u\"\n\
                idempotency_table = \"app.k\"\ncommit_proof = \"xid\"\n[sources.keyed.endpoints.a]\n";
    let loaded = loaded(toml(text));
    let keyed = explain(&loaded.configuration, "keyed").unwrap();
    let source = explain(&loaded.configuration, "orders").unwrap();
    let endpoint = explain(&loaded.configuration, "orders.a").unwrap();
    for (lines, path, value, layer, at) in [
        (
            &source,
            "preset",
            "conservative",
            "[sources.orders.policy]",
            Some(4),
        ),
        (
            &source,
            "transactions_max",
            "7",
            "[sources.orders]",
            Some(5),
        ),
        (&source, "transaction_idle", "1min", "default", None),
        (&source, "promotion", "route", "default", None),
        (&source, "safety", "write", "default", None),
        (&source, "replication", "(not set)", "default", None),
        (&source, "idempotency_table", "(not set)", "default", None),
        (&source, "commit_proof", "off", "default", None),
        (
            &keyed,
            "idempotency_table",
            "app.k",
            "[sources.keyed]",
            Some(13),
        ),
        (&keyed, "idempotency_keep", "24h", "default", None),
        (&keyed, "idempotency_answer_max", "65536B", "default", None),
        (&keyed, "commit_proof", "xid", "[sources.keyed]", Some(14)),
        (
            &keyed,
            "commit_proof_table",
            "mainstay_commits",
            "default",
            None,
        ),
        (&keyed, "commit_proof_wait", "5s", "default", None),
        (&source, "driver", "sqlite", "[sources.orders]", Some(2)),
        (
            &endpoint,
            "weight",
            "2",
            "[sources.orders.endpoints.a]",
            Some(7),
        ),
        (&endpoint, "role", "primary", "default", None),
        (&endpoint, "path", "o.db", "[sources.orders]", Some(3)),
        (
            &endpoint,
            "preset",
            "conservative",
            "[sources.orders.policy]",
            Some(4),
        ),
        (
            &endpoint,
            "policy.retry.attempts_max",
            "5",
            "preset conservative",
            Some(4),
        ),
    ] {
        let line = line(lines, path);
        assert_eq!(
            (line.value.as_str(), line.layer.as_str(), line.line),
            (value, layer, at),
            "{path}"
        );
    }
}

#[test]
fn explain_of_an_unknown_target_names_the_known_ones() {
    let loaded = loaded(toml(source()));
    for target in ["", "order", "orders.b", "orders.a.b", ".", "orders."] {
        let error = explain(&loaded.configuration, target).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("there is no {target:?}; known: orders, orders.a")
        );
    }
}

#[test]
fn a_value_at_another_line_is_the_same_configuration() {
    let one = loaded(toml(source())).configuration;
    let other = loaded(toml(&format!("# moved\n\n{}", source()))).configuration;
    let changed = loaded(toml(&format!(
        "{}[policy.limits]\nqueue_depth = 1",
        source()
    )))
    .configuration;
    assert_eq!(one, other);
    assert_ne!(one, changed);
}
