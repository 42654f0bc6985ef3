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
use crate::service::{self, ProxiedService, ServiceDraft, ServiceParts};
use crate::source::{Shared, SourceDraft, assemble, policy_table, table};
use crate::suggestion;
use crate::tree::{Entry, Tree, Value, join};

/// More sources than this in one process are a mistake.
const SOURCES_MAX: usize = 1000;

/// Tables at the top.
const TABLES: &[&str] = &[
    "server",
    "policy",
    "connection",
    "data",
    "message",
    "sources",
    "services",
];

/// Tables of later versions.
pub(crate) const TABLES_LATER: &[&str] = &["shard_sets", "contexts", "search"];

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
    let mut message = PolicyLayer::empty("message.policy");
    let (mut drafts, mut services) = (Vec::new(), Vec::new());
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
            "message" => message = self::message(entry, findings),
            "services" => services = self::services(entry, &mut reading),
            _ if TABLES_LATER.contains(&name) => {
                findings.error(&entry.mark, name, Wrong::unavailable(name));
            }
            _ => findings.unknown(&entry.mark, name.to_owned(), name, TABLES.iter().copied()),
        }
    }
    check_keys(tree, &drafts, &services, findings);
    if drafts.is_empty() && services.is_empty() {
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
    let proxied = assemble_services([&shared.policies[0], &message], &services, findings);
    service::check_names(&services, &drafts, findings);
    Configuration {
        server,
        sources,
        services: proxied,
        written: Written {
            shared,
            sources: drafts,
            message,
            services,
            tls,
        },
    }
}

/// Keys of callers name sources and services, which may stand behind them.
fn check_keys(
    tree: &Tree,
    sources: &[SourceDraft],
    services: &[ServiceDraft],
    findings: &mut Findings,
) {
    let Some(Value::Table(server)) = tree.root.get("server").map(|entry| &entry.node.value) else {
        return;
    };
    if let Some(keys) = server.get("keys") {
        let sources = sources.iter().map(|draft| draft.id.as_str());
        let services = services.iter().map(|draft| draft.id.as_str());
        let known: Vec<&str> = sources.chain(services).collect();
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

/// `[message]`: what all message services share.
fn message(entry: &Entry, findings: &mut Findings) -> PolicyLayer {
    let Some(table) = table("message", entry, findings) else {
        return PolicyLayer::empty("message.policy");
    };
    let mut layer = policy_table("message", table, findings);
    for (name, entry) in table.iter() {
        let path = join("message", name);
        match name {
            "policy" => {}
            "preset" => layer.preset(&path, entry, findings),
            _ => findings.unknown(&entry.mark, path, name, ["policy", "preset"]),
        }
    }
    layer
}

fn services(entry: &Entry, reading: &mut Reading<'_>) -> Vec<ServiceDraft> {
    let Some(table) = table("services", entry, reading.findings) else {
        return Vec::new();
    };
    if table.iter().count() > SOURCES_MAX {
        let wrong = format!("more than {SOURCES_MAX} services");
        reading.findings.error(&entry.mark, "services", wrong);
        return Vec::new();
    }
    table
        .iter()
        .map(|(id, entry)| ServiceDraft::read(id, entry, reading))
        .collect()
}

/// Those that are right, by id.
fn assemble_services(
    shared: [&PolicyLayer; 2],
    drafts: &[ServiceDraft],
    findings: &mut Findings,
) -> BTreeMap<String, ProxiedService> {
    let mut services = BTreeMap::new();
    for draft in drafts {
        if draft.is_only_named_outside(drafts, findings) {
            continue;
        }
        let parts = ServiceParts::new(shared, draft);
        if let Some(service) = service::assemble(&parts, findings) {
            services.insert(draft.id.clone(), service);
        }
    }
    let pairs = drafts.iter();
    let pairs = pairs.filter_map(|draft| Some((draft, services.get(&draft.id)?)));
    service::check_peers(pairs, findings);
    services
}

/// No source: nothing to do, but the shared policy is still checked.
fn nothing_to_serve(tree: &Tree, place: &Mark, shared: &Shared, findings: &mut Findings) {
    let layers: Vec<&PolicyLayer> = shared.policies.iter().collect();
    Layered::new(&layers).policy((place, "policy"), findings);
    let said = tree.root.get("sources").map(|entry| &entry.node.value);
    if matches!(said, None | Some(Value::Empty | Value::Table(_))) {
        let wrong = Wrong::new("there is no source, so there is nothing to serve");
        let hint =
            "add [sources.orders] for a database, or [services.compute] for a message service";
        findings.warning(place, "sources", wrong.hint(hint));
    }
}
