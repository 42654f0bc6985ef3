//! The port to where requests and jobs are written down, so that a restart of the proxy forgets nothing.
//!
//! One row a request, by the message id that its caller gave it. What must survive a crash of the machine
//! is written durably (one fsync for many writers at once); the rest must survive a kill of the process
//! only, which costs no fsync.

mod memory;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainstay_engine::BoxFuture;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::broker::Headers;

pub use memory::MemoryStore;

/// A message as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Topic in slash form.
    pub topic: SmolStr,
    /// Media type of the body.
    pub content_type: Option<SmolStr>,
    /// In their order.
    pub headers: Headers,
    /// The content.
    pub body: Bytes,
}

/// How far a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Taken in; nothing was published for it, or its operation may be driven again.
    Received,
    /// A write that was, or was about to be, published to a target: it must not be driven again.
    Started,
    /// A job that a target has acknowledged.
    Accepted,
}

/// What is known of a request beside its message and its reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// How far it is.
    pub stage: Stage,
    /// The fronted function.
    pub function: Arc<str>,
    /// Targets that were given up for it, in order.
    #[serde(default)]
    pub tried: Vec<Arc<str>>,
    /// The target that works on it.
    #[serde(default)]
    pub target: Option<Arc<str>>,
    /// Our request ids towards targets that results may still name, the last being the present one.
    #[serde(default)]
    pub forwarded_as: Vec<SmolStr>,
    /// The job's key.
    #[serde(default)]
    pub job_key: Option<Arc<str>>,
    /// Whether the reply has been published and confirmed.
    #[serde(default)]
    pub replied: bool,
    /// Whether the message's body is the object that the caller's message pointed to.
    #[serde(default)]
    pub fetched: bool,
    /// The broker at which it came, by its name among those where callers are.
    #[serde(default)]
    pub front: Arc<str>,
    /// Milliseconds since 1970 when it came, for readers.
    pub received_at_ms: i64,
}

/// One change of one request. Those of one call become visible together.
#[derive(Debug, Clone)]
pub enum Change {
    /// A new request. One of the same id that has not ended is forgotten.
    Accept {
        /// Its message id.
        id: SmolStr,
        /// What is known of it.
        record: Record,
        /// Its message.
        request: StoredMessage,
    },
    /// What is known of it has changed.
    Update {
        /// Its message id.
        id: SmolStr,
        /// What is known of it now.
        record: Record,
    },
    /// This reply is about to be published.
    Reply {
        /// Its message id.
        id: SmolStr,
        /// The reply.
        reply: StoredMessage,
    },
    /// It has ended: everything but its id may be forgotten, and that after [`FINISHED_FOR`].
    Finish {
        /// Its message id.
        id: SmolStr,
    },
}

/// How long the id of a request that has ended is remembered, so that a broker that gives it again does
/// not make it run again: far longer than a broker takes to come back.
pub const FINISHED_FOR: Duration = Duration::from_secs(3600);
/// How many of them at most; the oldest go first.
pub const FINISHED_MAX: usize = 100_000;

/// A request that had not ended when the proxy stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// Its message id.
    pub id: SmolStr,
    /// What is known of it.
    pub record: Record,
    /// Its message.
    pub request: StoredMessage,
    /// A reply that was about to be published.
    pub reply: Option<StoredMessage>,
}

/// What a service finds at its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// In the order in which they came.
    pub unfinished: Vec<Unfinished>,
    /// Ids of those that have ended, the oldest first.
    pub finished: Vec<SmolStr>,
}

/// The store could not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store of jobs failed: {reason}; check the disk and the rights of the data folder")]
pub struct StoreError {
    /// Why.
    pub reason: Arc<str>,
}

/// Where requests and jobs are written down.
pub trait JobStore: Send + Sync + std::fmt::Debug + 'static {
    /// Writes changes down and waits until they are: over a crash of the machine if `durable`, else over
    /// a kill of the process. Changes are made in the order of the calls.
    ///
    /// # Errors
    /// If they could not be written; nothing of them is.
    ///
    /// # Cancel safety
    /// Changes whose future was dropped may still be made.
    fn write(
        &self,
        service: &str,
        changes: Vec<Change>,
        durable: bool,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// What a service left behind.
    ///
    /// # Errors
    /// If it could not be read.
    fn found(&self, service: &str) -> BoxFuture<'_, Result<Found, StoreError>>;

    /// Whether what is written survives the process.
    fn is_lasting(&self) -> bool;
}
