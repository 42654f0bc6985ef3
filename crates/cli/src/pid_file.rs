//! The file by which a server in the background is found. The server holds a lock on it for as long as it
//! lives: a file whose process is gone, or whose number another program has now, is not locked and stands
//! in nobody's way. A file that is not ours, by what it holds or by its owner, is never written or removed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use nix::fcntl::OFlag;

use crate::{process, signals};

/// More is in no file of ours.
const LENGTH_MAX: u64 = 16 << 10;
/// The last line begins so: no other program's file does.
const MARK: &str = "mainstay ";
/// A file that was removed between opening and locking is opened anew, so often at most.
const OPENED_MAX: usize = 100;
/// Neither through a link that somebody may have planted, nor for as long as a pipe has no other end.
const FLAGS: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK);

/// What a file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of the process; 0 before it has begun and once it has ended in order.
    pub(crate) pid: u32,
    /// Where it listens; empty until it does, and what it said of its end behind that.
    pub(crate) told: String,
    /// Where its log is.
    pub(crate) log: PathBuf,
    /// How it ended.
    pub(crate) code: u8,
    /// When the process began, see [`process::begun`].
    pub(crate) begun: Option<u64>,
}

impl Record {
    /// Whether the process that wrote it runs. A number alone may be that of another one by now.
    pub(crate) fn is_of_running(&self) -> bool {
        self.pid != 0 && process::begun(self.pid) == self.begun
    }

    /// Asks that very process to end. `false`: it is gone, and nobody was asked.
    pub(crate) fn end_process(&self) -> bool {
        let is_running = self.is_of_running();
        if is_running {
            signals::end(self.pid);
        }
        is_running
    }

    /// Line by line: number, address or last words, log, exit code, and the mark with the beginning.
    fn text(&self) -> String {
        let one_line = |text: &str| text.replace(['\n', '\r'], " ");
        format!(
            "{}\n{}\n{}\n{}\n{MARK}{}\n",
            self.pid,
            one_line(&self.told),
            one_line(&self.log.to_string_lossy()),
            self.code,
            self.begun.map_or("-".to_owned(), |begun| begun.to_string())
        )
    }

    /// `None`: it is not a whole record.
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let lines: Vec<&str> = text.split('\n').collect();
        let [pid, told, log, code, mark] = lines[..] else {
            return None;
        };
        let begun = match mark.strip_prefix(MARK)? {
            "-" => None,
            begun => Some(begun.parse().ok()?),
        };
        Some(Record {
            pid: pid.parse().ok()?,
            told: told.to_owned(),
            log: PathBuf::from(log),
            code: code.parse().ok()?,
            begun,
        })
    }
}

/// An open file of this kind.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    file: File,
}

impl PidFile {
    /// Takes the file for a server that is to start, or gives what its holder says, if that is whole.
    ///
    /// # Errors
    /// It cannot be made, or it is another program's or another user's.
    pub(crate) fn claim(path: &Path) -> anyhow::Result<Result<Self, Option<Record>>> {
        for _ in 0..OPENED_MAX {
            let opened = options().create(true).truncate(false).open(path);
            let held = Self::checked(path, opened.with_context(|| why_not(path))?)?;
            if !held.try_lock()? {
                return Ok(Err(held.read()?));
            }
            // Its former holder may have removed it in between; then it is nobody's.
            if held.is_in_place() {
                held.refuse_foreign()?;
                // What a dead process left is nobody's number any more.
                held.write(&Record::default())?;
                return Ok(Ok(held));
            }
        }
        bail!(
            "the pid file {} is removed again and again by another program; name another by --pid-file",
            path.display()
        )
    }

    /// The file of a server that may run; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read, which says nothing about a server, or it is another user's.
    pub(crate) fn find(path: &Path) -> anyhow::Result<Option<Self>> {
        match options().open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => Self::checked(path, opened.with_context(|| why_not(path))?).map(Some),
        }
    }

    /// The file that `start` has locked and handed over as stdin.
    ///
    /// # Errors
    /// Stdin is another file, or the lock is not held.
    pub(crate) fn adopt(path: &Path) -> anyhow::Result<Self> {
        use std::os::fd::AsFd;
        const WHOSE: &str = "--background is for `mainstay start` alone; use that";
        let file = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        ensure!(is_at(&file, path), WHOSE);
        let adopted = Self::checked(path, file)?;
        // Locked already, so that another opening does not get it; and by this one, which does.
        let other = Self::find(path)?.context(WHOSE)?;
        ensure!(!other.try_lock()? && adopted.try_lock()?, WHOSE);
        adopted.refuse_foreign()?;
        Ok(adopted)
    }

    /// One that is a plain file of this user's own.
    fn checked(path: &Path, file: File) -> anyhow::Result<Self> {
        let metadata = file.metadata();
        let metadata = metadata.with_context(|| why_not(path))?;
        check(path, &metadata, nix::unistd::geteuid().as_raw())?;
        Ok(PidFile {
            path: path.to_owned(),
            file,
        })
    }

    /// One whose reading fails.
    #[cfg(test)]
    pub(crate) fn unreadable(path: &Path) -> Self {
        PidFile {
            path: path.to_owned(),
            file: File::create(path).unwrap(),
        }
    }

    /// Refuses what another program has written. Only for a file whose lock is ours: nobody else writes then.
    ///
    /// # Errors
    /// It holds something else than a record.
    pub(crate) fn refuse_foreign(&self) -> anyhow::Result<()> {
        let bytes = self.bytes()?;
        ensure!(
            bytes.is_empty() || Record::parse(&bytes).is_some(),
            "{} is not a pid file of mainstay and stays as it is; name another file by --pid-file, or remove this one if nobody needs it",
            self.path.display()
        );
        Ok(())
    }

    /// Whether its path still leads to it.
    pub(crate) fn is_in_place(&self) -> bool {
        is_at(&self.file, &self.path)
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

    /// What it says now; `None`: nothing whole, as while it is being written.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&self) -> anyhow::Result<Option<Record>> {
        Ok(Record::parse(&self.bytes()?))
    }

    /// From its beginning, whatever another process does with the place that both share.
    fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = At(&self.file, 0).take(LENGTH_MAX).read_to_end(&mut bytes);
        read.with_context(|| format!("the pid file {} cannot be read", self.path.display()))?;
        Ok(bytes)
    }

    /// Says something else. Whoever reads meanwhile finds a part of it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, record: &Record) -> anyhow::Result<()> {
        let text = record.text();
        let written = self.file.set_len(0);
        let written = written.and_then(|()| self.file.write_all_at(text.as_bytes(), 0));
        written.with_context(|| format!("the pid file {} cannot be written", self.path.display()))
    }

    /// Leaves the last words to those who have it open, and takes it away.
    pub(crate) fn end(self, record: &Record) {
        // At the end nobody is there who could mend it; the lock goes with the process in any case.
        let _ = self.write(record);
        if self.is_in_place() {
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

/// What is read and written, and by nobody but its owner.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options.custom_flags(FLAGS.bits());
    options
}

fn why_not(path: &Path) -> String {
    let shown = path.display();
    match path.is_symlink() {
        true => format!(
            "the pid file {shown} is a symbolic link, which is not followed; name the file itself by --pid-file"
        ),
        false => format!(
            "the pid file {shown} cannot be opened; check its folder and permissions, or name another by --pid-file"
        ),
    }
}

/// Whoever writes to it says which process is signalled and who is shown a key.
fn check(path: &Path, metadata: &std::fs::Metadata, user: u32) -> anyhow::Result<()> {
    let shown = path.display();
    ensure!(
        metadata.is_file(),
        "the pid file {shown} is no plain file; name another by --pid-file"
    );
    ensure!(
        metadata.uid() == user,
        "the pid file {shown} belongs to another user (uid {}); do this as that user, or name a file of your own by --pid-file",
        metadata.uid()
    );
    ensure!(
        metadata.mode() & 0o022 == 0,
        "other users may write to the pid file {shown}; end that by `chmod go-w`, or name another by --pid-file"
    );
    Ok(())
}

/// Whether the path itself is this very file.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let place = |found: std::fs::Metadata| (found.dev(), found.ino());
    let (open, named) = (
        file.metadata().map(place),
        std::fs::symlink_metadata(path).map(place),
    );
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}

/// Reads a file from a place of its own.
struct At<'a>(&'a File, u64);

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read_at(buffer, self.1)?;
        self.1 += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
