//! `[server]`: what the program itself needs.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::key::{self, KeySettings};
use crate::problem::{Findings, Wrong};
use crate::scalar::{self, within};
use crate::tls::{self, ServerTls, TlsMarks};
use crate::tree::{Node, Table, join};

/// Settings of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Where HTTP is served; port 0: any free one. Default 127.0.0.1:7717. Loopback only, unless there
    /// are keys.
    pub listen: SocketAddr,
    /// Where the program keeps its files. Default `./mainstay-data`.
    pub data_dir: PathBuf,
    /// The largest body of a request, in bytes. Default 8 MiB.
    pub body_max: u64,
    /// The largest plain JSON answer, in bytes; larger ones are streamed. Default 8 MiB.
    pub answer_max: u64,
    /// Connections at once. Default 1024.
    pub connections_max: u32,
    /// How long a client may take to send the head of a request. Default 10 s.
    pub header_timeout: Duration,
    /// How long a client may take to send a whole request. Default 30 s.
    pub request_timeout: Duration,
    /// A connection without a request for longer is closed. Default 75 s.
    pub idle_timeout: Duration,
    /// A stream whose next batch takes longer is ended. Default 30 s.
    pub stream_idle: Duration,
    /// How long work in flight may take to finish when the program ends. Default 30 s.
    pub drain_timeout: Duration,
    /// Rows of one request: in a page, or in `insert_many` and its kin. Default 10 000.
    pub rows_max: u32,
    /// Statements of one script. Default 1000.
    pub statements_max: u32,
    /// Keys by id. None: whoever reaches the port may do everything.
    pub keys: BTreeMap<String, KeySettings>,
    /// Encryption. None: plain HTTP.
    pub tls: Option<ServerTls>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        ServerSettings {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7717)),
            data_dir: PathBuf::from("./mainstay-data"),
            // As much in as out: a row that was read can be written back.
            body_max: 8 << 20,
            answer_max: 8 << 20,
            connections_max: 1024,
            header_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            // Longer than the 60 s after which most clients close idle connections themselves, so
            // that they do not meet a closed one.
            idle_timeout: Duration::from_secs(75),
            stream_idle: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            rows_max: 10_000,
            statements_max: 1000,
            keys: BTreeMap::new(),
            tls: None,
        }
    }
}

/// A key of `[server]`.
pub(crate) struct ServerKey {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) example: &'static str,
    /// From where to where, for a reader; empty where it has no bounds.
    pub(crate) bounds: &'static str,
    set: fn(&mut ServerSettings, &Node) -> Result<(), Wrong>,
}

const TIMES: &str = "from 10ms to 24h";
const SIZES: &str = "from 1KiB to 1GiB";
const COUNTS: &str = "from 1 to 1000000";

/// What a reader of values takes, by its name.
const fn bounds(reader: &str) -> &'static str {
    match reader.as_bytes() {
        b"time" => TIMES,
        b"size" => SIZES,
        b"count" => COUNTS,
        _ => "",
    }
}

macro_rules! key {
    ($name:ident, $read:ident, $example:literal, $doc:literal) => {
        ServerKey {
            name: stringify!($name),
            doc: $doc,
            example: $example,
            bounds: bounds(stringify!($read)),
            set: |settings, node| {
                settings.$name = $read(node)?;
                Ok(())
            },
        }
    };
}

/// Every key of `[server]`; the examples are the defaults.
pub(crate) const SERVER_KEYS: &[ServerKey] = &[
    key!(listen, listen, "\"127.0.0.1:7717\"", "where HTTP is served"),
    key!(
        data_dir,
        folder,
        "\"./mainstay-data\"",
        "where the program keeps its files"
    ),
    key!(body_max, size, "\"8MiB\"", "the largest body of a request"),
    key!(
        answer_max,
        size,
        "\"8MiB\"",
        "the largest answer; a larger one is refused as answer_too_large"
    ),
    key!(
        connections_max,
        count,
        "1024",
        "connections at once; at the limit one that is idle makes room"
    ),
    key!(
        header_timeout,
        time,
        "\"10s\"",
        "for the head of a request to arrive"
    ),
    key!(
        request_timeout,
        time,
        "\"30s\"",
        "for a whole request to arrive"
    ),
    key!(
        idle_timeout,
        time,
        "\"75s\"",
        "a connection without a request is closed"
    ),
    key!(
        stream_idle,
        time,
        "\"30s\"",
        "a stream whose next rows take longer is ended"
    ),
    key!(
        drain_timeout,
        time,
        "\"30s\"",
        "for work in flight to finish when the program ends"
    ),
    key!(rows_max, count, "10000", "rows of one request"),
    key!(statements_max, count, "1000", "statements of one script"),
];

/// Keys of later versions, so that they are not taken for slips of the keyboard.
pub(crate) const LATER: &[&str] = &["store"];

impl ServerSettings {
    pub(crate) fn read(table: &Table, findings: &mut Findings) -> (Self, Option<TlsMarks>) {
        let mut settings = ServerSettings::default();
        let mut marks = None;
        for (name, entry) in table.iter() {
            let path = join("server", name);
            if name == "keys" {
                settings.keys = key::read_all(&path, entry, findings).into_iter().collect();
                continue;
            }
            if name == "tls" {
                let read = tls::read(&path, entry, findings);
                (settings.tls, marks) = read.unzip();
                continue;
            }
            match SERVER_KEYS.iter().find(|key| key.name == name) {
                Some(key) => {
                    let set = (key.set)(&mut settings, &entry.node);
                    let set = set.map_err(|wrong| wrong.or_hint(key.doc));
                    findings.take(&entry.mark, &path, set);
                }
                None if LATER.contains(&name) => {
                    findings.error(&entry.mark, path, Wrong::unavailable(name));
                }
                None => {
                    let known = SERVER_KEYS
                        .iter()
                        .map(|key| key.name)
                        .chain(["keys", "tls"]);
                    findings.unknown(&entry.mark, path, name, known);
                }
            }
        }
        settings.refuse_open_port(table, findings);
        (settings, marks)
    }

    /// Without keys everybody who reaches the port could do everything.
    fn refuse_open_port(&self, table: &Table, findings: &mut Findings) {
        let Some(entry) = table.get("listen") else {
            return;
        };
        if self.listen.ip().is_loopback() || table.get("keys").is_some_and(has_entries) {
            return;
        }
        let wrong = format!(
            "{} can be reached from other machines, and there are no keys",
            self.listen
        );
        let hint = "make a key by mainstay key new and put it into [server.keys], or listen on 127.0.0.1 or [::1]";
        findings.error(&entry.mark, "server.listen", Wrong::new(wrong).hint(hint));
    }
}

fn listen(node: &Node) -> Result<SocketAddr, Wrong> {
    let text = scalar::text(node)?;
    let written = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.clone(),
    };
    let address: SocketAddr = written.parse().map_err(|_| {
        Wrong::new(format!("{text:?} is not an address with a port"))
            .hint("such as \"127.0.0.1:7717\" or \"[::1]:7717\"")
    })?;
    Ok(address)
}

/// Whether there is a key at all; a wrong one has a problem of its own.
fn has_entries(keys: &crate::tree::Entry) -> bool {
    matches!(&keys.node.value, crate::tree::Value::Table(keys) if keys.iter().next().is_some())
}

fn folder(node: &Node) -> Result<PathBuf, Wrong> {
    let text = scalar::text(node)?;
    if text.trim().is_empty() {
        return Err("is empty".into());
    }
    Ok(PathBuf::from(text))
}

/// From 10 ms, below which no client gets through, to a day.
fn time(node: &Node) -> Result<Duration, Wrong> {
    let (least, most) = (Duration::from_millis(10), Duration::from_secs(24 * 3600));
    match scalar::time(node)? {
        Duration::ZERO => Err(Wrong::new("0 would end everything before it began").hint(TIMES)),
        time => within(time, least..=most, TIMES),
    }
}

/// A kilobyte holds the smallest useful body; a larger one than a gigabyte does not fit the memory of
/// several clients.
fn size(node: &Node) -> Result<u64, Wrong> {
    match scalar::size(node)? {
        0 => Err(Wrong::new("0 would admit nothing").hint(SIZES)),
        size => within(size, 1 << 10..=1 << 30, SIZES),
    }
}

fn count(node: &Node) -> Result<u32, Wrong> {
    let hint = COUNTS;
    let count = match scalar::count(node)? {
        0 => Err(Wrong::new("0 would admit nothing").hint(hint)),
        count => within(count, 1..=1_000_000, hint),
    }?;
    u32::try_from(count).map_err(|_| Wrong::new(format!("{count} is out of bounds")).hint(hint))
}
