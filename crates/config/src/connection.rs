//! Connection keys in layers: where an endpoint is and how to log in there.

mod layer;
pub(crate) mod url;

use std::collections::BTreeMap;

use crate::mark::Mark;
use crate::secret::Secret;

pub(crate) use layer::{ConnectionLayer, Reading, filled, port, secret, warn_of_literal};

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
        "sqlite, postgres or mysql (MariaDB as well)",
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
    of(
        "port",
        ConnectionKind::Port,
        "its port, from 1 to 65535",
        "5432",
    ),
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
        "further settings for the driver; each has its own",
        "{ statements_max = 64 }",
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
    /// It comes from where secrets are kept, so that no message may show it.
    pub(crate) is_secret: bool,
}

/// The strongest value of each key over all layers, weakest first, with its layer.
pub(crate) struct Connection<'a> {
    values: BTreeMap<&'a str, (&'a ConnectionLayer, &'a Given)>,
    /// A value of some layer could not be read.
    broken: Vec<&'static str>,
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
            broken: layers
                .iter()
                .flat_map(|layer| layer.broken.iter().copied())
                .collect(),
        }
    }

    /// Whether a key that is missing may be in a value that could not be read.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        self.broken
            .iter()
            .any(|broken| *broken == name || *broken == "url")
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
