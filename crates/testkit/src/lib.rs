//! What Mainstay's own tests stand on: private real PostgreSQL and MariaDB servers and clusters, mosquitto and
//! RabbitMQ brokers that a test starts, kills and starts again, programs in Python, and a fault proxy that cuts,
//! delays or swallows at a chosen moment of a conversation. For development only: no shipped crate depends on it.
//!
//! Everything lives on free loopback ports and in temporary folders, belongs to one value, and ends
//! when that value is dropped, when the test panics, and when the test process is killed.

mod account;
pub mod conformance;
pub mod cut;
pub mod fault;
mod folder;
pub mod intersect;
pub mod mariadb;
pub mod mosquitto;
mod port;
pub mod postgres;
mod process;
pub mod python;
pub mod rabbitmq;
pub mod s3;
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
    match is_long() {
        true => long,
        false => short,
    }
}

/// The seed of a test that draws: that of `MAINSTAY_SEED`; else always the same one, as a short run looks for what has
/// broken, and where `scripts/test --long` asks for its full length another one each time, to find what is new.
/// It is printed, so that a failed run can be repeated.
///
/// # Panics
/// `MAINSTAY_SEED` is no number.
pub fn seed() -> u64 {
    let seed = match std::env::var("MAINSTAY_SEED") {
        Ok(seed) => seed.parse().expect("MAINSTAY_SEED is a number"),
        Err(_) if is_long() => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |now| u64::from(now.subsec_nanos()))
        }
        Err(_) => 1,
    };
    println!("MAINSTAY_SEED={seed}");
    seed
}

fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some()
}
