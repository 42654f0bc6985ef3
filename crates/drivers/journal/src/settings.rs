//! Where the journal is and how large it may become.

use std::path::{Path, PathBuf};

/// The journal's name in the data folder. Beside it stands its log, `jobs.sqlite3-wal`, while it is open.
pub const FILE_NAME: &str = "jobs.sqlite3";

/// 16 GiB: a thousand open requests with bodies of 10 MB, and as much again for replies that wait.
pub const LENGTH_MAX_DEFAULT: u64 = 16 << 30;

/// 1 MiB: less would not hold one ordinary request and the ids of those that ended.
pub const LENGTH_MAX_LEAST: u64 = 1 << 20;

/// Where the journal is and how large it may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSettings {
    pub(crate) path: PathBuf,
    pub(crate) length_max: u64,
}

impl JournalSettings {
    /// The file [`FILE_NAME`] in that folder, which must be there.
    pub fn within(data_dir: impl AsRef<Path>) -> Self {
        JournalSettings {
            path: data_dir.as_ref().join(FILE_NAME),
            length_max: LENGTH_MAX_DEFAULT,
        }
    }

    /// How many bytes the file may have; what would make it larger is refused as on a full disk. At least
    /// [`LENGTH_MAX_LEAST`]. Default [`LENGTH_MAX_DEFAULT`]. A file that is larger already is taken as it is.
    #[must_use]
    pub fn length_max(mut self, bytes: u64) -> Self {
        self.length_max = bytes.max(LENGTH_MAX_LEAST);
        self
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the log beside the file.
    pub(crate) fn log_path(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        path.into()
    }
}
