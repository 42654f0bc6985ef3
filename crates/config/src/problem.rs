//! Problems: everything that is wrong with a configuration, each with its place and a way out.

use std::fmt::{self, Write};

use serde::{Serialize, Serializer};

use crate::mark::{Mark, Origin};
use crate::suggestion;

/// Whether a configuration with the problem can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but somebody should look.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// One thing wrong with a configuration.
///
/// As text it is one line, `file:line:column: error: path: message (hint)`; as JSON it is an object
/// with the fields below, where a missing line, column or hint is `null`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The file, variable or flag.
    #[serde(serialize_with = "as_text")]
    pub origin: Origin,
    /// The line, from 1, where the origin has lines.
    pub line: Option<u32>,
    /// The column in characters, from 1, where the origin has lines.
    pub column: Option<u32>,
    /// The key, such as `sources.orders.policy.circuit.failures`; empty for a whole file.
    pub path: String,
    /// Whether the configuration can be used all the same.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// What to do about it, where that can be said.
    pub hint: Option<String>,
}

fn as_text<S: Serializer>(origin: &Origin, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(origin)
}

impl Problem {
    /// An error at that place.
    pub(crate) fn error(mark: &Mark, path: impl Into<String>, wrong: impl Into<Wrong>) -> Self {
        Problem::new(Severity::Error, mark, path, wrong)
    }

    fn new(
        severity: Severity,
        mark: &Mark,
        path: impl Into<String>,
        wrong: impl Into<Wrong>,
    ) -> Self {
        let Wrong { message, hint } = wrong.into();
        let known = |number: u32| (number > 0).then_some(number);
        Problem {
            origin: mark.origin.clone(),
            line: known(mark.line),
            column: known(mark.column),
            path: path.into(),
            severity,
            message,
            hint,
        }
    }

    /// Whether the configuration cannot be used because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Printable(self.origin.to_string()))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        write!(f, ": {}: ", self.severity)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", Printable(&self.path))?;
        }
        write!(f, "{}", Printable(&self.message))?;
        if let Some(hint) = &self.hint {
            write!(f, " ({})", Printable(hint))?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

/// Text of a file as it can be shown in one line of a terminal: keys may hold anything.
struct Printable<T>(T);

impl<T: AsRef<str>> fmt::Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_ref();
        if let Some((end, _)) = rest.char_indices().nth(PRINTED_MAX) {
            rest = &rest[..end];
        }
        for char in rest.chars() {
            if char.is_control() || matches!(char, '\u{2028}' | '\u{2029}') {
                write!(f, "{}", char.escape_unicode())?;
            } else {
                f.write_char(char)?;
            }
        }
        Ok(())
    }
}

/// Characters of one part of a problem; a longer key is not written by a person.
const PRINTED_MAX: usize = 1000;

/// What is wrong with a value, before it is known where the value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Wrong {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Wrong {
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The hint, unless there is already a better one.
    pub(crate) fn or_hint(self, hint: &str) -> Self {
        match self.hint {
            Some(_) => self,
            None => self.hint(hint),
        }
    }

    /// Something that is planned, but that this version does not have.
    pub(crate) fn unavailable(what: &str) -> Self {
        Wrong::new(format!("{what} is not available in this version"))
    }
}

impl From<&str> for Wrong {
    fn from(message: &str) -> Self {
        Wrong::new(message)
    }
}

impl From<String> for Wrong {
    fn from(message: String) -> Self {
        Wrong::new(message)
    }
}

/// More problems are not told: nobody reads them, and a file that is none of ours could have
/// millions.
const PROBLEMS_MAX: usize = 1000;

/// The problems found so far; a walk goes on after each.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    problems: Vec<Problem>,
    /// Where the first was that is not told.
    beyond: Option<Mark>,
}

impl Findings {
    pub(crate) fn error(&mut self, mark: &Mark, path: impl Into<String>, wrong: impl Into<Wrong>) {
        self.push(Problem::error(mark, path, wrong));
    }

    pub(crate) fn warning(
        &mut self,
        mark: &Mark,
        path: impl Into<String>,
        wrong: impl Into<Wrong>,
    ) {
        let warning = Problem::new(Severity::Warning, mark, path, wrong);
        self.push(warning);
    }

    pub(crate) fn extend(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            self.push(problem);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    fn push(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else if self.beyond.is_none() {
            let (line, column) = (problem.line.unwrap_or(0), problem.column.unwrap_or(0));
            self.beyond = Some(Mark::new(problem.origin, line, column));
        }
    }

    /// An unknown key, with the known one that was probably meant.
    pub(crate) fn unknown<'a>(
        &mut self,
        mark: &Mark,
        path: String,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) {
        if self.beyond.is_some() {
            return;
        }
        let known: Vec<&str> = known.into_iter().collect();
        let hint = match suggestion::nearest(name, known.iter().copied()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("known here: {}", known.join(", ")),
        };
        self.error(mark, path, Wrong::new("unknown key").hint(hint));
    }

    /// The value, or a note of what is wrong with it.
    pub(crate) fn take<T>(
        &mut self,
        mark: &Mark,
        path: &str,
        value: Result<T, Wrong>,
    ) -> Option<T> {
        value.map_err(|wrong| self.error(mark, path, wrong)).ok()
    }

    /// All of them in the order of files and lines, each once: several endpoints may meet the same
    /// mistake of a layer that they share.
    pub(crate) fn into_sorted(mut self) -> Vec<Problem> {
        self.problems.sort();
        self.problems.dedup();
        if let Some(mark) = self.beyond {
            let wrong = Wrong::new(format!("more than {PROBLEMS_MAX} problems"));
            let wrong = wrong.hint("the rest is not told; begin with the first");
            self.problems.push(Problem::error(&mark, "", wrong));
        }
        self.problems
    }
}
