//! What the file says about one source, key by key, before the layers are laid over each other.

use std::time::Duration;

use mainstay_engine::source::check_weight;
use mainstay_engine::{Role, Safety};

use super::{CommitProof, Promotion, Replication};
use crate::connection::{self, CONNECTION_KEYS, ConnectionLayer, Reading};
use crate::mark::Mark;
use crate::policy::{self, PolicyLayer};
use crate::problem::{Findings, Wrong};
use crate::scalar;
use crate::tree::{Entry, Node, Table, Value, join};

/// Longer ids would make metrics and logs unreadable.
const ID_MAX: usize = 64;

/// More endpoints than this in one source are a mistake, not a cluster.
const ENDPOINTS_MAX: usize = 256;

/// Longer names would not leave room for that of the index.
const TABLE_NAME_MAX: usize = 58;

/// A value and where its key stands.
pub(crate) type Noted<T> = Option<(T, Mark)>;

/// A source as it is written.
#[derive(Debug, Clone)]
pub(crate) struct SourceDraft {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) mark: Mark,
    pub(crate) promotion: Noted<Promotion>,
    pub(crate) replication: Noted<Replication>,
    pub(crate) safety: Noted<Safety>,
    pub(crate) transaction_idle: Noted<Duration>,
    pub(crate) transactions_max: Noted<u32>,
    pub(crate) idempotency_table: Noted<String>,
    pub(crate) idempotency_keep: Noted<Duration>,
    pub(crate) idempotency_answer_max: Noted<u64>,
    pub(crate) commit_proof: Noted<CommitProof>,
    pub(crate) commit_proof_table: Noted<String>,
    pub(crate) commit_proof_wait: Noted<Duration>,
    pub(crate) policy: PolicyLayer,
    pub(crate) connection: ConnectionLayer,
    /// In the order of the file.
    pub(crate) endpoints: Vec<EndpointDraft>,
}

/// An endpoint as it is written.
#[derive(Debug, Clone)]
pub(crate) struct EndpointDraft {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) mark: Mark,
    pub(crate) role: Noted<Role>,
    pub(crate) weight: Noted<f64>,
    pub(crate) policy: PolicyLayer,
    pub(crate) connection: ConnectionLayer,
}

/// A key of a source that is neither a connection key nor a table.
pub(crate) struct SourceKey {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) example: &'static str,
    /// From where to where, for a reader; empty where it has no bounds.
    pub(crate) bounds: &'static str,
    set: fn(&mut SourceDraft, &Entry) -> Result<(), Wrong>,
}

const TIMES: &str = "from 10ms to 24h";
const COUNTS: &str = "from 0 to 1000000";
const KEEPS: &str = "from 1min to 30d";
const KEPT_SIZES: &str = "from 256B to 16MiB";
const PROOF_WAITS: &str = "from 100ms to 5min";

/// What a reader of values takes, by its name.
const fn bounds(reader: &str) -> &'static str {
    match reader.as_bytes() {
        b"time" => TIMES,
        b"count" => COUNTS,
        b"keep" => KEEPS,
        b"kept_size" => KEPT_SIZES,
        b"proof_wait" => PROOF_WAITS,
        _ => "",
    }
}

macro_rules! key {
    ($name:ident, $read:ident, $example:literal, $doc:literal) => {
        SourceKey {
            name: stringify!($name),
            doc: $doc,
            example: $example,
            bounds: bounds(stringify!($read)),
            set: |draft, entry| {
                draft.$name = Some(($read(&entry.node)?, entry.mark.clone()));
                Ok(())
            },
        }
    };
}

/// Every such key.
pub(crate) const SOURCE_KEYS: &[SourceKey] = &[
    key!(
        promotion,
        promotion,
        "\"follow\"",
        "who decides which endpoint is the primary: follow (the server says) or route (SQLite)"
    ),
    key!(
        replication,
        replication,
        "\"external\"",
        "the SQLite files of the endpoints are kept alike by something outside"
    ),
    key!(
        safety,
        safety,
        "\"write\"",
        "what a write is taken for: write or idempotent_write"
    ),
    key!(
        transaction_idle,
        time,
        "\"60s\"",
        "a transaction without a statement is rolled back"
    ),
    key!(transactions_max, count, "1000", "transactions open at once"),
    key!(
        idempotency_table,
        table_name,
        "\"mainstay_keys\"",
        "the table of idempotency keys, made when it is missing; without it a key is refused"
    ),
    key!(
        idempotency_keep,
        keep,
        "\"24h\"",
        "a key is good for so long; then it is deleted and may be used anew"
    ),
    key!(
        idempotency_answer_max,
        kept_size,
        "\"64KiB\"",
        "a write under a key whose answer takes more is undone and refused"
    ),
    key!(
        commit_proof,
        commit_proof,
        "\"off\"",
        "how to find out what became of a COMMIT whose answer was lost: off, table or xid (PostgreSQL)"
    ),
    key!(
        commit_proof_table,
        table_name,
        "\"mainstay_commits\"",
        "the table of tokens for commit_proof = \"table\", made when it is missing"
    ),
    key!(
        commit_proof_wait,
        proof_wait,
        "\"5s\"",
        "how long it may take to find out; a call may take so much longer than its deadline"
    ),
];

/// Tables and keys of a source beside them.
const PARTS: &[&str] = &["endpoints", "policy", "connection", "preset"];

/// Keys of an endpoint beside the connection keys.
const ENDPOINT_PARTS: &[&str] = &["role", "weight", "policy", "connection", "preset"];

/// Keys of later versions, so that they are not taken for slips of the keyboard.
pub(crate) const LATER: &[&str] = &[
    "accept_loss",
    "promote_command",
    "fence_command",
    "switchover_command",
    "single_instance",
    "give_back",
    "cache",
];

fn promotion(node: &Node) -> Result<Promotion, Wrong> {
    let word = scalar::text(node)?;
    if word == "command" {
        return Err(Wrong::unavailable("command").hint("follow or route"));
    }
    let words: Vec<&str> = Promotion::ALL.iter().map(|word| word.as_str()).collect();
    let word = scalar::choice("promotion", &words, node)?;
    Promotion::parse(&word).ok_or_else(|| "follow or route".into())
}

fn replication(node: &Node) -> Result<Replication, Wrong> {
    let word = scalar::choice("replication", &["external"], node)?;
    Replication::parse(&word).ok_or_else(|| "external".into())
}

fn role(node: &Node) -> Result<Role, Wrong> {
    let words = [Role::Primary, Role::Replica, Role::Standby].map(Role::as_str);
    let word = scalar::choice("role", &words, node)?;
    Role::parse(&word).ok_or_else(|| "primary, replica or standby".into())
}

fn safety(node: &Node) -> Result<Safety, Wrong> {
    let word = scalar::choice("safety", &["write", "idempotent_write"], node)?;
    Ok(match word.as_str() {
        "idempotent_write" => Safety::IdempotentWrite,
        _ => Safety::Write,
    })
}

fn time(node: &Node) -> Result<Duration, Wrong> {
    let (least, most) = (Duration::from_millis(10), Duration::from_secs(24 * 3600));
    match scalar::time(node)? {
        Duration::ZERO => Err(Wrong::new("0 would end every transaction at once").hint(TIMES)),
        time => scalar::within(time, least..=most, TIMES),
    }
}

fn count(node: &Node) -> Result<u32, Wrong> {
    let count = scalar::within(scalar::count(node)?, 0..=1_000_000, COUNTS)?;
    u32::try_from(count).map_err(|_| Wrong::new(format!("{count} is out of bounds")).hint(COUNTS))
}

fn table_name(node: &Node) -> Result<String, Wrong> {
    let text = scalar::text(node)?;
    let fits = |c: char| c.is_alphanumeric() || c == '_';
    let is_name =
        |part: &str| !part.is_empty() && part.len() <= TABLE_NAME_MAX && part.chars().all(fits);
    let parts = text.split('.').count();
    if parts <= 2 && text.split('.').all(is_name) {
        return Ok(text);
    }
    let shown: String = text.chars().take(60).collect();
    Err(Wrong::new(format!("{shown:?} is no name of a table"))
        .hint("a name, or schema.name, of letters, digits and underscores, each at most 58 bytes"))
}

fn keep(node: &Node) -> Result<Duration, Wrong> {
    let (least, most) = (Duration::from_secs(60), Duration::from_secs(30 * 24 * 3600));
    scalar::within(scalar::time(node)?, least..=most, KEEPS)
}

fn kept_size(node: &Node) -> Result<u64, Wrong> {
    scalar::within(scalar::size(node)?, 256..=16 << 20, KEPT_SIZES)
}

fn commit_proof(node: &Node) -> Result<CommitProof, Wrong> {
    let words: Vec<&str> = CommitProof::ALL.iter().map(|word| word.as_str()).collect();
    let word = scalar::choice("commit_proof", &words, node)?;
    CommitProof::parse(&word).ok_or_else(|| "off, table or xid".into())
}

fn proof_wait(node: &Node) -> Result<Duration, Wrong> {
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(300));
    scalar::within(scalar::time(node)?, least..=most, PROOF_WAITS)
}

fn weight(node: &Node) -> Result<f64, Wrong> {
    let weight = scalar::number(node)?;
    check_weight(weight).map_err(|problem| {
        Wrong::new(problem.to_string()).hint("drain an endpoint that should get nothing")
    })?;
    Ok(weight)
}

/// The table in an entry; anything else is a problem, nothing at all an empty table.
pub(crate) fn table<'a>(
    path: &str,
    entry: &'a Entry,
    findings: &mut Findings,
) -> Option<&'a Table> {
    match &entry.node.value {
        Value::Table(table) => Some(table),
        Value::Empty => None,
        other => {
            let wrong = Wrong::new(format!("expected a table, got {}", other.kind()));
            findings.error(&entry.mark, path, wrong);
            None
        }
    }
}

/// Whether an id can stand in paths of HTTP, in `source.endpoint` and in metrics.
pub(crate) fn check_id(id: &str, mark: &Mark, path: &str, findings: &mut Findings) {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if id.is_empty() || id.len() > ID_MAX || !id.chars().all(fits) {
        let wrong = Wrong::new("not an id");
        let hint = "1 to 64 ASCII letters, digits, underscores and hyphens";
        findings.error(mark, path, wrong.hint(hint));
    }
}

impl SourceDraft {
    pub(crate) fn read(id: &str, entry: &Entry, reading: &mut Reading<'_>) -> Self {
        let path = join("sources", id);
        check_id(id, &entry.mark, &path, reading.findings);
        let mut draft = SourceDraft {
            id: id.to_owned(),
            mark: entry.mark.clone(),
            promotion: None,
            replication: None,
            safety: None,
            transaction_idle: None,
            transactions_max: None,
            idempotency_table: None,
            idempotency_keep: None,
            idempotency_answer_max: None,
            commit_proof: None,
            commit_proof_table: None,
            commit_proof_wait: None,
            policy: PolicyLayer::empty(&join(&path, "policy")),
            connection: ConnectionLayer::empty(&path),
            endpoints: Vec::new(),
            path,
        };
        if let Some(table) = table(&draft.path.clone(), entry, reading.findings) {
            draft.policy = policy_of(&draft.path, table, reading.findings);
            for (name, entry) in table.iter() {
                draft.key(name, entry, reading);
            }
        }
        draft
    }

    fn key(&mut self, name: &str, entry: &Entry, reading: &mut Reading<'_>) {
        let path = join(&self.path, name);
        if let Some(key) = SOURCE_KEYS.iter().find(|key| key.name == name) {
            let set = (key.set)(self, entry).map_err(|wrong| wrong.or_hint(key.doc));
            reading.findings.take(&entry.mark, &path, set);
        } else if name == "endpoints" {
            self.endpoints(&path, entry, reading);
        } else if !connection_or_policy(name, &path, entry, &mut self.connection, reading) {
            let known = SOURCE_KEYS.iter().map(|key| key.name);
            let known = known.chain(PARTS.iter().copied());
            unknown(name, path, &entry.mark, known, reading.findings);
        }
    }

    fn endpoints(&mut self, path: &str, entry: &Entry, reading: &mut Reading<'_>) {
        let Some(table) = table(path, entry, reading.findings) else {
            return;
        };
        if table.iter().count() > ENDPOINTS_MAX {
            let wrong = format!("more than {ENDPOINTS_MAX} endpoints");
            return reading.findings.error(&entry.mark, path, wrong);
        }
        self.endpoints = table
            .iter()
            .map(|(id, entry)| EndpointDraft::read(id, path, entry, reading))
            .collect();
        self.endpoints.sort_by(|a, b| a.mark.cmp(&b.mark));
    }
}

impl EndpointDraft {
    fn read(id: &str, parent: &str, entry: &Entry, reading: &mut Reading<'_>) -> Self {
        let path = join(parent, id);
        check_id(id, &entry.mark, &path, reading.findings);
        let mut draft = EndpointDraft {
            id: id.to_owned(),
            mark: entry.mark.clone(),
            role: None,
            weight: None,
            policy: PolicyLayer::empty(&join(&path, "policy")),
            connection: ConnectionLayer::empty(&path),
            path,
        };
        if let Some(table) = table(&draft.path.clone(), entry, reading.findings) {
            draft.policy = policy_of(&draft.path, table, reading.findings);
            for (name, entry) in table.iter() {
                draft.key(name, entry, reading);
            }
        }
        draft
    }

    fn key(&mut self, name: &str, entry: &Entry, reading: &mut Reading<'_>) {
        let path = join(&self.path, name);
        let mark = &entry.mark;
        if name == "role" {
            let role = reading.findings.take(mark, &path, role(&entry.node));
            self.role = role.map(|role| (role, mark.clone()));
        } else if name == "weight" {
            let weight = reading.findings.take(mark, &path, weight(&entry.node));
            self.weight = weight.map(|weight| (weight, mark.clone()));
        } else if !connection_or_policy(name, &path, entry, &mut self.connection, reading) {
            let known = ENDPOINT_PARTS.iter().copied();
            unknown(name, path, mark, known, reading.findings);
        }
    }
}

/// The policy table within a table.
pub(crate) fn policy_table(path: &str, table: &Table, findings: &mut Findings) -> PolicyLayer {
    let place = join(path, "policy");
    match table.get("policy") {
        Some(entry) => match self::table(&place, entry, findings) {
            Some(table) => PolicyLayer::read(&place, table, findings),
            None => PolicyLayer::empty(&place),
        },
        None => PolicyLayer::empty(&place),
    }
}

/// The policy table of a source or endpoint, with the preset that stands beside it.
fn policy_of(path: &str, table: &Table, findings: &mut Findings) -> PolicyLayer {
    let mut layer = policy_table(path, table, findings);
    if let Some(entry) = table.get("preset") {
        layer.preset(&join(path, "preset"), entry, findings);
    }
    layer
}

/// Reads what sources and endpoints have in common; whether the name was one of those.
fn connection_or_policy(
    name: &str,
    path: &str,
    entry: &Entry,
    layer: &mut ConnectionLayer,
    reading: &mut Reading<'_>,
) -> bool {
    match name {
        // Read before, by `policy_of`.
        "policy" | "preset" => true,
        "connection" => {
            if let Some(table) = table(path, entry, reading.findings) {
                layer.read_table(path, table, reading);
            }
            true
        }
        _ => match connection::key(name) {
            Some(key) => {
                layer.read(key, path, entry, reading);
                true
            }
            None => false,
        },
    }
}

fn unknown<'a>(
    name: &str,
    path: String,
    mark: &Mark,
    known: impl Iterator<Item = &'a str>,
    findings: &mut Findings,
) {
    if LATER.contains(&name) {
        return findings.error(mark, path, Wrong::unavailable(name));
    }
    if policy::is_group(name) {
        let wrong = Wrong::new("a policy group stands in a policy table");
        return findings.error(mark, path, wrong.hint(format!("write policy.{name}")));
    }
    let known = known.chain(CONNECTION_KEYS.iter().map(|key| key.name));
    findings.unknown(mark, path, name, known);
}
