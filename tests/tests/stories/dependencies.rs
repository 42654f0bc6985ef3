//! Which crate may depend on which. Edges point down only; the faces do not know each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const ENGINE: &str = "mainstay-engine";
const MACROS: &str = "mainstay-macros";
const SQL: &str = "mainstay-sql";
const MESSAGE: &str = "mainstay-message";
const CONFIG: &str = "mainstay-config";
const TELEMETRY: &str = "mainstay-telemetry";
const SQLITE: &str = "mainstay-sqlite";
const TRANSPORT: &str = "mainstay-transport";
const POSTGRES: &str = "mainstay-postgres";
const MYSQL: &str = "mainstay-mysql";
const JOURNAL: &str = "mainstay-journal";
const AMQP: &str = "mainstay-amqp";
const MQTT: &str = "mainstay-mqtt";
const OBJECTS: &str = "mainstay-objects";
const SERVER: &str = "mainstay-server";
/// A dev-dependency of anyone, a dependency of the stories and benchmarks only.
const TESTKIT: &str = "mainstay-testkit";

/// Each shipped crate and all that it may depend on in this workspace.
const ALLOWED: &[(&str, &[&str])] = &[
    (ENGINE, &[]),
    (MACROS, &[]),
    (SQL, &[ENGINE]),
    (MESSAGE, &[ENGINE]),
    (CONFIG, &[ENGINE, SQL, MESSAGE]),
    (TELEMETRY, &[ENGINE]),
    (SQLITE, &[ENGINE, SQL]),
    (TRANSPORT, &[]),
    (POSTGRES, &[ENGINE, SQL, TRANSPORT]),
    (MYSQL, &[ENGINE, SQL, TRANSPORT]),
    (AMQP, &[ENGINE, MESSAGE, TRANSPORT]),
    (JOURNAL, &[ENGINE, MESSAGE]),
    (MQTT, &[ENGINE, MESSAGE, TRANSPORT]),
    (OBJECTS, &[ENGINE, MESSAGE, TRANSPORT]),
    (
        SERVER,
        &[
            ENGINE, SQL, MESSAGE, CONFIG, TELEMETRY, SQLITE, POSTGRES, MYSQL, JOURNAL, AMQP, MQTT,
            OBJECTS,
        ],
    ),
    ("mainstay-cli", &[ENGINE, SQL, CONFIG, SERVER]),
    (
        "mainstay",
        &[
            ENGINE, MACROS, SQL, MESSAGE, SQLITE, POSTGRES, MYSQL, JOURNAL, AMQP, MQTT, OBJECTS,
        ],
    ),
    (TESTKIT, &[ENGINE, SQL, MESSAGE]),
];

/// The tests of all surfaces at once are where the program is; so are peers that load its message face.
const DEV: &[(&str, &str)] = &[
    ("mainstay-cli", "mainstay"),
    ("mainstay-cli", MESSAGE),
    ("mainstay-cli", AMQP),
    ("mainstay-cli", MQTT),
];

/// These are never shipped and may use everything.
const FREE: &[&str] = &["mainstay-stories", "mainstay-benches"];

/// They need a C++ compiler, cmake or a system library to build.
const BARRED: &[&str] = &[
    "aws-lc-rs",
    "aws-lc-sys",
    "boring-sys",
    "cmake",
    "native-tls",
    "openssl-sys",
    "prost-build",
];

struct Edge {
    from: String,
    to: String,
    dev: bool,
}

#[test]
fn every_edge_of_the_workspace_points_down() {
    let metadata = metadata();
    let members = names(&metadata);
    let wrong: Vec<String> = edges(&metadata, &members)
        .into_iter()
        .filter(|edge| !is_allowed(edge))
        .map(|edge| {
            format!(
                "{} -> {}{}",
                edge.from,
                edge.to,
                if edge.dev { " (dev)" } else { "" }
            )
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "edges that the design does not allow: {wrong:#?}"
    );
}

#[test]
fn every_crate_of_the_workspace_has_its_rule() {
    let known: BTreeSet<&str> = ALLOWED
        .iter()
        .map(|(name, _)| *name)
        .chain(FREE.iter().copied())
        .collect();
    let unknown: Vec<String> = names(&metadata())
        .into_iter()
        .filter(|name| !known.contains(name.as_str()))
        .collect();
    assert!(
        unknown.is_empty(),
        "say in ALLOWED what these may depend on: {unknown:?}"
    );
}

#[test]
fn nothing_in_the_graph_needs_more_than_rust_and_a_c_compiler() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let locked: BTreeSet<&str> = lock
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        .collect();
    assert!(
        locked.contains("mainstay-engine"),
        "the lock file was not understood"
    );
    let barred: Vec<_> = BARRED
        .iter()
        .filter(|name| locked.contains(*name))
        .collect();
    assert!(
        barred.is_empty(),
        "`cargo tree -i NAME` shows who brings them in: {barred:?}"
    );
}

#[test]
fn the_rules_know_right_from_wrong() {
    let check = |from: &str, to: &str, dev, expected| {
        let edge = Edge {
            from: from.to_owned(),
            to: to.to_owned(),
            dev,
        };
        assert_eq!(is_allowed(&edge), expected, "{from} -> {to}, dev: {dev}");
    };
    check(SQL, ENGINE, false, true);
    check(ENGINE, SQL, false, false);
    check(SQLITE, POSTGRES, false, false);
    check(SQLITE, POSTGRES, true, false);
    check(POSTGRES, SERVER, false, false);
    check(MYSQL, POSTGRES, false, false);
    check(MYSQL, TRANSPORT, false, true);
    check(POSTGRES, TESTKIT, true, true);
    check(POSTGRES, TESTKIT, false, false);
    check("mainstay-stories", TESTKIT, false, true);
    check("mainstay-unheard-of", ENGINE, false, false);
}

fn is_allowed(edge: &Edge) -> bool {
    let pair = (edge.from.as_str(), edge.to.as_str());
    let is_of_tests = edge.dev && (edge.to == TESTKIT || DEV.contains(&pair));
    if FREE.contains(&edge.from.as_str()) || is_of_tests {
        return true;
    }
    let rules: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    rules
        .get(edge.from.as_str())
        .is_some_and(|allowed| allowed.contains(&edge.to.as_str()))
}

fn edges(metadata: &Value, members: &BTreeSet<String>) -> Vec<Edge> {
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            if members.contains(to) {
                let from = package["name"].as_str().unwrap().to_owned();
                let dev = dependency["kind"].as_str() == Some("dev");
                edges.push(Edge {
                    from,
                    to: to.to_owned(),
                    dev,
                });
            }
        }
    }
    assert!(!edges.is_empty(), "the metadata was not understood");
    edges
}

fn names(metadata: &Value) -> BTreeSet<String> {
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| package["name"].as_str().unwrap().to_owned())
        .collect()
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}
