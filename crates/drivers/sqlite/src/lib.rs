//! SQLite behind the driver port of `mainstay-sql`.
//!
//! SQLite blocks its caller, so each connection owns one thread that ends with it. A request crosses to that
//! thread once and its answer crosses back once; rows of a stream are stepped only when they are asked for.
//!
//! ```no_run
//! use mainstay_sql::{Access, Driver};
//! use mainstay_sqlite::{SqliteDriver, SqliteSettings};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let driver = SqliteDriver::new(SqliteSettings::new("orders.db"))?;
//! let mut connection = driver.connect(Access::ReadOnly).await?;
//! connection.check().await?;
//! # Ok(())
//! # }
//! ```

mod catalog;
mod connection;
mod driver;
mod error;
mod guard;
mod identity;
mod interrupt;
mod left;
mod plan;
mod sample;
mod session;
mod settings;
mod statement;
mod value;
mod words;
mod worker;

pub use driver::SqliteDriver;
pub use sample::{SampleError, create_sample};
pub use settings::{
    BUSY_TIMEOUT_DEFAULT, MMAP_MAX_BYTES, STATEMENTS_MAX_DEFAULT, SettingsError, SqliteSettings,
    VALUE_MAX_BYTES_DEFAULT,
};
