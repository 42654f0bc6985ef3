//! Opens sessions.

use std::net::SocketAddr;
use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use mainstay_sql::{Access, BoxFuture, Connection, Dialect, Driver, SqlError};
use tokio::net::{TcpStream, lookup_host};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config};

use crate::cancel::{PostgresCancel, Request};
use crate::errors::{self, Phase};
use crate::link::{Link, drive};
use crate::session::Session;
use crate::settings::PostgresSettings;
use crate::tls::{Encrypted, Tls, Watching};
use crate::watched::{ServerStatus, Watched};

/// Opens connections to one PostgreSQL server.
pub struct PostgresDriver {
    settings: Arc<PostgresSettings>,
    tasks: Tasks,
}

impl PostgresDriver {
    /// A driver for one server. The tasks that move the bytes of its sessions run in `tasks`; shutting
    /// that group down ends the sessions.
    pub fn new(settings: PostgresSettings, tasks: Tasks) -> Self {
        PostgresDriver {
            settings: Arc::new(settings),
            tasks,
        }
    }

    async fn open(&self, access: Access) -> Result<Box<dyn Connection>, SqlError> {
        let settings = &self.settings;
        let tls = Tls::load(&settings.tls, &settings.host)
            .await
            .map_err(refused)?;
        let config = self.config(access, &tls)?;
        let status = Arc::default();
        let (client, connection, address) = self.dial(&config, &tls, &status).await?;
        let link = Arc::new(Link::new(status));
        let mover = drive(
            &self.tasks,
            link.clone(),
            connection,
            access == Access::ReadOnly,
        );
        let request = Request {
            link,
            token: client.cancel_token(),
            tls,
            address,
            settings: settings.clone(),
        };
        let canceller = PostgresCancel::new(self.tasks.clone(), request);
        Ok(Box::new(Session::new(
            client,
            canceller,
            mover,
            access,
            settings.statements_max,
        )))
    }

    fn config(&self, access: Access, tls: &Tls) -> Result<Config, SqlError> {
        let settings = &self.settings;
        let mut config = Config::new();
        config
            .user(&settings.user)
            .dbname(&settings.database)
            .application_name(&settings.application_name)
            .options(settings.startup_options(access == Access::ReadOnly))
            .ssl_mode(tls.mode());
        if let Some(secret) = &settings.password {
            let password = secret
                .read()
                .map_err(|e| refused(format!("the password cannot be read: {e}")))?;
            config.password(password);
        }
        Ok(config)
    }

    /// Tries the addresses in turn until one answers; what a server says is final.
    async fn dial(
        &self,
        config: &Config,
        tls: &Tls,
        status: &Arc<ServerStatus>,
    ) -> Result<Dialled, SqlError> {
        let host = (self.settings.host.as_str(), self.settings.port);
        let unreachable = |e: std::io::Error| {
            errors::lost(
                format!("{}: {e}", self.address()),
                Phase::Connect,
                Some(e.kind()),
            )
        };
        let mut last = None;
        for address in lookup_host(host)
            .await
            .map_err(|e| errors::unresolved(&self.address(), &e))?
        {
            match mainstay_transport::open(address, &self.settings.socket).await {
                Ok(stream) => {
                    let asks = tls.mode() != SslMode::Disable;
                    let stream = Watched::new(stream, status.clone(), asks);
                    return login(stream, config, tls, address).await;
                }
                Err(e) => last = Some(unreachable(e)),
            }
        }
        Err(last.unwrap_or_else(|| {
            errors::lost(
                format!("{}: the name has no address", self.address()),
                Phase::Connect,
                None,
            )
        }))
    }
}

type Dialled = (
    Client,
    tokio_postgres::Connection<Watched<TcpStream>, Watched<Encrypted<TcpStream>>>,
    SocketAddr,
);

async fn login(
    stream: Watched<TcpStream>,
    config: &Config,
    tls: &Tls,
    address: SocketAddr,
) -> Result<Dialled, SqlError> {
    match config.connect_raw(stream, Watching(tls.clone())).await {
        Ok((client, connection)) => Ok((client, connection, address)),
        Err(error) => Err(errors::named(&error, Phase::Connect, false, None)),
    }
}

/// Something of ours is missing or wrong before a server is asked.
fn refused(problem: impl std::fmt::Display) -> SqlError {
    errors::lost(
        problem.to_string(),
        Phase::Connect,
        Some(std::io::ErrorKind::InvalidInput),
    )
}

impl Driver for PostgresDriver {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn connect(&self, access: Access) -> BoxFuture<'_, Result<Box<dyn Connection>, SqlError>> {
        Box::pin(async move {
            let limit = self.settings.connect_timeout;
            match tokio::time::timeout(limit, self.open(access)).await {
                Ok(result) => result,
                Err(_) => Err(errors::connect_timeout(&self.address(), limit)),
            }
        })
    }

    fn address(&self) -> String {
        let PostgresSettings {
            host,
            port,
            database,
            ..
        } = &*self.settings;
        format!("{host}:{port}/{database}")
    }
}
