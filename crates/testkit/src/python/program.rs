//! One program in Python with a supervisor: what it tells as lines of JSON, what it is told, its end.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::environment::{PythonEnvironment, root};
use crate::account::Account;
use crate::folder::{self, Folder};
use crate::process;
use crate::supervisor::Supervisor;

/// How long a program may take to be gone after it was killed.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often its output is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// A program that writes more than this is not understood any more.
const OUTPUT_MAX: u64 = 256 << 20;
/// How much of the output an error shows.
const TAIL: usize = 8_000;

/// Gives the program the pipe `$1` as its standard input, which never ends.
const WITH_INPUT: &str = r#"pipe=$1; shift; exec "$@" <>"$pipe""#;

/// A program in Python that is about to be started.
#[derive(Debug, Clone)]
pub struct PythonCommand {
    words: Vec<OsString>,
    variables: Vec<OsString>,
}

impl PythonCommand {
    /// A script of this repository, by its path from the root: `examples/intersect/worker.py`.
    pub fn script(environment: &PythonEnvironment, path: &str) -> Self {
        Self {
            words: vec![
                environment.program("python").into(),
                root().join(path).into(),
            ],
            // Nothing is written beside the sources, and what is printed is there at once.
            variables: vec![
                "PYTHONDONTWRITEBYTECODE=1".into(),
                "PYTHONUNBUFFERED=1".into(),
            ],
        }
    }

    /// A program that a package of the environment brings: `moto_server`.
    pub fn program(environment: &PythonEnvironment, name: &str) -> Self {
        Self {
            words: vec![environment.program(name).into()],
            variables: vec!["PYTHONUNBUFFERED=1".into()],
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, word: impl Into<OsString>) -> Self {
        self.words.push(word.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments<Word: Into<OsString>>(
        mut self,
        words: impl IntoIterator<Item = Word>,
    ) -> Self {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment. Besides these it has `PATH` and `TMPDIR` alone.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        let mut variable = OsString::from(name);
        variable.push("=");
        variable.push(value);
        self.variables.push(variable);
        self
    }

    /// Starts the program. What it prints is read from [`PythonProgram::event`] on.
    ///
    /// # Errors
    /// The system refused.
    pub fn start(self) -> Result<PythonProgram> {
        PythonProgram::start(self)
    }
}

/// A running program. Dropping it kills it; it also ends when the test process is killed. If the test panics, all that
/// it printed is shown.
#[derive(Debug)]
pub struct PythonProgram {
    name: String,
    supervisor: Mutex<Supervisor>,
    input: File,
    /// Up to where its output has been looked through.
    heard: Mutex<u64>,
    folder: Folder,
}

impl PythonProgram {
    fn start(command: PythonCommand) -> Result<Self> {
        let account = Account::ourselves();
        let folder = Folder::make(&folder::base(account.uid)?, "python-")?;
        let pipe = folder.path().join("input");
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR)
            .with_context(|| format!("cannot make {}", pipe.display()))?;
        let input = OpenOptions::new().read(true).write(true).open(&pipe)?;
        File::create(folder.path().join("log"))?;
        let name = last_path(&command.words);
        let program = program(&pipe, command);
        let mut supervisor = Supervisor::start(account, folder.path(), "KILL", &program)?;
        supervisor.launch()?;
        Ok(Self {
            name,
            supervisor: Mutex::new(supervisor),
            input,
            heard: Mutex::new(0),
            folder,
        })
    }

    /// The process id while it has not been reaped.
    pub fn pid(&self) -> Option<i32> {
        self.supervisor().server()
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        self.pid().is_some_and(process::running)
    }

    /// Waits for the next line of JSON that fits, and gives it. Lines before it are passed over: the next call begins
    /// behind it. A call that is dropped or fails passes over what it has seen.
    ///
    /// # Errors
    /// No such line came within the limit, or the program ended before; the message holds the end of its output.
    pub async fn event(
        &self,
        within: Duration,
        what: &str,
        mut fits: impl FnMut(&Value) -> bool,
    ) -> Result<Value> {
        let end = Instant::now() + within;
        loop {
            // Asked before its output is read, so that its last words are read as well.
            let is_running = self.is_running();
            if let Some(event) = self.hear(&mut fits)? {
                return Ok(event);
            }
            if !is_running || Instant::now() >= end {
                let how = if is_running {
                    format!("not within {within:?}")
                } else {
                    "it ended".to_owned()
                };
                return Err(self.problem(&format!("{what}: {how}")));
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits for the next line of JSON whose `event` has this name, as [`PythonProgram::event`] does.
    ///
    /// # Errors
    /// As [`PythonProgram::event`].
    pub async fn named(&self, name: &str, within: Duration) -> Result<Value> {
        self.event(within, name, |event| event["event"] == name)
            .await
    }

    /// All lines of JSON so far, over all its starts, also those that were passed over.
    ///
    /// # Errors
    /// It printed more than 256 MiB.
    pub fn events(&self) -> Result<Vec<Value>> {
        Ok(self
            .lines_from(0)?
            .0
            .iter()
            .filter_map(|line| read_event(line))
            .collect())
    }

    /// All that it printed so far, over all its starts, both outputs in one.
    ///
    /// # Errors
    /// It printed more than 256 MiB.
    pub fn lines(&self) -> Result<Vec<String>> {
        Ok(self.lines_from(0)?.0)
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// The system refused.
    pub fn say(&self, line: &str) -> Result<()> {
        let mut whole = line.as_bytes().to_vec();
        whole.push(b'\n');
        (&self.input).write_all(&whole)?;
        Ok(())
    }

    /// Kills it (SIGKILL). It is gone when this returns.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill9(&self) -> Result<()> {
        process::kill_tree(self.running_pid()?);
        self.ended(PATIENCE).await.map(drop)
    }

    /// Asks it to end (SIGTERM), and waits until it has; gives its exit code, 128 and more for a signal.
    ///
    /// # Errors
    /// It does not run, or has not ended within the limit.
    pub async fn terminate(&self, within: Duration) -> Result<i32> {
        process::signal(self.running_pid()?, Signal::SIGTERM);
        self.ended(within).await
    }

    /// Waits until it ends by itself; gives its exit code, 128 and more for a signal.
    ///
    /// # Errors
    /// It was never started again since it ended, or has not ended within the limit.
    pub async fn ended(&self, within: Duration) -> Result<i32> {
        let pid = self.running_pid()?;
        let end = Instant::now() + within;
        while process::running(pid) {
            if Instant::now() > end {
                return Err(self.problem(&format!("it has not ended within {within:?}")));
            }
            sleep(LOOK_AGAIN).await;
        }
        self.supervisor().reap()
    }

    /// Starts it again with the same arguments and the same output.
    ///
    /// # Errors
    /// It runs already.
    pub fn start_again(&self) -> Result<()> {
        self.supervisor().launch().map(drop)
    }

    /// Stops it (SIGSTOP): nothing answers, connections stay.
    ///
    /// # Errors
    /// It does not run.
    pub fn sigstop(&self) -> Result<()> {
        process::stop_tree(self.running_pid()?);
        Ok(())
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// It does not run.
    pub fn sigcont(&self) -> Result<()> {
        process::continue_tree(self.running_pid()?);
        Ok(())
    }

    fn hear(&self, fits: &mut impl FnMut(&Value) -> bool) -> Result<Option<Value>> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let (lines, _) = self.lines_from(*heard)?;
        for line in lines {
            *heard += line.len() as u64 + 1;
            if let Some(event) = read_event(&line).filter(|event| fits(event)) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The whole lines from a place of its output on, and the place behind them.
    fn lines_from(&self, from: u64) -> Result<(Vec<String>, u64)> {
        let mut log = File::open(self.log())?;
        if log.metadata()?.len() > OUTPUT_MAX {
            bail!(
                "{} printed more than {OUTPUT_MAX} bytes: let it tell less",
                self.name
            );
        }
        log.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes)?;
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let text = String::from_utf8(bytes[..whole].to_vec())
            .map_err(|_| anyhow!("{} printed what is no UTF-8", self.name))?;
        let lines = text.split_terminator('\n').map(str::to_owned).collect();
        Ok((lines, from + whole as u64))
    }

    fn problem(&self, what: &str) -> anyhow::Error {
        let output = std::fs::read(self.log()).unwrap_or_default();
        let from = output.len().saturating_sub(TAIL);
        anyhow!(
            "{}: {what}\n{}",
            self.name,
            String::from_utf8_lossy(&output[from..])
        )
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn running_pid(&self) -> Result<i32> {
        self.pid()
            .with_context(|| format!("{} does not run: start it again first", self.name))
    }

    fn supervisor(&self) -> MutexGuard<'_, Supervisor> {
        self.supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PythonProgram {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let output = std::fs::read(self.log()).unwrap_or_default();
            eprintln!(
                "--- {} printed:\n{}",
                self.name,
                String::from_utf8_lossy(&output)
            );
        }
    }
}

/// The shell's words that start a command with the pipe as its input.
fn program(pipe: &Path, command: PythonCommand) -> Vec<OsString> {
    let shell = ["sh", "-c", WITH_INPUT, "python"].map(OsString::from);
    let environment = [pipe.as_os_str().to_owned(), "env".into()];
    shell
        .into_iter()
        .chain(environment)
        .chain(command.variables)
        .chain(command.words)
        .collect()
}

fn read_event(line: &str) -> Option<Value> {
    line.starts_with('{')
        .then(|| serde_json::from_str(line).ok())?
}

/// What a program is called in errors: its script, or itself.
fn last_path(words: &[OsString]) -> String {
    let word = words
        .iter()
        .take(2)
        .rfind(|word| Path::new(word).is_absolute());
    let name = word.and_then(|word| Path::new(word).file_name());
    name.map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
