//! The examples as programs: each is built, ends by itself, and prints what it is there to show.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// What each one prints.
const PRINTED: &[(&str, &str)] = &[
    ("protect", "42 after 2 calls\n"),
    ("trait_proxy", "rope: 42\nsail: not for sale\ndiscount: 0\n"),
    ("closure_group", "4 after 2 calls\n"),
    (
        "databases",
        "written on endpoint Some(\"a\")\n[[I64(1), Text(\"rope\")]]\nthe same from endpoint Some(\"a\")\n",
    ),
    (
        "transactions",
        "refused: constraint\n[Text(\"ada\"), I64(30)]\n[Text(\"bob\"), I64(70)]\n",
    ),
    (
        "streams",
        "100000 rows, sum 5000050000, never more than 1024 in memory\nleft after Some([I64(1)])\n",
    ),
    ("blocking", "Some(I64(1))\n"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Where the programs are, once they are built from what the files say now.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // The whole workspace, so that nothing is built with other features than it has been.
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--workspace", "--examples", "--locked"]);
        // What cargo says to a test about itself would make build scripts run anew, here and afterwards.
        for (name, _) in std::env::vars() {
            let of_the_test = [
                "CARGO_PKG_",
                "CARGO_MANIFEST_",
                "CARGO_CRATE_",
                "CARGO_PRIMARY_",
            ];
            if of_the_test.iter().any(|start| name.starts_with(start)) {
                command.env_remove(name);
            }
        }
        let command = command.current_dir(folder()).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        // …/debug/deps/examples-0123
        let test = std::env::current_exe().unwrap();
        test.ancestors().nth(2).unwrap().join("examples")
    })
}

#[test]
fn every_example_prints_what_it_shows() {
    for (name, expected) in PRINTED {
        let output = Command::new(built().join(name))
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), *expected, "{name}");
        assert_eq!(said, "", "{name}");
    }
}

#[test]
fn every_example_is_built_run_and_listed() {
    let manifest = include_str!("../Cargo.toml");
    let list = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        seen += 1;
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            manifest.contains(&format!("path = \"../../examples/{name}.rs\"")),
            "{name}"
        );
        assert!(
            PRINTED.iter().any(|(printed, _)| *printed == name),
            "{name}"
        );
        // Its first line is the question that the list repeats.
        let text = std::fs::read_to_string(&path).unwrap();
        let question = text.lines().next().unwrap().strip_prefix("//! ").unwrap();
        let row = format!("| [{name}]({name}.rs) | {question} |");
        assert!(list.contains(&row), "{row}");
        assert!(
            text.contains(&format!("//! `cargo run -p mainstay --example {name}`")),
            "{name}"
        );
    }
    assert_eq!(seen, PRINTED.len());
}
