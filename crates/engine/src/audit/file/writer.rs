//! The files themselves. Everything here blocks.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::civil::Date;
use jiff::tz::Offset;

use super::FileProblem;
use crate::audit::AuditEntry;

/// The folder and the day that is open.
pub(super) struct Files {
    dir: PathBuf,
    day: Option<Day>,
}

struct Day {
    date: Date,
    path: PathBuf,
    file: File,
    /// How long the file is up to its last whole line.
    length: u64,
}

impl Files {
    pub(super) fn new(dir: PathBuf) -> Self {
        Files { dir, day: None }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn problem(&self, path: &Path, reason: &dyn Display) -> FileProblem {
        FileProblem {
            path: path.to_path_buf(),
            reason: reason.to_string(),
        }
    }

    /// Appends entries, each to the file of the day on which its call began. Returns how many are in
    /// the files, from the first on; a line is there whole or not at all.
    pub(super) fn append(&mut self, entries: &[Arc<AuditEntry>]) -> (usize, Option<FileProblem>) {
        let mut written = 0;
        for same_day in entries.chunk_by(|a, b| date_of(a) == date_of(b)) {
            if let Err(problem) = self.append_to_day(date_of(&same_day[0]), same_day) {
                return (written, Some(problem));
            }
            written += same_day.len();
        }
        (written, None)
    }

    fn append_to_day(
        &mut self,
        date: Date,
        entries: &[Arc<AuditEntry>],
    ) -> Result<(), FileProblem> {
        let mut lines = Vec::with_capacity(entries.len() * 512);
        for entry in entries {
            let whole = lines.len();
            // Texts and numbers only: nothing in an entry can fail to be written as JSON.
            if serde_json::to_writer(&mut lines, entry.as_ref()).is_err() {
                lines.truncate(whole);
                continue;
            }
            lines.push(b'\n');
        }
        let mut day = self.day_of(date)?;
        let result = day.file.write_all(&lines);
        match result {
            Ok(()) => {
                day.length += lines.len() as u64;
                self.day = Some(day);
                Ok(())
            }
            Err(error) => {
                // Takes a torn line back; if not even that works, the next opening ends it.
                let _ = day.file.set_len(day.length);
                Err(self.problem(&day.path, &error))
            }
        }
    }

    /// The open day if it is this one and its file is still in place; else opens it.
    fn day_of(&mut self, date: Date) -> Result<Day, FileProblem> {
        if let Some(day) = self.day.take()
            && day.date == date
            && day.path.exists()
        {
            return Ok(day);
        }
        fs::create_dir_all(&self.dir).map_err(|error| self.problem(&self.dir, &error))?;
        let path = self.dir.join(format!("audit-{date}.jsonl"));
        let opened = open(&path);
        let (file, length) = opened.map_err(|error| self.problem(&path, &error))?;
        Ok(Day {
            date,
            path,
            file,
            length,
        })
    }

    /// Waits until the disk has everything.
    pub(super) fn sync(&mut self) -> Result<(), FileProblem> {
        match &self.day {
            Some(day) => {
                let synced = day.file.sync_data();
                synced.map_err(|error| self.problem(&day.path, &error))
            }
            None => Ok(()),
        }
    }
}

/// Opens for appending, for the owner's eyes only. A line that a crash left torn is ended.
fn open(path: &Path) -> std::io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let mut length = file.metadata()?.len();
    if length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            length += 1;
        }
    }
    Ok((file, length))
}

fn date_of(entry: &AuditEntry) -> Date {
    Offset::UTC.to_datetime(entry.started).date()
}
