//! A database with the program before it and the library beside it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mainstay::mysql::{MysqlDriver, MysqlSettings};
use mainstay::postgres::{PostgresDriver, PostgresSettings, TlsMode};
use mainstay::sql::{Database as _, Dialect, Driver, Options, Plain, Value, Verbs};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::{Chance, DataProxy, EndpointSpec, Policy, Preset, Role, tasks::Tasks};
use mainstay_testkit::mariadb::{MariadbOptions, MariadbServer};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use mainstay_testkit::values::{self, Refused, Sample};

use super::surface::Surface;
use crate::program;

pub(super) struct Place {
    pub(super) prepare: &'static [&'static str],
    pub(super) samples: Vec<Sample>,
    pub(super) refused: Vec<Refused>,
    make: Arc<dyn Fn(Tasks) -> Arc<dyn Driver> + Send + Sync>,
    library: DataProxy,
    server: program::Server,
    folder: Arc<program::Place>,
    _database: Box<dyn std::any::Any + Send + Sync>,
}

/// A source of one endpoint.
fn proxy(driver: Arc<dyn Driver>, tasks: &Tasks) -> DataProxy {
    let policy = Policy::preset(Preset::Balanced);
    let member = Plain::new(driver, &policy, tasks.clone(), Chance::from_entropy());
    DataProxy::builder("s", policy)
        .tasks(tasks.clone())
        .endpoint(EndpointSpec::new("a", Arc::new(member) as _).role(Role::Primary))
        .build()
        .unwrap()
}

impl Place {
    pub(super) async fn sqlite() -> Self {
        let folder = Arc::new(program::Place::new());
        let file = folder.path().join("s.db");
        let config = format!(
            "[sources.s]\ndriver = \"sqlite\"\npath = {:?}\noptions = {{ create = true }}\n[sources.s.endpoints.a]\n",
            file.display().to_string()
        );
        let make = move |_| sqlite_driver(&file);
        let mut place = Self::new(folder, &config, make, ());
        (place.samples, place.refused) = (values::sqlite(), values::sqlite_refused());
        place
    }

    pub(super) async fn postgres() -> Self {
        let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
        let port = server.port();
        let config = format!(
            "[sources.s]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\nport = {port}\ndatabase = \"postgres\"\n\
             user = \"postgres\"\ntls = \"off\"\n[sources.s.endpoints.a]\n"
        );
        let make = move |tasks| postgres_driver(port, tasks);
        let mut place = Self::new(Arc::new(program::Place::new()), &config, make, server);
        place.prepare = values::POSTGRES_TYPES;
        (place.samples, place.refused) = (values::postgres(), values::postgres_refused());
        place
    }

    pub(super) async fn mariadb() -> Self {
        let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
        let port = server.port();
        let config = format!(
            "[sources.s]\noptions = {{ sql_mode = \"STRICT_ALL_TABLES\" }}\n[sources.s.endpoints.a]\n\
             url = \"mariadb://root@127.0.0.1:{port}/test?ssl-mode=DISABLED\"\n"
        );
        let make = move |tasks| mariadb_driver(port, tasks);
        let mut place = Self::new(Arc::new(program::Place::new()), &config, make, server);
        (place.samples, place.refused) = (values::mariadb(), values::mariadb_refused());
        place.samples.extend(values::mariadb_zero_dates());
        place
    }

    fn new(
        folder: Arc<program::Place>,
        config: &str,
        make: impl Fn(Tasks) -> Arc<dyn Driver> + Send + Sync + 'static,
        database: impl std::any::Any + Send + Sync,
    ) -> Self {
        folder.write("mainstay.toml", config);
        let server = folder.serve(&["--config", "mainstay.toml", "--log", "warn"]);
        let tasks = Tasks::new();
        Place {
            prepare: &[],
            samples: Vec::new(),
            refused: Vec::new(),
            library: proxy(make(tasks.clone()), &tasks),
            make: Arc::new(make),
            server,
            folder,
            _database: Box::new(database),
        }
    }

    /// The library in its three forms, HTTP in its two, and the program.
    pub(super) fn surfaces(&self) -> Vec<Surface> {
        let make = Arc::clone(&self.make);
        let blocking = mainstay::blocking::Database::start(move || {
            let tasks = Tasks::new();
            Ok::<_, std::convert::Infallible>(proxy(make(tasks.clone()), &tasks))
        });
        let address = self.server.url.trim_start_matches("http://").to_owned();
        vec![
            Surface::Library(self.library.clone()),
            Surface::Stream(self.library.clone()),
            Surface::Blocking(blocking.unwrap()),
            Surface::Http(address.clone()),
            Surface::Lines(address.clone()),
            Surface::Program(Arc::clone(&self.folder), self.server.url.clone()),
        ]
    }

    pub(super) fn placeholder(&self, number: usize) -> String {
        self.library.dialect().placeholder(number)
    }

    pub(super) async fn change(&self, sql: &str) {
        let changed = self.library.execute(sql, vec![], Options::default()).await;
        changed.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(super) async fn count(&self, sql: &str) -> i64 {
        match self.library.scalar(sql, vec![], Options::default()).await {
            Ok(Some(Value::I64(count))) => count,
            other => panic!("{sql}: {other:?}"),
        }
    }

    /// A condition, in the database's own judgement: the column holds what the expression is.
    pub(super) fn same(&self, column: &str, sample: &Sample) -> String {
        let literal = &sample.literal;
        match (self.library.dialect(), &sample.value) {
            (Dialect::Postgres, _) => format!("{column}::text = ({literal})::text"),
            (Dialect::MySql, Value::Text(_) | Value::Json(_)) => {
                let bytes = |text: &str| format!("CAST(CONVERT({text} USING utf8mb4) AS BINARY)");
                format!("{} = {}", bytes(column), bytes(literal))
            }
            (Dialect::MySql, _) => format!("{column} = {literal}"),
            _ => format!(
                "{column} IS ({literal}) AND typeof({column}) IN (typeof({literal}), 'real')"
            ),
        }
    }

    pub(super) async fn end(self) {
        self.library.close(Duration::from_secs(5)).await;
    }
}

fn sqlite_driver(file: &Path) -> Arc<dyn Driver> {
    let mut settings = SqliteSettings::new(file);
    settings.create = true;
    Arc::new(SqliteDriver::new(settings).unwrap())
}

fn postgres_driver(port: u16, tasks: Tasks) -> Arc<dyn Driver> {
    let mut settings = PostgresSettings::new("127.0.0.1", "postgres", "postgres");
    settings.port = port;
    settings.tls.mode = TlsMode::Off;
    Arc::new(PostgresDriver::new(settings, tasks))
}

fn mariadb_driver(port: u16, tasks: Tasks) -> Arc<dyn Driver> {
    let mut settings = MysqlSettings::new("127.0.0.1", "test", "root");
    settings.port = port;
    settings.tls.mode = TlsMode::Off;
    settings.options = vec![("sql_mode".into(), "STRICT_ALL_TABLES".into())];
    Arc::new(MysqlDriver::new(settings, tasks))
}
