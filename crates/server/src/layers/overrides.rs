//! Changes by the admin API as one small tree, and the file that keeps it.

use std::io;
use std::path::Path;

use mainstay_engine::redact::Redactor;
use serde_json::{Map, Value};

use super::LayersError;

/// A longer file was not written by us.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// What the file begins with.
const HEAD: &str = "# Changes by the admin API, above every other layer. Written by mainstay; remove a change by\n# DELETE /v1/admin/overrides or DELETE /v1/sources/{source}/overrides.\n\n";

/// Keys and values that were changed while running.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Overrides {
    root: Map<String, Value>,
}

impl Overrides {
    /// Reads the file; a missing one holds no changes.
    pub(super) fn read(path: &Path) -> Result<Self, LayersError> {
        let refused = |source| LayersError::File {
            path: path.to_path_buf(),
            source,
        };
        match std::fs::metadata(path) {
            // A folder that is none is told where the folder is made.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(Overrides::default());
            }
            Err(error) => return Err(refused(error)),
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
                return Err(refused(io::Error::other("longer than 4 MiB")));
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path).map_err(refused)?;
        let root = toml::from_str(&text).map_err(|error| refused(io::Error::other(error)))?;
        Ok(Overrides { root })
    }

    /// Writes the file whole or not at all; without changes it is removed.
    pub(super) fn write(&self, path: &Path) -> Result<(), LayersError> {
        let written = match self.is_empty() {
            true => remove(path),
            false => replace(path, &format!("{HEAD}{}", self.text())),
        };
        written.map_err(|source| LayersError::File {
            path: path.to_path_buf(),
            source,
        })
    }

    /// As TOML.
    pub(super) fn text(&self) -> String {
        // Only what was read as JSON without nulls is in it, which TOML can hold.
        toml::to_string(&self.root).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// The tree, for readers: without passwords.
    pub(crate) fn as_json(&self) -> Value {
        let mut shown = Value::Object(self.root.clone());
        mask(&Redactor::new(), "", &mut shown);
        shown
    }

    /// What stands at a path.
    pub(crate) fn get(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        let first = self.root.get(*first);
        rest.iter()
            .try_fold(first?, |at, step| at.as_object()?.get(*step))
    }

    /// Lays a tree over what stands at a path, key by key; `null` takes a key out.
    pub(crate) fn merge(&mut self, path: &[&str], over: Map<String, Value>) {
        let at = path.iter().fold(&mut self.root, |at, step| {
            let slot = at
                .entry((*step).to_owned())
                .or_insert_with(|| Value::Object(Map::new()));
            if !slot.is_object() {
                *slot = Value::Object(Map::new());
            }
            match slot {
                Value::Object(table) => table,
                _ => unreachable!("it was just made a table"),
            }
        });
        merge(at, over);
        prune(&mut self.root);
    }

    /// Takes out what stands at a path; with an empty path everything. Returns whether there was
    /// something.
    pub(crate) fn remove(&mut self, path: &[&str]) -> bool {
        let Some((last, above)) = path.split_last() else {
            return !std::mem::take(&mut self.root).is_empty();
        };
        let mut at = &mut self.root;
        for step in above {
            match at.get_mut(*step) {
                Some(Value::Object(table)) => at = table,
                _ => return false,
            }
        }
        let removed = at.remove(*last).is_some();
        prune(&mut self.root);
        removed
    }
}

fn merge(below: &mut Map<String, Value>, over: Map<String, Value>) {
    for (name, value) in over {
        match (below.get_mut(&name), value) {
            (_, Value::Null) => {
                below.remove(&name);
            }
            (Some(Value::Object(table)), Value::Object(over)) => merge(table, over),
            (Some(slot), value) => *slot = value,
            (None, Value::Object(over)) => {
                let mut table = Map::new();
                merge(&mut table, over);
                below.insert(name, Value::Object(table));
            }
            (None, value) => {
                below.insert(name, value);
            }
        }
    }
}

/// Takes the secrets out of what stands under a key.
fn mask(redactor: &Redactor, key: &str, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                mask(redactor, key, member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(redactor, key, item)),
        Value::String(text) if key.contains("password") => *text = "***".to_owned(),
        Value::String(text) => *text = redactor.redact(text).into_owned(),
        _ => {}
    }
}

/// Takes out tables that hold nothing.
fn prune(table: &mut Map<String, Value>) {
    table.retain(|_, value| match value {
        Value::Object(inner) => {
            prune(inner);
            !inner.is_empty()
        }
        _ => true,
    });
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes a file whole or not at all, for this user alone.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = std::path::PathBuf::from(beside);
    // What a run that was killed has left, or a link that somebody else has put there: never written through.
    remove(&beside)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    // It may hold passwords.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(beside, path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn changes_are_merged_key_by_key_and_taken_out_again() {
        let mut changes = Overrides::default();
        let path = ["sources", "a", "policy"];
        changes.merge(
            &path,
            table(json!({"circuit": {"failures": 3, "mode": "off"}})),
        );
        changes.merge(
            &path,
            table(json!({"circuit": {"mode": null}, "retry": {"delay": "1s"}})),
        );
        let expected = json!({"circuit": {"failures": 3}, "retry": {"delay": "1s"}});
        assert_eq!(changes.get(&path), Some(&expected));
        assert!(changes.remove(&["sources", "a", "policy", "circuit"]));
        assert!(!changes.remove(&["sources", "b"]));
        changes.merge(&path, table(json!({"retry": {"delay": null}})));
        assert!(changes.is_empty(), "{changes:?}");
    }

    #[test]
    fn changes_survive_in_their_file_and_the_file_goes_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runtime.toml");
        let mut changes = Overrides::read(&path).unwrap();
        changes.merge(
            &["sources", "a b"],
            table(json!({"weights": [1, 2.5, "x"], "on": true})),
        );
        changes.write(&path).unwrap();
        assert_eq!(Overrides::read(&path).unwrap(), changes);
        // A new one is written beside it, and through nothing that stands there.
        let beside = folder.path().join("runtime.toml.new");
        let other = folder.path().join("other");
        std::fs::write(&other, "somebody else's").unwrap();
        std::fs::write(&beside, "left by a run that was killed").unwrap();
        changes.write(&path).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(&other, &beside).unwrap();
        changes.write(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "somebody else's");
        assert_eq!(Overrides::read(&path).unwrap(), changes);
        assert!(changes.remove(&[]));
        changes.write(&path).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, "no toml").unwrap();
        assert!(Overrides::read(&path).is_err());
    }
}
