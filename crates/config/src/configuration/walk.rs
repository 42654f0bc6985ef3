//! Stage two: from a tree to settings, with everything that is wrong noted on the way.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Configuration, Written};
use crate::connection::{ConnectionLayer, Reading};
use crate::key;
use crate::mark::{Mark, Origin};
use crate::policy::{Layered, PolicyLayer};
use crate::problem::{Findings, Wrong};
use crate::secret::SecretReader;
use crate::server::ServerSettings;
use crate::source::{Shared, SourceDraft, assemble, table};
use crate::suggestion;
use crate::tree::{Entry, Tree, Value, join};

/// More sources than this in one process are a mistake.
const SOURCES_MAX: usize = 1000;

/// Tables at the top.
const TABLES: &[&str] = &["server", "policy", "connection", "data", "sources"];

/// Tables of later versions.
pub(crate) const TABLES_LATER: &[&str] =
    &["shard_sets", "contexts", "services", "search", "message"];

/// Walks the whole tree once. What is missing as a whole is told at `place`.
pub(super) fn walk(
    tree: &Tree,
    place: &Mark,
    secrets: &Arc<dyn SecretReader>,
    findings: &mut Findings,
) -> Configuration {
    let (mut server, mut tls) = (ServerSettings::default(), None);
    let mut shared = Shared {
        policies: vec![
            PolicyLayer::empty("policy"),
            PolicyLayer::empty("data.policy"),
        ],
        connections: vec![
            ConnectionLayer::empty("connection"),
            ConnectionLayer::empty("data.connection"),
        ],
    };
    let mut drafts = Vec::new();
    for (name, entry) in tree.root.iter() {
        let mut reading = Reading { secrets, findings };
        match name {
            "server" => {
                if let Some(table) = table(name, entry, findings) {
                    (server, tls) = ServerSettings::read(table, findings);
                }
            }
            "policy" => shared.policies[0] = policy(name, entry, findings),
            "connection" => connection(name, entry, &mut shared.connections[0], &mut reading),
            "data" => data(entry, &mut shared, &mut reading),
            "sources" => drafts = sources(entry, &mut reading),
            _ if TABLES_LATER.contains(&name) => {
                findings.error(&entry.mark, name, Wrong::unavailable(name));
            }
            _ => findings.unknown(&entry.mark, name.to_owned(), name, TABLES.iter().copied()),
        }
    }
    check_keys(tree, &drafts, findings);
    if drafts.is_empty() {
        nothing_to_serve(tree, place, &shared, findings);
    }
    let mut sources = BTreeMap::new();
    for draft in &drafts {
        if only_named_outside(draft, &drafts, findings) {
            continue;
        }
        if let Some(settings) = assemble(&shared, draft, findings) {
            sources.insert(draft.id.clone(), settings);
        }
    }
    Configuration {
        server,
        sources,
        written: Written {
            shared,
            sources: drafts,
            tls,
        },
    }
}

/// Keys of callers name sources, which may stand behind them.
fn check_keys(tree: &Tree, drafts: &[SourceDraft], findings: &mut Findings) {
    let Some(Value::Table(server)) = tree.root.get("server").map(|entry| &entry.node.value) else {
        return;
    };
    if let Some(keys) = server.get("keys") {
        let known: Vec<&str> = drafts.iter().map(|draft| draft.id.as_str()).collect();
        key::check_sources("server.keys", keys, &known, findings);
    }
}

/// A source that nothing but variables or flags name, and that has no endpoints: a slip in a name.
fn only_named_outside(draft: &SourceDraft, all: &[SourceDraft], findings: &mut Findings) -> bool {
    let outside = |draft: &SourceDraft| {
        matches!(draft.mark.origin, Origin::Variable(_) | Origin::Flag(_))
            && draft.endpoints.is_empty()
    };
    if !outside(draft) {
        return false;
    }
    let known = all.iter().filter(|other| !outside(other));
    let known: Vec<&str> = known.map(|other| other.id.as_str()).collect();
    let hint = match suggestion::nearest(&draft.id, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("sources: {}", known.join(", ")),
    };
    let wrong = Wrong::new(format!("there is no source {}", draft.id));
    findings.error(&draft.mark, draft.path.as_str(), wrong.hint(hint));
    true
}

fn policy(path: &str, entry: &Entry, findings: &mut Findings) -> PolicyLayer {
    match table(path, entry, findings) {
        Some(table) => PolicyLayer::read(path, table, findings),
        None => PolicyLayer::empty(path),
    }
}

fn connection(path: &str, entry: &Entry, layer: &mut ConnectionLayer, reading: &mut Reading<'_>) {
    if let Some(table) = table(path, entry, reading.findings) {
        layer.read_table(path, table, reading);
    }
}

/// `[data]`: what all databases share.
fn data(entry: &Entry, shared: &mut Shared, reading: &mut Reading<'_>) {
    let Some(table) = table("data", entry, reading.findings) else {
        return;
    };
    if let Some(entry) = table.get("policy") {
        shared.policies[1] = policy("data.policy", entry, reading.findings);
    }
    for (name, entry) in table.iter() {
        let path = join("data", name);
        match name {
            "policy" => {}
            "preset" => shared.policies[1].preset(&path, entry, reading.findings),
            "connection" => connection(&path, entry, &mut shared.connections[1], reading),
            _ => {
                let known = ["policy", "connection", "preset"];
                reading.findings.unknown(&entry.mark, path, name, known);
            }
        }
    }
}

fn sources(entry: &Entry, reading: &mut Reading<'_>) -> Vec<SourceDraft> {
    let Some(table) = table("sources", entry, reading.findings) else {
        return Vec::new();
    };
    if table.iter().count() > SOURCES_MAX {
        let wrong = format!("more than {SOURCES_MAX} sources");
        reading.findings.error(&entry.mark, "sources", wrong);
        return Vec::new();
    }
    table
        .iter()
        .map(|(id, entry)| SourceDraft::read(id, entry, reading))
        .collect()
}

/// No source: nothing to do, but the shared policy is still checked.
fn nothing_to_serve(tree: &Tree, place: &Mark, shared: &Shared, findings: &mut Findings) {
    let layers: Vec<&PolicyLayer> = shared.policies.iter().collect();
    Layered::new(&layers).policy((place, "policy"), findings);
    let said = tree.root.get("sources").map(|entry| &entry.node.value);
    if matches!(said, None | Some(Value::Empty | Value::Table(_))) {
        let wrong = Wrong::new("there is no source, so there is nothing to serve");
        findings.warning(place, "sources", wrong.hint("add [sources.orders]"));
    }
}
