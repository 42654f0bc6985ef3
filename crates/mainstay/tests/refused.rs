//! What `#[mainstay::proxied]` refuses, and what the compiler says then and where: each file beside this
//! one is given to the compiler alone, with the library as it was built for this test.

// Functions of a test are tests too.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;

/// One file takes well below a second.
const LIMIT: Duration = Duration::from_secs(120);
/// Writes down what the compiler says.
const WRITE: &str = "MAINSTAY_WRITE_REFUSED";

#[test]
fn what_cannot_be_proxied_is_refused_with_a_message_at_its_place() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refused");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    let library = library(&folder.join("accepted.rs"));
    let mut said = String::new();
    for case in cases {
        let name = case.file_name().unwrap().to_string_lossy();
        let errors = errors(&case, &library);
        writeln!(said, "{name}\n{errors}").unwrap();
    }
    let expected = folder.with_extension("txt");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&expected, &said).unwrap();
    }
    let expected = std::fs::read_to_string(expected).unwrap();
    assert_eq!(
        said, expected,
        "read it, then write it down by {WRITE}=1: {said}"
    );
}

/// The library that the compiler can use: the newest one, unless only a part of what it needs was built
/// after it.
fn library(accepted: &Path) -> PathBuf {
    let mut found: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(built())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("libmainstay-") && name.ends_with(".rlib")
        })
        .map(|entry| (entry.metadata().unwrap().modified().unwrap(), entry.path()))
        .collect();
    found.sort();
    let mut newest_first = found.into_iter().rev().map(|(_, library)| library);
    let usable = newest_first.find(|library| errors(accepted, library).is_empty());
    usable.expect("no usable library beside this test; build with `cargo test`")
}

/// Where this test and everything that it uses was built.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().to_path_buf()
}

/// What the compiler says about a file: messages, places, and notes that are ours.
fn errors(case: &Path, library: &Path) -> String {
    let mut text = String::new();
    for line in compile(case, library).lines() {
        let message: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        let spans = message["spans"].as_array().unwrap();
        if message["level"] != "error" || (spans.is_empty() && is_summary(&message)) {
            continue;
        }
        writeln!(text, "  {}", string(&message["message"])).unwrap();
        for span in spans.iter().filter(|span| span["is_primary"] == true) {
            let label = span["label"].as_str().map(|label| format!(": {label}"));
            let label = label.unwrap_or_default();
            writeln!(
                text,
                "    {}: `{}`{label}",
                span["line_start"],
                marked(span)
            )
            .unwrap();
        }
        for note in message["children"].as_array().unwrap() {
            let is_ours = note["spans"].as_array().unwrap().is_empty() && !is_compilers(note);
            if is_ours {
                let (level, note) = (string(&note["level"]), string(&note["message"]));
                writeln!(text, "    {level}: {note}").unwrap();
            }
        }
    }
    text
}

fn is_summary(message: &Value) -> bool {
    string(&message["message"]).starts_with("aborting due to")
}

/// Notes on how the compiler came to its word.
fn is_compilers(note: &Value) -> bool {
    let note = string(&note["message"]);
    note.starts_with("this error originates in")
        || note.starts_with("required for ")
        || note.starts_with("the full name for the type has been written to")
        || note.starts_with("consider using `--verbose`")
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The text that a span marks, up to the end of its first line.
fn marked(span: &Value) -> String {
    let line = &span["text"][0];
    let at = |key: &str| usize::try_from(line[key].as_u64().unwrap()).unwrap() - 1;
    let (from, to) = (at("highlight_start"), at("highlight_end"));
    let letters = string(&line["text"]).chars().skip(from);
    letters.take(to - from).collect()
}

fn compile(case: &Path, library: &Path) -> String {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut of_library = std::ffi::OsString::from("mainstay=");
    of_library.push(library);
    let mut running = Command::new(compiler)
        .args(["--edition", "2024", "--crate-type", "bin"])
        .args(["--emit", "metadata", "--error-format", "json"])
        .args(["--cap-lints", "allow"])
        .arg("--out-dir")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg("-L")
        .arg(format!("dependency={}", built().display()))
        .arg("--extern")
        .arg(of_library)
        // A closure is named by its file: without a folder, what is said is the same everywhere.
        .current_dir(case.parent().unwrap())
        .arg(case.file_name().unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = running.stderr.take().unwrap();
    let (done, ended) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        done.send(text).unwrap();
    });
    let said = ended.recv_timeout(LIMIT);
    // Harmless where it has ended.
    let _ = running.kill();
    running.wait().unwrap();
    reader.join().unwrap();
    said.unwrap_or_else(|_| panic!("the compiler hangs at {}", case.display()))
}
