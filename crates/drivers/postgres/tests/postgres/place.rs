//! Where a test runs: a schema of its own on a server that all tests share.

use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_engine::tasks::Tasks;
use mainstay_postgres::{PostgresDriver, PostgresSettings, TlsMode, TlsSettings};
use mainstay_sql::{Access, Answer, AnswerMax, Connection, Driver, SqlError, Value};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use tokio::sync::OnceCell;

static SERVER: OnceCell<PostgresServer> = OnceCell::const_new();
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

/// The server that all tests share.
pub(super) async fn server() -> &'static PostgresServer {
    let options = PostgresOptions::new().setting("max_prepared_transactions", 5);
    SERVER
        .get_or_init(|| async { PostgresServer::start(options).await.unwrap() })
        .await
}

/// Settings for a server, without encryption.
pub(super) fn settings(server: &PostgresServer) -> PostgresSettings {
    let mut settings = PostgresSettings::new("127.0.0.1", "postgres", "postgres");
    settings.port = server.port();
    settings.tls = TlsSettings {
        mode: TlsMode::Off,
        ..TlsSettings::default()
    };
    settings
}

pub(super) fn driver(settings: PostgresSettings) -> PostgresDriver {
    PostgresDriver::new(settings, Tasks::new())
}

/// A schema of its own, and how to connect to it.
pub(super) struct Place {
    pub(super) driver: PostgresDriver,
    pub(super) settings: PostgresSettings,
    pub(super) schema: String,
}

impl Place {
    pub(super) async fn new() -> Place {
        let server = server().await;
        let schema = format!("place_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
        server
            .sql(&format!("CREATE SCHEMA {schema}"))
            .await
            .unwrap();
        let mut settings = settings(server);
        settings
            .options
            .push(("search_path".into(), schema.clone()));
        Place {
            driver: driver(settings.clone()),
            settings,
            schema,
        }
    }

    pub(super) async fn writer(&self) -> Box<dyn Connection> {
        self.driver.connect(Access::ReadWrite).await.unwrap()
    }

    pub(super) async fn reader(&self) -> Box<dyn Connection> {
        self.driver.connect(Access::ReadOnly).await.unwrap()
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

pub(super) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

/// The backend process of a session.
pub(super) async fn pid(session: &mut Box<dyn Connection>) -> i64 {
    match value(session, "SELECT pg_backend_pid()").await {
        Value::I64(pid) => pid,
        other => panic!("{other:?}"),
    }
}

/// Waits until a backend runs or waits as the condition on `pg_stat_activity` says.
pub(super) async fn wait_until(pid: i64, condition: &str) {
    let session = server().await.session().await.unwrap();
    let text = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND {condition}");
    for _ in 0..2000 {
        if session.value(&text).await.unwrap() == "1" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    panic!("backend {pid} never came to: {condition}");
}
