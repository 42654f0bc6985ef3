//! A request of a caller on its way through the proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use smol_str::SmolStr;

use crate::broker::{Acknowledge, Persistence, Publication, Topic};
use crate::envelope::RequestHead;
use crate::settings::{OperationKind, OperationSettings};
use crate::store::{Record, Stage, StoredMessage};

/// A request of a caller. Shared by whoever works on it.
pub(crate) struct Request {
    /// Its message id.
    pub id: SmolStr,
    pub head: RequestHead,
    /// The fronted function.
    pub function: Arc<str>,
    pub operation: OperationSettings,
    pub message: StoredMessage,
    /// The body is the object that the caller's message pointed to.
    pub fetched: bool,
    /// The broker at which it came, by its place among the fronts.
    pub front: usize,
    pub front_name: Arc<str>,
    pub received_at_ms: i64,
    /// It is written down.
    written: AtomicBool,
    acknowledgements: Mutex<Acknowledgements>,
}

#[derive(Default)]
struct Acknowledgements {
    done: bool,
    held: Vec<Box<dyn Acknowledge>>,
}

impl Request {
    pub(crate) fn new(
        head: RequestHead,
        function: Arc<str>,
        operation: OperationSettings,
        message: StoredMessage,
        (front, front_name): (usize, Arc<str>),
    ) -> Self {
        Request {
            id: head.message_id.clone(),
            head,
            function,
            operation,
            message,
            fetched: false,
            front,
            front_name,
            received_at_ms: jiff::Timestamp::now().as_millisecond(),
            written: AtomicBool::new(false),
            acknowledgements: Mutex::default(),
        }
    }

    /// The same with the object that its body points to; acknowledgements are held by the new one.
    pub(crate) fn fetched(&self, content: Bytes) -> Self {
        let kept = std::mem::take(&mut *self.acknowledgements.lock());
        Request {
            id: self.id.clone(),
            head: self.head.clone(),
            function: Arc::clone(&self.function),
            operation: self.operation.clone(),
            message: StoredMessage {
                body: content,
                ..self.message.clone()
            },
            fetched: true,
            front: self.front,
            front_name: Arc::clone(&self.front_name),
            received_at_ms: self.received_at_ms,
            written: AtomicBool::new(false),
            acknowledgements: Mutex::new(kept),
        }
    }

    pub(crate) fn is_job(&self) -> bool {
        self.operation.kind == OperationKind::Job
    }

    pub(crate) fn is_write(&self) -> bool {
        self.operation.safety == mainstay_engine::Safety::Write
    }

    /// Keeps a delivery's acknowledgement until the request is written down or answered; makes it at once
    /// where that has happened.
    pub(crate) fn hold(&self, acknowledgement: Box<dyn Acknowledge>) {
        let mut kept = self.acknowledgements.lock();
        match kept.done {
            false => kept.held.push(acknowledgement),
            true => {
                drop(kept);
                acknowledgement.acknowledge();
            }
        }
    }

    /// It has been written down.
    pub(crate) fn set_written(&self) {
        self.written.store(true, Ordering::Release);
    }

    /// Whether it is written down and its broker waits for an acknowledgement all the same.
    pub(crate) fn is_held(&self) -> bool {
        let kept = self.acknowledgements.lock();
        self.written.load(Ordering::Acquire) && !kept.done && !kept.held.is_empty()
    }

    /// The broker need not give it again.
    pub(crate) fn acknowledge(&self) {
        let held = {
            let mut kept = self.acknowledgements.lock();
            kept.done = true;
            std::mem::take(&mut kept.held)
        };
        held.into_iter().for_each(|it| it.acknowledge());
    }

    /// The body as JSON, where it is.
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.message.body).ok()
    }

    /// The key of the job that it asks for, where the settings say where it stands.
    pub(crate) fn job_key(&self) -> Option<Arc<str>> {
        let pointer = self.operation.job_key.as_ref().filter(|_| self.is_job())?;
        pointer.key(&self.json()?).map(Arc::from)
    }

    /// What is written down of it at its beginning.
    pub(crate) fn record(&self) -> Record {
        Record {
            stage: Stage::Received,
            function: Arc::clone(&self.function),
            tried: Vec::new(),
            target: None,
            forwarded_as: Vec::new(),
            job_key: None,
            replied: false,
            fetched: self.fetched,
            front: Arc::clone(&self.front_name),
            received_at_ms: self.received_at_ms,
        }
    }
}

/// A message as it is published.
pub(crate) fn publication(message: StoredMessage) -> Option<Publication> {
    Some(Publication {
        topic: Topic::parse(&message.topic).ok()?,
        content_type: message.content_type,
        headers: message.headers,
        body: message.body,
        persistence: Persistence::Persistent,
        expiry: None,
        mandatory: false,
    })
}

/// Where replies to a name go. `None`: the name is none that a topic can be made of.
pub(crate) fn responses_of(name: &str) -> Option<Topic> {
    Topic::parse(&format!("{}/response", name.replace('.', "/"))).ok()
}

/// Where requests to a name go.
pub(crate) fn requests_of(name: &str) -> Option<Topic> {
    Topic::parse(&format!("{}/request", name.replace('.', "/"))).ok()
}
