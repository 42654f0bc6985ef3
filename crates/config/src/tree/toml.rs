//! TOML.

use ::toml::de::{DeTable, DeValue, Error};

use super::lines::Lines;
use super::{Entry, Node, Parsed, Table, Tree, Value, given_twice, join};
use crate::mark::{Mark, Origin};
use crate::problem::{Problem, Wrong};

pub(super) fn parse(origin: Origin, text: &str) -> Parsed {
    let lines = Lines::new(origin, text);
    let (document, errors) = DeTable::parse_recoverable(text);
    let (doubled, broken): (Vec<Error>, Vec<Error>) = errors.into_iter().partition(is_doubled);
    if let Some(error) = broken.first() {
        return Parsed::failed(syntax(&lines, error));
    }
    let root = table(&lines, document.get_ref());
    let problems = doubled
        .iter()
        .map(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let (path, first) = named_at(text, offset, document.get_ref());
            let first = first.map(|first| lines.mark(first));
            given_twice(&lines.mark(offset), path, first.as_ref())
        })
        .collect();
    Parsed {
        tree: Some(Tree { root }),
        problems,
    }
}

/// One value as in a file, for text from outside; `None` if it is not one.
pub(crate) fn value_alone(text: &str, mark: &Mark) -> Option<Value> {
    let lines = Lines::new(mark.origin.clone(), text);
    let parsed = DeValue::parse(text).ok()?;
    let value = match parsed.get_ref() {
        DeValue::Datetime(_) | DeValue::Table(_) => return None,
        other => value(&lines, other),
    };
    Some(value)
}

fn is_doubled(error: &Error) -> bool {
    error.message().starts_with("duplicate key")
}

fn syntax(lines: &Lines<'_>, error: &Error) -> Problem {
    let offset = error.span().map_or(0, |span| span.start);
    let wrong = Wrong::new(format!("not TOML: {}", error.message()))
        .hint("text stands in quotes, tables in [brackets], one key a line");
    Problem::error(&lines.mark(offset), "", wrong)
}

/// The key at that offset and where it first stood. The parser tells the second place alone, so the
/// first is the same header of a table further up, or the nearest earlier table entry of that name.
fn named_at(text: &str, offset: usize, document: &DeTable<'_>) -> (String, Option<usize>) {
    if let Some(path) = header_up_to(text, offset) {
        let first = headers(text).find(|(start, known)| *start < offset && *known == path);
        return (path, first.map(|(start, _)| start));
    }
    let name: String = text[offset.min(text.len())..]
        .chars()
        .take_while(|c| !c.is_whitespace() && !matches!(c, '=' | '.' | ']'))
        .filter(|c| !matches!(c, '"' | '\''))
        .collect();
    let mut found = None;
    search(document, "", &name, offset, &mut found);
    match found {
        Some((path, first)) => (path, Some(first)),
        None => (name, None),
    }
}

/// The path of the header `[a.b]` that the offset is in, up to the step that begins there.
fn header_up_to(text: &str, offset: usize) -> Option<String> {
    let start = text.get(..offset)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..)?.lines().next()?;
    let before = text.get(start..offset)?.trim_start();
    let step = text.get(offset..)?.split(['.', ']', '\n']).next()?;
    is_header(line).then(|| steps(&format!("{before}{step}")))
}

/// Every header with where its last step begins and its path.
fn headers(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut start = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let at = start;
        start += line.len();
        let (path, _) = line.split_once(']')?;
        let last = path.rfind(['.', '['])? + 1;
        is_header(line).then(|| (at + last, steps(path)))
    })
}

fn is_header(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with('[') && !line.starts_with("[[")
}

/// The steps of a header as they are told, without what only TOML needs.
fn steps(header: &str) -> String {
    let is_name = |c: &char| !c.is_whitespace() && !matches!(c, '[' | '"' | '\'');
    header.chars().filter(is_name).collect()
}

fn search(
    table: &DeTable<'_>,
    path: &str,
    name: &str,
    before: usize,
    found: &mut Option<(String, usize)>,
) {
    for (key, node) in table {
        let path = join(path, key.get_ref());
        let start = key.span().start;
        let nearer = found.as_ref().is_none_or(|(_, best)| *best < start);
        if key.get_ref() == name && start < before && nearer {
            *found = Some((path.clone(), start));
        }
        if let DeValue::Table(inner) = node.get_ref() {
            search(inner, &path, name, before, found);
        }
    }
}

fn table(lines: &Lines<'_>, source: &DeTable<'_>) -> Table {
    let mut table = Table::default();
    for (key, node) in source {
        let entry = Entry {
            mark: lines.mark(key.span().start),
            node: Node {
                value: value(lines, node.get_ref()),
                mark: lines.mark(node.span().start),
            },
        };
        // The parser has already told keys that stand twice.
        let _ = table.insert(key.get_ref().to_string(), entry);
    }
    table
}

fn value(lines: &Lines<'_>, source: &DeValue<'_>) -> Value {
    match source {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(integer) => i128::from_str_radix(integer.as_str(), integer.radix())
            .map_or_else(|_| Value::Text(integer.to_string()), Value::Integer),
        DeValue::Float(float) => float
            .as_str()
            .parse()
            .map_or_else(|_| Value::Text(float.to_string()), Value::Number),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(items) => Value::List(
            items
                .iter()
                .map(|item| Node {
                    value: value(lines, item.get_ref()),
                    mark: lines.mark(item.span().start),
                })
                .collect(),
        ),
        DeValue::Table(inner) => Value::Table(table(lines, inner)),
    }
}

impl Table {
    pub(super) fn to_toml(&self) -> ::toml::Table {
        self.iter()
            .filter_map(|(name, entry)| Some((name.to_owned(), entry.node.value.to_toml()?)))
            .collect()
    }
}

impl Value {
    fn to_toml(&self) -> Option<::toml::Value> {
        Some(match self {
            Value::Empty => return None,
            Value::Bool(value) => ::toml::Value::Boolean(*value),
            // A number that TOML does not hold is written as text, which no key takes for a number.
            Value::Integer(value) => i64::try_from(*value).map_or_else(
                |_| ::toml::Value::String(value.to_string()),
                ::toml::Value::Integer,
            ),
            Value::Number(value) => ::toml::Value::Float(*value),
            Value::Text(text) | Value::Loose(text) => ::toml::Value::String(text.clone()),
            Value::List(items) => {
                let items = items.iter().filter_map(|item| item.value.to_toml());
                ::toml::Value::Array(items.collect())
            }
            Value::Table(table) => ::toml::Value::Table(table.to_toml()),
        })
    }
}
