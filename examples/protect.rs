//! How do I protect one async function?
//!
//! `cargo run -p mainstay --example protect`

use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay::{protect, transient};

/// Fails once, as a service does that is just being restarted.
async fn price(calls: &AtomicU32) -> Result<u32, Error> {
    match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Err(Error::from(ErrorKind::ConnectionReset)),
        _ => Ok(42),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let calls = AtomicU32::new(0);
    let protected = protect("price", transient::io);
    let answer = protected.call(|| price(&calls)).await?;
    println!("{answer} after {} calls", calls.load(Ordering::Relaxed));
    Ok(())
}
