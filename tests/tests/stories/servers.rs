//! Servers and clusters of whichever database, so that a story is written once.

use std::sync::Arc;
use std::time::Duration;

use mainstay::mysql::{MysqlDriver, MysqlSettings};
use mainstay::postgres::{PostgresDriver, PostgresSettings, TlsMode};
use mainstay::sql::{Dialect, Driver};
use mainstay::tasks::Tasks;
use mainstay_testkit::fault::{FaultPlan, FaultProxy};
use mainstay_testkit::mariadb::{MariadbCluster, MariadbOptions, MariadbServer};
use mainstay_testkit::postgres::{PostgresCluster, PostgresOptions, PostgresServer};

/// A setting of a server by its own name.
pub(crate) type Setting = (&'static str, &'static str);

/// Whom a driver logs in as; the password is read at each connect.
pub(crate) type Login = (&'static str, Option<&'static str>);

/// One private server.
pub(crate) trait Server: Sized + Send + Sync + 'static {
    /// Who may do everything, without a password.
    const SUPERUSER: Login;
    /// How many transactions of others are open.
    const OPEN_TRANSACTIONS: &str;

    async fn start(settings: &[Setting]) -> Self;
    fn port(&self) -> u16;
    async fn sql(&self, text: &str) -> anyhow::Result<Vec<Vec<Option<String>>>>;
    async fn value(&self, text: &str) -> anyhow::Result<String>;
    async fn kill9(&self);
    async fn start_again(&self);
    fn sigstop(&self);
    fn sigcont(&self);

    /// A driver for such a server on this port.
    fn driver(port: u16, login: Login, tasks: &Tasks) -> Arc<dyn Driver>;
    /// A fault proxy before it.
    fn behind_faults(&self, plan: impl FaultPlan + 'static) -> FaultProxy;
}

/// A primary with replicas.
pub(crate) trait Cluster: Sized {
    type Node: Server;

    async fn start(replicas: usize, settings: &[Setting]) -> Self;
    fn nodes(&self) -> &[Self::Node];
    fn primary_number(&self) -> usize;
    fn replica_numbers(&self) -> Vec<usize>;
    async fn most_advanced_replica(&self) -> usize;
    async fn promote(&self, number: usize);
    async fn hold_back(&self, number: usize, delay: Duration);
    async fn wait_attached(&self, count: usize);
    async fn wait_caught_up(&self);

    fn node(&self, number: usize) -> &Self::Node {
        &self.nodes()[number]
    }

    fn primary(&self) -> &Self::Node {
        self.node(self.primary_number())
    }

    fn ports(&self) -> Vec<u16> {
        self.nodes().iter().map(Server::port).collect()
    }
}

/// Both databases' testkits have methods of the same names.
macro_rules! of_the_testkit {
    ($server:ty, $cluster:ty, $options:ty) => {
        impl Server for $server {
            const SUPERUSER: Login = <$server as Family>::SUPERUSER;
            const OPEN_TRANSACTIONS: &str = <$server as Family>::OPEN_TRANSACTIONS;

            async fn start(settings: &[Setting]) -> Self {
                Self::start(options::<$options>(settings)).await.unwrap()
            }

            fn port(&self) -> u16 {
                self.port()
            }

            async fn sql(&self, text: &str) -> anyhow::Result<Vec<Vec<Option<String>>>> {
                self.sql(text).await
            }

            async fn value(&self, text: &str) -> anyhow::Result<String> {
                self.value(text).await
            }

            async fn kill9(&self) {
                self.kill9().await.unwrap();
            }

            async fn start_again(&self) {
                self.start_again().await.unwrap();
            }

            fn sigstop(&self) {
                self.sigstop().unwrap();
            }

            fn sigcont(&self) {
                self.sigcont().unwrap();
            }

            fn driver(port: u16, login: Login, tasks: &Tasks) -> Arc<dyn Driver> {
                <$server as Family>::driver(port, login, tasks)
            }

            fn behind_faults(&self, plan: impl FaultPlan + 'static) -> FaultProxy {
                <$server as Family>::proxy(self.port(), plan)
            }
        }

        impl Cluster for $cluster {
            type Node = $server;

            async fn start(replicas: usize, settings: &[Setting]) -> Self {
                let options = options::<$options>(settings);
                Self::start(replicas, options).await.unwrap()
            }

            fn nodes(&self) -> &[$server] {
                self.nodes()
            }

            fn primary_number(&self) -> usize {
                self.primary_number()
            }

            fn replica_numbers(&self) -> Vec<usize> {
                self.replica_numbers()
            }

            async fn most_advanced_replica(&self) -> usize {
                self.most_advanced_replica().await.unwrap()
            }

            async fn promote(&self, number: usize) {
                self.promote(number).await.unwrap();
            }

            async fn hold_back(&self, number: usize, delay: Duration) {
                self.hold_back(number, delay).await.unwrap();
            }

            async fn wait_attached(&self, count: usize) {
                self.wait_attached(count).await.unwrap();
            }

            async fn wait_caught_up(&self) {
                self.wait_caught_up().await.unwrap();
            }
        }
    };
}

of_the_testkit!(PostgresServer, PostgresCluster, PostgresOptions);
of_the_testkit!(MariadbServer, MariadbCluster, MariadbOptions);

/// Where the families differ.
trait Family {
    const SUPERUSER: Login;
    const OPEN_TRANSACTIONS: &str;

    fn driver(port: u16, login: Login, tasks: &Tasks) -> Arc<dyn Driver>;
    fn proxy(port: u16, plan: impl FaultPlan + 'static) -> FaultProxy;
}

impl Family for PostgresServer {
    const SUPERUSER: Login = ("postgres", None);
    const OPEN_TRANSACTIONS: &str = "SELECT count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL";

    fn proxy(port: u16, plan: impl FaultPlan + 'static) -> FaultProxy {
        FaultProxy::start(port, plan).unwrap()
    }

    fn driver(port: u16, (user, password): Login, tasks: &Tasks) -> Arc<dyn Driver> {
        let mut settings = PostgresSettings::new("127.0.0.1", "postgres", user);
        settings.port = port;
        settings.tls.mode = TlsMode::Off;
        settings.connect_timeout = Duration::from_secs(2);
        if let Some(password) = password {
            settings.password = Some(Arc::new(move || Ok(password.to_owned())));
        }
        Arc::new(PostgresDriver::new(settings, tasks.clone()))
    }
}

impl Family for MariadbServer {
    const SUPERUSER: Login = ("root", None);
    const OPEN_TRANSACTIONS: &str = "SELECT COUNT(*) FROM information_schema.INNODB_TRX";

    fn proxy(port: u16, plan: impl FaultPlan + 'static) -> FaultProxy {
        FaultProxy::start_mysql(port, plan).unwrap()
    }

    fn driver(port: u16, (user, password): Login, tasks: &Tasks) -> Arc<dyn Driver> {
        let mut settings = MysqlSettings::new("127.0.0.1", "test", user);
        settings.port = port;
        settings.tls.mode = TlsMode::Off;
        settings.connect_timeout = Duration::from_secs(2);
        if let Some(password) = password {
            settings.password = Some(Arc::new(move || Ok(password.to_owned())));
        }
        Arc::new(MysqlDriver::new(settings, tasks.clone()))
    }
}

trait Options: Default {
    fn with(self, setting: Setting) -> Self;
}

impl Options for PostgresOptions {
    fn with(self, (name, value): Setting) -> Self {
        match name {
            "access" => self.access(value),
            _ => self.setting(name, value),
        }
    }
}

impl Options for MariadbOptions {
    fn with(self, (name, value): Setting) -> Self {
        self.setting(name, value)
    }
}

fn options<O: Options>(settings: &[Setting]) -> O {
    settings.iter().copied().fold(O::default(), O::with)
}

/// The placeholder of a statement's only parameter.
pub(crate) fn first(dialect: Dialect) -> String {
    dialect.placeholder(1)
}
