//! Opens sessions.

use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use mainstay_sql::{Access, BoxFuture, Connection, Dialect, Driver, SqlError};
use mainstay_transport::{Tls, TlsMode};
use tokio::net::lookup_host;

use crate::cancel::{MysqlCancel, Request};
use crate::errors::{self, Phase};
use crate::session::Session;
use crate::settings::MysqlSettings;
use crate::wire::{self, Channel, Greeting, Login};

/// Opens connections to one MySQL or MariaDB server.
pub struct MysqlDriver {
    settings: Arc<MysqlSettings>,
    tasks: Tasks,
}

impl MysqlDriver {
    /// A driver for one server. Requests to stop a statement run in `tasks`.
    pub fn new(settings: MysqlSettings, tasks: Tasks) -> Self {
        MysqlDriver {
            settings: Arc::new(settings),
            tasks,
        }
    }

    async fn open(&self, access: Access) -> Result<Box<dyn Connection>, SqlError> {
        let dialler = Dialler(self.settings.clone());
        let (channel, greeting) = dialler.dial().await?;
        let mut session = Session::new(channel, &greeting, access, self.settings.clone());
        let server_run = session.set_up().await?;
        let request = Request {
            link: session.link().clone(),
            dialler,
            connection: greeting.connection,
            server_run,
        };
        session.attach(MysqlCancel::new(self.tasks.clone(), request));
        Ok(Box::new(session))
    }
}

/// Makes connections to one server, for sessions and for requests to stop them.
#[derive(Clone)]
pub(crate) struct Dialler(Arc<MysqlSettings>);

impl Dialler {
    /// Tries the addresses in turn until one answers; what a server says is final.
    pub(crate) async fn dial(&self) -> Result<(Channel, Greeting), SqlError> {
        let settings = &self.0;
        let tls = Tls::load(&settings.tls, &settings.host)
            .await
            .map_err(errors::misconfigured)?;
        let password = match &settings.password {
            Some(secret) => secret
                .read()
                .map_err(|e| errors::misconfigured(format!("the password cannot be read: {e}")))?,
            None => String::new(),
        };
        let address = || address(settings);
        let found = lookup_host((settings.host.as_str(), settings.port))
            .await
            .map_err(|e| errors::unresolved(&address(), &e))?;
        let mut last = None;
        for ip in found {
            match mainstay_transport::open(ip, &settings.socket).await {
                Ok(stream) => return self.log_in(stream, &tls, &password).await,
                Err(e) => last = Some(errors::lost(format!("{}: {e}", address()), Phase::Connect)),
            }
        }
        Err(last.unwrap_or_else(|| {
            let message = format!("{}: the name has no address", address());
            errors::lost(message, Phase::Connect)
        }))
    }

    async fn log_in(
        &self,
        stream: tokio::net::TcpStream,
        tls: &Tls,
        password: &str,
    ) -> Result<(Channel, Greeting), SqlError> {
        let login = Login {
            user: &self.0.user,
            password,
            database: &self.0.database,
            program: &self.0.application_name,
        };
        let is_checked = matches!(tls.mode(), TlsMode::VerifyCa | TlsMode::VerifyFull);
        let logged_in = async {
            let (greeted, greeting) = wire::greet(stream, tls, !login.database.is_empty()).await?;
            let channel = wire::log_in(greeted, &greeting, &login, is_checked).await?;
            Ok((channel, greeting))
        };
        logged_in
            .await
            .map_err(|broken| errors::broken(&broken, Phase::Connect))
    }
}

fn address(settings: &MysqlSettings) -> String {
    let MysqlSettings {
        host,
        port,
        database,
        ..
    } = settings;
    format!("{host}:{port}/{database}")
}

impl Driver for MysqlDriver {
    fn dialect(&self) -> Dialect {
        Dialect::MySql
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
        address(&self.settings)
    }
}
