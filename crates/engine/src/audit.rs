//! The audit trail: one [`AuditEntry`] for each call, on every way out, offered to a [`Sink`].
//!
//! Sinks never block and never touch a call: what they cannot take they count.

mod entry;
mod file;
mod sinks;

pub use entry::{AttemptRecord, AuditEntry, CacheState, CallOutcome};
pub use file::{FileProblem, FileSink, QUEUE_MAX};
pub use sinks::{Closure, Fanout, Recent, Sink, SwapSink};
