//! Files, environment, flags and changes at run time as one tree.

use std::io::Read;
use std::path::Path;

use super::{Input, LoadOptions};
use crate::environment;
use crate::mark::{Mark, Origin};
use crate::problem::{Findings, Problem, Wrong};
use crate::server::ServerSettings;
use crate::service;
use crate::tree::{self, Entry, Format, Node, Tree, Value};

/// The embedded source: one file in the data folder, one endpoint that writes and two that read.
const EMBEDDED: &str = r#"
[sources.demo]
driver = "sqlite"
[sources.demo.endpoints.writer]
role = "primary"
[sources.demo.endpoints.reader_1]
role = "replica"
[sources.demo.endpoints.reader_2]
role = "replica"
"#;

/// The file of the embedded source, in the data folder.
pub(super) const EMBEDDED_FILE: &str = "demo.db";

/// All layers as one tree; `None` if a text could not be read.
pub(super) fn merged(options: &LoadOptions, findings: &mut Findings) -> Option<Tree> {
    let mut merged = Tree::default();
    let mut broken = false;
    for input in &options.files {
        let parsed = match input {
            Input::File(path) => service::adopt(read(path), path),
            Input::Text { name, text } => {
                let path = Path::new(name);
                service::adopt(parse(path, text), path)
            }
        };
        findings.extend(parsed.problems);
        match parsed.tree {
            Some(tree) => merged.merge(tree),
            None => broken = true,
        }
    }
    // Before the variables, so that they find the names of targets.
    broken |= !service::include(&mut merged, read, findings);
    environment::overlay(&mut merged, options.environment.iter().cloned(), findings);
    environment::flags(&mut merged, options.flags.clone(), findings);
    if let Some(runtime) = &options.runtime {
        merged.merge(runtime.clone());
    }
    if options.files.is_empty() {
        let mut tree = embedded(&merged);
        tree.merge(merged);
        merged = tree;
    }
    (!broken).then_some(merged)
}

/// Where to look for what is missing as a whole: the last file, which wins.
pub(super) fn place(options: &LoadOptions) -> Mark {
    let name = options.files.last().map(|input| match input {
        Input::File(path) => path.display().to_string(),
        Input::Text { name, .. } => name.clone(),
    });
    Mark::whole(name.map_or(Origin::BuiltIn, Origin::file))
}

fn read(path: &Path) -> tree::Parsed {
    match read_bounded(path) {
        Ok(text) => parse(path, &text),
        Err(error) => {
            let mark = Mark::whole(Origin::file(path.display().to_string()));
            let wrong = Wrong::new(format!("cannot be read: {error}"));
            let wrong = match error.kind() {
                std::io::ErrorKind::InvalidData => wrong.hint("write it as UTF-8"),
                _ => wrong.hint("check the path and its permissions"),
            };
            tree::Parsed::failed(Problem::error(&mark, "", wrong))
        }
    }
}

/// The text, or as much of it as shows that it is too long.
fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(tree::TEXT_MAX as u64 + 1)
        .read_to_string(&mut text)?;
    Ok(text)
}

fn parse(path: &Path, text: &str) -> tree::Parsed {
    let origin = Origin::file(path.display().to_string());
    match Format::of(path) {
        Some(format) => tree::parse(origin, format, text),
        None => {
            let wrong = Wrong::new("the extension tells no format")
                .hint("name it .toml, .yaml, .yml or .json");
            tree::Parsed::failed(Problem::error(&Mark::whole(origin), "", wrong))
        }
    }
}

/// The tree of the embedded source, with its file in the data folder that the other layers name.
fn embedded(above: &Tree) -> Tree {
    let mut tree = tree::parse(Origin::BuiltIn, Format::Toml, EMBEDDED)
        .tree
        .unwrap_or_default();
    let mut ignored = Findings::default();
    let server = match above.root.get("server").map(|entry| &entry.node.value) {
        Some(Value::Table(table)) => ServerSettings::read(table, &mut ignored).0,
        _ => ServerSettings::default(),
    };
    let mark = Mark::whole(Origin::BuiltIn);
    let path = server.data_dir.join(EMBEDDED_FILE);
    let entry = Entry {
        mark: mark.clone(),
        node: Node {
            value: Value::Text(path.display().to_string()),
            mark: mark.clone(),
        },
    };
    let sources = tree.root.table_mut("sources", &mark);
    if let Some(demo) = sources.and_then(|sources| sources.table_mut("demo", &mark)) {
        // The text above names no path.
        let _ = demo.insert("path".to_owned(), entry);
    }
    tree
}
