//! From drafts to settings: layers are laid over each other, what is missing is told.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use mainstay_engine::Safety;

use super::draft::{EndpointDraft, SourceDraft};
use super::{
    Address, ClientCertificate, CommitProof, CommitProofSettings, Driver, EndpointSettings,
    IdempotencySettings, Promotion, Replication, ServerAddress, SourceSettings, TlsMode,
    TlsSettings, options, roles,
};
use crate::connection::{Connection, ConnectionLayer};
use crate::mark::Mark;
use crate::policy::{Layered, PolicyLayer};
use crate::problem::{Findings, Wrong};

/// A transaction that nobody continues holds locks: a minute is long for a program, and short for
/// those who wait.
const TRANSACTION_IDLE: Duration = Duration::from_secs(60);

/// Far more than a pool has connections; a bound, not a target.
const TRANSACTIONS_MAX: u32 = 1000;

/// A client that repeats a request does so within minutes; a day is for those that queue.
const IDEMPOTENCY_KEEP: Duration = Duration::from_secs(24 * 3600);

/// Affected rows and keys take some hundred bytes.
const IDEMPOTENCY_ANSWER_MAX: u64 = 64 << 10;

const COMMIT_PROOF_TABLE: &str = "mainstay_commits";

/// A failover to another server takes about so long.
const COMMIT_PROOF_WAIT: Duration = Duration::from_secs(5);

/// The layers that all sources share, weakest first.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) policies: Vec<PolicyLayer>,
    pub(crate) connections: Vec<ConnectionLayer>,
}

/// One source with the layers below it.
pub(crate) struct Parts<'a> {
    pub(crate) draft: &'a SourceDraft,
    policies: Vec<&'a PolicyLayer>,
    connections: Vec<&'a ConnectionLayer>,
}

/// Lays the layers over each other; `None` if something is wrong, which is then among the findings.
pub(crate) fn assemble(
    shared: &Shared,
    draft: &SourceDraft,
    findings: &mut Findings,
) -> Option<SourceSettings> {
    let parts = Parts::new(shared, draft);
    if draft.endpoints.is_empty() {
        let wrong = Wrong::new("no endpoints, so there is nothing to call");
        let hint = format!("add [{}.endpoints.a]", draft.path);
        findings.error(&draft.mark, draft.path.as_str(), wrong.hint(hint));
    }
    let own = parts.policy();
    let policy = own.policy((&draft.mark, &draft.path), findings);
    let driver = parts.driver(findings);
    let promotion = driver.map(|driver| promotion(draft, driver, findings));
    let replication = draft.replication.as_ref().map(|(kind, _)| *kind);
    let endpoints = parts.endpoints(driver.zip(promotion), replication, findings);
    let commit_proof = commit_proof(draft, driver, findings);
    let call_max = policy.as_ref().map_or(Duration::ZERO, |policy| {
        let proof = commit_proof.as_ref().map(|proof| proof.wait);
        let limits = [policy.retry.deadline, policy.retry.attempt_timeout, proof];
        limits.into_iter().flatten().max().unwrap_or_default()
    });
    let idempotency = idempotency(draft, call_max, findings);
    Some(SourceSettings {
        driver: driver?,
        preset: own.preset_or_default(),
        promotion: promotion?,
        replication,
        safety: noted(&draft.safety, Safety::Write),
        transaction_idle: noted(&draft.transaction_idle, TRANSACTION_IDLE),
        transactions_max: noted(&draft.transactions_max, TRANSACTIONS_MAX),
        idempotency,
        commit_proof,
        policy: policy?,
        endpoints: endpoints?,
    })
}

/// A key that has no effect without another one.
fn needs<T>(
    noted: &Option<(T, Mark)>,
    (draft, name): (&SourceDraft, &str),
    other: &str,
    findings: &mut Findings,
) {
    if let Some((_, mark)) = noted {
        let wrong = Wrong::new("has no effect").hint(format!("set {other} too, or leave it out"));
        findings.warning(mark, crate::tree::join(&draft.path, name), wrong);
    }
}

/// A key must outlive the call that it was sent with, whose longest limit is `call_max`.
fn idempotency(
    draft: &SourceDraft,
    call_max: Duration,
    findings: &mut Findings,
) -> Option<IdempotencySettings> {
    let Some((table, table_mark)) = &draft.idempotency_table else {
        let other = "idempotency_table";
        let (keep, most) = ("idempotency_keep", "idempotency_answer_max");
        needs(&draft.idempotency_keep, (draft, keep), other, findings);
        needs(
            &draft.idempotency_answer_max,
            (draft, most),
            other,
            findings,
        );
        return None;
    };
    let keep = noted(&draft.idempotency_keep, IDEMPOTENCY_KEEP);
    let least = call_max.saturating_mul(2);
    if keep < least {
        let mark = draft.idempotency_keep.as_ref();
        let mark = mark.map_or(table_mark, |(_, mark)| mark);
        let wrong = Wrong::new("a key could be forgotten while its request is still sent again");
        let path = crate::tree::join(&draft.path, "idempotency_keep");
        let hint = format!(
            "at least {}s: twice the longest of retry.deadline, retry.attempt_timeout and commit_proof_wait",
            least.as_secs_f64().ceil()
        );
        findings.error(mark, path, wrong.hint(hint));
    }
    Some(IdempotencySettings {
        table: table.clone(),
        keep,
        answer_max: noted(&draft.idempotency_answer_max, IDEMPOTENCY_ANSWER_MAX),
    })
}

fn commit_proof(
    draft: &SourceDraft,
    driver: Option<Driver>,
    findings: &mut Findings,
) -> Option<CommitProofSettings> {
    let form = noted(&draft.commit_proof, CommitProof::Off);
    if form == CommitProof::Off {
        let other = "commit_proof";
        let (table, wait) = ("commit_proof_table", "commit_proof_wait");
        needs(&draft.commit_proof_table, (draft, table), other, findings);
        needs(&draft.commit_proof_wait, (draft, wait), other, findings);
        return None;
    }
    if form == CommitProof::Xid
        && driver.is_some_and(|driver| driver != Driver::Postgres)
        && let Some((_, mark)) = &draft.commit_proof
    {
        let wrong = Wrong::new("only PostgreSQL tells what became of a transaction by its number");
        let path = crate::tree::join(&draft.path, "commit_proof");
        findings.error(mark, path, wrong.hint("use \"table\""));
    }
    let table = draft.commit_proof_table.as_ref();
    let table = table.map_or(COMMIT_PROOF_TABLE, |(table, _)| table);
    Some(CommitProofSettings {
        form,
        table: table.to_owned(),
        wait: noted(&draft.commit_proof_wait, COMMIT_PROOF_WAIT),
    })
}

fn noted<T: Copy>(noted: &Option<(T, Mark)>, default: T) -> T {
    noted.as_ref().map_or(default, |(value, _)| *value)
}

impl<'a> Parts<'a> {
    pub(crate) fn new(shared: &'a Shared, draft: &'a SourceDraft) -> Self {
        let connections = shared.connections.iter();
        Parts {
            draft,
            policies: shared.policies.iter().chain([&draft.policy]).collect(),
            connections: connections.chain([&draft.connection]).collect(),
        }
    }

    /// The policy layers of the source as a whole.
    pub(crate) fn policy(&self) -> Layered<'a> {
        Layered::new(&self.policies)
    }

    pub(crate) fn policy_at(&self, endpoint: &'a EndpointDraft) -> Layered<'a> {
        let layers = self.policies.iter().copied();
        Layered::new(&layers.chain([&endpoint.policy]).collect::<Vec<_>>())
    }

    /// The connection keys of the source as a whole.
    pub(crate) fn connection(&self) -> Connection<'a> {
        Connection::new(&self.connections)
    }

    pub(crate) fn connection_at(&self, endpoint: &'a EndpointDraft) -> Connection<'a> {
        let layers = self.connections.iter().copied();
        Connection::new(&layers.chain([&endpoint.connection]).collect::<Vec<_>>())
    }

    fn endpoints(
        &self,
        known: Option<(Driver, Promotion)>,
        replication: Option<Replication>,
        findings: &mut Findings,
    ) -> Option<BTreeMap<String, EndpointSettings>> {
        let drafts = &self.draft.endpoints;
        let mut policies = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let policy = self.policy_at(draft);
            policies.push(policy.policy((&draft.mark, &draft.path), findings));
        }
        let (driver, promotion) = known?;
        let addresses: Vec<_> = drafts
            .iter()
            .map(|draft| self.address(draft, driver, findings))
            .collect();
        let one_file = driver == Driver::Sqlite && replication.is_none();
        if one_file {
            one_file_only(self.draft, &addresses, findings);
        }
        let roles = roles::roles(self.draft, promotion, one_file, findings);
        let mut endpoints = BTreeMap::new();
        for (((draft, address), role), policy) in
            drafts.iter().zip(addresses).zip(roles).zip(policies)
        {
            let settings = EndpointSettings {
                driver,
                address: address?,
                role,
                weight: noted(&draft.weight, 1.0),
                options: self.connection_at(draft).options(),
                policy: policy?,
            };
            endpoints.insert(draft.id.clone(), settings);
        }
        Some(endpoints)
    }

    /// The driver that all endpoints agree on.
    fn driver(&self, findings: &mut Findings) -> Option<Driver> {
        let own = self.connection();
        let named = |connection: &Connection<'_>| Driver::parse(&connection.text("driver")?);
        let mut found = named(&own);
        for endpoint in &self.draft.endpoints {
            let connection = self.connection_at(endpoint);
            match (found, named(&connection)) {
                (None, Some(driver)) => found = Some(driver),
                (Some(one), Some(other)) if one != other => {
                    let wrong = format!("{other} beside {one}: a source has one driver");
                    let mark = connection
                        .given("driver")
                        .map_or(&endpoint.mark, |given| &given.mark);
                    let path = format!("{}.driver", endpoint.path);
                    findings.error(
                        mark,
                        path,
                        Wrong::new(wrong).hint("make it a source of its own"),
                    );
                    return None;
                }
                _ => {}
            }
        }
        let endpoints = self.draft.endpoints.iter();
        let broken = own.may_have("driver")
            || endpoints
                .map(|endpoint| self.connection_at(endpoint))
                .any(|at| at.may_have("driver"));
        if found.is_none() && !broken {
            let wrong =
                Wrong::new("no driver").hint("driver = \"sqlite\", \"postgres\" or \"mysql\"");
            findings.error(&self.draft.mark, self.draft.path.as_str(), wrong);
        }
        found
    }

    fn address(
        &self,
        endpoint: &'a EndpointDraft,
        driver: Driver,
        findings: &mut Findings,
    ) -> Option<Address> {
        let connection = self.connection_at(endpoint);
        foreign_keys(&connection, driver, findings);
        options::check(&connection, driver, findings);
        match driver {
            Driver::Sqlite => file(endpoint, &connection, findings).map(Address::File),
            Driver::Postgres | Driver::Mysql => {
                server(endpoint, &connection, driver, findings).map(Address::Server)
            }
        }
    }
}

fn promotion(draft: &SourceDraft, driver: Driver, findings: &mut Findings) -> Promotion {
    let default = match driver {
        Driver::Sqlite => Promotion::Route,
        Driver::Postgres | Driver::Mysql => Promotion::Follow,
    };
    let Some((said, mark)) = &draft.promotion else {
        return default;
    };
    if *said != default {
        let wrong = match said {
            Promotion::Route => "route is for SQLite: elsewhere the servers would not know of it",
            Promotion::Follow => "SQLite has no server that says who is primary",
        };
        let path = format!("{}.promotion", draft.path);
        let hint = format!("leave it out, or write {:?}", default.as_str());
        findings.error(mark, path, Wrong::new(wrong).hint(hint));
    }
    default
}

/// Keys that say nothing to this driver are mistakes where the source or endpoint itself has them.
fn foreign_keys(connection: &Connection<'_>, driver: Driver, findings: &mut Findings) {
    let fits = |name: &str| match driver {
        _ if name == "driver" || name.starts_with("options.") => true,
        Driver::Sqlite => name == "path",
        Driver::Postgres | Driver::Mysql => name != "path",
    };
    for (name, _, given) in connection.iter() {
        if !fits(name) && given.path.starts_with("sources.") {
            let wrong = format!("{name} says nothing to the driver {driver}");
            findings.error(&given.mark, given.path.as_str(), wrong);
        }
    }
}

/// Tells a key that is missing, unless it may be in a value that could not be read.
fn missing(
    endpoint: &EndpointDraft,
    connection: &Connection<'_>,
    name: &str,
    hint: &str,
    findings: &mut Findings,
) {
    if !connection.may_have(name) {
        let wrong = Wrong::new(format!("no {name}")).hint(hint);
        findings.error(&endpoint.mark, endpoint.path.as_str(), wrong);
    }
}

fn file(
    endpoint: &EndpointDraft,
    connection: &Connection<'_>,
    findings: &mut Findings,
) -> Option<PathBuf> {
    let Some(path) = connection.text("path") else {
        missing(
            endpoint,
            connection,
            "path",
            "path = \"./orders.db\"",
            findings,
        );
        return None;
    };
    if path.starts_with(":memory:") {
        let given = connection.given("path")?;
        let wrong = Wrong::new("a database in memory exists once for each connection");
        let hint = "name a file; a temporary one will do";
        findings.error(&given.mark, given.path.as_str(), wrong.hint(hint));
        return None;
    }
    Some(PathBuf::from(path))
}

fn server(
    endpoint: &EndpointDraft,
    connection: &Connection<'_>,
    driver: Driver,
    findings: &mut Findings,
) -> Option<ServerAddress> {
    let mut need = |name: &str, hint: &str| {
        let text = connection.text(name);
        if text.is_none() {
            missing(endpoint, connection, name, hint, findings);
        }
        text
    };
    let host = need("host", "host = \"db1.internal\", or a url");
    let database = need("database", "database = \"orders\", here or at the source");
    let user = need("user", "user = \"app\", here or at the source");
    let tls = tls(endpoint, connection, findings);
    Some(ServerAddress {
        host: host?,
        port: connection.port().or(driver.port()).unwrap_or_default(),
        database: database?,
        user: user?,
        password: connection.secret("password"),
        tls: tls?,
    })
}

fn tls(
    endpoint: &EndpointDraft,
    connection: &Connection<'_>,
    findings: &mut Findings,
) -> Option<TlsSettings> {
    let mode = connection
        .text("tls")
        .and_then(|word| TlsMode::parse(&word));
    let mode = mode.unwrap_or(TlsMode::Prefer);
    let file = |name: &str| connection.text(name).map(PathBuf::from);
    let ca = file("tls_ca");
    let place = |name: &str| match connection.given(name) {
        Some(given) => (given.mark.clone(), given.path.clone()),
        None => (endpoint.mark.clone(), endpoint.path.clone()),
    };
    if matches!(mode, TlsMode::VerifyCa | TlsMode::VerifyFull) && ca.is_none() {
        let (mark, path) = place("tls");
        let wrong = Wrong::new(format!("{mode} needs the authorities to trust"));
        findings.error(&mark, path, wrong.hint("tls_ca = \"/path/to/ca.pem\""));
        return None;
    }
    let client = match (file("tls_cert"), file("tls_key")) {
        (Some(cert), Some(key)) => Some(ClientCertificate { cert, key }),
        (None, None) => None,
        (cert, _) => {
            let (has, lacks) = match cert {
                Some(_) => ("tls_cert", "tls_key"),
                None => ("tls_key", "tls_cert"),
            };
            let (mark, path) = place(has);
            let wrong = format!("{has} without {lacks}");
            findings.error(&mark, path, Wrong::new(wrong).hint("give both"));
            return None;
        }
    };
    Some(TlsSettings { mode, ca, client })
}

/// Endpoints of one SQLite source are connections to one file, unless something outside keeps
/// several files alike.
fn one_file_only(draft: &SourceDraft, addresses: &[Option<Address>], findings: &mut Findings) {
    let mut first: Option<(&EndpointDraft, PathBuf)> = None;
    for (endpoint, address) in draft.endpoints.iter().zip(addresses) {
        let Some(Address::File(path)) = address else {
            continue;
        };
        let plain = plain(path);
        match &first {
            None => first = Some((endpoint, plain)),
            Some((other, known)) if *known != plain => {
                let wrong = format!("another file than endpoint {}", other.id);
                let given = endpoint.connection.values.get("path");
                let mark = given.map_or(&endpoint.mark, |given| &given.mark);
                let path = format!("{}.path", endpoint.path);
                let hint = format!(
                    "one path for all, or replication = {:?} if something keeps the files alike",
                    Replication::External.as_str()
                );
                findings.error(mark, path, Wrong::new(wrong).hint(hint));
            }
            Some(_) => {}
        }
    }
}

/// A path without the steps that lead nowhere.
fn plain(path: &Path) -> PathBuf {
    path.components()
        .filter(|step| *step != Component::CurDir)
        .collect()
}
