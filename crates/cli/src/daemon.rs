//! Where a server in the background has its files, and how it is looked at from outside.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::exit::Exit;
use crate::pid_file::{PidFile, Record};
use crate::settings;

/// In the data folder, unless `--pid-file` says otherwise.
const PID_FILE: &str = "mainstay.pid";
/// In the data folder, unless `--log-file` says otherwise.
const LOG_FILE: &str = "mainstay.log";

/// By what a server in the background is found.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Place {
    /// A configuration file, as it was given to `start`
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// The folder for the program's files, as it was given to `start`
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<String>,
    /// The pid file; mainstay.pid in the data folder unless given
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
}

impl Place {
    /// The pid file. The configuration is read only where it is needed for that.
    pub(crate) fn pid_file(&self) -> Result<PathBuf, Exit> {
        match &self.pid_file {
            Some(file) => Ok(file.clone()),
            None => Ok(data_dir(&self.config, &self.data_dir)?.join(PID_FILE)),
        }
    }
}

/// The pid file and the log of a server that is to start.
pub(crate) fn files(
    data_dir: &Path,
    pid_file: Option<&PathBuf>,
    log_file: Option<&PathBuf>,
) -> (PathBuf, PathBuf) {
    let or = |given: Option<&PathBuf>, name| given.cloned().unwrap_or_else(|| data_dir.join(name));
    (or(pid_file, PID_FILE), or(log_file, LOG_FILE))
}

/// The data folder that the configuration names.
pub(crate) fn data_dir(files: &[PathBuf], flag: &Option<String>) -> Result<PathBuf, Exit> {
    let flags = settings::flags([("--data-dir", "server.data_dir", flag)]);
    let configuration = settings::load(settings::options(files, flags))?;
    Ok(configuration.server.data_dir)
}

/// Longer than another program looks at a file, or writes it.
const BLINK: Duration = Duration::from_millis(20);
/// A server that is being started says its number within this time.
const BEGIN_MAX: Duration = Duration::from_secs(5);

/// Who holds a pid file.
#[derive(Debug)]
pub(crate) enum Holder {
    Nobody,
    /// Somebody who does not say its number: a server that is only just starting, or another program.
    Unsaid,
    /// A server that runs now, and nobody else has its number.
    Server(PidFile, Record),
}

/// Looks who holds the file, and a while longer if that is not said at once: it may be changing hands.
///
/// # Errors
/// The file cannot be read, or is another program's or another user's.
pub(crate) async fn holder(path: &Path) -> anyhow::Result<Holder> {
    let end = Instant::now() + BEGIN_MAX;
    while Instant::now() < end {
        let Some(file) = PidFile::find(path)? else {
            return Ok(Holder::Nobody);
        };
        if file.try_lock()? {
            file.refuse_foreign()?;
            // One that was taken away meanwhile says nothing about who has come since.
            if file.is_in_place() {
                return Ok(Holder::Nobody);
            }
        } else if let Some(record) = file.read()?.filter(Record::is_of_running) {
            return Ok(Holder::Server(file, record));
        }
        drop(file);
        tokio::time::sleep(BLINK).await;
    }
    Ok(Holder::Unsaid)
}

/// What to say of a holder who does not say its number.
pub(crate) fn unsaid(path: &Path) -> String {
    format!(
        "the pid file {} is locked by a server that is only just starting, or by another program; try again, or name another by --pid-file",
        path.display()
    )
}

/// The pid file of a server that is to start, or what its holder says; `None`: it does not say who it is.
///
/// # Errors
/// It cannot be made, or it is another program's or another user's.
pub(crate) async fn claim(path: &Path) -> anyhow::Result<Result<PidFile, Option<Record>>> {
    let end = Instant::now() + BEGIN_MAX;
    loop {
        let other = match PidFile::claim(path)? {
            Ok(claimed) => return Ok(Ok(claimed)),
            Err(other) => other.filter(Record::is_of_running),
        };
        // Whoever only looks holds it for a moment, and a server that begins says its number soon.
        if other.is_some() || Instant::now() >= end {
            return Ok(Err(other));
        }
        tokio::time::sleep(BLINK).await;
    }
}

/// The last lines of a log from a place on, as much as fits an error.
pub(crate) fn tail(log: &Path, from: u64) -> String {
    const BYTES_MAX: u64 = 8 << 10;
    const LINES_MAX: usize = 15;
    let read = || {
        // Of a device there is no end to show.
        if !std::fs::metadata(log)?.is_file() {
            return Ok(String::new());
        }
        let mut file = std::fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(from.max(length.saturating_sub(BYTES_MAX))))?;
        let mut bytes = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_short_and_begins_where_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.log");
        assert_eq!(tail(&log, 0), "");
        let lines: Vec<String> = (0..2000).map(|number| format!("line {number}")).collect();
        std::fs::write(&log, lines.join("\n")).unwrap();
        assert_eq!(tail(&log, 0), lines[1985..].join("\n"));
        let length = std::fs::metadata(&log).unwrap().len();
        assert_eq!(tail(&log, length - 9), "line 1999");
        assert_eq!(tail(&log, length), "");
    }
}
