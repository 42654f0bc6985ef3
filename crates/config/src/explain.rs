//! `explain`: each effective value and where it came from.

use std::time::Duration;

use mainstay_engine::Policy;
use mainstay_engine::policy::{KEYS, Setting};
use serde::Serialize;

use crate::configuration::Configuration;
use crate::connection::{CONNECTION_KEYS, Connection, ConnectionKind};
use crate::mark::{Mark, Origin};
use crate::policy::Layered;
use crate::source::{
    CommitProof, Driver, EndpointDraft, EndpointSettings, Parts, SourceDraft, SourceSettings,
    TlsMode,
};

/// An effective value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// The key as a source or endpoint would write it, such as `policy.retry.delay` or `host`.
    pub path: String,
    /// The value as text; a secret shows where it is kept.
    pub value: String,
    /// `default`, `preset balanced`, a table such as `[sources.orders.policy]`, or `runtime`.
    pub layer: String,
    /// The file, variable or flag; `default` where nobody wrote it.
    pub origin: String,
    /// The line, where the origin has lines.
    pub line: Option<u32>,
}

/// A target that the configuration does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no {target:?}; known: {known}")]
pub struct UnknownTarget {
    /// What was asked for.
    pub target: String,
    /// What there is, by name, the first few.
    pub known: String,
}

/// A longer list of what is known would hide the message.
const KNOWN_MAX: usize = 20;

/// What to call a key that nobody gave a value and that has no default.
const NOT_SET: &str = "(not set)";

/// Each key of `source` or `source.endpoint`, of `service` or `service.target`, in the order of the
/// reference: its own, those of its connection, those of its policy.
pub fn explain(
    configuration: &Configuration,
    target: &str,
) -> Result<Vec<Explained>, UnknownTarget> {
    let (source, endpoint) = match target.split_once('.') {
        Some((source, endpoint)) => (source, Some(endpoint)),
        None => (target, None),
    };
    found(configuration, source, endpoint)
        .or_else(|| of_service(configuration, source, endpoint))
        .ok_or_else(|| unknown(configuration, target))
}

/// Each key of a message service, or of one of its targets.
fn of_service(
    configuration: &Configuration,
    service: &str,
    target: Option<&str>,
) -> Option<Vec<Explained>> {
    let proxied = configuration.services().get(service)?;
    let parts = configuration.service_parts(service)?;
    let (layered, effective, shown) = match target {
        None => (
            parts.policy(),
            &proxied.settings.policy,
            parts.draft.lines(proxied),
        ),
        Some(name) => {
            let mut targets = proxied.settings.targets.iter();
            let target = targets.find(|target| *target.name == *name)?;
            let mut drafts = parts.draft.targets.iter();
            let draft = drafts.find(|draft| draft.name == target.name)?;
            let shown = parts.draft.target_lines(target);
            (parts.policy_at(draft), &target.policy, shown)
        }
    };
    let mut lines = vec![preset(&layered)];
    let shown = shown.into_iter();
    lines.extend(shown.map(|one| line(one.path, one.value, &one.layer, one.mark)));
    policy(&mut lines, &layered, effective);
    for line in lines.iter_mut().filter(|line| line.origin == "default") {
        // The strategy is always said, for nobody else's is meant.
        "default".clone_into(&mut line.layer);
    }
    Some(lines)
}

fn found(
    configuration: &Configuration,
    source: &str,
    endpoint: Option<&str>,
) -> Option<Vec<Explained>> {
    let settings = configuration.sources.get(source)?;
    let parts = configuration.parts(source)?;
    let Some(id) = endpoint else {
        let mut lines = of_source(&parts, settings);
        connection(&mut lines, &parts.connection(), settings.driver);
        policy(&mut lines, &parts.policy(), &settings.policy);
        return Some(lines);
    };
    let settings = settings.endpoints.get(id)?;
    let mut drafts = parts.draft.endpoints.iter();
    let draft = drafts.find(|draft| draft.id == id)?;
    let mut lines = of_endpoint(draft, settings, &parts);
    connection(&mut lines, &parts.connection_at(draft), settings.driver);
    policy(&mut lines, &parts.policy_at(draft), &settings.policy);
    Some(lines)
}

fn unknown(configuration: &Configuration, target: &str) -> UnknownTarget {
    let sources = configuration.sources.iter();
    let known = sources.flat_map(|(source, settings)| {
        let endpoints = settings.endpoints.keys();
        let endpoints = endpoints.map(move |endpoint| format!("{source}.{endpoint}"));
        std::iter::once(source.clone()).chain(endpoints)
    });
    let services = configuration.services().iter();
    let services = services.flat_map(|(name, service)| {
        let targets = service.settings.targets.iter();
        let targets = targets.map(move |target| format!("{name}.{}", target.name));
        std::iter::once(name.clone()).chain(targets)
    });
    let known: Vec<String> = known.chain(services).take(KNOWN_MAX).collect();
    UnknownTarget {
        target: target.chars().take(200).collect(),
        known: known.join(", "),
    }
}

fn of_source(parts: &Parts<'_>, settings: &SourceSettings) -> Vec<Explained> {
    let draft = parts.draft;
    let table = format!("[{}]", draft.path);
    let own = |name: &str, value: String, mark: Option<&Mark>| {
        let layer = mark.map_or("default", |_| table.as_str());
        line(name.to_owned(), value, layer, mark)
    };
    let replication = settings.replication;
    let replication = replication.map_or(NOT_SET.to_owned(), |kind| kind.to_string());
    let idle = Setting::Time(settings.transaction_idle).to_string();
    let most = settings.transactions_max.to_string();
    let mut lines = vec![
        preset(&parts.policy()),
        own(
            "promotion",
            settings.promotion.to_string(),
            mark(&draft.promotion),
        ),
        own("replication", replication, mark(&draft.replication)),
        own("safety", settings.safety.to_string(), mark(&draft.safety)),
        own("transaction_idle", idle, mark(&draft.transaction_idle)),
        own("transactions_max", most, mark(&draft.transactions_max)),
    ];
    lines.extend(of_proof(draft, settings, &own));
    lines
}

/// The keys of idempotency and of the proof of commits.
fn of_proof(
    draft: &SourceDraft,
    settings: &SourceSettings,
    own: &impl Fn(&str, String, Option<&Mark>) -> Explained,
) -> Vec<Explained> {
    let not_set = || NOT_SET.to_owned();
    let keys = settings.idempotency.as_ref();
    let table = keys.map_or_else(not_set, |keys| keys.table.clone());
    let time = |time: Duration| Setting::Time(time).to_string();
    let keep = keys.map_or_else(not_set, |keys| time(keys.keep));
    let most = keys.map_or_else(not_set, |keys| format!("{}B", keys.answer_max));
    let proof = settings.commit_proof.as_ref();
    let form = proof.map_or(CommitProof::Off, |proof| proof.form);
    let tokens = proof.map_or_else(not_set, |proof| proof.table.clone());
    let wait = proof.map_or_else(not_set, |proof| time(proof.wait));
    let answer_max = mark(&draft.idempotency_answer_max);
    vec![
        own("idempotency_table", table, mark(&draft.idempotency_table)),
        own("idempotency_keep", keep, mark(&draft.idempotency_keep)),
        own("idempotency_answer_max", most, answer_max),
        own("commit_proof", form.to_string(), mark(&draft.commit_proof)),
        own(
            "commit_proof_table",
            tokens,
            mark(&draft.commit_proof_table),
        ),
        own("commit_proof_wait", wait, mark(&draft.commit_proof_wait)),
    ]
}

fn of_endpoint(
    draft: &EndpointDraft,
    settings: &EndpointSettings,
    parts: &Parts<'_>,
) -> Vec<Explained> {
    let table = format!("[{}]", draft.path);
    let own = |name: &str, value: String, mark: Option<&Mark>| {
        let layer = mark.map_or("default", |_| table.as_str());
        line(name.to_owned(), value, layer, mark)
    };
    let role = settings.role;
    let role = role.map_or("(the server says)".to_owned(), |role| role.to_string());
    vec![
        preset(&parts.policy_at(draft)),
        own("role", role, mark(&draft.role)),
        own("weight", settings.weight.to_string(), mark(&draft.weight)),
    ]
}

fn mark<T>(noted: &Option<(T, Mark)>) -> Option<&Mark> {
    noted.as_ref().map(|(_, mark)| mark)
}

fn preset(layered: &Layered<'_>) -> Explained {
    let derived = layered.preset();
    let value = derived.value.to_string();
    line(
        "preset".into(),
        value,
        &derived.layer,
        derived.mark.as_ref(),
    )
}

fn connection(lines: &mut Vec<Explained>, connection: &Connection<'_>, driver: Driver) {
    for key in CONNECTION_KEYS {
        match key.kind {
            ConnectionKind::Url => {}
            ConnectionKind::Options => {
                let all = connection.iter();
                let options = all.filter(|(name, ..)| name.starts_with("options."));
                lines.extend(options.map(|(name, layer, given)| {
                    let value = given.value.to_string();
                    line(name.to_owned(), value, &layer.name, Some(&given.mark))
                }));
            }
            _ => lines.push(connection_line(key.name, connection, driver)),
        }
    }
}

fn connection_line(name: &str, connection: &Connection<'_>, driver: Driver) -> Explained {
    let found = connection.iter().find(|(given, ..)| *given == name);
    if let Some((_, layer, given)) = found {
        let value = given.value.to_string();
        return line(name.to_owned(), value, &layer.name, Some(&given.mark));
    }
    let value = match (name, driver) {
        ("driver", driver) => driver.to_string(),
        ("port", driver) => driver
            .port()
            .map_or_else(|| NOT_SET.to_owned(), |port| port.to_string()),
        ("tls", Driver::Postgres | Driver::Mysql) => TlsMode::Prefer.to_string(),
        _ => NOT_SET.to_owned(),
    };
    line(name.to_owned(), value, "default", None)
}

fn policy(lines: &mut Vec<Explained>, layered: &Layered<'_>, policy: &Policy) {
    for key in KEYS {
        let derived = layered.derive(key, policy);
        let path = format!("policy.{}", key.path);
        let mark = derived.mark.as_ref();
        let value = match (derived.value, key.off) {
            (Setting::Off, Some(word)) => word.to_owned(),
            (value, _) => value.to_string(),
        };
        lines.push(line(path, value, &derived.layer, mark));
    }
}

fn line(path: String, value: String, layer: &str, mark: Option<&Mark>) -> Explained {
    let origin = mark.map_or(&Origin::BuiltIn, |mark| &mark.origin);
    let layer = match origin {
        Origin::Runtime(_) => "runtime",
        _ => layer,
    };
    Explained {
        path,
        value,
        layer: layer.to_owned(),
        origin: origin.to_string(),
        line: mark
            .filter(|mark| mark.origin != Origin::BuiltIn)
            .map(|mark| mark.line)
            .filter(|line| *line > 0),
    }
}
