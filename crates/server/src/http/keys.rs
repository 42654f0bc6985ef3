//! Who calls, and what that lets it do. Keys are known by their SHA-256 only; what a route asks for stands
//! in the table of routes, and what is not in it is for administrators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method, header};
use mainstay_config::{KeyRole, KeySettings};
use mainstay_engine::Rate;
use parking_lot::Mutex;
use ring::digest;
use serde::Serialize;
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::caller::refuse_foreign_pages;
use super::route::fits;
use super::routes::ROUTES;
use crate::problem::Problem;

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    /// Nothing: it tells nothing that is worth hiding.
    Open,
    /// A key with this role at least.
    Role(KeyRole),
}

use Demand::Role;

/// What a request asks of its caller.
pub(super) fn demand(method: &Method, path: &str) -> Demand {
    // Whoever may get may look whether there is something to get.
    let method = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    let found = ROUTES
        .iter()
        .find(|route| method.as_str() == route.method && fits(route.path, path));
    // What there is not is for administrators.
    found.map_or(Role(KeyRole::Admin), |route| route.demand)
}

/// Who holds a key. Without keys everybody is an administrator.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    /// The key's id; `None`: there are no keys.
    pub(crate) id: Option<Arc<str>>,
    role: KeyRole,
    /// `None`: all.
    sources: Option<Arc<[String]>>,
}

impl Holder {
    pub(super) fn anybody() -> Self {
        Holder {
            id: None,
            role: KeyRole::Admin,
            sources: None,
        }
    }

    /// Whether it may only read.
    pub(crate) fn only_reads(&self) -> bool {
        self.role == KeyRole::Read
    }

    /// Whether a source is one of its own.
    pub(crate) fn knows(&self, source: &str) -> bool {
        let own = self.sources.as_ref();
        own.is_none_or(|own| own.iter().any(|name| name == source))
    }

    /// Refuses another one's source.
    pub(crate) fn check_source(&self, source: &str) -> Result<(), Problem> {
        match self.knows(source) {
            true => Ok(()),
            false => Err(self.refused(
                format!("the source {source:?}"),
                "use one of the sources that the key lists, or another key",
            )),
        }
    }

    /// Refuses what is about a source, if one is named, or about all of them.
    pub(crate) fn check_scope(&self, source: Option<&str>) -> Result<(), Problem> {
        match (source, &self.sources) {
            (Some(source), _) => self.check_source(source),
            (None, None) => Ok(()),
            (None, Some(_)) => Err(self.refused(
                "what is about all sources".to_owned(),
                "name a source that the key lists, or use a key for all (sources = [\"*\"])",
            )),
        }
    }

    /// Refuses what changes something to those that only read.
    pub(crate) fn refuse_write(&self) -> Problem {
        self.refused(
            "a statement that may change something".to_owned(),
            "send a statement that only reads, or use a key with the role write",
        )
    }

    fn check_role(&self, wanted: KeyRole) -> Result<(), Problem> {
        if self.role >= wanted {
            return Ok(());
        }
        Err(self.refused(
            format!("a request that is for the role {}", wanted.as_str()),
            "use a key with that role",
        ))
    }

    fn refused(&self, what: String, hint: &str) -> Problem {
        let (id, role) = (self.id.as_deref().unwrap_or("?"), self.role.as_str());
        let message = format!("the key {id}, of the role {role}, is not for {what}");
        Problem::new("not_allowed", message, hint)
    }
}

/// How often each key was used. Everything else about keys is configuration.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<BTreeMap<String, Arc<Rate>>>);

impl Rates {
    /// Forgets a key that is gone.
    pub(super) fn forget(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// Takes one request from the key's rate.
    fn take(&self, id: &str, key: &KeySettings) -> Result<(), Problem> {
        let Some(limit) = key.rate else {
            return Ok(());
        };
        let rate = {
            let mut rates = self.0.lock();
            match rates.get(id) {
                Some(rate) => Arc::clone(rate),
                // As many as there are keys.
                None => Arc::clone(
                    rates
                        .entry(id.to_owned())
                        .or_insert_with(|| Arc::new(Rate::new())),
                ),
            }
        };
        let taken = rate.take(f64::from(limit), limit, Instant::now());
        taken.map_err(|wait: Duration| {
            Problem::new(
                "rate_limited",
                format!("the key {id} was used more than {limit} times in a second"),
                "send fewer requests, or raise the rate of the key",
            )
            .retry_after(wait)
        })
    }
}

/// Finds out who calls, and whether the route is for them.
///
/// # Errors
/// `not_authenticated`, `not_allowed`, `rate_limited`.
pub(super) fn admit(
    keys: &BTreeMap<String, KeySettings>,
    made: &BTreeMap<String, KeySettings>,
    rates: &Rates,
    headers: &HeaderMap,
    demand: Demand,
) -> Result<Holder, Problem> {
    if keys.is_empty() && made.is_empty() {
        refuse_foreign_pages(headers)?;
        return Ok(Holder::anybody());
    }
    let Role(role) = demand else {
        return Ok(Holder::anybody());
    };
    let (id, key) = find(keys, made, shown(headers)?)?;
    rates.take(id, key)?;
    let all = key.sources.iter().any(|name| name == "*");
    let holder = Holder {
        id: Some(Arc::from(id)),
        role: key.role,
        sources: (!all).then(|| Arc::from(key.sources.as_slice())),
    };
    holder.check_role(role)?;
    Ok(holder)
}

/// Looks at every key, and at every byte of its hash, whichever fits: time tells nothing.
fn find<'a>(
    keys: &'a BTreeMap<String, KeySettings>,
    made: &'a BTreeMap<String, KeySettings>,
    shown: &[u8],
) -> Result<(&'a str, &'a KeySettings), Problem> {
    let hash = digest::digest(&digest::SHA256, shown);
    let mut found = None;
    for (id, key, _) in in_force(keys, made) {
        if bool::from(key.sha256.ct_eq(hash.as_ref())) {
            found = Some((id, key));
        }
    }
    found.ok_or_else(|| unknown("the key is not one of this server"))
}

/// Where a key comes from.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum KeyOrigin {
    /// The configuration.
    File,
    /// It was made over HTTP.
    Api,
}

/// The keys that count: of two of one name that of the file.
pub(super) fn in_force<'a>(
    of_file: &'a BTreeMap<String, KeySettings>,
    made: &'a BTreeMap<String, KeySettings>,
) -> impl Iterator<Item = (&'a str, &'a KeySettings, KeyOrigin)> {
    let made = made.iter().filter(|(id, _)| !of_file.contains_key(*id));
    let made = made.map(|(id, key)| (id.as_str(), key, KeyOrigin::Api));
    let of_file = of_file
        .iter()
        .map(|(id, key)| (id.as_str(), key, KeyOrigin::File));
    of_file.chain(made)
}

fn unknown(what: &str) -> Problem {
    Problem::new(
        "not_authenticated",
        what,
        "send Authorization: Bearer KEY or X-Api-Key: KEY; mainstay key new makes one for [server.keys]",
    )
}

/// The key that a request shows.
fn shown(headers: &HeaderMap) -> Result<&[u8], Problem> {
    let of_bearer = headers.get_all(header::AUTHORIZATION).into_iter();
    let of_bearer = of_bearer.map(|value| bearer(value.as_bytes()));
    let plain = headers.get_all("x-api-key").into_iter();
    let plain = plain.map(|value| Some(value.as_bytes().trim_ascii()));
    let mut all = of_bearer.chain(plain);
    let first = all
        .next()
        .ok_or_else(|| unknown("the request has no key"))?;
    if all.next().is_some() {
        return Err(unknown("the request has more than one key"));
    }
    first.ok_or_else(|| unknown("the header Authorization is not Bearer with a key"))
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    let key = key.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then_some(key)
}

/// A new key and its SHA-256, both in hexadecimal: 256 bits of the operating system's randomness.
pub fn new_key() -> Option<(String, String)> {
    draw().map(|(key, sha256)| (key, hex(&sha256)))
}

/// A new key and its SHA-256.
pub(super) fn draw() -> Option<(String, [u8; 32])> {
    let mut bits = [0; 32];
    let random = ring::rand::SystemRandom::new();
    ring::rand::SecureRandom::fill(&random, &mut bits).ok()?;
    let key = format!("ms_{}", hex(&bits));
    let hash = digest::digest(&digest::SHA256, key.as_bytes());
    let sha256 = hash.as_ref().try_into().ok()?;
    Some((key, sha256))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Demand = Demand::Open;
    const READ: Demand = Role(KeyRole::Read);
    const WRITE: Demand = Role(KeyRole::Write);
    const ADMIN: Demand = Role(KeyRole::Admin);

    #[test]
    fn what_is_not_in_the_table_is_for_administrators() {
        let table = [
            ("GET", "/healthz", OPEN),
            ("POST", "/healthz", ADMIN),
            ("GET", "/v1/sources", READ),
            ("GET", "/v1/sources/s", READ),
            ("GET", "/v1/sources/", ADMIN),
            ("POST", "/v1/sources/s/query", READ),
            ("POST", "/v1/sources/s/%71uery", ADMIN),
            ("POST", "/v1/sources/s/insert", WRITE),
            ("POST", "/v1/sources/s/endpoints", ADMIN),
            ("PATCH", "/v1/sources/s/endpoints/a", ADMIN),
            ("DELETE", "/v1/sources/s/overrides", ADMIN),
            ("POST", "/v1/admin/reload", ADMIN),
            ("GET", "/v1/admin/policy", ADMIN),
            ("GET", "/v1/later", ADMIN),
        ];
        for (method, path, expected) in table {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(demand(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_key_is_found_by_its_hash_whichever_header_shows_it() {
        let (key, hash) = new_key().unwrap();
        assert_eq!((key.len(), hash.len()), (67, 64));
        let mut sha256 = [0; 32];
        for (index, byte) in sha256.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hash[2 * index..2 * index + 2], 16).unwrap();
        }
        let settings = KeySettings {
            sha256,
            role: KeyRole::Write,
            sources: vec!["s".to_owned()],
            rate: None,
        };
        let keys = BTreeMap::from([("ci".to_owned(), settings)]);
        let bearer = format!("bearer {key}");
        let wrong = format!("Bearer {key}0");
        let basic = format!("Basic {key}");
        type Case<'a> = (&'a [(&'static str, &'a str)], Result<&'a str, &'a str>);
        let table: [Case<'_>; 8] = [
            (&[("authorization", &bearer)], Ok("ci")),
            (&[("x-api-key", &key)], Ok("ci")),
            (&[], Err("not_authenticated")),
            (&[("authorization", &wrong)], Err("not_authenticated")),
            (&[("authorization", &basic)], Err("not_authenticated")),
            (&[("authorization", "")], Err("not_authenticated")),
            (&[("x-api-key", &hash)], Err("not_authenticated")),
            (
                &[("authorization", &bearer), ("x-api-key", &key)],
                Err("not_authenticated"),
            ),
        ];
        for (headers, expected) in table {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().unwrap());
            }
            let none = BTreeMap::new();
            let holder = admit(&keys, &none, &Rates::default(), &map, READ);
            let of_made = admit(&none, &keys, &Rates::default(), &map, READ);
            assert_eq!(holder.is_ok(), of_made.is_ok(), "{headers:?}");
            let id = holder.as_ref().map(|holder| holder.id.as_deref().unwrap());
            let told = id.map_err(|problem| problem.code());
            assert_eq!(told, expected, "{headers:?}");
        }
    }
}
