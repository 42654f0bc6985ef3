//! Where a value was written: every problem and every line of `explain` points there.

use std::fmt;
use std::sync::Arc;

/// What a value was read from. The order is the order of problems in a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Not written anywhere: a default of the program.
    BuiltIn,
    /// A configuration file, by the name it was given under.
    File(Arc<str>),
    /// An environment variable, by its full name.
    Variable(Arc<str>),
    /// A flag of the command line, such as `--listen`.
    Flag(Arc<str>),
    /// A change by the admin API, kept in this file.
    Runtime(Arc<str>),
}

impl Origin {
    /// The origin of values of that file.
    pub fn file(name: impl Into<Arc<str>>) -> Self {
        Origin::File(name.into())
    }

    /// Whether the value came from something that a person keeps in version control, where a secret
    /// does not belong.
    pub(crate) fn is_written(&self) -> bool {
        matches!(self, Origin::File(_) | Origin::Runtime(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::BuiltIn => f.write_str("default"),
            Origin::File(name)
            | Origin::Variable(name)
            | Origin::Flag(name)
            | Origin::Runtime(name) => f.write_str(name),
        }
    }
}

/// A place in an origin. Lines and columns start at 1; 0 where the origin has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Mark {
    /// The file, variable or flag.
    pub(crate) origin: Origin,
    /// The line, from 1; 0: the origin has no lines.
    pub(crate) line: u32,
    /// The column in characters, from 1; 0: the origin has no lines.
    pub(crate) column: u32,
}

impl Mark {
    /// A place in a text.
    pub(crate) fn new(origin: Origin, line: u32, column: u32) -> Self {
        Mark {
            origin,
            line,
            column,
        }
    }

    /// The whole of an origin without lines.
    pub(crate) fn whole(origin: Origin) -> Self {
        Mark::new(origin, 0, 0)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.origin),
            line => write!(f, "{}:{line}:{}", self.origin, self.column),
        }
    }
}
