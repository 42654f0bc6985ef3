//! Stage one: text becomes a [`Tree`] that remembers where each key and value stands. TOML, YAML and
//! JSON become the same tree; a syntax error ends here.

mod json;
mod lines;
mod toml;
mod yaml;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::path::Path;

use crate::mark::{Mark, Origin};
use crate::problem::{Problem, Wrong};

pub(crate) use self::toml::value_alone;

/// Files longer than this many bytes are refused: nobody writes them, and each byte is kept.
pub(crate) const TEXT_MAX: usize = 4 << 20;

/// Tables and lists inside each other; the deepest key of a configuration stands at 7.
const DEPTH_MAX: usize = 64;

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `.toml`
    Toml,
    /// `.yaml`, `.yml`
    Yaml,
    /// `.json`
    Json,
}

impl Format {
    /// The format that a file's extension stands for.
    pub fn of(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "toml" => Some(Format::Toml),
            "yaml" | "yml" => Some(Format::Yaml),
            "json" => Some(Format::Json),
            _ => None,
        }
    }
}

/// A configuration as it was written: keys and values with their places, not yet checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    pub(crate) root: Table,
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) mark: Mark,
}

/// A value in no particular format.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// `null`, or a key without a value.
    Empty,
    Bool(bool),
    Integer(i128),
    Number(f64),
    Text(String),
    /// Text from outside a file, whose type follows from the key that it is for.
    Loose(String),
    List(Vec<Node>),
    Table(Table),
}

/// Keys of one table. The order in the file is in the marks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    entries: BTreeMap<String, Entry>,
}

/// A key of a table with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Where the key stands.
    pub(crate) mark: Mark,
    pub(crate) node: Node,
}

impl Value {
    /// What to call it in a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Empty => "nothing",
            Value::Bool(_) => "true or false",
            Value::Integer(_) => "a whole number",
            Value::Number(_) => "a number",
            Value::Text(_) | Value::Loose(_) => "text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

impl Table {
    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// All entries, by name.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (String, Entry)> {
        self.entries.into_iter()
    }

    pub(crate) fn named_mut(&mut self) -> impl Iterator<Item = (&str, &mut Entry)> {
        let entries = self.entries.iter_mut();
        entries.map(|(name, entry)| (name.as_str(), entry))
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.get_mut(name)
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Entry> {
        self.entries.remove(name)
    }

    /// The table of that name, if it is there and is one.
    pub(crate) fn inner_mut(&mut self, name: &str) -> Option<&mut Table> {
        match &mut self.entries.get_mut(name)?.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Adds a key; a second one of the same name is not taken, but told, with the first.
    pub(crate) fn insert(&mut self, name: String, entry: Entry) -> Result<(), Mark> {
        match self.entries.entry(name) {
            Slot::Vacant(slot) => {
                slot.insert(entry);
                Ok(())
            }
            Slot::Occupied(slot) => Err(slot.get().mark.clone()),
        }
    }

    /// Lays `over` above this table: what it says wins, key by key.
    pub(crate) fn merge(&mut self, over: Table) {
        for (name, entry) in over.entries {
            match self.entries.entry(name) {
                Slot::Vacant(slot) => {
                    slot.insert(entry);
                }
                Slot::Occupied(mut slot) => slot.get_mut().merge(entry),
            }
        }
    }

    /// The table of that name, made if it is missing; `None` if the name holds something else.
    pub(crate) fn table_mut(&mut self, name: &str, mark: &Mark) -> Option<&mut Table> {
        let entry = self
            .entries
            .entry(name.to_owned())
            .or_insert_with(|| Entry {
                mark: mark.clone(),
                node: Node {
                    value: Value::Table(Table::default()),
                    mark: mark.clone(),
                },
            });
        match &mut entry.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl Entry {
    fn merge(&mut self, over: Entry) {
        match (&mut self.node.value, over.node.value) {
            (Value::Table(below), Value::Table(above)) => below.merge(above),
            (Value::Table(_), Value::Empty) => {}
            (_, value) => {
                self.mark = over.mark;
                self.node = Node {
                    value,
                    mark: over.node.mark,
                };
            }
        }
    }
}

/// What a text gave: a tree unless its syntax was wrong, and the problems on the way.
pub(crate) struct Parsed {
    pub(crate) tree: Option<Tree>,
    pub(crate) problems: Vec<Problem>,
}

impl Parsed {
    pub(crate) fn failed(problem: Problem) -> Self {
        Parsed {
            tree: None,
            problems: vec![problem],
        }
    }
}

impl Tree {
    /// Reads a text. Errors: wrong syntax, a key given twice, a text that is too long or too deep.
    pub fn parse(origin: Origin, format: Format, text: &str) -> Result<Tree, Vec<Problem>> {
        let parsed = parse(origin, format, text);
        match parsed.tree {
            Some(tree) if parsed.problems.is_empty() => Ok(tree),
            _ => Err(parsed.problems),
        }
    }

    /// Lays `over` above this tree: what it says wins, key by key.
    pub fn merge(&mut self, over: Tree) {
        self.root.merge(over.root);
    }

    /// The same as TOML, to keep it; what has no value is left out.
    pub fn to_toml(&self) -> String {
        self.root.to_toml().to_string()
    }
}

/// Reads a text, going on after keys that are given twice.
pub(crate) fn parse(origin: Origin, format: Format, text: &str) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > TEXT_MAX {
        let wrong = Wrong::new(format!("longer than {} MiB", TEXT_MAX >> 20))
            .hint("split it into several files");
        return Parsed::failed(Problem::error(&Mark::whole(origin), "", wrong));
    }
    match format {
        Format::Toml => toml::parse(origin, text),
        Format::Yaml => yaml::parse(origin, text),
        Format::Json => json::parse(origin, text),
    }
}

/// A key that stands twice in one table.
fn given_twice(mark: &Mark, path: String, first: Option<&Mark>) -> Problem {
    let message = match first {
        Some(first) => format!("given twice, first in line {}", first.line),
        None => "given twice".to_owned(),
    };
    let wrong = Wrong::new(message).hint("keep one of the two");
    Problem::error(mark, path, wrong)
}

/// Tables and lists nested without end.
fn too_deep(mark: &Mark) -> Problem {
    Problem::error(
        mark,
        "",
        format!("more than {DEPTH_MAX} tables and lists inside each other"),
    )
}

/// `parent.name`, or the name alone at the top.
pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        name.to_owned()
    } else {
        format!("{parent}.{name}")
    }
}
