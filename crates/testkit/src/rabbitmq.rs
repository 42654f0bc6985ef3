//! Private real RabbitMQ brokers: on free loopback ports, in a temporary folder, ended with the value
//! that holds them.

mod installation;
mod options;
mod session;

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

pub use self::options::RabbitmqOptions;
pub use self::session::{QueueState, RabbitmqSession};

use self::installation::Installation;
use crate::folder::{self, Folder};
use crate::port::PortLease;
use crate::process;
use crate::supervisor::Supervisor;

/// How long a broker may take to answer after its start, or to be gone after its stop. The virtual machine loads
/// hundreds of modules first, on a busy machine for many seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The exchange that INTERSECT services and clients meet at.
pub const INTERSECT_EXCHANGE: &str = "intersect-messages";

/// One private broker. Dropping it ends the broker and removes its folder.
///
/// All methods take `&self`: a test that loads a broker and one that kills it can share it. The user `guest` with
/// the password `guest` may do everything in the virtual host `/`.
#[derive(Debug)]
pub struct RabbitmqServer {
    supervisor: Mutex<Supervisor>,
    port: PortLease,
    /// The node listens there for others of its kind, and nobody comes: a node without it does not start.
    _node_port: PortLease,
    folder: Folder,
}

impl RabbitmqServer {
    /// Starts a broker and waits until it takes a login.
    ///
    /// # Errors
    /// RabbitMQ is not installed (the message names the package), or the broker did not start (the message holds the
    /// end of its log).
    pub async fn start(options: RabbitmqOptions) -> Result<Self> {
        let server = tokio::task::spawn_blocking(move || Self::lay(&options)).await??;
        server.start_again().await?;
        Ok(server)
    }

    /// Makes the folder with data and configuration, starts nothing.
    fn lay(options: &RabbitmqOptions) -> Result<Self> {
        let installation = Installation::find()?;
        let account = installation.account();
        let base = folder::base(account.uid)?;
        account.own(&base)?;
        let folder = Folder::make(&base, "rabbitmq-server-")?;
        account.own(folder.path())?;
        installation.copy_template(&base, folder.path())?;
        let (port, node_port) = (PortLease::take()?, PortLease::take()?);
        let configuration = options.configuration(port.port(), folder.path());
        installation.write(folder.path(), "rabbitmq.conf", &configuration)?;
        if let Some(definitions) = options.definitions() {
            installation.write(folder.path(), "definitions.json", &definitions)?;
        }
        let program: Vec<OsString> = installation.program(&base, folder.path(), node_port.port());
        // A broker that is asked to end takes seconds for it; what it leaves behind goes with the folder.
        let supervisor = Supervisor::start(account, folder.path(), "KILL", &program)?;
        Ok(Self {
            supervisor: Mutex::new(supervisor),
            port,
            _node_port: node_port,
            folder,
        })
    }

    /// The loopback port it takes AMQP at, the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.port()
    }

    /// The folder with the broker's data and log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id while the broker runs.
    pub fn pid(&self) -> Option<i32> {
        self.supervisor().server()
    }

    /// The last part of the broker's log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let from = log.len().saturating_sub(4000);
        String::from_utf8_lossy(&log[from..]).into_owned()
    }

    /// A client of its own for a test's questions, logged in as `guest`.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn session(&self) -> Result<RabbitmqSession> {
        let connected = RabbitmqSession::connect(self.port(), "guest", "guest").await;
        connected.map_err(|problem| match self.pid() {
            // It ended by itself: its log says why.
            Some(pid) if !process::running(pid) => problem.context(self.log_tail()),
            _ => problem,
        })
    }

    /// Declares the durable topic exchange that INTERSECT's traffic goes through.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn declare_exchange(&self) -> Result<()> {
        let mut session = self.session().await?;
        session.declare_exchange(INTERSECT_EXCHANGE).await
    }

    /// How many messages wait in a queue and how many consumers it has; `None` if there is no such queue. Messages that
    /// were delivered and not acknowledged do not wait.
    ///
    /// # Errors
    /// What the broker or the network said.
    pub async fn queue(&self, name: &str) -> Result<Option<QueueState>> {
        self.session().await?.queue(name).await
    }

    /// Waits until the broker takes a login.
    ///
    /// # Errors
    /// It ended, or took none within 60 s; the message holds the end of its log.
    pub async fn wait_ready(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let Err(problem) = self.session().await else {
                return Ok(());
            };
            if !self.pid().is_some_and(process::running) || Instant::now() > end {
                bail!("the broker is not ready: {problem:#}\n{}", self.log_tail());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Starts the stopped or killed broker again, on its port and with its data, and waits until it takes a login.
    /// Durable queues and the persistent messages in them are there again.
    ///
    /// # Errors
    /// As [`RabbitmqServer::start`]; it runs already.
    pub async fn start_again(&self) -> Result<()> {
        self.launch()?;
        self.wait_ready().await
    }

    /// Starts the broker again and does not wait for it.
    ///
    /// # Errors
    /// It runs already.
    pub fn launch(&self) -> Result<()> {
        self.supervisor().launch().map(drop)
    }

    /// Kills the broker (SIGKILL). It is gone when this returns.
    ///
    /// # Errors
    /// It does not run.
    pub async fn kill9(&self) -> Result<()> {
        self.end(Signal::SIGKILL).await
    }

    /// Stops the broker as an administrator does (SIGTERM): it closes its clients' connections. It is gone when this
    /// returns.
    ///
    /// # Errors
    /// It does not run, or did not end within 60 s.
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

    /// Makes a black hole of it: the broker stops (SIGSTOP), connections are still accepted by the kernel, nothing
    /// answers.
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

    fn running_pid(&self) -> Result<i32> {
        self.pid()
            .context("the broker does not run: start it again first")
    }
}
