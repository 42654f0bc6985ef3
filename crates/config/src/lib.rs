//! Configuration of Mainstay: files become checked settings, with every problem found at once.
//!
//! Two stages. A text in TOML, YAML or JSON becomes a [`Tree`] that knows the line of each key; wrong
//! syntax ends there. Then one walk over the tree, with environment variables, flags and changes at
//! run time laid above it, collects every unknown key, wrong type and wrong value as a [`Problem`]
//! with its place and a way out. What comes out is a [`Configuration`]: complete, with a valid
//! [`Policy`](mainstay_engine::Policy) for each source and endpoint, and with the layer and line of
//! each value for [`explain`].
//!
//! Nothing here reads the process environment by itself: it is handed in, and so is the place where
//! referenced secrets are kept.
//!
//! ```
//! use mainstay_config::{Configuration, Input, LoadOptions, explain};
//!
//! let text = r#"
//! [sources.orders]
//! driver = "sqlite"
//! path = "./orders.db"
//! [sources.orders.endpoints.a]
//! [sources.orders.policy.retry]
//! attempts_max = 4
//! "#;
//! let file = Input::Text { name: "mainstay.toml".into(), text: text.into() };
//! let options = LoadOptions { files: vec![file], ..LoadOptions::default() };
//! let loaded = Configuration::load(options).map_err(|problems| problems[0].clone())?;
//! let orders = &loaded.configuration.sources["orders"];
//! assert_eq!(orders.endpoints["a"].policy.retry.attempts_max, 4);
//!
//! let lines = explain(&loaded.configuration, "orders.a")?;
//! let line = lines.iter().find(|line| line.path == "policy.retry.attempts_max");
//! let line = line.ok_or("not explained")?;
//! assert_eq!((line.layer.as_str(), line.line), ("[sources.orders.policy]", Some(7)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod configuration;
mod connection;
mod environment;
mod explain;
mod init;
mod key;
mod mark;
mod policy;
mod problem;
mod reference;
mod scalar;
mod secret;
mod server;
mod service;
mod source;
mod suggestion;
mod tls;
mod tree;
mod words;

pub use configuration::{Configuration, Input, LoadOptions, Loaded, check, missing_files};
pub use environment::Flag;
pub use explain::{Explained, UnknownTarget, explain};
pub use init::init_text;
pub use key::{KeyRole, KeySettings};
pub use mark::Origin;
pub use problem::{Problem, Severity};
pub use reference::reference_text;
pub use scalar::duration;
pub use secret::{FixedSecrets, ProcessSecrets, Secret, SecretError, SecretReader};
pub use server::ServerSettings;
pub use service::{BrokerProtocol, BrokerSettings, ProxiedService};
pub use source::{
    Address, ClientCertificate, CommitProof, CommitProofSettings, Driver, DriverOption,
    EndpointSettings, IdempotencySettings, OptionKind, Promotion, Replication, ServerAddress,
    SourceSettings, TlsMode, TlsSettings,
};
pub use tls::ServerTls;
pub use tree::{Format, Tree};
