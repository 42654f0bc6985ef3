//! Private real mosquitto brokers: on a free loopback port, in a temporary folder, ended with the value
//! that holds them.

mod options;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::Signal;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

pub use self::options::{MosquittoOptions, PASSWORD, USER};

use crate::account::{Account, on_path, run};
use crate::folder::{self, Folder};
use crate::port::PortLease;
use crate::process;
use crate::supervisor::Supervisor;

const INSTALL: &str = "install mosquitto 2.0 or later (Debian: apt-get install mosquitto)";

/// How long a broker may take to answer after its start, or to be gone after its stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// One private broker. Dropping it ends the broker and removes its folder.
///
/// All methods take `&self`: a test that loads a broker and one that kills it can share it. It knows
/// one user, [`USER`] with [`PASSWORD`], and refuses everybody else. Sessions and their messages are
/// kept over a restart: see [`MosquittoOptions`] for when they are written.
#[derive(Debug)]
pub struct Mosquitto {
    supervisor: Mutex<Supervisor>,
    account: Account,
    options: Mutex<MosquittoOptions>,
    port: PortLease,
    folder: Folder,
}

impl Mosquitto {
    /// Starts a broker and waits until it takes clients.
    ///
    /// # Errors
    /// mosquitto is not installed (the message names the package), or the broker did not start (the
    /// message holds the end of its log).
    pub async fn start(options: MosquittoOptions) -> Result<Self> {
        let broker = tokio::task::spawn_blocking(move || Self::lay(options)).await??;
        broker.start_again().await?;
        Ok(broker)
    }

    /// Makes the folder with the configuration, starts nothing. Blocks.
    fn lay(options: MosquittoOptions) -> Result<Self> {
        let program = find("mosquitto")?;
        let account = Account::find(&["mosquitto", "nobody"], INSTALL)?;
        let base = folder::base(account.uid)?;
        account.own(&base)?;
        let folder = Folder::make(&base, "mosquitto-")?;
        account.own(folder.path())?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        account.own(&data)?;
        let port = PortLease::take()?;
        let mut command = vec![program.into_os_string()];
        command.push("-c".into());
        command.push(folder.path().join("mosquitto.conf").into_os_string());
        let supervisor = Supervisor::start(account, folder.path(), "KILL", &command)?;
        let broker = Self {
            supervisor: Mutex::new(supervisor),
            account,
            options: Mutex::new(options),
            port,
            folder,
        };
        broker.write_passwords()?;
        broker.configure()?;
        Ok(broker)
    }

    fn write_passwords(&self) -> Result<()> {
        let path = self.folder.path().join("passwords");
        std::fs::write(&path, self.options().passwords())?;
        self.account.own(&path)?;
        // It replaces the plain ones by their hashes.
        let program = find("mosquitto_passwd")?;
        run(self.account.command(program).arg("-U").arg(&path))
    }

    /// Writes the configuration that the next start reads.
    fn configure(&self) -> Result<()> {
        let path = self.folder.path().join("mosquitto.conf");
        let text = self
            .options()
            .configuration(self.port(), self.folder.path());
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.account.own(&path)
    }

    /// Changes a line of the configuration, for the next start.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&self, name: &str, value: impl ToString) -> Result<()> {
        self.options().set(name, value);
        self.configure()
    }

    /// The loopback port it listens on, the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// The folder with the broker's configuration, data and log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id while the broker runs.
    pub fn pid(&self) -> Option<i32> {
        self.supervisor().server()
    }

    /// The last part of the broker's log: it names each client that came and went, and why.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let from = log.len().saturating_sub(8000);
        String::from_utf8_lossy(&log[from..]).into_owned()
    }

    /// Starts the stopped or killed broker again, on its port and with its data, and waits until it
    /// takes clients.
    ///
    /// # Errors
    /// As [`Mosquitto::start`]; it runs already.
    pub async fn start_again(&self) -> Result<()> {
        self.supervisor().launch()?;
        let end = Instant::now() + PATIENCE;
        loop {
            let problem = match TcpStream::connect(("127.0.0.1", self.port())).await {
                Ok(_) => return Ok(()),
                Err(problem) => problem,
            };
            if !self.pid().is_some_and(process::running) || Instant::now() > end {
                bail!("the broker is not ready: {problem}\n{}", self.log_tail());
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Writes sessions and messages to the disk now, as the broker does by itself when it is stopped.
    ///
    /// # Errors
    /// It does not run, or had not written them within 30 s.
    pub async fn save(&self) -> Result<()> {
        let before = self.saved_at();
        process::signal(self.running_pid()?, Signal::SIGUSR1);
        let end = Instant::now() + PATIENCE;
        while self.saved_at() == before {
            if Instant::now() > end {
                return Err(anyhow!(
                    "not saved within {PATIENCE:?}\n{}",
                    self.log_tail()
                ));
            }
            sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    fn saved_at(&self) -> Option<SystemTime> {
        let saved = self.folder.path().join("data/mosquitto.db").metadata();
        saved.and_then(|file| file.modified()).ok()
    }

    /// Kills the broker (SIGKILL): what it had not written to its file is lost. It is gone when this
    /// returns.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill9(&self) -> Result<()> {
        self.end(Signal::SIGKILL).await
    }

    /// Stops the broker as an administrator does (SIGTERM): clients are disconnected, sessions and
    /// messages written. It is gone when this returns.
    ///
    /// # Errors
    /// It does not run, or did not end within 30 s.
    pub async fn stop(&self) -> Result<()> {
        self.end(Signal::SIGTERM).await
    }

    async fn end(&self, signal: Signal) -> Result<()> {
        let pid = self.running_pid()?;
        process::signal(pid, signal);
        let end = Instant::now() + PATIENCE;
        while process::running(pid) {
            if Instant::now() > end {
                bail!(
                    "process {pid} has not ended within {PATIENCE:?}\n{}",
                    self.log_tail()
                );
            }
            sleep(Duration::from_millis(2)).await;
        }
        self.supervisor().reap()?;
        Ok(())
    }

    /// Makes a black hole of it: the broker stops (SIGSTOP), connections are still accepted by the
    /// kernel, nothing answers.
    ///
    /// # Errors
    /// It does not run.
    pub fn sigstop(&self) -> Result<()> {
        process::stop(self.running_pid()?);
        Ok(())
    }

    /// Lets a stopped broker go on (SIGCONT).
    ///
    /// # Errors
    /// It does not run.
    pub fn sigcont(&self) -> Result<()> {
        process::signal(self.running_pid()?, Signal::SIGCONT);
        Ok(())
    }

    fn supervisor(&self) -> MutexGuard<'_, Supervisor> {
        self.supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn options(&self) -> MutexGuard<'_, MosquittoOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running_pid(&self) -> Result<i32> {
        self.pid()
            .context("the broker does not run: start it again first")
    }
}

/// Debian keeps the broker off the path of ordinary users.
fn find(program: &str) -> Result<PathBuf> {
    let debian = Path::new("/usr/sbin").join(program);
    match debian.exists() {
        true => Ok(debian),
        false => Ok(on_path(program)
            .with_context(|| format!("found no `{program}`: {INSTALL}"))?
            .join(program)),
    }
}
