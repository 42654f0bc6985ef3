//! A private server for one test.

use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_mysql::{MysqlDriver, MysqlSettings, TlsMode};
use mainstay_sql::{Access, Answer, AnswerMax, Connection, Driver, SqlError, Value};
use mainstay_testkit::mariadb::{MariadbOptions, MariadbServer};

/// A server of its own and the settings that log in there.
pub(super) struct Place {
    pub(super) server: MariadbServer,
    pub(super) settings: MysqlSettings,
}

impl Place {
    pub(super) async fn new() -> Self {
        Self::with(MariadbOptions::new()).await
    }

    pub(super) async fn with(options: MariadbOptions) -> Self {
        let server = MariadbServer::start(options).await.unwrap();
        let settings = settings(server.port());
        Place { server, settings }
    }
}

pub(super) fn settings(port: u16) -> MysqlSettings {
    let mut settings = MysqlSettings::new("127.0.0.1", "test", "root");
    settings.port = port;
    settings.tls.mode = TlsMode::Off;
    settings.connect_timeout = Duration::from_secs(10);
    settings
}

pub(super) fn driver(settings: MysqlSettings) -> MysqlDriver {
    MysqlDriver::new(settings, Tasks::new())
}

impl Place {
    pub(super) fn driver(&self) -> MysqlDriver {
        driver(self.settings.clone())
    }

    pub(super) async fn writer(&self) -> Box<dyn Connection> {
        self.driver().connect(Access::ReadWrite).await.unwrap()
    }

    pub(super) async fn reader(&self) -> Box<dyn Connection> {
        self.driver().connect(Access::ReadOnly).await.unwrap()
    }

    /// Waits until a session of the server runs or waits as this condition on its process list says.
    pub(super) async fn wait_until(&self, id: i64, condition: &str) {
        let session = self.server.session().await.unwrap();
        let text = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id} AND {condition}"
        );
        for _ in 0..2000 {
            if session.value(&text).await.unwrap() == "1" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("session {id} never came to: {condition}");
    }
}

/// Runs a statement with any number of rows.
pub(super) async fn run(
    session: &mut Box<dyn Connection>,
    text: &str,
    params: &[Value],
) -> Result<Answer, SqlError> {
    session
        .run(text, params, AnswerMax::default(), &|| {})
        .await
}

/// Runs a statement that must work.
pub(super) async fn rows(session: &mut Box<dyn Connection>, text: &str) -> Vec<Vec<Value>> {
    run(session, text, &[])
        .await
        .unwrap_or_else(|e| panic!("{text}: {e}"))
        .rows
}

/// The single value of a statement that must work.
pub(super) async fn value(session: &mut Box<dyn Connection>, text: &str) -> Value {
    rows(session, text).await.remove(0).remove(0)
}

/// The server's number of a session.
pub(super) async fn id(session: &mut Box<dyn Connection>) -> i64 {
    match value(session, "SELECT CONNECTION_ID()").await {
        Value::I64(id) => id,
        Value::U64(id) => i64::try_from(id).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The server's number of an error.
pub(super) fn number(error: &SqlError) -> u16 {
    let code = error.failure().code.as_deref().unwrap_or("0");
    code.parse().unwrap()
}
