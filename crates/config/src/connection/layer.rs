//! What one layer says about connections: reading it, key by key.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CONNECTION_KEYS, ConnectionKey, ConnectionKind, Given, Held, key, url};
use crate::mark::Mark;
use crate::problem::{Findings, Wrong};
use crate::scalar;
use crate::secret::{Secret, SecretReader};
use crate::source::{Driver, TlsMode};
use crate::tree::{Entry, Node, Table, Value, join};

/// What one layer says. Options are keys of their own, such as `options.application_name`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionLayer {
    /// As `explain` names it, such as `[sources.orders]`.
    pub(crate) name: String,
    pub(crate) values: BTreeMap<String, Given>,
    /// Keys whose values could not be read, so that what is missing may be in them.
    pub(super) broken: Vec<&'static str>,
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
            broken: Vec::new(),
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
                let words: Vec<&str> = TlsMode::ALL.iter().map(|mode| mode.as_str()).collect();
                scalar::choice("tls", &words, node).map(Held::Text)
            }
            ConnectionKind::Secret => secret(node, reading.secrets).map(|secret| {
                warn_of_literal(&secret, path, entry, reading.findings);
                Held::Secret(secret)
            }),
            ConnectionKind::Url => return self.read_url(path, entry, reading),
            ConnectionKind::Options => return self.read_options(path, entry, reading.findings),
        };
        let held = held.map_err(|wrong| wrong.or_hint(key.doc));
        let held = reading.findings.take(&entry.mark, path, held);
        match held {
            None => self.broken.push(key.name),
            Some(value) => {
                let given = written(value, path, &entry.mark);
                self.give(key.name.to_owned(), given, reading.findings);
            }
        }
    }

    fn give(&mut self, name: String, given: Given, findings: &mut Findings) {
        if let Some(first) = self.values.get(&name) {
            let shown = match given.is_secret && key(&name).is_none() {
                true => "an option",
                false => &name,
            };
            let wrong = Wrong::new(format!(
                "{shown} is already given by {} ({})",
                first.path, first.mark
            ));
            return findings.error(&given.mark, given.path, wrong.hint("keep one of the two"));
        }
        self.values.insert(name, given);
    }

    fn read_url(&mut self, path: &str, entry: &Entry, reading: &mut Reading<'_>) {
        let read = secret(&entry.node, reading.secrets).and_then(|secret| {
            let text = secret
                .read()
                .map_err(|error| Wrong::new(error.to_string()))?;
            let parts = match secret.reference() {
                Some(_) => url::parse_secret(&text),
                None => url::parse(&text),
            };
            Ok((parts?, secret))
        });
        let Some((parts, secret)) = reading.findings.take(&entry.mark, path, read) else {
            self.broken.push("url");
            return;
        };
        let is_secret = secret.reference().is_some();
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
                    let part = secret.of_url();
                    warn_of_literal(&part, path, entry, reading.findings);
                    Held::Secret(part)
                }
                _ => Held::Text(text),
            };
            let given = written(held, path, &entry.mark);
            self.give(name, Given { is_secret, ..given }, reading.findings);
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
                let given = written(Held::Text(value), &path, &entry.mark);
                self.give(format!("options.{name}"), given, findings);
            }
        }
    }
}

/// A value as it stands in the file.
fn written(value: Held, path: &str, mark: &Mark) -> Given {
    Given {
        value,
        mark: mark.clone(),
        path: path.to_owned(),
        is_secret: false,
    }
}

/// Text that says something.
pub(crate) fn filled(node: &Node) -> Result<String, Wrong> {
    match scalar::text(node)? {
        text if text.trim().is_empty() => Err(Wrong::new("is empty").hint("leave the key out")),
        text => Ok(text),
    }
}

/// From 1 to 65535.
pub(crate) fn port(node: &Node) -> Result<u16, Wrong> {
    let count = scalar::count(node)?;
    u16::try_from(count)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| Wrong::new(format!("{count} is not a port")).hint("from 1 to 65535"))
}

fn driver(node: &Node) -> Result<String, Wrong> {
    let word = scalar::text(node)?;
    Driver::named(&word).map(|driver| driver.as_str().to_owned())
}

/// A secret that resolves. What is wrong with it is told without showing it.
pub(crate) fn secret(node: &Node, secrets: &Arc<dyn SecretReader>) -> Result<Secret, Wrong> {
    let text = scalar::text(node).map_err(|_| {
        Wrong::new("expected text").hint("a reference such as \"env:NAME\" or \"file:PATH\"")
    })?;
    if text.trim().is_empty() {
        return Err(Wrong::new("is empty").hint("leave the key out"));
    }
    let secret = Secret::new(&text, Arc::clone(secrets));
    secret.read().map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Wrong::new(format!(
            "does not resolve: {error}{}",
            cause.unwrap_or_default()
        ))
    })?;
    Ok(secret)
}

/// A secret that is written where others can read it.
pub(crate) fn warn_of_literal(secret: &Secret, path: &str, entry: &Entry, findings: &mut Findings) {
    if secret.reference().is_none() && entry.mark.origin.is_written() {
        let wrong = Wrong::new("a password is written out");
        let hint = "keep it elsewhere and write env:NAME or file:PATH";
        findings.warning(&entry.mark, path, wrong.hint(hint));
    }
}
