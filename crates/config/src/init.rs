//! The commented file that `mainstay init` writes.

use std::fmt::Write;

use mainstay_engine::policy::{KEYS, Kind, Setting};

use crate::connection::CONNECTION_KEYS;
use crate::policy::PRESET;
use crate::scalar;
use crate::server::SERVER_KEYS;
use crate::source::SOURCE_KEYS;

const HEAD: &str = r#"# Mainstay. `mainstay check FILE` tells all that is wrong with this file,
# `mainstay explain FILE SOURCE` each value in effect and where it came from.
#
# A line that begins with # and a key shows that key with its default or an example: take the # away
# to use it. Durations and sizes have units: "500ms", "2s", "5min", "1h", "64MiB".
# Any key can be overridden from outside: MAINSTAY_SERVER__LISTEN=127.0.0.1:7718
"#;

const DEMO: &str = r#"
# A source is what callers name. Endpoints of an SQLite source are connections to one file.
[sources.demo]
driver = "sqlite"
path = "./mainstay-data/demo.db"
"#;

const DEMO_ENDPOINTS: &str = r#"
[sources.demo.endpoints.writer]
role = "primary"

[sources.demo.endpoints.reader_1]
role = "replica"

[sources.demo.endpoints.reader_2]
role = "replica"
"#;

const POSTGRES: &str = r#"
# A PostgreSQL primary with a replica: the servers say who is primary, Mainstay follows.
#[sources.orders]
#driver = "postgres"
#preset = "balanced"
#database = "orders"
#user = "app"
#password = "env:ORDERS_PASSWORD"
#[sources.orders.endpoints.a]
#host = "db1.internal"
#[sources.orders.endpoints.b]
#host = "db2.internal"
#weight = 2
#[sources.orders.policy.circuit]
#failures = 5
"#;

const SERVICE: &str = r#"
# A message service whose name Mainstay takes over: callers change nothing.
#[services.compute]
#identity = "org.fac.sys.sub.compute"
#capability_name = "Compute"
#strategy = "active_standby"
#strategy_group_order = ["primary", "standby"]
#[services.compute.brokers.main]
#protocol = "mqtt5"
#host = "broker.internal"
#user = "mainstay"
#password = "env:BROKER_PASSWORD"
#[services.compute.operations.run]
#safety = "idempotent_write"
#[services.compute.targets.a]
#group = "primary"
#destination = "org.fac.sys.sub.compute-a"
#operation_map = { run = "Compute.run" }
#[services.compute.targets.b]
#group = "standby"
#destination = "org.fac.sys.sub.compute-b"
#operation_map = { run = "Compute.run" }
"#;

/// The text of the file: complete, valid, with every key in it.
pub fn init_text() -> String {
    let mut text = String::from(HEAD);
    text.push_str("\n[server]\n");
    for key in SERVER_KEYS {
        line(&mut text, key.name, key.example, key.doc);
    }
    text.push_str(DEMO);
    for key in SOURCE_KEYS.iter().filter(|key| key.name != "promotion") {
        line(&mut text, key.name, key.example, key.doc);
    }
    text.push_str(DEMO_ENDPOINTS);
    text.push_str(POSTGRES);
    text.push_str(SERVICE);
    text.push_str("\n# What all sources connect with, unless they say otherwise.\n[connection]\n");
    for key in CONNECTION_KEYS {
        line(&mut text, key.name, key.example, key.doc);
    }
    text.push_str(
        "\n# The policy of all sources, unless they say otherwise. Presets: conservative,\n",
    );
    text.push_str(
        "# balanced, aggressive_failover and others; a key here beats every preset.\n[policy]\n",
    );
    line(
        &mut text,
        "preset",
        "\"balanced\"",
        "what the keys below start from",
    );
    line(
        &mut text,
        "name",
        "\"house\"",
        "label in audit entries and metrics",
    );
    line(
        &mut text,
        "version",
        "1",
        "label in audit entries and answers",
    );
    policy(&mut text);
    text
}

/// Longer lines have their comment above them.
const LINE_MAX: usize = 100;

fn line(text: &mut String, name: &str, value: &str, doc: &str) {
    let key = format!("#{name} = {value}");
    // Writing to a String does not fail.
    let _ = if key.len() + doc.len() + 4 <= LINE_MAX {
        writeln!(text, "{key}  # {doc}")
    } else {
        comment(text, doc);
        writeln!(text, "{key}")
    };
}

/// A comment in as many lines as it needs.
fn comment(text: &mut String, doc: &str) {
    let mut width = 0;
    for word in doc.split(' ') {
        if width == 0 || width + word.len() + 1 > LINE_MAX {
            text.push_str(if width == 0 { "# " } else { "\n# " });
            width = 2;
        } else {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += word.len();
    }
    text.push('\n');
}

fn policy(text: &mut String) {
    let settings = PRESET.settings();
    let mut last = "";
    for key in KEYS {
        let (group, name) = key.path.split_once('.').unwrap_or(("", key.path));
        if group != last {
            let _ = writeln!(text, "\n[policy.{group}]");
            last = group;
        }
        let value = match ((key.get)(&settings), key.off) {
            (Setting::Off, Some(off)) => format!("{off:?}"),
            (value @ (Setting::Bool(_) | Setting::Count(_) | Setting::Number(_)), _) => {
                value.to_string()
            }
            (Setting::List(values), _) => format!("{values:?}"),
            (value, _) => format!("{:?}", value.to_string()),
        };
        let words = match key.kind {
            Kind::Choice(words) => format!(" ({})", scalar::current(words).join(", ")),
            _ => String::new(),
        };
        line(text, name, &value, &format!("{}{words}", key.doc));
    }
}
