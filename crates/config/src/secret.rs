//! Secrets: written as a reference to where they are kept, read when they are needed, never shown.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// A longer file is not a password.
const SECRET_MAX: u64 = 64 << 10;

/// Where referenced secrets are read from.
pub trait SecretReader: fmt::Debug + Send + Sync {
    /// The value of an environment variable; `None` if it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// The text of a file.
    fn file(&self, path: &Path) -> io::Result<String>;
}

/// The environment and the files of this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessSecrets;

impl SecretReader for ProcessSecrets {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        if std::fs::metadata(path)?.len() > SECRET_MAX {
            return Err(io::Error::other("longer than 64 KiB"));
        }
        std::fs::read_to_string(path)
    }
}

/// Secrets given as plain maps: for tests, and for programs that keep them elsewhere.
#[derive(Clone, Default)]
pub struct FixedSecrets {
    variables: BTreeMap<String, String>,
    files: BTreeMap<PathBuf, String>,
}

impl FixedSecrets {
    /// Adds a variable.
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Adds a file.
    pub fn with_file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(PathBuf::from(path), text.to_owned());
        self
    }
}

impl fmt::Debug for FixedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FixedSecrets")
            .field("variables", &self.variables.keys())
            .field("files", &self.files.keys())
            .finish()
    }
}

impl SecretReader for FixedSecrets {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let text = self.files.get(path).cloned();
        text.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

/// Why a secret cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The variable is not set.
    #[error("the variable {name} is not set; set it before the start")]
    NotSet {
        /// Its name.
        name: String,
    },
    /// The file cannot be read.
    #[error("{path} cannot be read; check the path and its permissions")]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("{reference} is empty; put the secret there")]
    Empty {
        /// As it is written.
        reference: String,
    },
}

/// Something that must not be seen: it shows where it is kept, never what it is. Two secrets are
/// equal if they are kept in the same place, so that a changed password alone is no changed
/// configuration: it is read again at each connect.
#[derive(Clone)]
pub struct Secret {
    place: Place,
    reader: Arc<dyn SecretReader>,
}

#[derive(Clone, PartialEq, Eq)]
enum Place {
    Variable(String),
    File(PathBuf),
    Literal(String),
    /// A part of a secret that is kept there, such as the password of a URL.
    Within(String, String),
}

impl Secret {
    /// `env:NAME` and `file:PATH` are references, anything else is the secret itself.
    pub fn new(text: &str, reader: Arc<dyn SecretReader>) -> Self {
        let place = if let Some(name) = text.strip_prefix("env:") {
            Place::Variable(name.to_owned())
        } else if let Some(path) = text.strip_prefix("file:") {
            Place::File(PathBuf::from(path))
        } else {
            Place::Literal(text.to_owned())
        };
        Secret { place, reader }
    }

    /// A part of this secret's value, kept in the same place.
    pub(crate) fn part(&self, value: String) -> Secret {
        let place = match &self.place {
            Place::Literal(_) => Place::Literal(value),
            _ => Place::Within(self.reference().unwrap_or_default(), value),
        };
        Secret {
            place,
            reader: Arc::clone(&self.reader),
        }
    }

    /// Reads it from where it is kept, anew each time; one line break at the end of a file does not
    /// count. Reading a file blocks for as long as the file system does.
    pub fn read(&self) -> Result<String, SecretError> {
        let value = match &self.place {
            Place::Literal(value) | Place::Within(_, value) => return Ok(value.clone()),
            Place::Variable(name) => self
                .reader
                .variable(name)
                .ok_or_else(|| SecretError::NotSet { name: name.clone() })?,
            Place::File(path) => {
                let text = self.reader.file(path);
                let mut text = text.map_err(|source| SecretError::Unreadable {
                    path: path.clone(),
                    source,
                })?;
                if text.ends_with('\n') {
                    text.pop();
                    if text.ends_with('\r') {
                        text.pop();
                    }
                }
                text
            }
        };
        if value.is_empty() {
            return Err(SecretError::Empty {
                reference: self.reference().unwrap_or_default(),
            });
        }
        Ok(value)
    }

    /// Where it is kept, as it is written; `None` for a secret that is written out.
    pub fn reference(&self) -> Option<String> {
        match &self.place {
            Place::Variable(name) => Some(format!("env:{name}")),
            Place::File(path) => Some(format!("file:{}", path.display())),
            Place::Within(reference, _) => Some(reference.clone()),
            Place::Literal(_) => None,
        }
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Secret {}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reference() {
            Some(reference) => write!(f, "(secret from {reference})"),
            None => f.write_str("(secret)"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
