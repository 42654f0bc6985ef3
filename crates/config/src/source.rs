//! Sources and their endpoints, as the program uses them: complete and checked.

mod assembly;
mod draft;
mod options;
mod roles;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Policy, Preset, Role, Safety};

use crate::problem::Wrong;
use crate::secret::Secret;
use crate::suggestion;
use crate::words::words;

pub(crate) use assembly::{Parts, Shared, assemble};
pub(crate) use draft::{
    EndpointDraft, LATER, SOURCE_KEYS, SourceDraft, check_id, policy_table, table,
};
pub use options::{DriverOption, OptionKind};

words! {
    /// The database family behind a source.
    Driver {
        /// SQLite, in this process.
        Sqlite = "sqlite",
        /// PostgreSQL.
        Postgres = "postgres",
        /// MySQL and MariaDB.
        Mysql = "mysql",
    }
}

/// Families that have no driver in this version.
pub(crate) const DRIVERS_LATER: &[&str] = &["sqlserver", "mssql"];

impl Driver {
    /// The port that its servers have been given; `None`: it has no servers.
    pub(crate) fn port(self) -> Option<u16> {
        match self {
            Driver::Sqlite => None,
            Driver::Postgres => Some(5432),
            Driver::Mysql => Some(3306),
        }
    }

    /// The driver of that name, or why there is none.
    pub(crate) fn named(word: &str) -> Result<Driver, Wrong> {
        match word {
            "postgresql" => return Ok(Driver::Postgres),
            "mariadb" => return Ok(Driver::Mysql),
            _ => {}
        }
        if let Some(driver) = Driver::parse(word) {
            return Ok(driver);
        }
        if DRIVERS_LATER.contains(&word) {
            return Err(Wrong::unavailable(word).hint("drivers: sqlite, postgres, mysql"));
        }
        let known = Driver::ALL.iter().map(|driver| driver.as_str());
        let hint = match suggestion::nearest(word, known) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "drivers: sqlite, postgres, mysql".to_owned(),
        };
        let word: String = word.chars().take(40).collect();
        Err(Wrong::new(format!("unknown driver {word:?}")).hint(hint))
    }
}

words! {
    /// Who decides which endpoint is the primary.
    Promotion {
        /// The server says, Mainstay follows. Default for servers.
        Follow = "follow",
        /// Mainstay moves the role by itself. SQLite only, and its default.
        Route = "route",
    }
}

words! {
    /// How the endpoints of a source come to hold the same.
    Replication {
        /// Something outside sees to it.
        External = "external",
    }
}

words! {
    /// How to find out what became of a COMMIT whose answer was lost.
    CommitProof {
        /// Not at all: its outcome is unknown. Default.
        Off = "off",
        /// By a row that is written with it.
        Table = "table",
        /// By the number of the transaction. PostgreSQL only.
        Xid = "xid",
    }
}

words! {
    /// Encryption of the connection to a server.
    TlsMode {
        /// None.
        Off = "off",
        /// If the server offers it.
        Prefer = "prefer",
        /// Always, whoever the server is.
        Require = "require",
        /// Always, with a certificate of a trusted authority.
        VerifyCa = "verify-ca",
        /// Always, with a trusted certificate for the name of the host.
        VerifyFull = "verify-full",
    }
}

/// Encryption of the connection to a server. The files are read at each connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// Whether and how. Default `prefer`.
    pub mode: TlsMode,
    /// Certificates of the authorities to trust (PEM).
    pub ca: Option<PathBuf>,
    /// Certificate and key that the client shows (PEM).
    pub client: Option<ClientCertificate>,
}

/// Certificate and key that the client shows (PEM).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// File of the certificate, and of those between it and the authority.
    pub cert: PathBuf,
    /// File of its key.
    pub key: PathBuf,
}

/// Where an endpoint is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A database in a server.
    Server(ServerAddress),
    /// A database in a file.
    File(PathBuf),
}

/// A database in a server, and how to log in there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// Name or address; a path stands for the folder of a local socket.
    pub host: String,
    /// The usual one of the driver unless given.
    pub port: u16,
    /// Name of the database.
    pub database: String,
    /// Whom to log in as.
    pub user: String,
    /// Read anew at each connect.
    pub password: Option<Secret>,
    /// Encryption.
    pub tls: TlsSettings,
}

/// A source: a name that callers use and the endpoints behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceSettings {
    /// The family of all its endpoints.
    pub driver: Driver,
    /// What the policy starts from.
    pub preset: Preset,
    /// Who decides which endpoint is the primary.
    pub promotion: Promotion,
    /// `None`: the databases themselves replicate, or share one file.
    pub replication: Option<Replication>,
    /// What a write is taken for unless the caller says otherwise. Default `write`.
    pub safety: Safety,
    /// A transaction without a statement for longer is rolled back. Default 60 s.
    pub transaction_idle: Duration,
    /// Transactions open at once. Default 1000.
    pub transactions_max: u32,
    /// Idempotency keys; `None`: a key is refused.
    pub idempotency: Option<IdempotencySettings>,
    /// The proof of commits; `None`: off.
    pub commit_proof: Option<CommitProofSettings>,
    /// The policy of the source as a whole.
    pub policy: Arc<Policy>,
    /// The endpoints by id; at least one.
    pub endpoints: BTreeMap<String, EndpointSettings>,
}

/// How a source keeps idempotency keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencySettings {
    /// The table, as `name` or `schema.name`.
    pub table: String,
    /// How long a key is good for. Default 24 h.
    pub keep: Duration,
    /// Bytes that a kept answer may take. Default 64 KiB.
    pub answer_max: u64,
}

/// How a source finds out what became of a COMMIT whose answer was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitProofSettings {
    /// By what; not [`CommitProof::Off`].
    pub form: CommitProof,
    /// The table of tokens, as `name` or `schema.name`. Default `mainstay_commits`.
    pub table: String,
    /// How long it may take to find out. Default 5 s.
    pub wait: Duration,
}

/// One member of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointSettings {
    /// The family; the same in all endpoints of a source.
    pub driver: Driver,
    /// Where it is.
    pub address: Address,
    /// What the file says; `None`: the server itself says (`promotion = "follow"`).
    pub role: Option<Role>,
    /// Its share of the calls beside the others. Default 1.
    pub weight: f64,
    /// Further settings for the driver, as text.
    pub options: BTreeMap<String, String>,
    /// The policy in effect at this endpoint.
    pub policy: Arc<Policy>,
}

impl EndpointSettings {
    /// The file, of an endpoint that is one.
    pub fn path(&self) -> Option<&std::path::Path> {
        match &self.address {
            Address::File(path) => Some(path),
            Address::Server(_) => None,
        }
    }

    /// The server, of an endpoint that is in one.
    pub fn server(&self) -> Option<&ServerAddress> {
        match &self.address {
            Address::Server(server) => Some(server),
            Address::File(_) => None,
        }
    }
}
