//! Keys that were made over HTTP: kept in `data_dir/keys.json`, by their hashes alone.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use mainstay_config::{KeyRole, KeySettings};
use serde::{Deserialize, Serialize};

use crate::http::StartError;
use crate::layers::replace;

/// The file that keeps them, in the data folder.
const FILE: &str = "keys.json";
/// As many keys as may be made, with as many sources and as long names as each may have, take half of it. A
/// longer file was not written by us.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Keys that may be made; each request looks at all of them.
pub(crate) const KEYS_MAX: usize = 1000;

/// Keys by id.
pub(crate) type Keys = BTreeMap<String, KeySettings>;

/// The keys that were made over HTTP.
pub(crate) struct Keyring {
    path: PathBuf,
    keys: ArcSwap<Keys>,
}

/// The file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    keys: BTreeMap<String, KeptKey>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptKey {
    sha256: String,
    role: String,
    sources: Vec<String>,
    rate: Option<u32>,
}

impl Keyring {
    /// Reads the file; a missing one holds no keys. Blocks on the disk.
    ///
    /// # Errors
    /// With the path of a file that cannot be read, or is none of ours: whoever has a key in it must not
    /// find the doors open, or closed, for that.
    pub(crate) fn read(data_dir: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let path = data_dir.join(FILE);
        match read(&path) {
            Ok(keys) => Ok(Keyring {
                path,
                keys: ArcSwap::from_pointee(keys),
            }),
            Err(error) => Err((path, error)),
        }
    }

    /// The same, off the threads that serve.
    pub(crate) async fn load(data_dir: &Path) -> Result<Self, StartError> {
        let folder = data_dir.to_path_buf();
        let read = tokio::task::spawn_blocking(move || Keyring::read(&folder)).await;
        let read = read.unwrap_or_else(|error| Err((data_dir.join(FILE), error.into())));
        read.map_err(|(path, source)| StartError::Keys { path, source })
    }

    /// One without keys, whatever the file holds.
    pub(crate) fn none(data_dir: &Path) -> Self {
        Keyring {
            path: data_dir.join(FILE),
            keys: ArcSwap::default(),
        }
    }

    /// The keys as they are now.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        self.keys.load_full()
    }

    /// Writes other keys down, then puts them in force. On an error nothing has changed. One at a time.
    pub(crate) async fn exchange(&self, keys: Keys) -> io::Result<()> {
        let (path, text) = (self.path.clone(), text(&keys)?);
        let written = tokio::task::spawn_blocking(move || replace(&path, &text));
        written.await.map_err(io::Error::other)??;
        self.keys.store(Arc::new(keys));
        Ok(())
    }
}

fn text(keys: &Keys) -> io::Result<String> {
    let keys = keys.iter().map(|(id, key)| {
        let kept = KeptKey {
            sha256: key
                .sha256
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            role: key.role.as_str().to_owned(),
            sources: key.sources.clone(),
            rate: key.rate,
        };
        (id.clone(), kept)
    });
    let kept = Kept {
        keys: keys.collect(),
    };
    serde_json::to_string_pretty(&kept).map_err(io::Error::other)
}

fn read(path: &Path) -> io::Result<Keys> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        // A data folder that is none is told where it is made.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Keys::new());
        }
        Err(error) => return Err(error),
    };
    if found.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("longer than 16 MiB"));
    }
    let kept: Kept = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let keys = kept.keys.into_iter().map(|(id, key)| {
        let settings = settings(key).ok_or_else(|| {
            io::Error::other(format!("the key {id:?} has no role or hash that there is"))
        })?;
        Ok((id, settings))
    });
    keys.collect()
}

fn settings(kept: KeptKey) -> Option<KeySettings> {
    if kept.sha256.len() != 64 || !kept.sha256.is_ascii() || kept.sources.is_empty() {
        return None;
    }
    let mut sha256 = [0; 32];
    for (index, byte) in sha256.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&kept.sha256[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(KeySettings {
        sha256,
        role: KeyRole::parse(&kept.role)?,
        sources: kept.sources,
        rate: kept.rate.filter(|rate| *rate > 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_keys_as_may_be_made_fit_into_the_file() {
        // As the routes bound them: the file's own bound must be above.
        let longest = |number: usize| format!("{number:0>64}");
        let key = KeySettings {
            sha256: [0xab; 32],
            role: KeyRole::Write,
            sources: (0..100).map(longest).collect(),
            rate: Some(1_000_000),
        };
        let keys: Keys = (0..KEYS_MAX).map(|it| (longest(it), key.clone())).collect();
        let bytes = text(&keys).unwrap().len() as u64;
        assert!(bytes <= FILE_BYTES_MAX, "{bytes}");
    }

    #[tokio::test]
    async fn keys_survive_in_their_file_and_a_file_that_is_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let ring = Keyring::read(folder.path()).unwrap();
        assert!(ring.keys().is_empty());
        let key = KeySettings {
            sha256: [0xab; 32],
            role: KeyRole::Write,
            sources: vec!["orders".to_owned()],
            rate: Some(7),
        };
        let keys = Keys::from([("ci".to_owned(), key)]);
        ring.exchange(keys.clone()).await.unwrap();
        assert_eq!(*Keyring::read(folder.path()).unwrap().keys(), keys);
        let path = folder.path().join(FILE);
        for wrong in [
            "no json",
            "{}",
            r#"{"keys": {"a": {"sha256": "ab", "role": "read", "sources": ["*"], "rate": null}}}"#,
            r#"{"keys": [], "more": 1}"#,
        ] {
            std::fs::write(&path, wrong).unwrap();
            assert!(Keyring::read(folder.path()).is_err(), "{wrong}");
        }
        // What cannot be written changes nothing.
        let gone = Keyring::read(&folder.path().join("none")).unwrap();
        assert!(gone.exchange(keys).await.is_err());
        assert!(gone.keys().is_empty());
    }
}
