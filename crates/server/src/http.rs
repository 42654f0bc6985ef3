//! The HTTP surface: listener, routes, problem documents, draining.

mod answer;
mod app;
mod body;
mod caller;
mod change;
mod connection;
mod keys;
mod lines;
mod numbers;
mod object;
mod openapi;
mod paced;
mod phase;
mod route;
mod routes;
mod slots;
mod tls;
mod trace;
mod unique;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mainstay_config::{LoadOptions, Problem as ConfigurationProblem};
use mainstay_engine::Chance;
use mainstay_engine::tasks::Tasks;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::assembly::{Assembly, AssemblyError, Services, Sources};
use crate::keyring::Keyring;
use crate::layers::{Layers, LayersError};
use crate::problem::Problem;
use app::App;
use tls::Tls;

pub use keys::new_key;
pub use openapi::openapi;
pub use tls::{TlsError, check_tls};

/// Background work that ends by being told to gets this long.
const BACKGROUND_MAX: Duration = Duration::from_secs(5);

/// Connections that may wait to be taken; the system may allow fewer.
const BACKLOG: u32 = 4096;

/// Why a server did not start. Nothing of it runs then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration has problems; all of them.
    #[error("the configuration has {} problem(s); mend them and start again", .0.len())]
    Configuration(Vec<ConfigurationProblem>),
    /// Sources could not be made.
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
    /// Changes by the admin API could not be read.
    #[error("{}: {source}; check its permissions, or remove it to start without the changes", path.display())]
    Runtime {
        /// The file that keeps them.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No key can be drawn.
    #[error("the operating system gives no random numbers; try again")]
    Random,
    /// Keys that were made over HTTP could not be read.
    #[error("{}: {source}; check its permissions, or remove it: the keys in it are gone then", path.display())]
    Keys {
        /// The file that keeps them.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; choose another one by server.listen or --listen"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

impl From<LayersError> for StartError {
    fn from(error: LayersError) -> Self {
        match error {
            LayersError::Problems(problems) => StartError::Configuration(problems),
            LayersError::File { path, source } => StartError::Runtime { path, source },
        }
    }
}

/// The program `mainstay serve` as a value.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use mainstay_config::LoadOptions;
/// let running = mainstay_server::Server::start(LoadOptions::default()).await?;
/// println!("listening on {}", running.url());
/// // … until a signal …
/// running.shutdown(std::time::Duration::from_secs(30)).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Server;

impl Server {
    /// Reads the configuration with the changes that `data_dir/runtime.toml` keeps, makes the sources
    /// and listens on `server.listen`. Back ends that cannot be reached are no error. Must be called
    /// inside a runtime with timers and io.
    ///
    /// # Errors
    /// [`StartError`] says what to mend. Not cancel safe: a dropped future may leave sources running
    /// until the runtime ends.
    pub async fn start(options: LoadOptions) -> Result<Running, StartError> {
        Server::start_as(options, None).await
    }

    /// The same for a program that serves itself alone: in plain HTTP, and for the holder of the key that is
    /// given back, which may read and write. Neither `[server.tls]` nor `[server.keys]` hold, whatever the
    /// configuration says.
    ///
    /// # Errors
    /// As [`start`](Server::start), and [`StartError::Random`].
    pub async fn start_private(options: LoadOptions) -> Result<(Running, String), StartError> {
        let (key, sha256) = keys::draw().ok_or(StartError::Random)?;
        let running = Server::start_as(options, Some(sha256)).await?;
        Ok((running, key))
    }

    /// `only_key`: the SHA-256 of the one key of a private server.
    async fn start_as(
        options: LoadOptions,
        only_key: Option<[u8; 32]>,
    ) -> Result<Running, StartError> {
        let (mut layers, warnings) = Layers::load(options).await?;
        if let Some(sha256) = only_key {
            layers = layers.private_to(sha256);
        }
        let configuration = layers.configuration();
        let files = configuration.server.tls.as_ref();
        let keyring = match only_key {
            Some(_) => Keyring::none(&configuration.server.data_dir),
            None => Keyring::load(&configuration.server.data_dir).await?,
        };
        let tls = match files {
            Some(files) => Some(Arc::new(Tls::new(tls::load(files).await?))),
            None => None,
        };
        let background = Tasks::new();
        let chance = Chance::from_entropy();
        tracing::info!(seed = chance.seed(), "randomness");
        let sources = Assembly::build(&configuration, &background, &chance)?;
        let address = configuration.server.listen;
        let bound = listen(address);
        let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = match bound {
            Ok(bound) => bound,
            Err(source) => {
                sources.close(Duration::ZERO).await;
                background.shutdown(BACKGROUND_MAX).await;
                return Err(StartError::Listen { address, source });
            }
        };
        // Last: from here on callers of its services are answered.
        let services = match Services::start(&configuration, sources.assembly()).await {
            Ok(services) => services,
            Err(error) => {
                sources.close(Duration::ZERO).await;
                background.shutdown(BACKGROUND_MAX).await;
                return Err(error.into());
            }
        };
        if let Some(tls) = &tls {
            background.spawn(Tls::follow(Arc::clone(tls)));
        }
        let app = App::new(
            layers,
            keyring,
            (sources, services),
            chance,
            background.clone(),
        );
        let app = Arc::new(app.with_tls(tls));
        let connections = Tasks::new();
        let stopping = app.stopping().clone();
        let accepting = connection::accept(Arc::clone(&app), listener, connections.clone());
        connections.spawn(accepting);
        background.spawn(App::sweep_transactions(Arc::clone(&app)));
        Ok(Running {
            app,
            address,
            warnings,
            connections,
            background,
            stopping,
        })
    }
}

/// Connections that come faster than they are taken wait in the kernel; one that finds no place there tries
/// again only after a second.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restart finds connections of its predecessor that are not over yet.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A server that runs until [`Running::shutdown`]. Dropping it leaves it running.
pub struct Running {
    app: Arc<App>,
    address: SocketAddr,
    warnings: Vec<ConfigurationProblem>,
    connections: Tasks,
    background: Tasks,
    stopping: CancellationToken,
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// Whether all work in flight ended by itself and the audit trail is written.
    pub drained: bool,
    /// Transactions that were open and are rolled back.
    pub transactions: usize,
    /// Requests that were not answered in time and were cut.
    pub requests: usize,
    /// Tasks that were still running; 0 unless something does not end when told to.
    pub left: usize,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, as callers write it.
    pub fn url(&self) -> String {
        let scheme = match self.app.tls() {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate that it shows; `None`: it is not encrypted.
    pub fn certificate(&self) -> Option<std::path::PathBuf> {
        self.app.tls()?;
        self.app.settings().tls.as_ref().map(|tls| tls.cert.clone())
    }

    /// Whether callers need a key.
    pub fn asks_for_keys(&self) -> bool {
        self.app.asks_for_keys()
    }

    /// The running sources, as they are now.
    pub fn sources(&self) -> Arc<Sources> {
        self.app.sources()
    }

    /// The running message services.
    pub fn services(&self) -> &Services {
        self.app.services()
    }

    /// Problems of the configuration that did not stand in the way.
    pub fn warnings(&self) -> &[ConfigurationProblem] {
        &self.warnings
    }

    /// How many connections there may be at once.
    pub fn connections_max(&self) -> u32 {
        self.app.settings().connections_max
    }

    /// How long the configuration lets work in flight go on at the end.
    pub fn drain_timeout(&self) -> Duration {
        self.app.settings().drain_timeout
    }

    /// Reads the configuration's files again, as `POST /v1/admin/reload` does. Cancel safe: what was begun
    /// is done.
    ///
    /// # Errors
    /// What is wrong with them; the old settings stay in force.
    pub async fn reload(&self) -> Result<(), Problem> {
        change::reload(&self.app, false).await.map(|_| ())
    }

    /// Ends in order: no new connections, requests in flight finish within `limit`, open transactions
    /// roll back, sources drain, the audit trail is written, every task has ended. Takes at most about
    /// `limit` and 15 s for what hangs.
    pub async fn shutdown(self, limit: Duration) -> Ended {
        let end = Instant::now() + limit;
        let left = || end.saturating_duration_since(Instant::now());
        self.stopping.cancel();
        let finished = self.connections.idle(limit).await;
        let requests = self.connections.running();
        let cut = self.connections.shutdown(BACKGROUND_MAX).await;
        let transactions = self.app.transactions().end_all();
        if requests > 0 || transactions > 0 {
            tracing::warn!(requests, transactions, "cut at the end");
        }
        let answered = self.app.services().close(left()).await;
        let drained = self.app.sources().close(left()).await && answered;
        let running = self.background.shutdown(BACKGROUND_MAX).await;
        Ended {
            drained: finished && drained,
            transactions,
            requests,
            left: cut + running,
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
