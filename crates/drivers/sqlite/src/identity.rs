//! Whether the file that was opened is still the one at its path.

use std::path::{Path, PathBuf};

/// What a path led to when the file was opened.
pub(crate) struct Identity {
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl Identity {
    /// Of the file that is there now.
    pub(crate) fn of(path: &Path) -> Self {
        // The process may change its folder later.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let file = numbers(&path);
        Identity { path, file }
    }

    /// Whether another file is there now, or none. Not seen on systems that do not number their files.
    pub(crate) fn is_gone(&self) -> bool {
        self.file.is_some() && numbers(&self.path) != self.file
    }
}

/// Device and inode, one look at the folder. The number of an open file is not given to another one.
#[cfg(unix)]
fn numbers(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn numbers(_: &Path) -> Option<(u64, u64)> {
    None
}
