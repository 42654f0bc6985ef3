//! Seeded requests made from the served document and broken at random: no 500 without a code, no answer that
//! is not as described, no hang, and everything is given back.

use fastrand::Rng;
use mainstay_testkit::{cases, seed};
use serde_json::{Map, Value, json};

use super::contract::Contract;
use super::openapi::operations;
use super::rig::{Rig, eventually};

/// Statements: right ones, odd ones, none.
const STATEMENTS: &[&str] = &[
    "SELECT 1",
    "SELECT id, name, size FROM t ORDER BY id LIMIT 5",
    "SELECT ?1, ?2",
    "SELECT count(*) FROM t WHERE name LIKE ?",
    "INSERT INTO t (name) VALUES (hex(randomblob(8)))",
    "INSERT INTO t (name) VALUES (?1) RETURNING id",
    "UPDATE t SET size = size + 1 WHERE id = 1",
    "DELETE FROM t WHERE id > 500",
    "BEGIN",
    "COMMIT",
    "SELECT 1; SELECT 2",
    "CREATE TABLE IF NOT EXISTS u (a INTEGER)",
    "DROP TABLE IF EXISTS u",
    "PRAGMA query_only = 0",
    "EXPLAIN SELECT 1",
    "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 2000) SELECT x FROM c",
    "SELEC 1",
    "SELECT 'open",
    "",
    ";",
    "\u{0}",
    "SELECT \u{1F600}",
];
/// Words that mean something somewhere.
const WORDS: &[&str] = &[
    "t",
    "u",
    "s",
    "id",
    "name",
    "size",
    "writer",
    "reader",
    "primary",
    "replica",
    "5s",
    "1ms",
    "read",
    "write",
    "use",
    "off",
    "any",
    "i64",
    "decimal",
    "",
    " ",
    "\u{0}",
    "\"",
    "'; --",
    "\u{e9}",
    "😀",
    "NaN",
    "-1",
    "%00",
    "../..",
    "*",
    "null",
    "2026-11-29T23:15:00Z",
    "{\"a\": 1}",
];
const NUMBERS: &[f64] = &[0.0, 1.0, -1.0, 2.0, 100.0, 0.5, 1e9, 9.1e15, -1e300, 1e-300];
/// Segments of paths that exist nowhere, as they stand in an address.
const SEGMENTS: &[&str] = &[
    "none",
    "%00",
    "%FF",
    "%2e%2e",
    "a%20b",
    "%F0%9F%98%80",
    "x%2Fy",
    "~",
];
const HEADERS: &[(&str, &[&str])] = &[
    (
        "accept",
        &[
            "application/x-ndjson",
            "application/json",
            "*/*",
            "text/html",
            ";q=x",
        ],
    ),
    ("x-session", &["a", "b", "", "\u{e9}"]),
    (
        "x-deadline-ms",
        &["1", "1000", "0", "-1", "soon", "99999999999999999999"],
    ),
    (
        "x-correlation-id",
        &["0123456789abcdef0123456789abcdef", "x", ""],
    ),
    ("idempotency-key", &["k", ""]),
    (
        "traceparent",
        &[
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-x",
            "",
        ],
    ),
    ("tracestate", &["a=1", ",,,", "a=1,a=1"]),
    (
        "content-type",
        &[
            "application/json",
            "text/plain",
            "application/x-www-form-urlencoded",
        ],
    ),
    ("content-encoding", &["identity", "gzip"]),
    (
        "origin",
        &["http://localhost", "https://page.example", "null"],
    ),
    ("if-match", &["*"]),
];

/// What requests are made with.
struct Maker<'a> {
    rng: Rng,
    document: &'a Value,
    /// Transactions that were begun.
    begun: Vec<String>,
}

struct Request {
    method: String,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
}

impl Maker<'_> {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    fn percent(&mut self, share: u32) -> bool {
        self.rng.u32(..100) < share
    }

    /// Any JSON.
    fn any(&mut self, depth: u32) -> Value {
        match self.rng.u32(..if depth > 3 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.rng.bool()),
            2 => json!(self.rng.i64(..)),
            3 => json!(self.pick(NUMBERS)),
            4 => json!(self.pick(WORDS)),
            5 => json!({"type": self.pick(WORDS), "value": self.pick(WORDS)}),
            6 => (0..self.rng.usize(..4))
                .map(|_| self.any(depth + 1))
                .collect(),
            _ => {
                let count = self.rng.usize(..4);
                let member = |_| (self.pick(WORDS).to_owned(), self.any(depth + 1));
                Value::Object((0..count).map(member).collect())
            }
        }
    }

    /// A value of a schema, most of the time.
    fn of(&mut self, name: &str, schema: &Value, depth: u32) -> Value {
        if self.percent(4) {
            return self.any(depth);
        }
        if let Some(pointer) = schema["$ref"].as_str() {
            let schema = self.document.pointer(&pointer[1..]).unwrap();
            return self.of(name, schema, depth);
        }
        if let Some(choices) = schema["enum"].as_array() {
            return choices[self.rng.usize(..choices.len())].clone();
        }
        let kind = match &schema["type"] {
            Value::String(kind) => kind.as_str(),
            Value::Array(kinds) => kinds[self.rng.usize(..kinds.len())].as_str().unwrap(),
            _ => return self.any(depth),
        };
        match kind {
            "object" => self.object(schema, depth),
            "array" => (0..self.rng.usize(..4))
                .map(|_| self.of(name, &schema["items"], depth + 1))
                .collect(),
            "string" => json!(self.text(name)),
            "integer" => json!(self.rng.i64(-2..12)),
            "number" => json!(self.pick(NUMBERS)),
            "boolean" => json!(self.rng.bool()),
            _ => Value::Null,
        }
    }

    fn object(&mut self, schema: &Value, depth: u32) -> Value {
        let mut made = Map::new();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let properties = schema["properties"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        for (name, property) in &properties {
            let share = if required.contains(&json!(name)) {
                97
            } else {
                35
            };
            if self.percent(share) {
                made.insert(name.clone(), self.of(name, property, depth + 1));
            }
        }
        let is_open = schema["additionalProperties"] == json!(true);
        if is_open || self.percent(3) {
            for _ in 0..self.rng.usize(..3) {
                let name = if is_open {
                    self.pick(&["id", "name", "size", "circuit", "weight"])
                } else {
                    "odd"
                };
                let value = self.any(depth + 1);
                made.insert(name.to_owned(), value);
            }
        }
        Value::Object(made)
    }

    fn text(&mut self, name: &str) -> String {
        match name {
            "sql" => self.pick(STATEMENTS).to_owned(),
            "entity" if self.percent(80) => "t".to_owned(),
            "source" if self.percent(80) => "s".to_owned(),
            "field" if self.percent(80) => self.pick(&["id", "name", "size"]).to_owned(),
            _ => self.pick(WORDS).to_owned(),
        }
    }

    fn segment(&mut self, name: &str) -> String {
        if self.percent(8) {
            return self.pick(SEGMENTS).to_owned();
        }
        match name {
            "source" => "s".to_owned(),
            "entity" => self.pick(&["t", "u"]).to_owned(),
            "endpoint" => self.pick(&["writer", "reader", "x"]).to_owned(),
            _ if self.begun.is_empty() => "none".to_owned(),
            _ => self.begun[self.rng.usize(..self.begun.len())].clone(),
        }
    }

    fn request(&mut self, all: &[(String, String, Value)]) -> Request {
        let (method, path, operation) = &all[self.rng.usize(..all.len())];
        let steps = path.split('/').map(|step| match step.strip_prefix('{') {
            Some(name) => self.segment(name.trim_end_matches('}')),
            None => step.to_owned(),
        });
        let steps: Vec<String> = steps.collect();
        let mut path = steps.join("/");
        for parameter in operation["parameters"].as_array().unwrap() {
            if parameter["in"] == "query" && self.percent(40) {
                let name = parameter["name"].as_str().unwrap();
                let value = match self.of(name, &parameter["schema"], 9) {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                path.push(if path.contains('?') { '&' } else { '?' });
                path.push_str(&format!("{name}={}", encoded(&value)));
            }
        }
        let mut headers = Vec::new();
        for (name, values) in HEADERS {
            if self.percent(6) {
                headers.push((*name, self.pick(values)));
            }
        }
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let body = match schema.is_null() {
            true if self.percent(80) => Vec::new(),
            true => self.any(0).to_string().into_bytes(),
            false => self.of("", schema, 0).to_string().into_bytes(),
        };
        let odd = self.percent(4);
        Request {
            method: if odd {
                self.pick(&["GET", "PUT", "OPTIONS", "TRACE", "ODD"])
                    .to_owned()
            } else {
                method.clone()
            },
            path,
            headers,
            body: self.broken(body),
        }
    }

    /// The bytes as they are, most of the time.
    fn broken(&mut self, mut body: Vec<u8>) -> Vec<u8> {
        if body.is_empty() || !self.percent(8) {
            return body;
        }
        let at = self.rng.usize(..body.len());
        match self.rng.u32(..5) {
            0 => body.truncate(at),
            1 => body[at] = self.rng.u8(..),
            2 => body.insert(at, self.rng.u8(..)),
            3 => {
                let twice = body.clone();
                body.extend(twice);
            }
            _ => {
                body = format!("{{\"sql\": {}{}}}", "[".repeat(at * 9), "]".repeat(at * 9))
                    .into_bytes()
            }
        }
        body
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// What requests may have changed that others need.
async fn restore(rig: &Rig, begun: &mut Vec<String>) {
    let client = &rig.client;
    // One that has written holds the file's only lock.
    for id in begun.drain(..) {
        let path = format!("/v1/sources/s/transactions/{id}/rollback");
        client.post(&path, json!({})).await;
    }
    for path in ["/v1/admin/resume", "/v1/admin/reload"] {
        client.post(path, json!({})).await;
    }
    client
        .send("DELETE", "/v1/admin/overrides", &[], "")
        .await
        .good();
    client.post("/v1/admin/reload", json!({})).await.good();
    for endpoint in ["writer", "reader"] {
        for act in ["undrain", "release"] {
            let path = format!("/v1/sources/s/endpoints/{endpoint}/{act}");
            client.post(&path, json!({})).await;
        }
    }
    let patch = json!({"role": "primary"}).to_string();
    client
        .send("PATCH", "/v1/sources/s/endpoints/writer", &[], patch)
        .await
        .good();
    let table = "CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size REAL)";
    client.verb("execute", json!({"sql": table})).await.good();
}

#[tokio::test]
async fn requests_from_the_document_and_broken_ones_all_get_an_answer_as_described_and_leave_nothing()
 {
    let rig = Rig::with("", "[sources.s.policy.retry]\ndeadline = \"5s\"\n").await;
    let contract = Contract::new();
    let mut all = operations(contract.document());
    // The stream of events does not end, and from the first key on nothing else would be answered.
    all.retain(|(method, path, _)| {
        path != "/v1/events" && (&**method, &**path) != ("POST", "/v1/admin/keys")
    });
    let seed = seed();
    let mut maker = Maker {
        rng: Rng::with_seed(seed),
        document: contract.document(),
        begun: Vec::new(),
    };
    let (mut good, mut refused) = (0, 0);
    let count = cases(600, 60_000);
    for number in 0..count {
        let Request {
            method,
            path,
            headers,
            body,
        } = maker.request(&all);
        let reply = rig
            .client
            .send(&method, &path, &headers, body.clone())
            .await;
        let shown = String::from_utf8_lossy(&body);
        let what = format!("number {number} of seed {seed}: {method} {path} {headers:?} {shown}");
        if reply.status.is_success() {
            good += 1;
            if path.ends_with("/transactions") {
                maker
                    .begun
                    .push(reply.json()["transaction"].as_str().unwrap().to_owned());
            }
        } else if path.split('?').next() != Some("/readyz") {
            refused += 1;
            let problem = reply.json();
            assert_ne!(problem["code"], "internal", "{what}: {problem}");
            assert!(
                reply.is_problem(reply.status.as_u16(), problem["code"].as_str().unwrap()),
                "{what}: {problem}"
            );
        }
        if number % 25 == 24 {
            restore(&rig, &mut maker.begun).await;
        }
    }
    assert!(
        good > count / 5 && refused > count / 5,
        "{good} went well, {refused} were refused"
    );
    restore(&rig, &mut maker.begun).await;
    eventually("all is given back", async || {
        let shown = rig.client.get("/v1/sources/s/metrics").await.good();
        let endpoints = shown["endpoints"].as_array().unwrap().clone();
        let is_free =
            |endpoint: &Value| endpoint["pool"]["active"] == 0 && endpoint["in_flight"] == 0;
        shown["transactions_open"] == 0 && endpoints.iter().all(is_free)
    })
    .await;
    let metrics = rig.client.get("/metrics").await.text;
    assert!(
        metrics.contains("\nmainstay_http_panics_total 0\n"),
        "{metrics}"
    );
    rig.insert(&["still works"]).await;
    rig.end().await;
}
