//! Secrets: written as a reference to where they are kept, read when they are needed, never shown.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::connection::url;

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
    /// The password of a URL that is kept in that place.
    OfUrl(Box<Place>),
}

impl Place {
    fn reference(&self) -> Option<String> {
        match self {
            Place::Variable(name) => Some(format!("env:{name}")),
            Place::File(path) => Some(format!("file:{}", path.display())),
            Place::OfUrl(url) => url.reference(),
            Place::Literal(_) => None,
        }
    }

    fn read(&self, reader: &dyn SecretReader) -> Result<String, SecretError> {
        let value = match self {
            Place::Literal(value) => value.clone(),
            Place::Variable(name) => reader
                .variable(name)
                .ok_or_else(|| SecretError::NotSet { name: name.clone() })?,
            Place::File(path) => {
                let text = reader
                    .file(path)
                    .map_err(|source| SecretError::Unreadable {
                        path: path.clone(),
                        source,
                    })?;
                let line = text.strip_suffix('\n').unwrap_or(&text);
                line.strip_suffix('\r').unwrap_or(line).to_owned()
            }
            Place::OfUrl(place) => {
                let parts = url::parse(&place.read(reader)?).unwrap_or_default();
                let password = parts.into_iter().find(|(name, _)| name == "password");
                password.map(|(_, value)| value).unwrap_or_default()
            }
        };
        if value.is_empty() {
            let reference = self.reference().unwrap_or_else(|| "the secret".to_owned());
            return Err(SecretError::Empty { reference });
        }
        Ok(value)
    }
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

    /// The password of the URL that this secret is.
    pub(crate) fn of_url(&self) -> Secret {
        Secret {
            place: Place::OfUrl(Box::new(self.place.clone())),
            reader: Arc::clone(&self.reader),
        }
    }

    /// Reads it from where it is kept, anew each time; one line break at the end of a file does not
    /// count. Reading a file blocks for as long as the file system does. Errors: it is not there,
    /// cannot be read, or is empty.
    pub fn read(&self) -> Result<String, SecretError> {
        self.place.read(self.reader.as_ref())
    }

    /// Where it is kept, as it is written; `None` for a secret that is written out.
    pub fn reference(&self) -> Option<String> {
        self.place.reference()
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
