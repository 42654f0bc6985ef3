//! `[services]`: message services that are proxied, complete and checked.

mod assembly;
mod broker;
mod checks;
mod draft;
mod explained;
mod field;
mod keys;
mod list;
mod names;
mod operation;
mod original;
mod peers;
mod target;

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainstay_message::ServiceSettings;

pub use broker::{BrokerProtocol, BrokerSettings};

pub(crate) use assembly::{ServiceParts, assemble};
pub(crate) use draft::ServiceDraft;
pub(crate) use keys::tables;
pub(crate) use original::{adopt, include};
pub(crate) use peers::{check_names, check_peers};

/// A message service that is proxied, with the brokers that it is reached through.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxiedService {
    /// What the proxy does. Every broker that it names is among `brokers`.
    pub settings: ServiceSettings,
    /// Connections to brokers by name; at least one.
    pub brokers: BTreeMap<String, BrokerSettings>,
    /// The file of keys below those of the table, where it names one: it is read with it.
    pub file: Option<PathBuf>,
}
