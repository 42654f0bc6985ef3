//! Private real MariaDB servers: on a free loopback port, in a temporary folder, ended with the value
//! that holds them.

mod cluster;
mod installation;
mod options;
mod session;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

pub use self::cluster::MariadbCluster;
pub use self::options::MariadbOptions;
pub use self::session::{MariadbSession, TextRows};
pub use crate::tls::TlsFiles;

use self::installation::Installation;
use crate::folder::{self, Folder};
use crate::port::PortLease;
use crate::supervisor::Supervisor;
use crate::{process, tls};

/// How long a server may take to answer after its start, or to be gone after its stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// A socket's path has at most about a hundred bytes.
const SOCKET_FOLDER_MAX: usize = 80;

/// One private server. Dropping it ends the server and removes its folder.
///
/// All methods take `&self`: a test that loads a server and one that kills it can share it. It has a
/// database `test`, and `root` logs in over loopback without a password.
#[derive(Debug)]
pub struct MariadbServer {
    supervisor: Mutex<Supervisor>,
    installation: Installation,
    options: Mutex<MariadbOptions>,
    tls: Option<TlsFiles>,
    port: PortLease,
    folder: Folder,
}

impl MariadbServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// MariaDB is not installed (the message names the package), or the server did not start (the
    /// message holds the end of its log).
    pub async fn start(options: MariadbOptions) -> Result<Self> {
        let server = Self::lay(options).await?;
        server.start_again().await?;
        Ok(server)
    }

    /// Makes the folder with data and configuration, starts nothing.
    async fn lay(options: MariadbOptions) -> Result<Self> {
        tokio::task::spawn_blocking(move || Self::lay_blocking(options)).await?
    }

    fn lay_blocking(options: MariadbOptions) -> Result<Self> {
        let installation = Installation::find()?;
        let account = installation.account();
        let base = folder::base(account.uid)?;
        account.own(&base)?;
        let folder = Folder::make(&base, "mariadb-server-")?;
        account.own(folder.path())?;
        if folder.path().as_os_str().len() > SOCKET_FOLDER_MAX {
            bail!(
                "{} is too long for a socket: set TMPDIR to a shorter folder",
                folder.path().display()
            );
        }
        let temporary = folder.path().join("temporary");
        std::fs::create_dir(&temporary)?;
        account.own(&temporary)?;
        installation.copy_template(&base, &folder.path().join("data"))?;
        let tls = match options.wants_tls() {
            true => Some(tls::make(account, folder.path(), "root")?),
            false => None,
        };
        let port = PortLease::take()?;
        let mut defaults = std::ffi::OsString::from("--defaults-file=");
        defaults.push(folder.path().join("my.cnf"));
        let program = [installation.server().into_os_string(), defaults];
        // Told to ABRT it would write a core; what it leaves behind goes with the folder.
        let supervisor = Supervisor::start(account, folder.path(), "KILL", &program)?;
        let server = Self {
            supervisor: Mutex::new(supervisor),
            installation,
            options: Mutex::new(options),
            tls,
            port,
            folder,
        };
        server.configure()?;
        Ok(server)
    }

    /// Writes the configuration that the next start reads.
    fn configure(&self) -> Result<()> {
        let text = self.options().configuration(&self.own_settings());
        let path = self.folder.path().join("my.cnf");
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.installation.account().own(&path)
    }

    fn own_settings(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let mut settings = vec![
            ("datadir", path("data")),
            ("port", self.port().to_string()),
            ("socket", path("socket")),
            ("pid_file", path("pid")),
            // A server that starts removes from there what it takes for leavings of its own.
            ("tmpdir", path("temporary")),
        ];
        if let Some(tls) = &self.tls {
            settings.push(("ssl_ca", tls.ca.display().to_string()));
            settings.push(("ssl_cert", tls.server_certificate.display().to_string()));
            settings.push(("ssl_key", tls.server_key.display().to_string()));
        }
        settings
    }

    /// The loopback port it listens on, the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// `mariadb://root@127.0.0.1:PORT/test`, without TLS.
    pub fn url(&self) -> String {
        format!("mariadb://root@127.0.0.1:{}/test?tls=off", self.port())
    }

    /// The certificate files, if the server offers TLS.
    pub fn tls_files(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// The folder with the server's data, log and socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id while the server runs.
    pub fn pid(&self) -> Option<i32> {
        self.supervisor().server()
    }

    /// The last part of the server's log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let from = log.len().saturating_sub(4000);
        String::from_utf8_lossy(&log[from..]).into_owned()
    }

    /// Connects as `root` to the database `test`.
    ///
    /// # Errors
    /// What the server or the network said.
    pub async fn session(&self) -> Result<MariadbSession> {
        let connected = MariadbSession::connect(self.port(), "test").await;
        connected.map_err(|problem| match self.pid() {
            // It ended by itself: its log says why.
            Some(pid) if !process::running(pid) => problem.context(self.log_tail()),
            _ => problem,
        })
    }

    /// Runs statements on a connection of their own, as `root` in the database `test`.
    ///
    /// # Errors
    /// What the server or the network said.
    pub async fn sql(&self, text: &str) -> Result<TextRows> {
        self.session().await?.sql(text).await
    }

    /// The first value of a statement as text, see [`MariadbServer::sql`].
    ///
    /// # Errors
    /// As [`MariadbServer::sql`]; no row or NULL.
    pub async fn value(&self, text: &str) -> Result<String> {
        self.session().await?.value(text).await
    }

    /// Makes a user who logs in over loopback by password and may use the database `test`.
    ///
    /// # Errors
    /// As [`MariadbServer::sql`].
    pub async fn create_user(&self, name: &str, password: &str) -> Result<()> {
        let (name, password) = (name.replace('\'', "''"), password.replace('\'', "''"));
        self.sql(&format!(
            "CREATE USER '{name}'@'127.0.0.1' IDENTIFIED BY '{password}'; \
             GRANT ALL ON test.* TO '{name}'@'127.0.0.1'"
        ))
        .await?;
        Ok(())
    }

    /// Changes a global variable of the running server.
    ///
    /// # Errors
    /// As [`MariadbServer::sql`].
    pub async fn set(&self, name: &str, value: impl std::fmt::Display) -> Result<()> {
        self.sql(&format!("SET GLOBAL {name} = {value}")).await?;
        Ok(())
    }

    /// Waits until the server answers a statement.
    ///
    /// # Errors
    /// It ended, or did not answer within 30 s; the message holds the end of its log.
    pub async fn wait_ready(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            // The server writes its pid when it takes clients.
            let problem = match self.pid_file().exists() {
                false => anyhow!("it is starting"),
                true => match self.sql("SELECT 1").await {
                    Ok(_) => return Ok(()),
                    Err(problem) => problem,
                },
            };
            if !self.pid().is_some_and(process::running) || Instant::now() > end {
                bail!("the server is not ready: {problem:#}\n{}", self.log_tail());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts the stopped or killed server again, on its port and with its data, and waits until it
    /// answers.
    ///
    /// # Errors
    /// As [`MariadbServer::start`]; it runs already.
    pub async fn start_again(&self) -> Result<()> {
        self.launch()?;
        self.wait_ready().await
    }

    fn launch(&self) -> Result<()> {
        self.supervisor().launch().map(drop)
    }

    /// Kills the server (SIGKILL), as if its machine lost power but for the disk's cache. It is gone
    /// when this returns.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill9(&self) -> Result<()> {
        self.end(Signal::SIGKILL).await
    }

    /// Stops the server as an administrator does (SIGTERM): clients are disconnected. It is gone when
    /// this returns.
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
        // Only a server that was asked to end removes it.
        let _ = std::fs::remove_file(self.pid_file());
        Ok(())
    }

    /// Makes a black hole of it: the server stops (SIGSTOP), connections are still accepted by the
    /// kernel, nothing answers.
    ///
    /// # Errors
    /// It does not run.
    pub fn sigstop(&self) -> Result<()> {
        process::stop(self.running_pid()?);
        Ok(())
    }

    /// Lets a stopped server go on (SIGCONT).
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

    fn options(&self) -> MutexGuard<'_, MariadbOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running_pid(&self) -> Result<i32> {
        self.pid()
            .context("the server does not run: start it again first")
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.path().join("pid")
    }
}
