//! `start`: the server in the background.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::time::{Instant, timeout_at};

use crate::client::Client;
use crate::commands::serve;
use crate::daemon;
use crate::exit::Exit;
use crate::output;
use crate::pid_file::{PidFile, Record, is_at};
use crate::signals::{self, Signals};

/// How often it looks whether the server answers.
const EVERY: Duration = Duration::from_millis(50);
/// A server that does not answer gets this long to end by itself.
const END_MAX: Duration = Duration::from_secs(5);

/// Serve in the background
///
/// Takes what `serve` takes. It comes back when the server answers, or says why it does not and shows the
/// end of its log. The server is found again by its pid file, on which it holds a lock: what a process
/// that is gone has left is no obstacle.
///
/// Of two starts with one pid file one wins; the other one says who runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay start
  mainstay start --config mainstay.toml
  mainstay start --listen 127.0.0.1:8080 --data-dir /tmp/mainstay
  mainstay status --background
  mainstay stop

Exit codes: 0 it answers; 1 one runs already, it ended, or it did not answer in time or before Ctrl-C (then
it is ended); 2 the configuration has errors.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    serve: serve::Arguments,
    /// The pid file; mainstay.pid in the data folder unless given
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Where its output and its log go, behind what is there; mainstay.log in the data folder unless given
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// How long it may take to answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    wait: u64,
}

/// Starts it.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let data_dir = match daemon::data_dir(&arguments.serve.config, &arguments.serve.data_dir) {
        Ok(folder) => folder,
        Err(exit) => return Ok(exit),
    };
    let (pid_file, log_file) = (arguments.pid_file.as_ref(), arguments.log_file.as_ref());
    let (pid_path, log_path) = daemon::files(&data_dir, pid_file, log_file);
    std::fs::create_dir_all(&data_dir).with_context(|| {
        format!(
            "the data folder {} cannot be made; check its permissions or name another by --data-dir",
            data_dir.display()
        )
    })?;
    let held = match daemon::claim(&pid_path).await? {
        Ok(held) => held,
        Err(other) => return Ok(runs_already(other.as_ref(), &pid_path)),
    };
    let read = arguments.serve.config.iter().chain([&pid_path]);
    let (log, log_begin) = open_log(&log_path, read)?;
    // Once there is a server, it is not left behind half started.
    let mut signals = Signals::with_hangup()?;
    let child = spawn(&arguments.serve, &held, &pid_path, log, &log_path)?;
    let started = Started {
        child,
        held,
        log_path,
        log_begin,
    };
    let limit = Duration::from_secs(arguments.wait);
    started.wait(limit, &mut signals).await
}

fn runs_already(other: Option<&Record>, path: &Path) -> Exit {
    let told = match other {
        None => daemon::unsaid(path),
        Some(Record { pid, told, .. }) => {
            let place = match told.as_str() {
                "" => "still starting",
                url => url,
            };
            format!(
                "a server runs already (pid {pid}, {place}); end it with `mainstay stop`, or give this one another --data-dir or --pid-file"
            )
        }
    };
    output::complain(&format!("mainstay: {told}"));
    Exit::Failed
}

/// The log and where it goes on. `read`: files that are something else.
fn open_log<'a>(
    path: &Path,
    mut read: impl Iterator<Item = &'a PathBuf>,
) -> anyhow::Result<(File, u64)> {
    let shown = path.display();
    let mut options = OpenOptions::new();
    // A pipe that nobody reads is refused at once.
    let options = options.custom_flags(OFlag::O_NONBLOCK.bits());
    let log = options.create(true).append(true).open(path);
    let log = log.with_context(|| {
        format!(
            "the log {shown} cannot be written; check its folder and permissions, or name another by --log-file"
        )
    })?;
    let metadata = log.metadata()?;
    let kind = metadata.file_type();
    ensure!(
        kind.is_file() || kind.is_char_device(),
        "the log {shown} is neither a plain file nor a device; name another by --log-file"
    );
    if let Some(other) = read.find(|other| is_at(&log, &follow(other))) {
        bail!(
            "the log {shown} is read as {} as well; name another by --log-file",
            other.display()
        );
    }
    // The server waits for a slow device instead of losing lines.
    fcntl(&log, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    Ok((log, metadata.len()))
}

/// Where a path leads to in the end.
fn follow(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The same program as `serve`. It gets the locked file as its stdin, and with it the lock.
fn spawn(
    serve: &serve::Arguments,
    held: &PidFile,
    pid_path: &Path,
    log: File,
    log_path: &Path,
) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("this program's own file is not known")?;
    let mut command = Command::new(program);
    command
        .arg("serve")
        .args(serve.given())
        .arg("--background")
        .args([pid_path, log_path])
        .stdin(Stdio::from(held.handed_over()?))
        .stdout(log.try_clone()?)
        .stderr(log);
    command.spawn().context("the server cannot be started")
}

struct Started {
    child: Child,
    held: PidFile,
    log_path: PathBuf,
    log_begin: u64,
}

/// What became of it.
enum Seen {
    /// It answers, and says so.
    Answers(Record),
    Ended(ExitStatus),
}

impl Started {
    /// Waits until it answers. On every other way out it is ended.
    async fn wait(mut self, limit: Duration, signals: &mut Signals) -> anyhow::Result<Exit> {
        let end = Instant::now() + limit;
        let seen = tokio::select! {
            seen = timeout_at(end, self.look()) => seen,
            () = signals.next() => {
                let how = self.give_up().await;
                self.complain(&format!("interrupted before the server answered; it {how}"));
                return Ok(Exit::Failed);
            }
        };
        match seen {
            Ok(Ok(Seen::Answers(record))) => {
                let log = self.log_path.display();
                output::say(&format!(
                    "Mainstay listens on {} (pid {}, log {log})",
                    record.told, record.pid
                ))?;
                Ok(Exit::Ok)
            }
            Ok(Ok(Seen::Ended(status))) => Ok(self.ended(status)),
            Ok(Err(error)) => {
                let how = self.give_up().await;
                Err(error.context(format!("it is not known how the server is, and it {how}")))
            }
            Err(_) => {
                let how = self.give_up().await;
                let limit = limit.as_secs();
                self.complain(&format!(
                    "the server did not answer within {limit} s and {how}"
                ));
                Ok(Exit::Failed)
            }
        }
    }

    async fn look(&mut self) -> anyhow::Result<Seen> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Seen::Ended(status));
            }
            let record = self.held.read()?;
            if let Some(record) = record.filter(|record| record.pid == self.child.id())
                && answers(&record.told).await
            {
                return Ok(Seen::Answers(record));
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// What it said before it ended.
    fn ended(&self, status: ExitStatus) -> Exit {
        let how = match status.code() {
            Some(_) => String::new(),
            None => format!(" ({status})"),
        };
        self.complain(&format!("the server did not start{how}"));
        match status.code() {
            Some(2) => Exit::Problems,
            Some(64) => Exit::Usage,
            _ => Exit::Failed,
        }
    }

    fn complain(&self, what: &str) {
        let tail = daemon::tail(&self.log_path, self.log_begin);
        let log = self.log_path.display();
        output::complain(&match tail.is_empty() {
            true => format!("mainstay: {what}, and nothing is in its log {log}"),
            false => format!("{tail}\nmainstay: {what}; above is the end of its log {log}"),
        });
    }

    /// A server that does not answer is not left behind. How that went.
    async fn give_up(&mut self) -> String {
        signals::end(self.child.id());
        if !self.is_gone_within(END_MAX).await {
            // It may be gone in this moment; whether it is counts.
            let _ = self.child.kill();
            if !self.is_gone_within(END_MAX).await {
                return format!("cannot be ended: see what pid {} hangs on", self.child.id());
            }
        }
        "was ended".to_owned()
    }

    async fn is_gone_within(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) => return true,
                _ if Instant::now() >= end => return false,
                _ => tokio::time::sleep(EVERY).await,
            }
        }
    }
}

/// Whether a server is there. One with TLS is asked as well, though what its certificate is for is not known here.
async fn answers(url: &str) -> bool {
    match Client::prober(url, None) {
        Ok(client) => client.alive().await.is_ok(),
        // It says where it listens only once it does.
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tempfile::TempDir;

    use super::*;

    /// A process that does nothing, and a file by which it says what a server would.
    fn started(folder: &TempDir, told: &str) -> Started {
        let path = folder.path().join("a.pid");
        let held = PidFile::claim(&path).unwrap().unwrap();
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let record = Record {
            pid: child.id(),
            told: told.to_owned(),
            begun: crate::process::begun(child.id()),
            ..Record::default()
        };
        held.write(&record).unwrap();
        Started {
            child,
            held,
            log_path: folder.path().join("a.log"),
            log_begin: 0,
        }
    }

    fn is_gone(pid: u32) -> bool {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(pid, None).is_err()
    }

    #[tokio::test]
    async fn a_server_that_takes_a_question_and_never_answers_is_ended_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let started = started(&folder, &url);
        let pid = started.child.id();
        let mut signals = Signals::with_hangup().unwrap();
        let begun = Instant::now();
        let exit = started.wait(Duration::from_millis(300), &mut signals).await;
        assert_eq!(exit.unwrap(), Exit::Failed);
        // Far less than a client waits for an answer.
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(is_gone(pid));
        // It was asked, and so it was waited for.
        listener.set_nonblocking(true).unwrap();
        listener.accept().unwrap();
    }

    #[tokio::test]
    async fn a_server_whose_file_cannot_be_read_is_not_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut started = started(&folder, "");
        started.held = PidFile::unreadable(&folder.path().join("b.pid"));
        let pid = started.child.id();
        let mut signals = Signals::with_hangup().unwrap();
        let failed = started.wait(Duration::from_secs(60), &mut signals).await;
        let failed = format!("{:#}", failed.unwrap_err());
        assert!(failed.contains("it was ended: the pid file"), "{failed}");
        assert!(is_gone(pid));
    }

    #[tokio::test]
    async fn a_process_that_does_not_heed_a_signal_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut started = started(&folder, "");
        started.child.kill().unwrap();
        started.child.wait().unwrap();
        let mut deaf = Command::new("sh");
        let deaf = deaf.args(["-c", "trap '' TERM; echo; exec sleep 60"]);
        started.child = deaf.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = started.child.stdout.take().unwrap();
        std::io::Read::read_exact(&mut said, &mut [0]).unwrap();
        let pid = started.child.id();
        let mut signals = Signals::with_hangup().unwrap();
        let exit = started.wait(Duration::from_millis(1), &mut signals).await;
        assert_eq!(exit.unwrap(), Exit::Failed);
        assert!(is_gone(pid));
    }
}
