//! Knowledge about a workflow that no setting expresses: code that the library's user gives.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::refusal::Meaning;

/// The body of a message. It is read as JSON when somebody asks for that, and once: most messages pass
/// without anybody asking.
#[derive(Debug, Clone)]
pub struct Body {
    bytes: Bytes,
    json: OnceCell<Value>,
}

impl Body {
    /// The body with that content.
    pub fn new(bytes: Bytes) -> Self {
        Body {
            bytes,
            json: OnceCell::new(),
        }
    }

    /// The content as it came.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The content as JSON; null where it is none.
    pub fn json(&self) -> &Value {
        self.json
            .get_or_init(|| serde_json::from_slice(&self.bytes).unwrap_or_default())
    }
}

/// What a message says about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobResult {
    /// The job's key.
    pub key: Option<Arc<str>>,
    /// Whether nothing follows.
    pub last: bool,
}

/// A job that could not be finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFailure {
    /// The message id of its request.
    pub id: String,
    /// The fronted operation.
    pub operation: String,
    /// Its key.
    pub key: Option<Arc<str>>,
    /// Targets that had it.
    pub targets: Vec<Arc<str>>,
    /// Why nobody finishes it.
    pub reason: String,
    /// Whether it may have taken effect and was not driven again for that reason.
    pub outcome_unknown: bool,
}

/// Decides what the settings cannot. Every method has a default that leaves it to the settings. They are
/// called on the path of a message and must not block.
pub trait Hooks: Send + Sync + fmt::Debug + 'static {
    /// Whether a reply without an error acknowledges the request. `None`: by the settings.
    fn acknowledges(&self, function: &str, reply: &Body) -> Option<bool> {
        let _ = (function, reply);
        None
    }

    /// What an event or a request of a target says about a job of this function. `None`: by the settings.
    fn result(&self, function: &str, body: &Body) -> Option<JobResult> {
        let _ = (function, body);
        None
    }

    /// What an error reply means. `None`: by the settings and the SDK's texts.
    fn meaning(&self, function: &str, text: &str) -> Option<Meaning> {
        let _ = (function, text);
        None
    }

    /// The body that a target gets instead of the caller's. `None`: the caller's.
    fn rewrite(&self, function: &str, target: &str, body: &Bytes) -> Option<Bytes> {
        let _ = (function, target, body);
        None
    }

    /// A job could not be finished; its event is published as well.
    fn job_failed(&self, failure: &JobFailure) {
        let _ = failure;
    }
}

/// No knowledge beyond the settings.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
