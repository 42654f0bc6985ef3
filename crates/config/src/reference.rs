//! The reference of every key, as the page that the documentation holds.

use std::fmt::Write;

use mainstay_engine::Preset;
use mainstay_engine::policy::{KEYS, Key, Kind, Setting};

use crate::connection::CONNECTION_KEYS;
use crate::key::KEY_KEYS;
use crate::policy::PRESET;
use crate::scalar;
use crate::server::SERVER_KEYS;
use crate::service;
use crate::source::{Driver, OptionKind, SOURCE_KEYS};
use crate::tls::TLS_KEYS;

const HEAD: &str = "# Configuration

One file in TOML, YAML or JSON (by its extension); several `--config`, later ones win key by key.
`mainstay init` writes a commented file to start from, `mainstay check FILE` tells all that is wrong
with one, `mainstay explain FILE SOURCE` shows each value in effect and where it came from.

Strongest first: flag, environment, file, default. `MAINSTAY_SERVER__LISTEN=127.0.0.1:7718` gives the
key `server.listen`: steps of the path between double underscores, in any case.

Durations and sizes are written with units: `\"500ms\"`, `\"2s\"`, `\"5min\"`, `\"1h\"`, `\"64MiB\"`. Secrets are
references: `\"env:NAME\"`, `\"file:PATH\"`. Keys that are planned for a later version
are [refused by name](#keys-of-later-versions); any other unknown key is an error too.

Policy and connection keys come in layers, weakest first: default, preset, `[policy]` and
`[connection]`, `[data.policy]` and `[data.connection]`, the source, the endpoint. For message services
they are `[policy]`, `[message.policy]`, the service, the target. A key in `[policy]` beats every preset,
whoever names it.
";

const ENDPOINT: &str = "
## Endpoints: `[sources.NAME.endpoints.NAME]`

| key | example | what it is |
|---|---|---|
| `role` | `\"primary\"` | primary, replica or standby; without it the server says (PostgreSQL, MySQL, MariaDB), or the only endpoint is the primary |
| `weight` | `2` | its share of the calls beside the others, from 0.001 to 1000000; default 1 |
| `preset` | `\"balanced\"` | what the policy of this endpoint starts from |

An endpoint may also have a `policy` of its own and every connection key below.
";

/// A page of Markdown with every key of this version: meaning, default, and what the presets change.
pub fn reference_text() -> String {
    let mut text = String::from(HEAD);
    text.push_str(
        "\n## The program: `[server]`\n\n| key | default | what it is |\n|---|---|---|\n",
    );
    for key in SERVER_KEYS {
        let doc = bounded(key.doc, key.bounds);
        row(&mut text, &[&code(key.name), &code(key.example), &doc]);
    }
    text.push_str(
        "\n### Keys of callers: `[server.keys.NAME]`\n\nWithout any, whoever reaches the port may do everything, and it is on loopback only.\n\n| key | example | what it is |\n|---|---|---|\n",
    );
    for (name, example, doc) in KEY_KEYS {
        row(&mut text, &[&code(name), &code(example), doc]);
    }
    text.push_str(
        "\n### Encryption: `[server.tls]`\n\nWithout it HTTP is plain. The files are read again at a reload and when they change.\n\n| key | example | what it is |\n|---|---|---|\n",
    );
    for (name, example, doc) in TLS_KEYS {
        row(&mut text, &[&code(name), &code(example), doc]);
    }
    text.push_str(
        "\n## Sources: `[sources.NAME]`\n\n| key | example | what it is |\n|---|---|---|\n",
    );
    row(
        &mut text,
        &["`preset`", "`\"balanced\"`", "what the policy starts from"],
    );
    for key in SOURCE_KEYS {
        let doc = bounded(key.doc, key.bounds);
        row(&mut text, &[&code(key.name), &code(key.example), &doc]);
    }
    text.push_str(ENDPOINT);
    text.push_str(
        "\n## Connections\n\nIn `[connection]` for all, in a source, or in an endpoint.\n\n| key | example | what it is |\n|---|---|---|\n",
    );
    for key in CONNECTION_KEYS {
        row(&mut text, &[&code(key.name), &code(key.example), key.doc]);
    }
    options(&mut text);
    services(&mut text);
    policy(&mut text);
    presets(&mut text);
    later(&mut text);
    text
}

/// What a key is, with its bounds.
fn bounded(doc: &str, bounds: &str) -> String {
    match bounds {
        "" => doc.to_owned(),
        bounds => format!("{doc}; {bounds}"),
    }
}

/// The tables of a message service.
fn services(text: &mut String) {
    for table in service::tables() {
        let level = if table.at.is_empty() { "##" } else { "###" };
        let title = match table.at {
            "" => "Message services: ",
            _ => "",
        };
        let brackets = match table.is_list {
            true => ("[[", "]]"),
            false => ("[", "]"),
        };
        let _ = write!(
            text,
            "\n{level} {title}`{}services.NAME{}{}`\n\n{}\n\n| key | example | what it is |\n|---|---|---|\n",
            brackets.0, table.at, brackets.1, table.doc
        );
        if table.at.is_empty() {
            let what = "what the policy starts from; `service` unless a layer names another";
            row(text, &["`preset`", "`\"service\"`", what]);
        }
        for key in table.rows {
            let doc = bounded(key.doc, key.bounds);
            row(text, &[&code(key.name), &code(key.example), &doc]);
        }
    }
}

/// What is known by name and refused.
fn later(text: &mut String) {
    text.push_str(
        "\n## Keys of later versions\n\nRefused by name, so that nothing that is written is without effect.\n\n| where | what |\n|---|---|\n",
    );
    let words = scalar::LATER.iter();
    let words = words.map(|(key, word)| format!("`{key} = \"{word}\"`"));
    let words: Vec<String> = words
        .chain(["`promotion = \"command\"`".to_owned()])
        .collect();
    let all = |names: &[&str]| -> String {
        let names: Vec<String> = names.iter().map(|name| code(name)).collect();
        names.join(", ")
    };
    for (place, names) in [
        ("tables", all(crate::configuration::TABLES_LATER)),
        ("`[server]`", all(crate::server::LATER)),
        ("`[server.keys.NAME]`", all(&["contexts"])),
        ("a source", all(crate::source::LATER)),
        ("`[policy]`", all(crate::policy::LATER)),
        ("values", words.join(", ")),
        ("drivers", all(crate::source::DRIVERS_LATER)),
    ] {
        row(text, &[place, &names]);
    }
}

/// What each driver takes in `options`.
fn options(text: &mut String) {
    text.push_str("\n## Options of drivers\n\nIn `options` of a source or an endpoint, or behind the `?` of a `url`.\n");
    for driver in Driver::ALL {
        let title = match driver {
            Driver::Sqlite => "SQLite",
            Driver::Postgres => "PostgreSQL",
            Driver::Mysql => "MySQL and MariaDB",
        };
        let _ = write!(
            text,
            "\n### {title}\n\n| option | values | default | what it is |\n|---|---|---|---|\n"
        );
        for option in driver.options() {
            let values = match option.kind {
                OptionKind::Flag => "true, false",
                OptionKind::Millis => "milliseconds from 0 to 3600000",
                OptionKind::Count => "a whole number from 1 to 1000000",
                OptionKind::Bytes => "a whole number from 1024 to 1000000000",
                OptionKind::Id => "a whole number",
                OptionKind::Text => "text",
            };
            row(
                text,
                &[&code(option.name), values, option.default, option.doc],
            );
        }
        let (name, doc) = driver.other_options();
        row(text, &[name, "text", "", doc]);
    }
}

/// Cells of Markdown: a bar in one would end it.
fn row(text: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    // Writing to a String does not fail.
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn code(word: &str) -> String {
    format!("`{word}`")
}

fn policy(text: &mut String) {
    let _ = write!(
        text,
        "\n## Policy\n\nIn `[policy]` for all, in `[data.policy]` or `[message.policy]`, in `[sources.NAME.policy]` or `[services.NAME.policy]`,\nor in `[sources.NAME.endpoints.NAME.policy]` or `[services.NAME.targets.NAME.policy]`.\nThe defaults are those of the preset `{PRESET}`. `name` and `version` are labels for people: both\nstand in audit entries, the version in answers; neither is a label of metrics.\n"
    );
    let settings = PRESET.settings();
    let mut last = "";
    for key in KEYS {
        let (group, name) = key.path.split_once('.').unwrap_or(("", key.path));
        if group != last {
            let _ = write!(
                text,
                "\n### `[policy.{group}]`\n\n| key | values | default | what it does |\n|---|---|---|---|\n"
            );
            last = group;
        }
        let value = code(&value(key, (key.get)(&settings)));
        row(text, &[&code(name), &values(key), &value, key.doc]);
    }
}

fn value(key: &Key, setting: Setting) -> String {
    match (setting, key.off) {
        (Setting::Off, Some(word)) => word.to_owned(),
        (setting, _) => setting.to_string(),
    }
}

fn values(key: &Key) -> String {
    let kind = match key.kind {
        Kind::Bool => "true, false".to_owned(),
        Kind::Count => "a whole number".to_owned(),
        Kind::Number => "a number".to_owned(),
        Kind::Time => "a duration".to_owned(),
        Kind::Choice(words) => scalar::current(words).join(", "),
        Kind::Text => "text".to_owned(),
        Kind::List => "a list of texts".to_owned(),
    };
    let kind = match key.bounds() {
        Some(bounds) => format!("{kind}, {bounds}"),
        None => kind,
    };
    match key.off {
        Some(off) => format!("{kind}, or `{off}`"),
        None => kind,
    }
}

/// A column for each preset, a row for each key in which they differ.
fn presets(text: &mut String) {
    text.push_str("\n## Presets\n\nWhat is not listed is the same in all of them.\n\n| key |");
    for preset in Preset::ALL {
        let _ = write!(text, " `{preset}` |");
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(Preset::ALL.len()));
    text.push('\n');
    for key in KEYS {
        let of = |preset: &Preset| value(key, (key.get)(&preset.settings()));
        let values: Vec<String> = Preset::ALL.iter().map(of).collect();
        if values.iter().all(|value| *value == values[0]) {
            continue;
        }
        let mut cells = vec![code(key.path)];
        cells.extend(values);
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        row(text, &cells);
    }
}
