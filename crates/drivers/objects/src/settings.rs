//! Where a store is and how it is spoken to.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

/// S3's own default, and that of MinIO.
pub const REGION_DEFAULT: &str = "us-east-1";
/// 3 s: a store in the same network answers in milliseconds.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(3);
/// 30 s: 64 MB at 20 Mbit/s.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Where certificates of public authorities are on common systems.
const SYSTEM_CAS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Where a store is and how it is spoken to.
#[derive(Clone)]
pub struct S3Settings {
    pub(crate) url: String,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) region: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) timeout: Duration,
    pub(crate) ca: Option<PathBuf>,
}

impl S3Settings {
    /// A store at a base address (`http://` or `https://`, a host, a port, perhaps a path before the buckets'), the
    /// access key and the secret key.
    pub fn new(
        url: impl Into<String>,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        S3Settings {
            url: url.into(),
            user: user.into(),
            password: password.into(),
            region: REGION_DEFAULT.to_owned(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            timeout: TIMEOUT_DEFAULT,
            ca: None,
        }
    }

    /// The region that requests are signed for. Default [`REGION_DEFAULT`].
    #[must_use]
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = region.into();
        self
    }

    /// How long a connection may take, its encryption included. Default [`CONNECT_TIMEOUT_DEFAULT`].
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long one request may take after that, until its whole answer is there. Default [`TIMEOUT_DEFAULT`].
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Certificates (PEM) that sign the store's, read again when the file has changed. Default: the system's, where they are in
    /// their usual place.
    #[must_use]
    pub fn ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// The base address, if it is one.
    pub(crate) fn endpoint(&self) -> Result<Url, SettingsError> {
        let refused = |reason: &str| SettingsError::Url {
            url: self.url.clone(),
            reason: reason.to_owned(),
        };
        // What could carry a secret is not shown.
        if self.url.contains('@') {
            return Err(SettingsError::Secret);
        }
        let url = Url::parse(&self.url).map_err(|error| refused(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("neither http nor https"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("it has more than a host, a port and a path"));
        }
        Ok(url)
    }

    pub(crate) fn authorities(&self) -> Option<PathBuf> {
        let system = || {
            SYSTEM_CAS
                .iter()
                .map(PathBuf::from)
                .find(|path| path.exists())
        };
        self.ca.clone().or_else(system)
    }
}

impl fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Settings")
            .field("url", &self.url)
            .field("user", &self.user)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// Settings that describe no store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The address is none.
    #[error("{url} is no base address of a store: {reason}; write http://host:port")]
    Url {
        /// The address.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The address carries a user or a password.
    #[error("the address of a store carries a user; give the keys apart from it")]
    Secret,
    /// A key is missing.
    #[error("a store of objects needs both keys; give user and password")]
    Keys,
}
