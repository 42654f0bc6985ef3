//! `explain`: where values came from, and what a server would do with a statement.

use std::path::PathBuf;

use mainstay_config::Explained;
use serde_json::{Value, json};

use crate::client::Target;
use crate::exit::{BadUsage, Exit};
use crate::output::{self, Paint};
use crate::settings;
use crate::table::Listing;

/// Show each value in effect and where it came from, or what would happen to a statement
///
/// With a FILE: the effective values of every source and message service, of one of them, or of one
/// endpoint or target, with the layer and the line that each came from. With --sql: what a running
/// server would do with a statement; it is not run.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "mainstay explain FILE... [NAME[.MEMBER]]\n       mainstay explain --sql STATEMENT [--source SOURCE] [--url URL]",
    after_help = "Examples:
  mainstay explain mainstay.toml
  mainstay explain mainstay.toml orders.a
  mainstay explain base.toml production.toml orders
  mainstay explain mainstay.toml compute.primary-a
  mainstay explain --sql \"SELECT name FROM customers\"
  mainstay explain --source orders --sql \"DELETE FROM orders\""
)]
pub(crate) struct Arguments {
    /// Configuration files, and at the end a source, a service, or one of their endpoints or targets;
    /// without files the built-in configuration
    #[arg(value_name = "FILE", conflicts_with = "sql")]
    words: Vec<String>,
    /// A statement for a running server to explain
    #[arg(long, value_name = "STATEMENT")]
    sql: Option<String>,
    /// The source the statement is for
    #[arg(long, requires = "sql")]
    source: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Explains.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match &arguments.sql {
        Some(sql) => statement(&arguments, sql).await,
        None => files(&arguments),
    }
}

fn files(arguments: &Arguments) -> anyhow::Result<Exit> {
    let (files, target) = split(&arguments.words)?;
    let configuration = match settings::load(settings::options(&files, Vec::new())) {
        Ok(configuration) => configuration,
        Err(exit) => return Ok(exit),
    };
    let targets = match target {
        Some(target) => vec![target.to_owned()],
        None => {
            let services = configuration.services().keys();
            configuration
                .sources
                .keys()
                .chain(services)
                .cloned()
                .collect()
        }
    };
    let mut explained = Vec::new();
    for target in targets {
        let lines = mainstay_config::explain(&configuration, &target)?;
        explained.push((target, lines));
    }
    if arguments.json {
        let all: serde_json::Map<String, Value> = explained
            .into_iter()
            .map(|(target, lines)| (target, json!(lines)))
            .collect();
        output::say(&serde_json::to_string_pretty(&all)?)?;
        return Ok(Exit::Ok);
    }
    let paint = Paint::stdout();
    let mut text = Vec::new();
    for (target, lines) in explained {
        if !text.is_empty() {
            text.push(String::new());
        }
        text.push(paint.bold(&target));
        text.extend(listing(&lines, paint));
    }
    output::say(&text.join("\n"))?;
    Ok(Exit::Ok)
}

/// The last word is the name of something configured unless it is a file.
fn split(words: &[String]) -> anyhow::Result<(Vec<PathBuf>, Option<&str>)> {
    let is_file = |word: &str| {
        let path = std::path::Path::new(word);
        let extension = path.extension().and_then(|extension| extension.to_str());
        path.exists()
            || word.contains(std::path::MAIN_SEPARATOR)
            || matches!(extension, Some("toml" | "yaml" | "yml" | "json"))
    };
    let (target, files) = match words.split_last() {
        Some((last, files)) if !is_file(last) => (Some(last.as_str()), files),
        _ => (None, words),
    };
    if let Some(wrong) = files.iter().find(|word| !is_file(word)) {
        let message = format!(
            "{wrong:?} is no file; files come first, then one source, service, endpoint or target, such as mainstay.toml demo"
        );
        return Err(BadUsage(message).into());
    }
    Ok((files.iter().map(PathBuf::from).collect(), target))
}

fn listing(lines: &[Explained], paint: Paint) -> Vec<String> {
    let mut listing = Listing::new(["KEY", "VALUE", "LAYER", "WRITTEN AT"]);
    for line in lines {
        let place = match (line.origin.as_str(), line.line) {
            ("default", _) => String::new(),
            (origin, Some(number)) => format!("{origin}:{number}"),
            (origin, None) => origin.to_owned(),
        };
        listing.row([&line.path, &line.value, &line.layer, &place]);
    }
    let rows = listing.lines().into_iter().enumerate();
    rows.map(|(number, row)| match number {
        0 => paint.bold(&row),
        _ if lines[number - 1].layer == "default" => paint.dim(&row),
        _ => row,
    })
    .collect()
}

async fn statement(arguments: &Arguments, sql: &str) -> anyhow::Result<Exit> {
    let client = arguments.target.client()?;
    let source = match &arguments.source {
        Some(source) => source.clone(),
        None => client.only_source().await?,
    };
    let question = json!({"source": source, "sql": sql});
    let answer = client.post("/v1/explain", question.to_string()).await?;
    if arguments.json {
        output::say(&serde_json::to_string_pretty(&answer)?)?;
    } else {
        output::say(&outline(&for_people(answer)))?;
    }
    Ok(Exit::Ok)
}

/// Members in the order in which people ask: what is it, who takes it, what if that fails.
const ORDER: [&str; 9] = [
    "source",
    "statement",
    "refused",
    "needs",
    "strategy",
    "candidates",
    "retry",
    "cache",
    "policy",
];

/// Without the settings that nobody changed: `explain FILE` and --json show all.
fn for_people(mut answer: Value) -> Value {
    let settings = answer.pointer_mut("/policy/settings");
    if let Some(settings) = settings.and_then(Value::as_array_mut) {
        settings.retain(|line| line["layer"] != "default");
        for line in settings {
            *line = json!({"key": line["path"], "layer": line["layer"], "value": line["value"]});
        }
    }
    answer
}

/// An answer as an indented outline; lists of alike things become tables.
fn outline(answer: &Value) -> String {
    let mut lines = Vec::new();
    write_outline(answer, 0, &mut lines);
    lines.join("\n")
}

fn write_outline(value: &Value, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let Value::Object(members) = value else {
        lines.push(format!("{indent}{}", crate::table::cell(value)));
        return;
    };
    let shown = |value: &Value| !value.is_null() && is_short(value);
    let names = members.iter().filter(|(_, value)| shown(value));
    let width = names.map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut members: Vec<(&String, &Value)> = members.iter().collect();
    let rank = |name: &str| ORDER.iter().position(|known| *known == name);
    members.sort_by_key(|(name, _)| rank(name).unwrap_or(ORDER.len()));
    for (name, value) in members {
        match value {
            Value::Null => {}
            Value::Array(items) if items.is_empty() => {}
            _ if is_short(value) => {
                lines.push(format!(
                    "{indent}{name:width$}  {}",
                    crate::table::cell(value)
                ));
            }
            Value::Array(items) => {
                lines.push(format!("{indent}{name}"));
                lines.extend(
                    of_items(items)
                        .into_iter()
                        .map(|line| format!("{indent}  {line}")),
                );
            }
            _ => {
                lines.push(format!("{indent}{name}"));
                write_outline(value, depth + 1, lines);
            }
        }
    }
}

/// Whether it is shown beside its name.
fn is_short(value: &Value) -> bool {
    match value {
        Value::Object(_) => false,
        Value::Array(items) => items
            .iter()
            .all(|item| !item.is_object() && !item.is_array()),
        _ => true,
    }
}

fn of_items(items: &[Value]) -> Vec<String> {
    let first = items.first().and_then(Value::as_object);
    let Some(first) = first else {
        return items.iter().map(crate::table::cell).collect();
    };
    let mut listing = Listing::new(first.keys().map(String::as_str));
    for item in items {
        listing.row(
            first
                .keys()
                .map(|name| item.get(name).map(crate::table::cell).unwrap_or_default()),
        );
    }
    listing.lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_a_target_unless_it_is_a_file() {
        let words = |list: &[&str]| {
            list.iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let both = words(&["a.toml", "b.yaml", "orders.a"]);
        let (files, target) = split(&both).unwrap();
        assert_eq!((files.len(), target), (2, Some("orders.a")));
        let only = words(&["a.json"]);
        assert_eq!(split(&only).unwrap().1, None);
        assert_eq!(split(&[]).unwrap(), (vec![], None));
        assert!(
            split(&words(&["orders", "orders.a"]))
                .unwrap_err()
                .is::<BadUsage>()
        );
    }

    #[test]
    fn an_answer_is_shown_as_an_outline_with_tables() {
        let answer = json!({
            "class": "read",
            "candidates": [{"endpoint": "a", "role": "primary"}, {"endpoint": "b", "role": "replica"}],
            "retry": {"attempts_max": 3},
            "nothing": null,
        });
        let expected = "candidates\n  endpoint  role\n  a         primary\n  b         replica\nretry\n  attempts_max  3\nclass  read";
        assert_eq!(outline(&answer), expected);
    }
}
