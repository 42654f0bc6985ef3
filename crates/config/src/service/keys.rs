//! `[services.NAME]`: the keys of a service as a whole, and all its tables for the reference.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::policy::Setting;
use mainstay_message::identity::Identity;
use mainstay_message::settings::{MessageLimits, Spread, Timeouts};

use super::field::{Field, Value, put, some};
use super::{broker, list, names, operation, target};
use crate::connection::filled;
use crate::mark::Origin;
use crate::policy::PolicyLayer;
use crate::problem::Wrong;
use crate::scalar::{self, within};
use crate::tree::Node;

/// What the keys at the top of a service say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Own {
    pub(crate) identity: Option<Identity>,
    pub(crate) caller: Option<Identity>,
    pub(crate) capability_name: Option<Arc<str>>,
    pub(crate) strategy: Option<Spread>,
    pub(crate) group_order: Option<Vec<Arc<str>>>,
    pub(crate) fronts: Option<Vec<Arc<str>>>,
    pub(crate) status_operation: Option<Arc<str>>,
    /// `Some(None)`: none is published.
    pub(crate) job_failed_event: Option<Option<Arc<str>>>,
    pub(crate) file: Option<String>,
}

/// The key of a file below those of the table.
pub(crate) const FILE: &str = "file";

/// Every key at the top of a service beside its tables.
pub(crate) const FIELDS: &[Field<Own>] = &[
    Field::<Own>::new(
        "identity",
        "\"org.fac.sys.sub.compute\"",
        "the fronted name: organization, facility, system, subsystem (or -) and service",
        |own, value| some(&mut own.identity, names::identity(value.node)),
    ),
    Field::<Own>::new(
        "caller",
        "\"org.fac.sys.sub.compute-proxy\"",
        "the proxy's own name towards targets; default that of the identity with -proxy behind it",
        |own, value| some(&mut own.caller, names::identity(value.node)),
    ),
    Field::<Own>::new(
        "capability_name",
        "\"Compute\"",
        "the fronted capability",
        |own, value| some(&mut own.capability_name, names::capability(value.node)),
    ),
    Field::<Own>::new(
        "strategy",
        "\"active_standby\"",
        "active_standby (the default: the first group that is well), round_robin or weighted",
        |own, value| some(&mut own.strategy, strategy(value.node)),
    ),
    Field::<Own>::new(
        "strategy_group_order",
        "[\"primary\", \"standby\"]",
        "the groups of targets, the preferred one first; default as the targets name them",
        |own, value| some(&mut own.group_order, names::words(value.node)),
    ),
    Field::<Own>::new(
        "fronts",
        "[\"main\"]",
        "the brokers at which callers are; default all on which no target has the identity itself",
        |own, value| some(&mut own.fronts, names::words(value.node)),
    ),
    Field::<Own>::new(
        "status_operation",
        "\"intersect_sdk.system_capability\"",
        "called to see whether a target lives; every service of the SDK has the default",
        |own, value| some(&mut own.status_operation, names::operation(value.node)),
    ),
    Field::<Own>::new(
        "job_failed_event",
        "\"job_failed\"",
        "the event that tells of a job that cannot be finished; false for none",
        |own, value| some(&mut own.job_failed_event, event(value.node)),
    ),
    Field::<Own>::new(
        FILE,
        "\"proxy.yaml\"",
        "a file with these keys in YAML or JSON, times in seconds; what stands in the table wins",
        |own, value| some(&mut own.file, file(value)),
    ),
];

/// Tables of a service beside these keys.
pub(crate) const PARTS: &[&str] = &[
    "timeouts",
    "retry",
    "limits",
    "brokers",
    "operations",
    "targets",
    "discover",
    "errors",
    "object_stores",
    "policy",
    "preset",
];

const INTERVALS: &str = "from 10ms to 24h";
const FAILBACKS: &str = "from 0s to 24h";
const MISSED: &str = "from 1 to 1000";
const RETRIES: &str = "from 0 to 999";
const OPEN: &str = "from 1 to 10000000";
/// RabbitMQ takes no larger ones.
const BODIES: &str = "from 1KiB to 128MiB";
const HEADERS: &str = "from 1KiB to 16MiB";

/// Every key of `timeouts`; the examples are the defaults.
pub(crate) const TIMEOUTS: &[Field<Timeouts>] = &[
    Field::<Timeouts>::new(
        "ack_timeout",
        "\"5s\"",
        "from a request to its first good reply, each try",
        |all, value| put(&mut all.ack_timeout, operation::ack(value.node)),
    )
    .bounds(operation::ACKS),
    Field::<Timeouts>::new(
        "result_timeout",
        "\"60s\"",
        "from the reply that accepts a job, and from each result, to the next; at least ack_timeout",
        |all, value| put(&mut all.result_timeout, operation::result(value.node)),
    )
    .bounds(operation::RESULTS),
    Field::<Timeouts>::new(
        "heartbeat_interval",
        "\"30s\"",
        "between two health checks of a target",
        |all, value| {
            let least = Duration::from_millis(10);
            put(&mut all.heartbeat_interval, time(value, least, INTERVALS))
        },
    )
    .bounds(INTERVALS),
    Field::<Timeouts>::new(
        "missed_intervals",
        "3",
        "failed checks in a row after which a target without open work is unhealthy",
        |all, value| {
            let count = within(scalar::count(value.node)?, 1..=1000, MISSED)?;
            all.missed_intervals = u32::try_from(count).unwrap_or(u32::MAX);
            Ok(())
        },
    )
    .bounds(MISSED),
    Field::<Timeouts>::new(
        "failback_after",
        "\"0s\"",
        "how long checks must have been good before traffic goes back",
        |all, value| put(&mut all.failback_after, time(value, Duration::ZERO, FAILBACKS)),
    )
    .bounds(FAILBACKS),
];

/// Every key of `retry`, read into the policy of the service.
pub(crate) const RETRY: &[Field<PolicyLayer>] = &[
    Field::<PolicyLayer>::new(
        "count",
        "1",
        "tries of the same target after the first: policy.retry.attempts_max less one",
        |layer, value| {
            let count = within(scalar::count(value.node)?, 0..=999, RETRIES)?;
            let place = (value.mark, value.path);
            layer.put("retry.attempts_max", Setting::Count(count + 1), place);
            Ok(())
        },
    )
    .bounds(RETRIES),
    Field::<PolicyLayer>::new(
        "delay",
        "\"500ms\"",
        "before the second try: policy.retry.delay",
        |layer, value| {
            let delay = Setting::Time(scalar::time(value.node)?);
            layer.put("retry.delay", delay, (value.mark, value.path));
            Ok(())
        },
    )
    .bounds("0s or from 1ms to 1h"),
    Field::<PolicyLayer>::new(
        "backoff",
        "2.0",
        "each wait is so many times the one before: policy.retry.factor",
        |layer, value| {
            let factor = Setting::Number(scalar::number(value.node)?);
            layer.put("retry.factor", factor, (value.mark, value.path));
            Ok(())
        },
    )
    .bounds("from 1 to 100"),
];

/// The policy key that each key of `retry` stands for.
pub(crate) const RETRY_POLICY: &[(&str, &str)] = &[
    ("retry.attempts_max", "retry.count"),
    ("retry.delay", "retry.delay"),
    ("retry.factor", "retry.backoff"),
];

/// Every key of `limits`; the examples are the defaults.
pub(crate) const LIMITS: &[Field<MessageLimits>] = &[
    Field::<MessageLimits>::new(
        "requests_max",
        "10000",
        "requests without a reply at once; more get an error reply",
        |all, value| put(&mut all.requests_max, open(value.node)),
    )
    .bounds(OPEN),
    Field::<MessageLimits>::new(
        "jobs_max",
        "100000",
        "accepted jobs open at once; more get an error reply",
        |all, value| put(&mut all.jobs_max, open(value.node)),
    )
    .bounds(OPEN),
    Field::<MessageLimits>::new("body_max", "\"64MiB\"", "a message's body", |all, value| {
        put(&mut all.body_max, size(value.node, 128 << 20, BODIES))
    })
    .bounds(BODIES),
    Field::<MessageLimits>::new(
        "headers_max",
        "\"128KiB\"",
        "all headers of a message together, of which there may be 1,000; more than the default reaches no service of the SDK",
        |all, value| put(&mut all.headers_max, size(value.node, 16 << 20, HEADERS)),
    )
    .bounds(HEADERS),
];

/// A variable comes too late: the keys of the file are laid below those of the other files.
fn file(value: Value<'_>) -> Result<String, Wrong> {
    match value.mark.origin {
        Origin::File(_) => filled(value.node),
        _ => Err(Wrong::new("can only be named in a configuration file")
            .hint("write it there, or give the file as a --config of its own")),
    }
}

fn strategy(node: &Node) -> Result<Spread, Wrong> {
    let words: Vec<&str> = Spread::ALL.iter().map(|spread| spread.as_str()).collect();
    let word = scalar::choice("strategy", &words, node)?;
    Spread::parse(&word).ok_or_else(|| "active_standby, round_robin or weighted".into())
}

fn event(node: &Node) -> Result<Option<Arc<str>>, Wrong> {
    let hint = "the name of an event such as \"job_failed\", or false for none";
    match scalar::bool(node) {
        Ok(false) => Ok(None),
        Ok(true) => Err(Wrong::new("true says no name").hint(hint)),
        Err(_) => names::capability(node).map(Some).map_err(|wrong| Wrong {
            hint: Some(hint.to_owned()),
            ..wrong
        }),
    }
}

fn time(value: Value<'_>, least: Duration, hint: &str) -> Result<Duration, Wrong> {
    within(
        scalar::time(value.node)?,
        least..=Duration::from_secs(24 * 3600),
        hint,
    )
}

fn open(node: &Node) -> Result<usize, Wrong> {
    let count = match scalar::count(node)? {
        0 => Err(Wrong::new("0 would admit nothing").hint(OPEN)),
        count => within(count, 1..=10_000_000, OPEN),
    }?;
    usize::try_from(count).map_err(|_| Wrong::new("is out of bounds").hint(OPEN))
}

fn size(node: &Node, most: u64, hint: &str) -> Result<usize, Wrong> {
    let size = within(scalar::size(node)?, 1 << 10..=most, hint)?;
    usize::try_from(size).map_err(|_| Wrong::new("is out of bounds").hint(hint))
}

/// A table of the reference.
pub(crate) struct KeyTable {
    /// Under `services.NAME`, such as `.timeouts`.
    pub(crate) at: &'static str,
    /// What stands above the keys.
    pub(crate) doc: &'static str,
    /// A list of such tables.
    pub(crate) is_list: bool,
    pub(crate) rows: Vec<KeyRow>,
}

/// A key of such a table.
pub(crate) struct KeyRow {
    pub(crate) name: &'static str,
    pub(crate) example: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) bounds: &'static str,
}

/// All tables of a service with their keys.
pub(crate) fn tables() -> Vec<KeyTable> {
    vec![
        of(
            "",
            "A service behind a broker whose name Mainstay takes over. All that is given in the tables below, and a\n`policy`, may also stand in the `file`; a file of the same form can be a `--config` of its own.",
            FIELDS,
        ),
        of(
            ".timeouts",
            "Bounds of both phases, and the health checks. The values are the defaults.",
            TIMEOUTS,
        ),
        of(
            ".retry",
            "The usual retries as three keys; the policy has more. The values are the defaults.",
            RETRY,
        ),
        of(
            ".brokers.NAME",
            "At least one. The first is that of targets which name none.",
            broker::FIELDS,
        ),
        of(
            ".targets.NAME",
            "Also `operation_map = { run = \"Compute.run\" }`: fronted function to the target's own operation.",
            target::FIELDS,
        ),
        of(
            ".operations.NAME",
            "One table a fronted function. `mainstay check` warns of functions without a `safety`.",
            operation::FIELDS,
        ),
        of(
            ".limits",
            "What is bounded. The values are the defaults.",
            LIMITS,
        ),
        of(
            ".discover",
            "A list of tables: targets that announce themselves and are taken in.",
            list::DISCOVERY,
        ),
        of(
            ".errors",
            "A list of tables: what error replies mean, before the SDK's own texts.",
            list::RULE,
        ),
        of(
            ".object_stores.NAME",
            "Where arguments by reference are (data handler `MINIO`).",
            list::STORE,
        ),
    ]
}

fn of<T>(at: &'static str, doc: &'static str, fields: &[Field<T>]) -> KeyTable {
    let row = |field: &Field<T>| KeyRow {
        name: field.name,
        example: field.example,
        doc: field.doc,
        bounds: field.bounds,
    };
    KeyTable {
        at,
        doc,
        is_list: matches!(at, ".discover" | ".errors"),
        rows: fields.iter().map(row).collect(),
    }
}
