//! `[server.keys]`: who may call, as what, and what for.

use crate::problem::{Findings, Wrong};
use crate::scalar::{self, within};
use crate::source::table;
use crate::suggestion;
use crate::tree::{Entry, Node, Table, Value, join};
use crate::words::words;

words! {
    /// What the holder of a key may do; each role includes the ones before it.
    #[derive(PartialOrd, Ord)]
    KeyRole {
        /// Look and read.
        Read = "read",
        /// Change what the databases hold, too.
        Write = "write",
        /// Change how Mainstay works, too.
        Admin = "admin",
    }
}

/// A key that callers of the HTTP surface show. Only its hash is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySettings {
    /// The SHA-256 of the key.
    pub sha256: [u8; 32],
    /// What its holder may do.
    pub role: KeyRole,
    /// Which sources it is for; `*`: all. Default all.
    pub sources: Vec<String>,
    /// Requests per second. Default: any number.
    pub rate: Option<u32>,
}

/// Name, example and meaning of each key of `[server.keys.NAME]`.
pub(crate) const KEY_KEYS: &[(&str, &str, &str)] = &[
    (
        "sha256",
        "\"9f86…\"",
        "the SHA-256 of the key, 64 hexadecimal digits; `mainstay key new` makes both",
    ),
    ("role", "\"read\"", "read, write or admin"),
    (
        "sources",
        "[\"orders\"]",
        "the sources it is for; default `[\"*\"]`, all",
    ),
    (
        "rate",
        "100",
        "requests per second, from 1 to 1000000; default any number",
    ),
];

/// Reads `[server.keys]`.
pub(crate) fn read_all(
    path: &str,
    entry: &Entry,
    findings: &mut Findings,
) -> Vec<(String, KeySettings)> {
    let Some(all) = table(path, entry, findings) else {
        return Vec::new();
    };
    let mut keys: Vec<(String, KeySettings)> = Vec::new();
    for (id, entry) in all.iter() {
        let path = join(path, id);
        let Some(own) = table(&path, entry, findings) else {
            continue;
        };
        let Some(key) = read(&path, entry, own, findings) else {
            continue;
        };
        if let Some((other, _)) = keys.iter().find(|(_, other)| other.sha256 == key.sha256) {
            let wrong = Wrong::new(format!("is the same key as {other}"));
            findings.error(
                &entry.mark,
                path,
                wrong.hint("make one for each by mainstay key new"),
            );
            continue;
        }
        keys.push((id.to_owned(), key));
    }
    keys
}

/// Tells the sources of keys that there are none of.
pub(crate) fn check_sources(path: &str, keys: &Entry, known: &[&str], findings: &mut Findings) {
    for (id, key) in tables(keys) {
        let Some(entry) = key.get("sources") else {
            continue;
        };
        // What is no list has been told.
        let names = scalar::list(&entry.node).unwrap_or_default();
        let unknown = names
            .iter()
            .filter(|name| *name != "*" && !known.contains(&name.as_str()));
        for name in unknown {
            let hint = match suggestion::nearest(name, known.iter().copied()) {
                Some(meant) => format!("did you mean {meant}?"),
                None if known.is_empty() => "there are no sources".to_owned(),
                None => format!("sources: {}", known.join(", ")),
            };
            let wrong = Wrong::new(format!("there is no source {name:?}"));
            findings.error(
                &entry.mark,
                join(&join(path, id), "sources"),
                wrong.hint(hint),
            );
        }
    }
}

fn tables(keys: &Entry) -> impl Iterator<Item = (&str, &Table)> {
    let all = match &keys.node.value {
        Value::Table(all) => Some(all),
        _ => None,
    };
    let entries = all.into_iter().flat_map(Table::iter);
    entries.filter_map(|(id, entry)| match &entry.node.value {
        Value::Table(own) => Some((id, own)),
        _ => None,
    })
}

fn read(path: &str, entry: &Entry, own: &Table, findings: &mut Findings) -> Option<KeySettings> {
    let mut sha256 = None;
    let mut role = None;
    let mut key = KeySettings {
        sha256: [0; 32],
        role: KeyRole::Read,
        sources: vec!["*".to_owned()],
        rate: None,
    };
    for (name, entry) in own.iter() {
        let (path, node) = (join(path, name), &entry.node);
        match name {
            "sha256" => sha256 = findings.take(&entry.mark, &path, hash(node)),
            "role" => role = findings.take(&entry.mark, &path, self::role(&path, node)),
            "sources" => {
                let names = findings.take(&entry.mark, &path, some(node));
                key.sources = names.unwrap_or_default();
            }
            "contexts" => findings.error(&entry.mark, path, Wrong::unavailable(name)),
            "rate" => key.rate = findings.take(&entry.mark, &path, rate(node)),
            _ => {
                let known = KEY_KEYS.iter().map(|key| key.0);
                findings.unknown(&entry.mark, path, name, known);
            }
        }
    }
    for name in ["sha256", "role"] {
        if own.get(name).is_none() {
            let wrong = Wrong::new(format!("has no {name}"));
            let hint = "every key has a sha256 and a role; mainstay key new writes both";
            findings.error(&entry.mark, path, wrong.hint(hint));
        }
    }
    key.sha256 = sha256?;
    key.role = role?;
    Some(key)
}

fn some(node: &Node) -> Result<Vec<String>, Wrong> {
    let names = scalar::list(node)?;
    match names.is_empty() {
        true => Err(Wrong::new("is empty, so that the key is for nothing")
            .hint("list sources, or leave it out for all")),
        false => Ok(names),
    }
}

fn hash(node: &Node) -> Result<[u8; 32], Wrong> {
    let text = scalar::text(node)?;
    // Never repeated in the message: somebody may have written the key itself.
    let wrong = || {
        Wrong::new("is no SHA-256")
            .hint("64 hexadecimal digits, the hash of the key and not the key itself")
    };
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut hash = [0; 32];
    for (index, byte) in hash.iter_mut().enumerate() {
        let digits = &text[2 * index..2 * index + 2];
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(hash)
}

fn role(path: &str, node: &Node) -> Result<KeyRole, Wrong> {
    let words: Vec<&str> = KeyRole::ALL.iter().map(|role| role.as_str()).collect();
    let word = scalar::choice(path, &words, node)?;
    KeyRole::parse(&word).ok_or_else(|| Wrong::new("is no role").hint("read, write or admin"))
}

fn rate(node: &Node) -> Result<u32, Wrong> {
    let hint = "requests per second, from 1 to 1000000";
    let rate = within(scalar::count(node)?, 1..=1_000_000, hint)?;
    u32::try_from(rate).map_err(|_| Wrong::new("is out of bounds").hint(hint))
}
