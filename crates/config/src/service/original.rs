//! Files of a service alone, in YAML or JSON: its keys stand at the top, targets are a list of tables
//! with names, times are seconds. They become the table of a service, with the places of their keys.

use std::path::{Path, PathBuf};

use crate::mark::{Mark, Origin};
use crate::problem::{Findings, Problem, Wrong};
use crate::tree::{Entry, Format, Node, Parsed, Table, Tree, Value, join};

/// Keys that only such a file has at its top.
const OWN: &[&str] = &[
    "capability_name",
    "strategy",
    "strategy_group_order",
    "retry",
    "timeouts",
    "targets",
];

/// Tables that stay at the top beside them.
const SHARED: &[&str] = &[
    "server",
    "policy",
    "connection",
    "data",
    "sources",
    "message",
    "services",
    "shard_sets",
    "contexts",
    "search",
];

/// Keys whose numbers are seconds.
const SECONDS: &[&str] = &[
    "ack_timeout",
    "result_timeout",
    "heartbeat_interval",
    "failback_after",
    "delay",
    "keep_alive",
    "connect_timeout",
    "reconnect_max",
    "session_expiry",
];

/// Tables in which they stand, and tables of tables.
const TIMED: &[&str] = &["timeouts", "retry"];
const TIMED_BY_NAME: &[&str] = &["operations", "brokers"];

/// Takes the file of a service alone for `[services.NAME]`, named after its capability. Any other tree
/// stays as it is.
pub(crate) fn adopt(parsed: Parsed, path: &Path) -> Parsed {
    let Parsed { tree, mut problems } = parsed;
    let is_own = |tree: &Tree| OWN.iter().any(|name| tree.root.get(name).is_some());
    let is_text = matches!(Format::of(path), Some(Format::Yaml | Format::Json));
    let tree = tree.map(|tree| match is_text && is_own(&tree) {
        true => as_service(tree, path, &mut problems),
        false => tree,
    });
    Parsed { tree, problems }
}

fn as_service(tree: Tree, path: &Path, problems: &mut Vec<Problem>) -> Tree {
    let (mut service, mut rest) = (Table::default(), Table::default());
    let mut first: Option<Mark> = None;
    for (name, entry) in tree.root.into_entries() {
        if SHARED.contains(&name.as_str()) {
            let _ = rest.insert(name, entry);
            continue;
        }
        if first.as_ref().is_none_or(|first| entry.mark < *first) {
            first = Some(entry.mark.clone());
        }
        let _ = service.insert(name, entry);
    }
    let Some(mark) = first else {
        return Tree { root: rest };
    };
    let id = id(&service, path);
    convert(&mut service, &join("services", &id), problems);
    let mut root = Table::default();
    if let Some(services) = root.table_mut("services", &mark) {
        let _ = services.insert(id, table_at(&mark, service));
    }
    root.merge(rest);
    Tree { root }
}

/// The id: the name of the capability in the characters of ids, else that of the file.
fn id(service: &Table, path: &Path) -> String {
    let named = service
        .get("capability_name")
        .map(|entry| &entry.node.value);
    let slug = match named {
        Some(Value::Text(text)) => slug(text),
        _ => String::new(),
    };
    let stem = || slug_of_file(path);
    match slug.is_empty() {
        true => stem(),
        false => slug,
    }
}

fn slug_of_file(path: &Path) -> String {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    match stem.map(slug) {
        Some(slug) if !slug.is_empty() => slug,
        _ => "service".to_owned(),
    }
}

/// In lower case, so that variables reach it, with one underscore for all that no id holds.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for char in text.chars().take(64) {
        match char.is_ascii_alphanumeric() {
            true => slug.push(char.to_ascii_lowercase()),
            false if slug.is_empty() || slug.ends_with('_') => {}
            false => slug.push('_'),
        }
    }
    slug.trim_end_matches('_').to_owned()
}

fn table_at(mark: &Mark, table: Table) -> Entry {
    Entry {
        mark: mark.clone(),
        node: Node {
            value: Value::Table(table),
            mark: mark.clone(),
        },
    }
}

/// From the form of such a file to that of the table.
fn convert(service: &mut Table, path: &str, problems: &mut Vec<Problem>) {
    for name in TIMED {
        if let Some(table) = service.inner_mut(name) {
            seconds(table);
        }
    }
    for name in TIMED_BY_NAME {
        let Some(all) = service.inner_mut(name) else {
            continue;
        };
        for entry in all.named_mut().map(|(_, entry)| entry) {
            if let Value::Table(table) = &mut entry.node.value {
                seconds(table);
            }
        }
    }
    if let Some(timeouts) = service.inner_mut("timeouts")
        && let Some(entry) = timeouts.get_mut("missed_intervals")
    {
        whole(&mut entry.node.value);
    }
    if let Some(targets) = service.get_mut("targets")
        && let Value::List(items) = &mut targets.node.value
    {
        let items = std::mem::take(items);
        targets.node.value = Value::Table(by_name(items, &join(path, "targets"), problems));
    }
}

/// Numbers as durations with their unit; what is no number, and what is below 0, is told by the walk.
fn seconds(table: &mut Table) {
    for (name, entry) in table.named_mut() {
        if !SECONDS.contains(&name) {
            continue;
        }
        let value = &mut entry.node.value;
        let text = match value {
            Value::Integer(number) if *number >= 0 => format!("{number}s"),
            Value::Number(number) if *number >= 0.0 && number.is_finite() => format!("{number}s"),
            _ => continue,
        };
        *value = Value::Text(text);
    }
}

/// `3.0` where a whole number is asked for.
fn whole(value: &mut Value) {
    if let Value::Number(number) = value
        && number.fract() == 0.0
        && number.abs() < 1e15
    {
        *value = Value::Integer(*number as i128);
    }
}

/// A list of targets as a table by their names.
fn by_name(items: Vec<Node>, path: &str, problems: &mut Vec<Problem>) -> Table {
    let mut targets = Table::default();
    for (number, node) in items.into_iter().enumerate() {
        let mark = node.mark.clone();
        let at = format!("{path}[{number}]");
        let Value::Table(mut target) = node.value else {
            let wrong = Wrong::new(format!("expected a target, got {}", node.value.kind()));
            let hint = "name, group, destination and operation_map";
            problems.push(Problem::error(&mark, at, wrong.hint(hint)));
            continue;
        };
        let Some(name) = target.remove("name") else {
            let wrong = Wrong::new("no name").hint("name: primary-a, once in the list");
            problems.push(Problem::error(&mark, at, wrong));
            continue;
        };
        let text = match &name.node.value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            other => {
                let wrong = format!("expected text, got {}", other.kind());
                let wrong = Wrong::new(wrong).hint("write it in quotes");
                problems.push(Problem::error(&name.mark, join(&at, "name"), wrong));
                continue;
            }
        };
        let entry = table_at(&name.mark, target);
        if let Err(first) = targets.insert(text.clone(), entry) {
            let wrong = format!(
                "the target {text} stands twice, first in line {}",
                first.line
            );
            let wrong = Wrong::new(wrong).hint("each target has a name of its own");
            problems.push(Problem::error(&name.mark, join(path, &text), wrong));
        }
    }
    targets
}

/// A file that another one names: relative paths begin beside that one.
pub(crate) fn beside(origin: &Origin, file: &str) -> PathBuf {
    let named = Path::new(file);
    match origin {
        Origin::File(name) => match Path::new(&**name).parent() {
            Some(folder) => folder.join(named),
            None => named.to_owned(),
        },
        _ => named.to_owned(),
    }
}

/// Reads the files that services name and lays them below the tables. `read` gives a file's tree.
/// Whether all could be read.
pub(crate) fn include(
    tree: &mut Tree,
    read: impl Fn(&Path) -> Parsed,
    findings: &mut Findings,
) -> bool {
    let Some(services) = tree.root.inner_mut("services") else {
        return true;
    };
    let mut is_whole = true;
    for (id, entry) in services.named_mut() {
        let path = join("services", id);
        let Value::Table(own) = &mut entry.node.value else {
            continue;
        };
        let Some(file) = own.get("file") else {
            continue;
        };
        // What is no text is told by the walk.
        let Value::Text(name) = &file.node.value else {
            continue;
        };
        let Some(below) = included((name, &file.mark), &path, &read, findings) else {
            is_whole = false;
            continue;
        };
        let above = std::mem::replace(own, below);
        own.merge(above);
    }
    is_whole
}

/// The keys of the file that a service names; `None`: it cannot be read.
fn included(
    (file, mark): (&str, &Mark),
    path: &str,
    read: &impl Fn(&Path) -> Parsed,
    findings: &mut Findings,
) -> Option<Table> {
    let file = beside(&mark.origin, file);
    let at = join(path, "file");
    if !matches!(Format::of(&file), Some(Format::Yaml | Format::Json)) {
        let wrong = Wrong::new("is neither YAML nor JSON");
        let hint = "name a file .yaml, .yml or .json; TOML is given by a further --config";
        findings.error(mark, at, wrong.hint(hint));
        return None;
    }
    let Parsed { tree, mut problems } = read(&file);
    for problem in &mut problems {
        // A file that cannot be read has no place of its own.
        if problem.line.is_none() {
            let wrong = Wrong::new(format!("{} {}", file.display(), problem.message));
            let wrong = match problem.hint.take() {
                Some(hint) => wrong.hint(hint),
                None => wrong,
            };
            *problem = Problem::error(mark, at.as_str(), wrong);
        }
    }
    let mut below = tree.map(|tree| tree.root);
    if let Some(below) = &mut below {
        convert(below, path, &mut problems);
        if let Some(inner) = below.remove("file") {
            let wrong = Wrong::new("a file below a file is not read");
            let wrong = wrong.hint("write its keys into this one");
            findings.error(&inner.mark, at, wrong);
        }
    }
    findings.extend(problems);
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_after_its_capability() {
        for (name, id) in [
            ("Compute", "compute"),
            ("My Compute-2", "my_compute_2"),
            ("_Compute__Jobs_", "compute_jobs"),
            ("…", ""),
        ] {
            assert_eq!(slug(name), id, "{name}");
        }
        let none = Table::default();
        assert_eq!(id(&none, Path::new("/etc/Proxy one.yaml")), "proxy_one");
        assert_eq!(id(&none, Path::new("….yaml")), "service");
    }
}
