//! Keys of tables: what each is called, what it means, how it is read, and where it was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::connection::Reading;
use crate::mark::Mark;
use crate::problem::{Findings, Wrong};
use crate::secret::SecretReader;
use crate::source::table;
use crate::tree::{Entry, Node, Table, join};

/// A key of a table that is read into a `T`.
pub(crate) struct Field<T> {
    pub(crate) name: &'static str,
    pub(crate) example: &'static str,
    pub(crate) doc: &'static str,
    /// From where to where, for a reader; empty where it has no bounds.
    pub(crate) bounds: &'static str,
    set: Set<T>,
    /// Problems point into the value instead of at the key: it is a text with a form of its own.
    is_text: bool,
}

type Set<T> = fn(&mut T, Value<'_>) -> Result<(), Wrong>;

/// The value of a key, and what reading it needs.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    pub(crate) node: &'a Node,
    /// Where the key stands.
    pub(crate) mark: &'a Mark,
    /// The whole path of the key.
    pub(crate) path: &'a str,
    pub(crate) secrets: &'a Arc<dyn SecretReader>,
}

impl<T> Field<T> {
    pub(crate) const fn new(
        name: &'static str,
        example: &'static str,
        doc: &'static str,
        set: Set<T>,
    ) -> Self {
        Field {
            name,
            example,
            doc,
            bounds: "",
            set,
            is_text: false,
        }
    }

    /// With the bounds that the reference names.
    pub(crate) const fn bounds(self, bounds: &'static str) -> Self {
        Field { bounds, ..self }
    }

    /// A text in which problems have a place.
    pub(crate) const fn with_place(self) -> Self {
        let is_text = true;
        Field { is_text, ..self }
    }
}

/// Puts what was read where it belongs.
pub(crate) fn put<T>(slot: &mut T, value: Result<T, Wrong>) -> Result<(), Wrong> {
    *slot = value?;
    Ok(())
}

/// The same for what may be missing.
pub(crate) fn some<T>(slot: &mut Option<T>, value: Result<T, Wrong>) -> Result<(), Wrong> {
    *slot = Some(value?);
    Ok(())
}

/// Where the keys of one service stand, by their paths within it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks(BTreeMap<String, Mark>);

impl Marks {
    /// Where exactly that key stands.
    pub(crate) fn get(&self, path: &str) -> Option<&Mark> {
        self.0.get(path)
    }

    /// Whether the key was written, be its value right or wrong.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    pub(crate) fn note(&mut self, path: &str, mark: &Mark) {
        self.0.insert(path.to_owned(), mark.clone());
    }

    /// Where the key stands, else the nearest table around it that is written.
    pub(crate) fn near<'a>(&'a self, path: &str, whole: &'a Mark) -> &'a Mark {
        let mut path = path;
        loop {
            match (self.0.get(path), path.rfind(['.', '['])) {
                (Some(mark), _) => return mark,
                (None, Some(end)) => path = &path[..end],
                (None, None) => return whole,
            }
        }
    }
}

/// Reads the tables of one service.
pub(crate) struct Reader<'a, 'b> {
    /// The path of the service.
    pub(crate) base: &'a str,
    pub(crate) marks: Marks,
    pub(crate) reading: &'a mut Reading<'b>,
}

impl Reader<'_, '_> {
    pub(crate) fn findings(&mut self) -> &mut Findings {
        self.reading.findings
    }

    /// The whole path of a key of the service.
    pub(crate) fn path(&self, at: &str) -> String {
        match at {
            "" => self.base.to_owned(),
            at => join(self.base, at),
        }
    }

    /// The table in an entry; anything else is a problem, nothing at all an empty table.
    pub(crate) fn table<'t>(&mut self, at: &str, entry: &'t Entry) -> Option<&'t Table> {
        self.marks.note(at, &entry.mark);
        table(&self.path(at), entry, self.reading.findings)
    }

    /// Reads every key of a table that is among the fields. Those in `others` are read elsewhere; all
    /// the rest are unknown.
    pub(crate) fn fields<T>(
        &mut self,
        (fields, others): (&[Field<T>], &[&str]),
        at: &str,
        table: &Table,
        draft: &mut T,
    ) {
        for (name, entry) in table.iter() {
            let at = join(at, name);
            match fields.iter().find(|field| field.name == name) {
                Some(field) => self.field(field, &at, entry, draft),
                None if others.contains(&name) => {}
                None => {
                    let known = fields.iter().map(|field| field.name);
                    let known = known.chain(others.iter().copied());
                    let path = self.path(&at);
                    self.findings().unknown(&entry.mark, path, name, known);
                }
            }
        }
    }

    fn field<T>(&mut self, field: &Field<T>, at: &str, entry: &Entry, draft: &mut T) {
        self.marks.note(at, &entry.mark);
        let path = self.path(at);
        let value = Value {
            node: &entry.node,
            mark: &entry.mark,
            path: &path,
            secrets: self.reading.secrets,
        };
        let set = (field.set)(draft, value).map_err(|wrong| wrong.or_hint(field.doc));
        let mark = match field.is_text {
            true => &entry.node.mark,
            false => &entry.mark,
        };
        self.findings().take(mark, &path, set);
    }
}
