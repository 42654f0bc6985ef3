//! The folder that all users of the testkit on this machine share: templates, port locks, servers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// A folder younger than this is left alone: its maker may not have locked it yet.
const SETTLED: Duration = Duration::from_secs(60);

/// Makes and names the shared folder of the account with this user id.
pub(crate) fn base(uid: u32) -> Result<PathBuf> {
    let base = std::env::temp_dir().join(format!("mainstay-testkit-{uid}"));
    std::fs::create_dir_all(&base).with_context(|| format!("cannot make {}", base.display()))?;
    Ok(base)
}

/// A temporary folder that nobody sweeps away while this process lives.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// Makes one whose name begins with `prefix`, and removes those that a killed process left.
    pub(crate) fn make(base: &Path, prefix: &str) -> Result<Self> {
        sweep(base, prefix);
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(base)?;
        let lock = File::open(folder.path())?;
        lock.lock()
            .with_context(|| format!("cannot lock {}", folder.path().display()))?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders whose process is gone: it was killed together with what should have cleaned up.
/// A server that still runs in one ends by itself when it misses its files.
fn sweep(base: &Path, prefix: &str) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let named = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(prefix));
        if named && is_left(&entry.path()) {
            // Another process may be sweeping it, too.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn is_left(folder: &Path) -> bool {
    let age = folder
        .metadata()
        .and_then(|it| it.modified())
        .ok()
        .and_then(|at| at.elapsed().ok());
    age.is_some_and(|age| age > SETTLED)
        && File::open(folder).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_folders_that_nobody_holds_are_swept() {
        let base = tempfile::tempdir().unwrap();
        let held = Folder::make(base.path(), "server-").unwrap();
        let [young, old, other] = ["server-young", "server-old", "other-old"].map(|name| {
            let path = base.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        });
        for path in [held.path(), &old, &other] {
            let long_ago = std::time::SystemTime::now() - 2 * SETTLED;
            File::open(path).unwrap().set_modified(long_ago).unwrap();
        }
        sweep(base.path(), "server-");
        let there = [held.path(), &young, &old, &other].map(Path::exists);
        assert_eq!(there, [true, true, false, true]);
    }
}
