//! Connection keys in layers: where an endpoint is and how to log in there.

pub(crate) mod url;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::mark::Mark;
use crate::problem::{Findings, Wrong};
use crate::scalar;
use crate::secret::{Secret, SecretReader};
use crate::tree::{Entry, Node, Table, Value, join};

/// What a connection key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionKind {
    Text,
    Port,
    Secret,
    Driver,
    Tls,
    Url,
    Options,
}

/// A key that says where an endpoint is or how to connect to it.
#[derive(Debug)]
pub(crate) struct ConnectionKey {
    pub(crate) name: &'static str,
    pub(crate) kind: ConnectionKind,
    pub(crate) doc: &'static str,
    pub(crate) example: &'static str,
}

const fn of(
    name: &'static str,
    kind: ConnectionKind,
    doc: &'static str,
    example: &'static str,
) -> ConnectionKey {
    ConnectionKey {
        name,
        kind,
        doc,
        example,
    }
}

/// Every connection key.
pub(crate) const CONNECTION_KEYS: &[ConnectionKey] = &[
    of(
        "driver",
        ConnectionKind::Driver,
        "sqlite or postgres",
        "\"postgres\"",
    ),
    of(
        "url",
        ConnectionKind::Url,
        "all of it in one, also as env:NAME or file:PATH",
        "\"postgres://app@db1.internal:5432/orders?sslmode=prefer\"",
    ),
    of(
        "host",
        ConnectionKind::Text,
        "name or address of the server",
        "\"db1.internal\"",
    ),
    of("port", ConnectionKind::Port, "its port", "5432"),
    of(
        "database",
        ConnectionKind::Text,
        "name of the database",
        "\"orders\"",
    ),
    of("user", ConnectionKind::Text, "whom to log in as", "\"app\""),
    of(
        "password",
        ConnectionKind::Secret,
        "env:NAME or file:PATH",
        "\"env:ORDERS_PASSWORD\"",
    ),
    of(
        "tls",
        ConnectionKind::Tls,
        "off, prefer, require, verify-ca or verify-full",
        "\"verify-full\"",
    ),
    of(
        "tls_ca",
        ConnectionKind::Text,
        "file of the authorities to trust (PEM)",
        "\"/etc/mainstay/ca.pem\"",
    ),
    of(
        "tls_cert",
        ConnectionKind::Text,
        "file of the client certificate (PEM)",
        "\"/etc/mainstay/client.pem\"",
    ),
    of(
        "tls_key",
        ConnectionKind::Text,
        "file of its key (PEM)",
        "\"/etc/mainstay/client.key\"",
    ),
    of(
        "path",
        ConnectionKind::Text,
        "file of an SQLite database",
        "\"./orders.db\"",
    ),
    of(
        "options",
        ConnectionKind::Options,
        "further settings for the driver",
        "{ application_name = \"mainstay\" }",
    ),
];

/// The connection key of that name.
pub(crate) fn key(name: &str) -> Option<&'static ConnectionKey> {
    CONNECTION_KEYS.iter().find(|key| key.name == name)
}

/// What a layer gives a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Held {
    Text(String),
    Port(u16),
    Secret(Secret),
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Held::Text(text) => f.write_str(text),
            Held::Port(port) => write!(f, "{port}"),
            Held::Secret(secret) => write!(f, "{secret}"),
        }
    }
}

/// A value that a layer gives a key.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) value: Held,
    pub(crate) mark: Mark,
    pub(crate) path: String,
}

/// What one layer says. Options are keys of their own, such as `options.application_name`.
#[derive(Debug, Default)]
pub(crate) struct ConnectionLayer {
    /// As `explain` names it, such as `[sources.orders]`.
    pub(crate) name: String,
    pub(crate) values: BTreeMap<String, Given>,
    /// A value could not be read, so that what is missing may be in it.
    broken: bool,
}

/// What reading a layer needs.
pub(crate) struct Reading<'a> {
    pub(crate) secrets: &'a Arc<dyn SecretReader>,
    pub(crate) findings: &'a mut Findings,
}

impl ConnectionLayer {
    pub(crate) fn empty(path: &str) -> Self {
        ConnectionLayer {
            name: format!("[{path}]"),
            values: BTreeMap::new(),
            broken: false,
        }
    }

    /// Reads a connection table, where every key is a connection key.
    pub(crate) fn read_table(&mut self, path: &str, table: &Table, reading: &mut Reading<'_>) {
        for (name, entry) in table.iter() {
            match key(name) {
                Some(key) => self.read(key, &join(path, name), entry, reading),
                None => {
                    let known = CONNECTION_KEYS.iter().map(|key| key.name);
                    let path = join(path, name);
                    reading.findings.unknown(&entry.mark, path, name, known);
                }
            }
        }
    }

    /// Reads one connection key.
    pub(crate) fn read(
        &mut self,
        key: &'static ConnectionKey,
        path: &str,
        entry: &Entry,
        reading: &mut Reading<'_>,
    ) {
        let node = &entry.node;
        let held = match key.kind {
            ConnectionKind::Text => filled(node).map(Held::Text),
            ConnectionKind::Port => port(node).map(Held::Port),
            ConnectionKind::Driver => driver(node).map(Held::Text),
            ConnectionKind::Tls => {
                let words: Vec<&str> = crate::TlsMode::ALL
                    .iter()
                    .map(|mode| mode.as_str())
                    .collect();
                scalar::choice("tls", &words, node).map(Held::Text)
            }
            ConnectionKind::Secret => secret(node, reading).map(|secret| {
                warn_of_literal(&secret, path, entry, reading.findings);
                Held::Secret(secret)
            }),
            ConnectionKind::Url => return self.read_url(path, entry, reading),
            ConnectionKind::Options => return self.read_options(path, entry, reading.findings),
        };
        let held = held.map_err(|wrong| wrong.or_hint(key.doc));
        let held = reading.findings.take(&entry.mark, path, held);
        self.broken |= held.is_none();
        if let Some(value) = held {
            self.give(
                key.name.to_owned(),
                value,
                path,
                &entry.mark,
                reading.findings,
            );
        }
    }

    fn give(
        &mut self,
        name: String,
        value: Held,
        path: &str,
        mark: &Mark,
        findings: &mut Findings,
    ) {
        if let Some(first) = self.values.get(&name) {
            let wrong = Wrong::new(format!(
                "{name} is already given by {} ({})",
                first.path, first.mark
            ));
            return findings.error(mark, path, wrong.hint("keep one of the two"));
        }
        let given = Given {
            value,
            mark: mark.clone(),
            path: path.to_owned(),
        };
        self.values.insert(name, given);
    }

    fn read_url(&mut self, path: &str, entry: &Entry, reading: &mut Reading<'_>) {
        let read = secret(&entry.node, reading).and_then(|secret| {
            let text = secret
                .read()
                .map_err(|error| Wrong::new(error.to_string()))?;
            Ok((url::parse(&text)?, secret))
        });
        let Some((parts, secret)) = reading.findings.take(&entry.mark, path, read) else {
            self.broken = true;
            return;
        };
        for (name, text) in parts {
            let held = match key(&name).map(|key| key.kind) {
                Some(ConnectionKind::Port) => match text.parse() {
                    Ok(port) if port > 0 => Held::Port(port),
                    _ => {
                        let wrong = "the port is not a number from 1 to 65535";
                        reading.findings.error(&entry.mark, path, wrong);
                        continue;
                    }
                },
                Some(ConnectionKind::Secret) => {
                    let part = secret.part(text);
                    warn_of_literal(&part, path, entry, reading.findings);
                    Held::Secret(part)
                }
                _ => Held::Text(text),
            };
            self.give(name, held, path, &entry.mark, reading.findings);
        }
    }

    fn read_options(&mut self, path: &str, entry: &Entry, findings: &mut Findings) {
        let Value::Table(table) = &entry.node.value else {
            let wrong = Wrong::new(format!("expected a table, got {}", entry.node.value.kind()));
            let hint = "such as { application_name = \"mainstay\" }";
            return findings.error(&entry.mark, path, wrong.hint(hint));
        };
        for (name, entry) in table.iter() {
            let path = join(path, name);
            let value = match &entry.node.value {
                Value::Integer(value) => Ok(value.to_string()),
                Value::Bool(value) => Ok(value.to_string()),
                _ => scalar::text(&entry.node),
            };
            if let Some(value) = findings.take(&entry.mark, &path, value) {
                let name = format!("options.{name}");
                self.give(name, Held::Text(value), &path, &entry.mark, findings);
            }
        }
    }
}

/// Text that says something.
fn filled(node: &Node) -> Result<String, Wrong> {
    match scalar::text(node)? {
        text if text.trim().is_empty() => Err(Wrong::new("is empty").hint("leave the key out")),
        text => Ok(text),
    }
}

fn port(node: &Node) -> Result<u16, Wrong> {
    let count = scalar::count(node)?;
    u16::try_from(count)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| Wrong::new(format!("expected a port from 1 to 65535, got {count}")))
}

fn driver(node: &Node) -> Result<String, Wrong> {
    let word = scalar::text(node)?;
    crate::Driver::named(&word).map(|driver| driver.as_str().to_owned())
}

/// A secret that resolves. What is wrong with it is told without showing it.
fn secret(node: &Node, reading: &Reading<'_>) -> Result<Secret, Wrong> {
    let text = scalar::text(node).map_err(|_| {
        Wrong::new("expected text").hint("a reference such as \"env:NAME\" or \"file:PATH\"")
    })?;
    if text.trim().is_empty() {
        return Err(Wrong::new("is empty").hint("leave the key out"));
    }
    let secret = Secret::new(&text, Arc::clone(reading.secrets));
    secret.read().map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Wrong::new(format!(
            "does not resolve: {error}{}",
            cause.unwrap_or_default()
        ))
    })?;
    Ok(secret)
}

fn warn_of_literal(secret: &Secret, path: &str, entry: &Entry, findings: &mut Findings) {
    if secret.reference().is_none() && entry.mark.origin.is_written() {
        let wrong = Wrong::new("a password is written out");
        let hint = "keep it elsewhere and write env:NAME or file:PATH";
        findings.warning(&entry.mark, path, wrong.hint(hint));
    }
}

/// The strongest value of each key over all layers, weakest first, with its layer.
pub(crate) struct Connection<'a> {
    values: BTreeMap<&'a str, (&'a ConnectionLayer, &'a Given)>,
    /// A value of some layer could not be read.
    pub(crate) broken: bool,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(layers: &[&'a ConnectionLayer]) -> Self {
        let mut values = BTreeMap::new();
        for layer in layers {
            let given = layer.values.iter();
            values.extend(given.map(|(name, given)| (name.as_str(), (*layer, given))));
        }
        Connection {
            values,
            broken: layers.iter().any(|layer| layer.broken),
        }
    }

    pub(crate) fn given(&self, name: &str) -> Option<&'a Given> {
        self.values.get(name).map(|(_, given)| *given)
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        match &self.given(name)?.value {
            Held::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    pub(crate) fn port(&self) -> Option<u16> {
        match self.given("port")?.value {
            Held::Port(port) => Some(port),
            _ => None,
        }
    }

    pub(crate) fn secret(&self, name: &str) -> Option<Secret> {
        match &self.given(name)?.value {
            Held::Secret(secret) => Some(secret.clone()),
            _ => None,
        }
    }

    pub(crate) fn options(&self) -> BTreeMap<String, String> {
        self.values
            .iter()
            .filter_map(|(name, (_, given))| {
                let name = name.strip_prefix("options.")?;
                Some((name.to_owned(), given.value.to_string()))
            })
            .collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a str, &'a ConnectionLayer, &'a Given)> {
        let values = self.values.iter();
        values.map(|(name, (layer, given))| (*name, *layer, *given))
    }
}
