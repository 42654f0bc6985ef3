//! What Mainstay shows to monitoring systems.

mod prometheus;

pub use prometheus::{Process, SourceReading, exposition};
