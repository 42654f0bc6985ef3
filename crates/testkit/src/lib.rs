//! What Mainstay's own tests stand on: private real PostgreSQL and MariaDB servers and clusters that a test
//! starts, kills and starts again, and a fault proxy that cuts, delays or swallows at a chosen
//! moment of a conversation. For development only: no shipped crate depends on it.
//!
//! Everything lives on free loopback ports and in temporary folders, belongs to one value, and ends
//! when that value is dropped, when the test panics, and when the test process is killed.

mod account;
pub mod conformance;
pub mod cut;
pub mod fault;
mod folder;
pub mod mariadb;
mod port;
pub mod postgres;
mod process;
pub mod scripted;
mod supervisor;
mod tls;
mod until;
pub mod values;

pub use tls::{TlsFiles, certificates};
pub use until::until;

/// How many cases a seeded test runs: `short` by default, `long` where `scripts/test --long` asks
/// for its full length.
pub fn cases(short: usize, long: usize) -> usize {
    match std::env::var_os("MAINSTAY_LONG") {
        Some(_) => long,
        None => short,
    }
}
