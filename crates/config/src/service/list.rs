//! Lists of tables in a service: targets that announce themselves, and what error replies mean; and
//! stores of objects.

use std::sync::Arc;

use mainstay_engine::Category;
use mainstay_engine::policy::Setting;

use super::field::{Field, Reader, put, some};
use super::{names, target};
use crate::connection::{filled, secret, warn_of_literal};
use crate::mark::Mark;
use crate::policy::PolicyLayer;
use crate::problem::Wrong;
use crate::scalar;
use crate::secret::Secret;
use crate::tree::{Entry, Node, Value, join};

/// Longer lists are no configuration that somebody reads.
const ITEMS_MAX: usize = 256;

/// Targets that announce themselves, as it is written.
#[derive(Debug, Clone)]
pub(crate) struct DiscoveryDraft {
    pub(crate) at: String,
    pub(crate) mark: Mark,
    pub(crate) pattern: Option<Arc<str>>,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) weight: f64,
    pub(crate) broker: Option<Arc<str>>,
    pub(crate) max_in_flight: Option<u32>,
    pub(crate) derived: PolicyLayer,
}

/// Every key of an item of `discover`.
pub(crate) const DISCOVERY: &[Field<DiscoveryDraft>] = &[
    Field::<DiscoveryDraft>::new(
        "pattern",
        "\"org.fac.sys.-.worker-*\"",
        "names that are taken in, where * stands for any characters of a part",
        |draft, value| some(&mut draft.pattern, names::pattern(value.node)),
    ),
    Field::<DiscoveryDraft>::new(
        "group",
        "\"standby\"",
        "the group that they join",
        |draft, value| some(&mut draft.group, names::word(value.node)),
    ),
    Field::<DiscoveryDraft>::new("weight", "1", "their weight; default 1", |draft, value| {
        put(&mut draft.weight, target::weight(value.node))
    })
    .bounds(target::WEIGHTS),
    Field::<DiscoveryDraft>::new(
        "broker",
        "\"main\"",
        "the broker to listen at; default the first",
        |draft, value| some(&mut draft.broker, names::word(value.node)),
    ),
    Field::<DiscoveryDraft>::new(
        "max_in_flight",
        "1",
        "open at once on each of them; default any number",
        |draft, value| {
            let count = target::max_in_flight(value.node)?;
            draft.max_in_flight = Some(count);
            let setting = Setting::Count(count.into());
            draft
                .derived
                .put("limits.concurrency", setting, (value.mark, value.path));
            Ok(())
        },
    )
    .bounds(target::IN_FLIGHT),
];

/// What a text means, as it is written.
#[derive(Debug, Clone, Default)]
pub(crate) struct RuleDraft {
    pub(crate) prefix: Option<Arc<str>>,
    pub(crate) category: Option<Category>,
}

/// Every key of an item of `errors`.
pub(crate) const RULE: &[Field<RuleDraft>] = &[
    Field::<RuleDraft>::new(
        "prefix",
        "\"queue is full\"",
        "error replies that begin so",
        |draft, value| some(&mut draft.prefix, filled(value.node).map(Arc::from)),
    ),
    Field::<RuleDraft>::new(
        "category",
        "\"transient\"",
        "transient (tried again, then on the next target) or persistent (the caller's own mistake)",
        |draft, value| some(&mut draft.category, category(value.node)),
    ),
];

/// A store of objects, as it is written.
#[derive(Debug, Clone)]
pub(crate) struct StoreDraft {
    pub(crate) at: String,
    pub(crate) mark: Mark,
    pub(crate) url: Option<Arc<str>>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) password: Option<Secret>,
}

/// Every key of a store.
pub(crate) const STORE: &[Field<StoreDraft>] = &[
    Field::<StoreDraft>::new(
        "url",
        "\"http://minio.internal:9000\"",
        "its base address as services write it into their messages",
        |draft, value| some(&mut draft.url, url(value.node)),
    ),
    Field::<StoreDraft>::new("user", "\"mainstay\"", "the access key", |draft, value| {
        some(&mut draft.user, filled(value.node).map(Arc::from))
    }),
    Field::<StoreDraft>::new(
        "password",
        "\"env:MINIO_PASSWORD\"",
        "the secret key: env:NAME or file:PATH",
        |draft, value| some(&mut draft.password, secret(value.node, value.secrets)),
    ),
];

fn category(node: &Node) -> Result<Category, Wrong> {
    let words = [Category::Transient, Category::Persistent].map(Category::as_str);
    let word = scalar::choice("category", &words, node)?;
    Category::parse(&word).ok_or_else(|| "transient or persistent".into())
}

fn url(node: &Node) -> Result<Arc<str>, Wrong> {
    let text = filled(node)?;
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let is_host = |rest: &str| {
        let host = rest.trim_end_matches('/');
        !host.is_empty() && !host.contains(|c: char| c == '/' || c == '@' || c.is_whitespace())
    };
    match rest.is_some_and(is_host) {
        true => Ok(text.trim_end_matches('/').into()),
        // It may hold a password: it is not shown.
        false => Err(Wrong::new("is no base address of a store")
            .hint("scheme, host and port alone, such as http://minio.internal:9000")),
    }
}

/// The tables in a list, each with its path within the service.
pub(super) fn items(at: &str, entry: &Entry, reader: &mut Reader<'_, '_>) -> Vec<(String, Entry)> {
    reader.marks.note(at, &entry.mark);
    let path = reader.path(at);
    let value = scalar::typed(&entry.node);
    let nodes = match value.as_ref() {
        Value::List(nodes) => nodes.clone(),
        Value::Empty => Vec::new(),
        other => {
            let wrong = Wrong::new(format!("expected a list of tables, got {}", other.kind()));
            let hint = format!("begin each with [[{path}]]");
            reader.findings().error(&entry.mark, path, wrong.hint(hint));
            return Vec::new();
        }
    };
    if nodes.len() > ITEMS_MAX {
        let wrong = Wrong::new(format!("more than {ITEMS_MAX}")).hint("fewer");
        reader.findings().error(&entry.mark, path, wrong);
        return Vec::new();
    }
    let mut items = Vec::with_capacity(nodes.len());
    for (number, node) in nodes.into_iter().enumerate() {
        let (mark, at) = (node.mark.clone(), format!("{at}[{number}]"));
        match node.value {
            Value::Table(_) => items.push((at, Entry { mark, node })),
            other => {
                let wrong = Wrong::new(format!("expected a table, got {}", other.kind()));
                let path = reader.path(&at);
                reader
                    .findings()
                    .error(&mark, path, wrong.hint("keys with values, in { }"));
            }
        }
    }
    items
}

pub(super) fn discoveries(entry: &Entry, reader: &mut Reader<'_, '_>) -> Vec<DiscoveryDraft> {
    let mut all = Vec::new();
    for (at, entry) in items("discover", entry, reader) {
        let mut draft = DiscoveryDraft {
            mark: entry.mark.clone(),
            pattern: None,
            group: None,
            weight: 1.0,
            broker: None,
            max_in_flight: None,
            derived: PolicyLayer::empty(&reader.path(&at)),
            at: at.clone(),
        };
        if let Some(table) = reader.table(&at, &entry) {
            reader.fields((DISCOVERY, &[]), &at, table, &mut draft);
            let hints = [
                ("pattern", "pattern = \"org.fac.sys.-.worker-*\""),
                ("group", "group = \"standby\", one of strategy_group_order"),
            ];
            require(&at, &entry.mark, &hints, reader);
        }
        all.push(draft);
    }
    all
}

pub(super) fn rules(entry: &Entry, reader: &mut Reader<'_, '_>) -> Vec<RuleDraft> {
    let mut all = Vec::new();
    for (at, entry) in items("errors", entry, reader) {
        let mut draft = RuleDraft::default();
        if let Some(table) = reader.table(&at, &entry) {
            reader.fields((RULE, &[]), &at, table, &mut draft);
            let hints = [
                ("prefix", "prefix = \"queue is full\""),
                ("category", "category = \"transient\" or \"persistent\""),
            ];
            require(&at, &entry.mark, &hints, reader);
        }
        all.push(draft);
    }
    all
}

pub(super) fn stores(entry: &Entry, reader: &mut Reader<'_, '_>) -> Vec<StoreDraft> {
    let Some(table) = reader.table("object_stores", entry) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (id, entry) in table.iter() {
        let at = join("object_stores", id);
        let mut draft = StoreDraft {
            at: at.clone(),
            mark: entry.mark.clone(),
            url: None,
            user: None,
            password: None,
        };
        if let Some(table) = reader.table(&at, entry) {
            reader.fields((STORE, &[]), &at, table, &mut draft);
            let hints = [
                ("url", "url = \"http://minio.internal:9000\""),
                ("user", "user = \"mainstay\""),
                ("password", "password = \"env:MINIO_PASSWORD\""),
            ];
            require(&at, &entry.mark, &hints, reader);
            if let (Some(secret), Some(entry)) = (&draft.password, table.get("password")) {
                let path = reader.path(&join(&at, "password"));
                warn_of_literal(secret, &path, entry, reader.findings());
            }
        }
        all.push(draft);
    }
    all.sort_by(|a, b| a.mark.cmp(&b.mark));
    all
}

/// Tells keys that a table must have.
fn require(at: &str, mark: &Mark, hints: &[(&str, &str)], reader: &mut Reader<'_, '_>) {
    for (name, hint) in hints {
        if !reader.marks.has(&join(at, name)) {
            let wrong = Wrong::new(format!("no {name}")).hint(*hint);
            let path = reader.path(at);
            reader.findings().error(mark, path, wrong);
        }
    }
}
