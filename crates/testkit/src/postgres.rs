//! Private real PostgreSQL servers: on a free loopback port, in a temporary folder, ended with the
//! value that holds them.

mod cluster;
mod installation;
mod options;
mod session;
mod template;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

pub use self::cluster::PostgresCluster;
pub use self::options::PostgresOptions;
pub use self::session::{Session, TextRows};
pub use crate::tls::TlsFiles;

use self::installation::Installation;
use crate::account::run;
use crate::folder::{self, Folder};
use crate::port::PortLease;
use crate::supervisor::Supervisor;
use crate::{process, tls};

/// How long a server may take to answer after its start, or to be gone after its stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// Sockets have short paths: about a hundred bytes.
const SOCKET_FOLDER_MAX: usize = 80;

/// One private server. Dropping it ends the server and removes its folder.
///
/// All methods take `&self`: a test that loads a server and one that kills it can share it.
#[derive(Debug)]
pub struct PostgresServer {
    supervisor: Mutex<Supervisor>,
    installation: Installation,
    tls: Option<TlsFiles>,
    port: PortLease,
    folder: Folder,
}

impl PostgresServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// PostgreSQL is not installed (the message names the package), or the server did not start
    /// (the message holds the end of its log).
    pub async fn start(options: PostgresOptions) -> Result<Self> {
        let server = Self::lay(options).await?;
        server.start_again().await?;
        Ok(server)
    }

    /// Makes the folder with data and configuration, starts nothing.
    async fn lay(options: PostgresOptions) -> Result<Self> {
        tokio::task::spawn_blocking(move || Self::lay_blocking(&options)).await?
    }

    fn lay_blocking(options: &PostgresOptions) -> Result<Self> {
        let installation = Installation::find()?;
        let account = installation.account();
        let base = folder::base(account.uid)?;
        account.own(&base)?;
        let folder = Folder::make(&base, "server-")?;
        account.own(folder.path())?;
        let data = folder.path().join("data");
        if options.wants_own_identity() {
            template::init(&installation, &data)?;
        } else {
            let template = template::template(&installation, &base)?;
            template::copy(&installation, &template, &data)?;
        }
        let tls = match options.wants_tls() {
            true => Some(tls::make(account, folder.path(), "postgres")?),
            false => None,
        };
        let port = PortLease::take()?;
        let program = [
            installation.program("postgres").into_os_string(),
            "-D".into(),
            data.into_os_string(),
        ];
        // A postmaster told to QUIT removes its shared memory, and kills by itself children that do not
        // end within five seconds.
        let supervisor = Supervisor::start(account, folder.path(), "QUIT", &program)?;
        let supervisor = Mutex::new(supervisor);
        let server = Self {
            supervisor,
            installation,
            tls,
            port,
            folder,
        };
        server.write(
            "postgresql.conf",
            &options.configuration(&server.own_settings()),
        )?;
        server.write("pg_hba.conf", &options.access_rules())?;
        Ok(server)
    }

    fn own_settings(&self) -> Vec<(&'static str, String)> {
        let folder = self.folder.path().display().to_string();
        let sockets = if folder.len() > SOCKET_FOLDER_MAX {
            String::new()
        } else {
            folder
        };
        let mut settings = vec![
            ("port", self.port().to_string()),
            ("unix_socket_directories", sockets),
        ];
        if let Some(tls) = &self.tls {
            settings.push(("ssl", "on".to_owned()));
            settings.push(("ssl_ca_file", tls.ca.display().to_string()));
            settings.push((
                "ssl_cert_file",
                tls.server_certificate.display().to_string(),
            ));
            settings.push(("ssl_key_file", tls.server_key.display().to_string()));
        }
        settings
    }

    /// The loopback port it listens on, the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// `postgres://postgres@127.0.0.1:PORT/database`, for the superuser and without TLS.
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable",
            self.port()
        )
    }

    /// The certificate files, if the server offers TLS.
    pub fn tls_files(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// The folder with the server's data, log and sockets.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id of the postmaster while the server runs.
    pub fn pid(&self) -> Option<i32> {
        self.supervisor().server()
    }

    /// The last part of the server's log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let from = log.len().saturating_sub(4000);
        String::from_utf8_lossy(&log[from..]).into_owned()
    }

    /// Connects as the superuser to the database `postgres`.
    ///
    /// # Errors
    /// What the server or the network said.
    pub async fn session(&self) -> Result<Session> {
        Session::connect(&self.url("postgres")).await
    }

    /// Runs statements on a connection of their own, as the superuser in the database `postgres`.
    ///
    /// # Errors
    /// What the server or the network said.
    pub async fn sql(&self, text: &str) -> Result<TextRows> {
        self.session().await?.sql(text).await
    }

    /// The first value of a statement as text, see [`PostgresServer::sql`].
    ///
    /// # Errors
    /// As [`PostgresServer::sql`]; no row or NULL.
    pub async fn value(&self, text: &str) -> Result<String> {
        self.session().await?.value(text).await
    }

    /// Makes a user who logs in by password (SCRAM). It is asked for one only where a line of
    /// [`PostgresOptions::access`] says so.
    ///
    /// # Errors
    /// As [`PostgresServer::sql`].
    pub async fn create_user(&self, name: &str, password: &str) -> Result<()> {
        let (name, password) = (name.replace('"', "\"\""), password.replace('\'', "''"));
        self.sql(&format!(
            "CREATE ROLE \"{name}\" LOGIN PASSWORD '{password}'"
        ))
        .await?;
        Ok(())
    }

    /// Changes settings of a running server without a restart.
    ///
    /// # Errors
    /// As [`PostgresServer::sql`].
    pub async fn set(&self, name: &str, value: &str) -> Result<()> {
        let session = self.session().await?;
        let value = value.replace('\'', "''");
        session
            .sql(&format!("ALTER SYSTEM SET {name} = '{value}'"))
            .await?;
        session.sql("SELECT pg_reload_conf()").await?;
        Ok(())
    }

    /// Waits until the server answers a statement.
    ///
    /// # Errors
    /// It ended, or did not answer within 30 s; the message holds the end of its log.
    pub async fn wait_ready(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let problem = match self.says_ready() {
                // A question to a server that is not ready costs it a process.
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

    /// Whether the running server has written that it accepts clients.
    fn says_ready(&self) -> bool {
        let text = std::fs::read_to_string(self.lock_file()).unwrap_or_default();
        let mut lines = text.lines();
        let pid = lines.next().and_then(|pid| pid.parse().ok());
        let state = lines.nth(6).unwrap_or_default().trim();
        pid == self.pid() && matches!(state, "ready" | "standby")
    }

    /// Starts the stopped or killed server again, on its port and with its data, and waits until it
    /// answers.
    ///
    /// # Errors
    /// As [`PostgresServer::start`]; it runs already.
    pub async fn start_again(&self) -> Result<()> {
        self.launch()?;
        self.wait_ready().await
    }

    fn launch(&self) -> Result<()> {
        self.supervisor().launch().map(drop)
    }

    /// Kills the server with all its backends (SIGKILL), as if its machine lost power but for the
    /// disk's cache, and removes what such an end leaves behind. It is gone when this returns.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill9(&self) -> Result<()> {
        let pid = self.running_pid()?;
        for pid in process::kill_tree(pid) {
            self.wait_gone(pid).await?;
        }
        self.supervisor().reap()?;
        self.remove_leftovers();
        Ok(())
    }

    /// Stops the server as an administrator does (SIGINT, "fast"): clients are disconnected. It is
    /// gone when this returns.
    ///
    /// # Errors
    /// It does not run, or did not end within 30 s.
    pub async fn stop_fast(&self) -> Result<()> {
        let pid = self.running_pid()?;
        process::signal(pid, Signal::SIGINT);
        self.wait_gone(pid).await?;
        self.supervisor().reap()?;
        Ok(())
    }

    /// Makes a black hole of it: the server and all its backends stop (SIGSTOP), connections are
    /// still accepted by the kernel, nothing answers.
    ///
    /// # Errors
    /// It does not run.
    pub fn sigstop(&self) -> Result<()> {
        process::stop_tree(self.running_pid()?);
        Ok(())
    }

    /// Lets a stopped server go on (SIGCONT).
    ///
    /// # Errors
    /// It does not run.
    pub fn sigcont(&self) -> Result<()> {
        process::continue_tree(self.running_pid()?);
        Ok(())
    }

    /// Promotes a standby and waits until it has become a primary.
    ///
    /// # Errors
    /// It is no standby, or was not promoted within 30 s.
    pub async fn promote(&self) -> Result<()> {
        match self.value("SELECT pg_promote(true, 30)").await?.as_str() {
            "t" => Ok(()),
            _ => bail!(
                "the server was not promoted within 30 s\n{}",
                self.log_tail()
            ),
        }
    }

    fn supervisor(&self) -> MutexGuard<'_, Supervisor> {
        self.supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn running_pid(&self) -> Result<i32> {
        self.pid()
            .context("the server does not run: start it again first")
    }

    async fn wait_gone(&self, pid: i32) -> Result<()> {
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
        Ok(())
    }

    /// The lock file, whose pid may soon be another process's, and the shared memory segment that
    /// only the killed server would have removed.
    fn remove_leftovers(&self) {
        let lock = self.lock_file();
        let text = std::fs::read_to_string(&lock).unwrap_or_default();
        if let Some(segment) = text
            .lines()
            .nth(6)
            .and_then(|line| line.split_whitespace().nth(1))
        {
            // Where there is none any more, there is nothing to do.
            let _ = run(self.installation.command("ipcrm").args(["-m", segment]));
        }
        let _ = std::fs::remove_file(lock);
    }

    fn lock_file(&self) -> PathBuf {
        self.data().join("postmaster.pid")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.data().join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.installation.account().own(&path)
    }
}
