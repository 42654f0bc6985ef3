//! Whether the file that was opened is still the one at its path.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How old a look at the folder may be where only reads depend on it. A look is a system call, and
/// one for each read would be a good part of what a short one costs.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a path led to when the file was opened.
pub(crate) struct Identity {
    path: PathBuf,
    file: Option<(u64, u64)>,
    opened: Instant,
    /// When it was looked at last, in nanoseconds since the opening.
    looked: AtomicU64,
    was_gone: AtomicBool,
}

impl Identity {
    /// Of the file that is there now.
    pub(crate) fn of(path: &Path) -> Self {
        // The process may change its folder later.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let file = numbers(&path);
        Identity {
            path,
            file,
            opened: Instant::now(),
            looked: AtomicU64::new(0),
            was_gone: AtomicBool::new(false),
        }
    }

    /// The same for as long as it is the same file. `None`: nobody knows.
    pub(crate) fn history(&self) -> Option<String> {
        match self.file {
            Some((device, number)) => Some(format!("{device}/{number}")),
            // Such systems keep an open file at its path.
            None if cfg!(not(unix)) => Some(self.path.to_string_lossy().into_owned()),
            None => None,
        }
    }

    /// Whether another file is there now, or none. Not seen on systems that do not number their files.
    pub(crate) fn is_gone(&self) -> bool {
        let is_gone = self.file.is_some() && numbers(&self.path) != self.file;
        self.was_gone.store(is_gone, Ordering::Release);
        self.looked.store(self.age(), Ordering::Release);
        is_gone
    }

    /// The same, as of at most [`LOOK_EVERY`] ago.
    pub(crate) fn is_gone_lately(&self) -> bool {
        let since = self
            .age()
            .saturating_sub(self.looked.load(Ordering::Acquire));
        match u128::from(since) < LOOK_EVERY.as_nanos() {
            true => self.was_gone(),
            false => self.is_gone(),
        }
    }

    /// Whether it was gone at the last look.
    pub(crate) fn was_gone(&self) -> bool {
        self.was_gone.load(Ordering::Acquire)
    }

    fn age(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX)
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
