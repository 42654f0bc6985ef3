//! The file by which a server in the background is found. The server holds a lock on it for as long as it
//! lives: a file whose process is gone, or whose number another program has now, is not locked and stands
//! in nobody's way.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// More is in no file of ours.
const LENGTH_MAX: u64 = 16 << 10;

/// What a file says, as far as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of the process; 0 once it has ended in order.
    pub(crate) pid: u32,
    /// Where it listens; empty until it does, and what it said of its end behind that.
    pub(crate) told: String,
    /// Where its log is.
    pub(crate) log: PathBuf,
    /// How it ended.
    pub(crate) code: u8,
}

impl Record {
    /// Line by line: number, address or last words, log, exit code.
    fn text(&self) -> String {
        let one_line = |text: &str| text.replace(['\n', '\r'], " ");
        format!(
            "{}\n{}\n{}\n{}\n",
            self.pid,
            one_line(&self.told),
            one_line(&self.log.to_string_lossy()),
            self.code
        )
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let mut line = || lines.next().unwrap_or_default();
        Record {
            pid: line().trim().parse().unwrap_or_default(),
            told: line().to_owned(),
            log: PathBuf::from(line()),
            code: line().parse().unwrap_or_default(),
        }
    }
}

/// An open file of this kind.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Takes the file for a server that is to start, or gives what its holder says.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn claim(path: &Path) -> anyhow::Result<Result<Self, Record>> {
        loop {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let mut held = Self::open(path, &options)?;
            if !held.try_lock()? {
                return Ok(Err(held.read()?));
            }
            // Its former holder may have removed it in between; then it is nobody's.
            if is_at(&held.file, path) {
                // What a dead process left is nobody's number any more.
                held.write(&Record::default())?;
                return Ok(Ok(held));
            }
        }
    }

    /// The file of a server that may run; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn find(path: &Path) -> anyhow::Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        Self::open(path, OpenOptions::new().read(true).write(true)).map(Some)
    }

    /// The file that `start` has locked and handed over as stdin.
    ///
    /// # Errors
    /// Stdin is another file.
    pub(crate) fn adopt(path: &Path) -> anyhow::Result<Self> {
        use std::os::fd::AsFd;
        let file = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        anyhow::ensure!(
            is_at(&file, path),
            "--background is for `mainstay start` alone; use that"
        );
        Ok(PidFile {
            path: path.to_owned(),
            file,
        })
    }

    fn open(path: &Path, options: &OpenOptions) -> anyhow::Result<Self> {
        let file = options.open(path);
        let file = file.with_context(|| {
            format!(
                "the pid file {} cannot be opened; check its folder and permissions, or name another by --pid-file",
                path.display()
            )
        })?;
        Ok(PidFile {
            path: path.to_owned(),
            file,
        })
    }

    /// Whether the lock is ours now: then no server holds it.
    ///
    /// # Errors
    /// The file system has no locks.
    pub(crate) fn try_lock(&self) -> anyhow::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error).with_context(|| {
                format!(
                    "the pid file {} cannot be locked; name one on a local disk by --pid-file",
                    self.path.display()
                )
            }),
        }
    }

    /// What it says now.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&mut self) -> anyhow::Result<Record> {
        let mut text = String::new();
        self.file.rewind()?;
        let read = (&self.file).take(LENGTH_MAX).read_to_string(&mut text);
        read.with_context(|| format!("the pid file {} cannot be read", self.path.display()))?;
        Ok(Record::parse(&text))
    }

    /// Says something else. Whoever reads meanwhile finds a part of it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&mut self, record: &Record) -> anyhow::Result<()> {
        let written = self
            .file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .and_then(|()| self.file.write_all(record.text().as_bytes()));
        written.with_context(|| format!("the pid file {} cannot be written", self.path.display()))
    }

    /// Leaves the last words to those who have it open, and takes it away.
    pub(crate) fn end(mut self, record: &Record) {
        // At the end nobody is there who could mend it; the lock goes with the process in any case.
        let _ = self.write(record);
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// The file for a process that is to hold the lock from now on.
    ///
    /// # Errors
    /// The system has no more files.
    pub(crate) fn handed_over(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }
}

/// Whether the path leads to this very file.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |found: std::fs::Metadata| (found.dev(), found.ino());
    let (open, named) = (
        file.metadata().map(place),
        std::fs::metadata(path).map(place),
    );
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            pid: 7,
            told: "http://127.0.0.1:7717".to_owned(),
            log: PathBuf::from("/tmp/a b.log"),
            code: 0,
        }
    }

    #[test]
    fn one_claim_wins_and_the_file_says_who() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pid");
        let mut first = PidFile::claim(&path).unwrap().unwrap();
        first.write(&record()).unwrap();
        assert_eq!(PidFile::claim(&path).unwrap().unwrap_err(), record());
        drop(first);
        // What a dead process left is no obstacle.
        assert!(PidFile::claim(&path).unwrap().is_ok());
    }

    #[test]
    fn the_last_words_are_for_those_who_have_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pid");
        let held = PidFile::claim(&path).unwrap().unwrap();
        let mut seen = PidFile::find(&path).unwrap().unwrap();
        assert!(!seen.try_lock().unwrap());
        let last = Record {
            pid: 0,
            code: 1,
            ..record()
        };
        held.end(&last);
        assert!(seen.try_lock().unwrap());
        assert_eq!(seen.read().unwrap(), last);
        assert!(PidFile::find(&path).unwrap().is_none());
    }

    #[test]
    fn whatever_stands_in_a_file_can_be_read() {
        for text in ["", "x", "4294967296\n", "7", "7\nu\nl\n999\n"] {
            let read = Record::parse(text);
            assert!(read.pid == 0 || read.pid == 7, "{text}: {read:?}");
        }
        assert_eq!(Record::parse(&record().text()), record());
    }
}
