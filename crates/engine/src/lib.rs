//! The engine of Mainstay: it decides whom to call, how long to wait, whether a second try is safe,
//! what to remember and what to report.
//!
//! No sockets, no SQL, no file formats, no statics. The engine sees outcomes, never requests or rows:
//! a [`Failure`] says what went wrong in the engine's own words, a [`Policy`] says what to do about it.
//! Decisions are plain structures with `now` as an argument, so that they can be tested as tables;
//! one generic shell runs the caller's closure around them.

pub mod attempt;
pub mod audit;
pub mod backoff;
pub mod budget;
pub mod chance;
pub mod circuit;
pub mod endpoint;
pub mod event;
pub mod failure;
mod freed;
pub mod gate;
pub mod health;
mod histogram;
mod in_flight;
pub mod intercept;
pub mod lag;
pub mod latency;
mod line;
mod occupancy;
pub mod operation;
mod origin;
pub mod policy;
pub mod pool;
pub mod prober;
pub mod queue;
pub mod rate;
pub mod redact;
pub mod rejection;
pub mod routing;
pub mod source;
pub mod stats;
mod stripes;
pub mod tasks;
pub mod transient;
pub mod watchdog;

pub use attempt::{Attempt, EndpointId, Marks};
pub use audit::{AttemptRecord, AuditEntry, CacheState, CallOutcome};
pub use backoff::Backoff;
pub use budget::Budget;
pub use chance::Chance;
pub use circuit::{
    Circuit, CircuitSnapshot, CircuitState, Held, Pass, Reason, Transition, TrialId, Verdict,
};
pub use event::{Event, EventKind, Observer, Role};
pub use failure::{Blame, Category, Classify, Failure, Outcome, Sent, Severity};
pub use gate::{Gate, Refusal, Ticket};
pub use health::{Health, HealthChange, HealthState};
pub use latency::Latency;
pub use occupancy::Entry;
pub use operation::{CorrelationId, Name, Operation, Priority, Safety};
pub use policy::{Policy, PolicyProblem, Preset, Settings};
pub use pool::{BoxFuture, Connector, Lease, Mode, Pool, PoolError, PoolStats};
pub use queue::{Pause, Place, Queue, QueueRefusal};
pub use rate::Rate;
pub use redact::{Quoting, Redactor, redact_sql, redact_sql_in};
pub use rejection::{CallError, CallErrorKind, Reason as RejectionReason, Rejection, Stopped};
pub use routing::{Candidate, Router};
pub use source::{Done, EndpointSpec, Leased, Need, Rank, Route, Source};
pub use stats::{EndpointStats, StatsSnapshot};
