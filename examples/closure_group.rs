//! How do I protect closures that belong together, without a trait?
//!
//! `cargo run -p mainstay --example closure_group`

use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay::proxied::{Boxed, Method, group};
use mainstay::transient;

/// A plain structure of closures.
struct Store {
    get: Boxed<String, usize, Error>,
    put: Boxed<(String, usize), (), Error>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let calls = Arc::new(AtomicU32::new(0));
    let group = group("store", transient::io)
        .method(Method::read("get"))
        .method(Method::write("put"))
        .build()?;
    let counted = Arc::clone(&calls);
    let store = Store {
        get: group.boxed("get", move |key: String| {
            let calls = Arc::clone(&counted);
            async move {
                match calls.fetch_add(1, Ordering::Relaxed) {
                    0 => Err(Error::from(ErrorKind::ConnectionReset)),
                    _ => Ok(key.len()),
                }
            }
        })?,
        put: group.boxed("put", |(_key, _value)| async { Ok(()) })?,
    };
    (store.put)(("rope".into(), 4)).await?;
    let answer = (store.get)("rope".into()).await?;
    println!("{answer} after {} calls", calls.load(Ordering::Relaxed));
    Ok(())
}
