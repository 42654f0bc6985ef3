//! What Mainstay shows to monitoring systems.

mod prometheus;

pub use prometheus::{Process, ServiceReading, SourceReading, exposition};
