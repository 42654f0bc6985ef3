//! Requests as they come: checked as the SDK checks them, told apart from repetitions, and answered or
//! handed on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use smol_str::SmolStr;

use crate::broker::{Acknowledge, Delivery, Headers, Publication, PublishError, acknowledge_all};
use crate::envelope::{JSON, RequestHead, TEXT, is_compatible, reply_headers};
use crate::refusal;
use crate::request::{Request, responses_of};
use crate::settings::{OperationKind, OperationSettings, STATUS_OPERATION};
use crate::store::StoredMessage;

use super::shared::Shared;

/// Answers that may wait for their confirmation when one more comes for a request that its broker does not keep:
/// beyond them it goes unanswered.
const AT_ONCE_MAX: usize = 10_000;

/// A request that is answered within this time is acknowledged then, and costs no write to the disk.
const HOLD_MAX: Duration = Duration::from_millis(10);

/// A request in its first phase; counted until it is dropped.
pub(crate) struct InFirstPhase(Arc<Shared>);

impl InFirstPhase {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.in_first_phase.fetch_add(1, Ordering::AcqRel);
        InFirstPhase(Arc::clone(shared))
    }
}

impl Drop for InFirstPhase {
    fn drop(&mut self) {
        self.0.in_first_phase.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How a delivery is acknowledged, where its broker waits for that.
type Acknowledgement = Option<Box<dyn Acknowledge>>;

/// What becomes of a message on the fronted identity's request topic.
enum Taken {
    /// Dropped and counted, as the SDK does.
    Dropped,
    /// Answered without a target: an error's text.
    Refused(String),
    /// Answered without a target: what the proxy says of itself.
    Status,
    /// For a target.
    Forward(Arc<str>, OperationSettings),
}

impl Shared {
    /// Takes a message of the fronted identity's request topic in.
    pub(super) async fn take_in(self: &Arc<Self>, mut delivery: Delivery, front: usize) {
        let acknowledgement = delivery.acknowledgement.take();
        let Some((head, content_type)) = self.read(&delivery) else {
            return acknowledge_all(acknowledgement);
        };
        let Some(acknowledgement) = self.is_new(&head, acknowledgement) else {
            return;
        };
        let taken = self.decide(&head, &content_type, delivery.body.len());
        if !matches!(taken, Taken::Dropped) {
            self.counts.requests.add();
        }
        match taken {
            Taken::Dropped => acknowledge_all(acknowledgement),
            Taken::Refused(text) => {
                self.refuse_at_once(&head, text, front, acknowledgement)
                    .await;
            }
            Taken::Status => self.answer_status(&head, front, acknowledgement).await,
            Taken::Forward(function, operation) => {
                let message = StoredMessage {
                    topic: delivery.topic.as_str().into(),
                    content_type: Some(content_type),
                    headers: delivery.headers,
                    body: delivery.body,
                };
                let request = Request::new(head, function, operation, message, self.front(front));
                self.serve_new(Arc::new(request), acknowledgement);
            }
        }
    }

    /// Serves a request in the background.
    fn serve_new(self: &Arc<Self>, request: Arc<Request>, acknowledgement: Acknowledgement) {
        if let Some(acknowledgement) = acknowledgement {
            request.hold(acknowledgement);
        }
        self.seen
            .lock()
            .open
            .insert(request.id.clone(), Arc::clone(&request));
        let phase = InFirstPhase::new(self);
        let shared = Arc::clone(self);
        self.tasks
            .spawn(async move { shared.serve(request, phase).await });
    }

    /// Whether a request was not seen before; gives its acknowledgement back then. Otherwise it is made
    /// once the request that was seen is written down or answered.
    fn is_new(
        self: &Arc<Self>,
        head: &RequestHead,
        acknowledgement: Acknowledgement,
    ) -> Option<Acknowledgement> {
        let (open, finished) = {
            let seen = self.seen.lock();
            (
                seen.open.get(&head.message_id).cloned(),
                seen.has_finished(&head.message_id),
            )
        };
        if open.is_none() && !finished {
            return Some(acknowledgement);
        }
        self.counts.requests_repeated.add();
        match (open, acknowledgement) {
            (Some(open), Some(acknowledgement)) => {
                open.hold(acknowledgement);
                self.let_go(&open);
            }
            (_, acknowledgement) => acknowledge_all(acknowledgement),
        }
        None
    }

    /// Acknowledges a request that is not answered soon, once it is on the disk: a broker gives only so many messages
    /// before the first is acknowledged (mosquitto 20), and the replies of targets are among them.
    pub(super) fn let_go(self: &Arc<Self>, request: &Arc<Request>) {
        if !request.is_held() {
            return;
        }
        let (shared, request) = (Arc::clone(self), Arc::clone(request));
        self.tasks.spawn(async move {
            tokio::time::sleep(HOLD_MAX).await;
            if request.is_held() && shared.write(Vec::new(), true).await {
                request.acknowledge();
            }
        });
    }

    /// What the SDK would read at all. `None`: dropped and counted.
    fn read(&self, delivery: &Delivery) -> Option<(RequestHead, SmolStr)> {
        let malformed = |reason: &dyn std::fmt::Display| {
            self.counts.requests_malformed.add();
            tracing::warn!(service = %self.settings.name, %reason, "malformed request dropped");
        };
        if delivery.headers.bytes() > self.settings.limits.headers_max {
            malformed(&"its headers are larger than is taken");
            return None;
        }
        let Some(content_type) = delivery.content_type.clone().filter(|it| !it.is_empty()) else {
            malformed(&"it has no content type");
            return None;
        };
        match RequestHead::read(&delivery.headers) {
            Ok(head) => Some((head, content_type)),
            Err(fault) => {
                malformed(&fault);
                None
            }
        }
    }

    fn decide(&self, head: &RequestHead, content_type: &str, length: usize) -> Taken {
        if head.destination != self.settings.identity.as_str() {
            self.counts.requests_misdirected.add();
            return Taken::Dropped;
        }
        if responses_of(&head.source).is_none() {
            self.counts.requests_malformed.add();
            return Taken::Dropped;
        }
        let operation = head.operation_id.as_str();
        let function = operation
            .split_once('.')
            .filter(|(_, function)| !function.contains('.'));
        let function = match function {
            Some((capability, function)) if capability == &*self.settings.capability_name => {
                function
            }
            _ if self.is_own(operation) => return self.own(head, content_type),
            _ => return self.unknown(head),
        };
        let targets = self.targets();
        let mapped = targets
            .iter()
            .any(|target| target.operation(function).is_some());
        if !mapped && self.is_own(operation) {
            return self.own(head, content_type);
        }
        if !mapped && !self.settings.operations.contains_key(function) {
            return self.unknown(head);
        }
        if length > self.settings.limits.body_max {
            self.counts.requests_too_large.add();
            let reason = format!(
                "The request has {length} bytes and at most {} are taken.",
                self.settings.limits.body_max
            );
            return Taken::Refused(refusal::unavailable(operation, &reason));
        }
        let stopping = self.stopping.load(Ordering::Acquire);
        let full = self.in_first_phase.load(Ordering::Acquire) >= self.settings.limits.requests_max;
        let settings = self.settings.operation(function);
        let is_job = settings.kind == OperationKind::Job;
        let too_many_jobs = is_job && self.jobs.lock().running() >= self.settings.limits.jobs_max;
        if stopping || full || too_many_jobs {
            self.counts.requests_shed.add();
            let reason = match stopping {
                true => "The service is stopping; call it again.",
                false => "Too many requests are open; call it again later.",
            };
            return Taken::Refused(refusal::unavailable(operation, reason));
        }
        Taken::Forward(function.into(), settings)
    }

    /// The version that targets speak, as far as they have said.
    pub(super) fn version(&self) -> SmolStr {
        self.schema.lock().version()
    }

    fn unknown(&self, head: &RequestHead) -> Taken {
        let version = self.version();
        Taken::Refused(match is_compatible(&version, &head.sdk_version) {
            true => refusal::no_such_operation(&head.operation_id),
            false => refusal::version(&version, &head.sdk_version),
        })
    }

    /// Whether it is an operation that the proxy answers by itself.
    fn is_own(&self, operation: &str) -> bool {
        operation == STATUS_OPERATION || operation == &*self.settings.status_operation
    }

    fn own(&self, head: &RequestHead, content_type: &str) -> Taken {
        let version = self.version();
        if !is_compatible(&version, &head.sdk_version) {
            return Taken::Refused(refusal::version(&version, &head.sdk_version));
        }
        match content_type == JSON {
            true => Taken::Status,
            false => Taken::Refused(refusal::content_type(
                &head.operation_id,
                content_type,
                JSON,
            )),
        }
    }

    async fn refuse_at_once(
        self: &Arc<Self>,
        head: &RequestHead,
        text: String,
        front: usize,
        acknowledgement: Acknowledgement,
    ) {
        self.counts.error_replies.add();
        let headers = reply_headers(head, &self.version(), true);
        self.answer_at_once(head, (headers, TEXT, text.into()), front, acknowledgement)
            .await;
    }

    async fn answer_status(
        self: &Arc<Self>,
        head: &RequestHead,
        front: usize,
        acknowledgement: Acknowledgement,
    ) {
        let body = match head.operation_id == STATUS_OPERATION {
            true => self.core_status(),
            false => self.status_text(),
        };
        let headers = reply_headers(head, &self.version(), false);
        self.answer_at_once(head, (headers, JSON, body), front, acknowledgement)
            .await;
    }

    /// Answers what needs no target and so is not written down: given again, it is answered again.
    async fn answer_at_once(
        self: &Arc<Self>,
        head: &RequestHead,
        (headers, content_type, body): (Headers, &str, Bytes),
        front: usize,
        acknowledgement: Acknowledgement,
    ) {
        let Some(topic) = responses_of(&head.source) else {
            return;
        };
        let mut message = Publication::new(topic, body);
        message.content_type = Some(content_type.into());
        message.headers = headers;
        let is_kept = acknowledgement.is_some();
        let outbox = &self.fronts[front].outbox;
        if !is_kept && outbox.unconfirmed() >= AT_ONCE_MAX {
            return self.counts.requests_unanswered.add();
        }
        let shared = Arc::clone(self);
        let id = head.message_id.clone();
        let done = move |result: Result<(), PublishError>| {
            if result.is_ok() {
                shared.counts.replies.add();
            }
            shared.seen.lock().finish(&id);
            acknowledge_all(acknowledgement);
        };
        if is_kept {
            return outbox.send(message, Box::new(done)).await;
        }
        // What the broker does not keep back must be taken as it comes: confirmations, which make room, come
        // behind it on the same connection.
        self.tasks.spawn(outbox.send(message, Box::new(done)));
    }
}
