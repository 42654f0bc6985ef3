//! Stores of objects behind `mainstay-message`'s port: whatever speaks S3's API, addressed by path.
//!
//! A call opens a connection of its own, so that none is found dead, and makes one request on it: nothing is repeated
//! here, except that a write into a bucket that is not there makes the bucket and is sent once more. Requests are
//! signed (signature version 4, in the query); bodies are not.
//!
//! ```no_run
//! use mainstay_message::ObjectStore;
//! use mainstay_objects::{S3Settings, S3Store};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = S3Settings::new("http://127.0.0.1:9000", "access", "secret");
//! let store = S3Store::new(settings)?;
//! let object = store.get("results", "1f0d6c1e.json", 64 << 20).await?;
//! # Ok(())
//! # }
//! ```

mod answer;
mod connect;
mod exchange;
mod name;
mod settings;
mod store;
mod trust;

pub use settings::{
    CONNECT_TIMEOUT_DEFAULT, REGION_DEFAULT, S3Settings, SettingsError, TIMEOUT_DEFAULT,
};
pub use store::S3Store;
