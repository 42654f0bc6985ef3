//! Mainstay as a program: assembly of a configuration into running sources, and the HTTP surface over
//! them.
//!
//! [`Server::start`] is all that a command line needs; [`Assembly::build`] makes the sources alone, for
//! commands that run one call without listening.

mod assembly;
mod http;
mod keyring;
mod layers;
mod problem;
mod transactions;

pub use assembly::{
    Assembly, AssemblyError, Served, ServedService, Services, Sources, check_brokers,
};
pub use http::{Ended, Running, Server, StartError, TlsError, check_tls, new_key, openapi};
pub use problem::Problem;
