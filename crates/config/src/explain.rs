//! `explain`: each effective value and where it came from.

use mainstay_engine::Policy;
use mainstay_engine::policy::KEYS;
use serde::Serialize;

use crate::configuration::Configuration;
use crate::connection::{CONNECTION_KEYS, Connection, ConnectionKind};
use crate::mark::{Mark, Origin};
use crate::policy::Layered;
use crate::source::Driver;

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

/// Each policy and connection key of `source` or `source.endpoint`, in the order of the reference.
pub fn explain<'a>(
    configuration: &'a Configuration,
    target: &str,
) -> Result<&'a [Explained], UnknownTarget> {
    let all = configuration.explained();
    let found = all.get(target).map(Vec::as_slice);
    found.ok_or_else(|| {
        let known: Vec<&str> = all.keys().map(String::as_str).take(KNOWN_MAX).collect();
        UnknownTarget {
            target: target.to_owned(),
            known: known.join(", "),
        }
    })
}

/// The lines of one target.
pub(crate) fn explained(
    layered: &Layered<'_>,
    policy: &Policy,
    connection: &Connection<'_>,
    driver: Driver,
) -> Vec<Explained> {
    let mut lines = Vec::with_capacity(KEYS.len() + CONNECTION_KEYS.len());
    for key in CONNECTION_KEYS {
        match key.kind {
            ConnectionKind::Url => {}
            ConnectionKind::Options => {
                let options = connection
                    .iter()
                    .filter(|(name, ..)| name.starts_with("options."));
                lines.extend(options.map(|(name, layer, given)| {
                    let value = given.value.to_string();
                    line(name.to_owned(), value, &layer.name, Some(&given.mark))
                }));
            }
            _ => lines.push(connection_line(key.name, connection, driver)),
        }
    }
    for key in KEYS {
        let derived = layered.derive(key, policy);
        let path = format!("policy.{}", key.path);
        let mark = derived.mark.as_ref();
        lines.push(line(path, derived.value.to_string(), &derived.layer, mark));
    }
    lines
}

fn connection_line(name: &str, connection: &Connection<'_>, driver: Driver) -> Explained {
    let found = connection.iter().find(|(given, ..)| *given == name);
    if let Some((_, layer, given)) = found {
        let value = given.value.to_string();
        return line(name.to_owned(), value, &layer.name, Some(&given.mark));
    }
    let value = match (name, driver) {
        ("driver", driver) => driver.as_str(),
        ("port", Driver::Postgres) => "5432",
        ("tls", Driver::Postgres) => "prefer",
        _ => "(not set)",
    };
    line(name.to_owned(), value.to_owned(), "default", None)
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
        line: mark.map(|mark| mark.line).filter(|line| *line > 0),
    }
}
