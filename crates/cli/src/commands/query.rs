//! `query`: one statement, on a running server or in this process.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use mainstay_config::Flag;
use mainstay_server::{Running, Server, StartError};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::client::{self, Client, Target};
use crate::commands::serve;
use crate::exit::{BadUsage, Exit};
use crate::output::{self, Paint};
use crate::settings;
use crate::table::{self, Listing};

/// A server that just started is given this long to find out who is primary.
const PRIMARY_WAIT: Duration = Duration::from_secs(5);

/// Run one SQL statement
///
/// On a running server, or with --config in this process without one. Parameters stand where the
/// database's own placeholders are: ? for SQLite, MySQL and MariaDB, $1 for PostgreSQL.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay query \"SELECT name, city FROM customers LIMIT 5\"
  mainstay query \"SELECT * FROM orders WHERE customer_id = ? AND status = ?\" --param 7 --param paid
  mainstay query --format csv \"SELECT * FROM products\" > products.csv
  mainstay query --source orders --config mainstay.toml \"SELECT count(*) FROM orders\"
  mainstay query \"INSERT INTO notes (text) VALUES (?)\" --params note.json

A parameter is JSON where it can be read as such (7, true, null, {\"type\": \"decimal\", \"value\": \"1.50\"}),
else text. Text that looks like a number is written with quotes: --param '\"007\"'.")]
pub(crate) struct Arguments {
    /// The statement
    sql: String,
    /// A parameter, in order; may be given several times
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    param: Vec<String>,
    /// A file with all parameters as one JSON array, for large ones; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "param")]
    params: Option<PathBuf>,
    /// The source; needed if there are several
    #[arg(long)]
    source: Option<String>,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Run in this process with these configuration files, without a running server and without a key
    #[arg(long, value_name = "FILE", num_args = 1)]
    config: Vec<PathBuf>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// The whole answer as JSON
    Json,
    /// Comma-separated values with a header line
    Csv,
}

/// Runs the statement.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    if arguments.config.is_empty() {
        let client = arguments.target.client()?;
        return ask(&arguments, &client).await;
    }
    let (running, key) = match start(&arguments.config, arguments.source.as_deref()).await? {
        Ok(started) => started,
        Err(exit) => return Ok(exit),
    };
    let client = Client::new(&running.url(), None)?.with_key(&key)?;
    let asked = ask(&arguments, &client).await;
    let limit = running.drain_timeout();
    running.shutdown(limit).await;
    asked
}

async fn ask(arguments: &Arguments, client: &Client) -> anyhow::Result<Exit> {
    let source = match &arguments.source {
        Some(source) => source.clone(),
        None => client.only_source().await?,
    };
    let params = match &arguments.params {
        Some(file) => array(file)?,
        None => {
            let params = arguments.param.iter().map(|text| param(text));
            let params: Vec<String> = params.collect::<Result<_, _>>()?;
            format!("[{}]", params.join(","))
        }
    };
    let path = format!("/v1/sources/{}/query", client::encoded(&source));
    let sql = Value::from(arguments.sql.as_str());
    let question = format!("{{\"sql\":{sql},\"params\":{params}}}");
    let answer = client.post(&path, question).await?;
    match arguments.format {
        Format::Table => output::say(&as_table(&answer))?,
        Format::Json => output::say(&serde_json::to_string_pretty(&answer)?)?,
        Format::Csv => output::say(&as_csv(&answer))?,
    }
    Ok(Exit::Ok)
}

/// The same server on a port of its own, and the key that it asks of everybody: one way to run a statement,
/// not two.
async fn start(
    files: &[PathBuf],
    source: Option<&str>,
) -> anyhow::Result<Result<(Running, String), Exit>> {
    let listen = Flag {
        name: "--config".to_owned(),
        path: "server.listen".to_owned(),
        value: "127.0.0.1:0".to_owned(),
    };
    let options = settings::options(files, vec![listen]);
    let (running, key) = match Server::start_private(options).await {
        Ok(started) => started,
        Err(StartError::Configuration(problems)) => return Ok(Err(settings::refuse(&problems))),
        Err(error) => return Err(serve::refused(error)),
    };
    let sources = running.sources();
    let wanted = match source {
        Some(name) => sources.get(name),
        None => {
            let mut all = sources.iter();
            // Of several none is meant, which is told to the user.
            all.next().filter(|_| all.next().is_none())
        }
    };
    if let Some(served) = wanted {
        let source = served.proxy().source();
        let has_primary = source.wait_for(PRIMARY_WAIT, |now| {
            !now.has_roles() || now.primary().is_some()
        });
        // Without one the statement itself tells what is missing.
        let _ = has_primary.await;
    }
    Ok(Ok((running, key)))
}

fn is_json<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<T>(text).map(|_| ())
}

/// A text of JSON: it as it is where it is one, digit by digit, else as a string.
///
/// # Errors
/// It is JSON by its grammar and yet cannot be read: it was hardly meant as a text.
fn param(text: &str) -> Result<String, BadUsage> {
    let Err(error) = is_json::<Value>(text) else {
        return Ok(text.to_owned());
    };
    match is_json::<IgnoredAny>(text) {
        Ok(()) => Err(BadUsage(format!(
            "--param {}: {error}; mend it, or if it is a text: one is written with quotes, such as --param '\"1e400\"'",
            output::cut(text, 60)
        ))),
        Err(_) => Ok(Value::from(text).to_string()),
    }
}

/// The array that a file holds, as it is written there.
fn array(file: &Path) -> anyhow::Result<String> {
    let text = match file.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        false => std::fs::read_to_string(file),
    };
    let shown = file.display();
    let text = text.with_context(|| format!("--params {shown} cannot be read"))?;
    is_json::<Vec<Value>>(&text).map_err(|error| {
        BadUsage(format!(
            "--params {shown} holds no JSON array: {error}; write it like [7, \"paid\"]"
        ))
    })?;
    Ok(text)
}

/// What stands in a row, without the type that one with another type than its column has beside it.
fn shown(value: &Value) -> &Value {
    match value {
        Value::Object(parts) => parts.get("value").unwrap_or(value),
        value => value,
    }
}

fn columns(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["columns"].as_array().into_iter().flatten()
}

fn names(answer: &Value) -> impl Iterator<Item = &str> {
    columns(answer).map(|column| column["name"].as_str().unwrap_or_default())
}

fn rows(answer: &Value) -> impl Iterator<Item = &Vec<Value>> {
    let rows = answer["rows"].as_array().into_iter().flatten();
    rows.filter_map(Value::as_array)
}

fn as_table(answer: &Value) -> String {
    let paint = Paint::stdout();
    let mut lines = Vec::new();
    if columns(answer).next().is_some() {
        let mut listing = Listing::new(names(answer));
        for row in rows(answer) {
            listing.row(row.iter().map(|value| match value {
                Value::Null => "NULL".to_owned(),
                value => table::cell(shown(value)),
            }));
        }
        listing.right(numbers(answer));
        lines.extend(listing.lines());
        lines[0] = paint.bold(&lines[0]);
    }
    lines.push(paint.dim(&summary(answer)));
    lines.join("\n")
}

/// Columns of numbers: by their type, or where the database names none by what is in them.
fn numbers(answer: &Value) -> Vec<usize> {
    let holds_numbers = |at: usize| {
        let mut values = rows(answer).filter_map(|row| row.get(at));
        values.all(|value| value.is_number() || value.is_null())
    };
    let is_number = |(at, column): &(usize, &Value)| match column["type"].as_str() {
        Some("i64" | "u64" | "f64" | "decimal") => true,
        Some("any") => holds_numbers(*at),
        _ => false,
    };
    let columns = columns(answer).enumerate();
    columns.filter(is_number).map(|(at, _)| at).collect()
}

/// `3 rows · reader_1 · 0.4 ms`
fn summary(answer: &Value) -> String {
    let mut parts = Vec::new();
    if columns(answer).next().is_some() {
        parts.push(settings::counted(rows(answer).count(), "row"));
    }
    if let Some(affected) = answer["affected"].as_u64() {
        let affected = usize::try_from(affected).unwrap_or(usize::MAX);
        parts.push(format!("{} affected", settings::counted(affected, "row")));
    }
    let meta = &answer["meta"];
    parts.extend(meta["endpoint"].as_str().map(str::to_owned));
    if let Some(attempts) = meta["attempts"].as_u64().filter(|attempts| *attempts > 1) {
        parts.push(format!("{attempts} attempts"));
    }
    if let Some(elapsed) = meta["elapsed_ms"].as_f64() {
        parts.push(format!("{elapsed:.1} ms"));
    }
    format!("({})", parts.join(" · "))
}

fn as_csv(answer: &Value) -> String {
    let mut text = line(names(answer).map(|name| Some(name.to_owned())));
    for row in rows(answer) {
        text.push_str(&line(row.iter().map(|value| match shown(value) {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        })));
    }
    text
}

/// A line of RFC 4180 with the line end of this system's tools. NULL is nothing, an empty text a pair of
/// quotes.
fn line(fields: impl Iterator<Item = Option<String>>) -> String {
    let fields: Vec<String> = fields
        .map(|field| match field {
            None => String::new(),
            Some(field) if field.is_empty() || field.contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", field.replace('"', "\"\""))
            }
            Some(field) => field,
        })
        .collect();
    fields.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Value {
        json!({
            "columns": [{"name": "id", "type": "i64"}, {"name": "note", "type": "text"}],
            "rows": [[1, "a, \"b\""], [20, null], [{"type": "text", "value": "x"}, ""]],
            "meta": {"endpoint": "reader_1", "attempts": 2, "elapsed_ms": 0.42},
        })
    }

    #[test]
    fn parameters_are_json_where_they_can_be() {
        let wide = "123456789012345678901234567890";
        let decimal = "{\"type\":\"decimal\",\"value\":\"1.50\"}";
        for (text, expected) in [
            ("7", "7"),
            ("\"7\"", "\"7\""),
            ("paid", "\"paid\""),
            ("null", "null"),
            ("", "\"\""),
            ("-1.50", "-1.50"),
            (wide, wide),
            (decimal, decimal),
        ] {
            assert_eq!(param(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_looks_like_json_and_is_none_is_a_text() {
        for text in [
            "007", "+7", ".5", "1.", "1e", "-", "NaN", "Infinity", "1e400x", "[1e400", "{a: 1}",
            "'7'", "tru", "1 2", "\"open", "0x1F",
        ] {
            assert_eq!(
                param(text).unwrap(),
                Value::from(text).to_string(),
                "{text}"
            );
        }
    }

    #[test]
    fn json_that_cannot_be_read_is_refused_instead_of_being_sent_as_text() {
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        for text in [
            "1e400",
            "-1e400",
            " 1E+400 ",
            "123456789e999",
            "[1, 1e400]",
            "{\"type\": \"f64\", \"value\": 1e400}",
            "\"\\ud800\"",
            &deep,
        ] {
            let refused = param(text).unwrap_err().to_string();
            assert!(refused.contains("is written with quotes"), "{refused}");
        }
        // The least that there is instead of nothing, and the greatest.
        for text in ["1e-400", "1.7976931348623157e308"] {
            assert_eq!(param(text).unwrap(), text);
        }
    }

    #[test]
    fn a_table_sets_numbers_right_and_tells_where_rows_came_from() {
        let expected =
            "id  note\n 1  a, \"b\"\n20  NULL\n x\n(3 rows · reader_1 · 2 attempts · 0.4 ms)";
        assert_eq!(as_table(&answer()), expected);
    }

    #[test]
    fn csv_quotes_what_needs_it_and_tells_null_from_nothing() {
        assert_eq!(
            as_csv(&answer()),
            "id,note\n1,\"a, \"\"b\"\"\"\n20,\nx,\"\"\n"
        );
    }
}
