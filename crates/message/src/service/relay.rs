//! Messages of targets: events and results relayed under the fronted name, requests relayed to the callers
//! of jobs, replies handed to whoever waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::broker::{Delivery, Persistence, Publication, Topic};
use crate::envelope::{EventHead, JSON, RequestHead, TEXT, fresh_id, name, reply_headers};
use crate::expression::Pointer;
use crate::jobs::Verdict;
use crate::pending::{Reply, Taken};
use crate::refusal;
use crate::request::{Request, requests_of, responses_of};
use crate::settings::OperationKind;
use crate::target::Target;

use super::events::Repeated;
use super::shared::{RelayedRequest, Shared};

impl Shared {
    /// A message on the proxy's own response topic: the reply of a target.
    pub(super) fn take_reply(&self, delivery: Delivery) {
        let head = match RequestHead::read(&delivery.headers) {
            Ok(head) => head,
            Err(fault) => return self.drop_malformed(delivery, &fault),
        };
        match self.pending.take_in(Reply { head, delivery }) {
            Taken::Expected => {}
            Taken::Late => self.counts.replies_late.add(),
            Taken::Foreign => self.counts.replies_foreign.add(),
        }
    }

    pub(super) fn drop_malformed(&self, delivery: Delivery, reason: &dyn std::fmt::Display) {
        self.counts.messages_malformed.add();
        tracing::warn!(service = %self.settings.name, topic = %delivery.topic, %reason, "message dropped");
        acknowledge(delivery);
    }

    /// An event of a target.
    pub(super) async fn take_event(self: &Arc<Self>, target: &Arc<Target>, delivery: Delivery) {
        let head = match EventHead::read(&delivery.headers) {
            Ok(head) => head,
            Err(fault) => return self.drop_malformed(delivery, &fault),
        };
        if head.source != target.settings.destination.as_str() {
            return self.drop_malformed(delivery, &"another sent it than its topic says");
        }
        target.life.lock().sign(Instant::now());
        let known = self.events.lock().unless_known(&head.message_id, delivery);
        let delivery = match known {
            Ok(delivery) => delivery,
            Err(Repeated(acknowledgement)) => {
                self.counts.events_repeated.add();
                acknowledgement.into_iter().for_each(|it| it.acknowledge());
                return;
            }
        };
        match self.whose(target, &delivery) {
            Verdict::Ordinary => self.relay_event(delivery, None).await,
            Verdict::Result(id) => self.relay_result(&id, target.name(), delivery).await,
            Verdict::Early(id) => {
                let from = SmolStr::new(target.name());
                let kept = self.jobs.lock().keep_early(&id, from, delivery);
                if let Err(delivery) = kept {
                    self.relay_result(&id, target.name(), delivery).await;
                }
            }
            Verdict::Late => {
                self.counts.results_late.add();
                acknowledge(delivery);
            }
        }
    }

    /// Whose a message of a target is.
    fn whose(&self, target: &Target, delivery: &Delivery) -> Verdict {
        let is_job = |kind| kind == OperationKind::Job;
        let mut operations = self
            .settings
            .operations
            .values()
            .filter(|it| is_job(it.kind))
            .peekable();
        if operations.peek().is_none() {
            return Verdict::Ordinary;
        }
        let body: Option<Value> = serde_json::from_slice(&delivery.body).ok();
        let mut has_keyless = false;
        let mut asked: Vec<&Pointer> = Vec::new();
        for (function, operation) in &self.settings.operations {
            if !is_job(operation.kind) {
                continue;
            }
            let by_hook = body
                .as_ref()
                .and_then(|body| self.hooks.result(function, body));
            let key = match (by_hook, &operation.job_key) {
                (Some(result), _) => result.key,
                (None, None) => {
                    has_keyless = true;
                    None
                }
                (None, Some(pointer)) if asked.contains(&pointer) => None,
                (None, Some(pointer)) => {
                    asked.push(pointer);
                    body.as_ref()
                        .and_then(|body| pointer.key(body))
                        .map(Arc::from)
                }
            };
            let verdict = self.jobs.lock().whose(target.name(), key.as_deref());
            if verdict != Verdict::Ordinary {
                return verdict;
            }
        }
        match has_keyless {
            true => self.jobs.lock().keyless(target.name()),
            false => Verdict::Ordinary,
        }
    }

    /// A result of a job that its sender has: the caller gets it, and the next one is waited for anew.
    pub(super) async fn relay_result(
        self: &Arc<Self>,
        id: &SmolStr,
        target: &str,
        delivery: Delivery,
    ) {
        let Some((request, last)) = self.count_result(id, target, &delivery) else {
            self.counts.results_late.add();
            return acknowledge(delivery);
        };
        let request = last.then_some(request);
        if request.is_some() {
            self.counts.jobs_finished.add();
        }
        self.relay_event(delivery, request).await;
    }

    /// A result of a job has come: the next one is waited for anew, or the job has ended. Gives its request, and
    /// whether it was the last one. `None`: that target does not have the job any more.
    fn count_result(
        &self,
        id: &SmolStr,
        target: &str,
        delivery: &Delivery,
    ) -> Option<(Arc<Request>, bool)> {
        let request = Arc::clone(&self.jobs.lock().get(id)?.request);
        // Read, and hooks called, outside of the lock.
        let last = self.is_last(&request, delivery);
        let mut jobs = self.jobs.lock();
        jobs.get(id)
            .filter(|job| job.target.as_deref() == Some(target))?;
        jobs.renew(id, Instant::now() + self.result_timeout(&request));
        if last {
            jobs.end(id);
        }
        Some((request, last))
    }

    /// Whether a result ends its job.
    fn is_last(&self, request: &Request, delivery: &Delivery) -> bool {
        let body: Value = serde_json::from_slice(&delivery.body).unwrap_or_default();
        match self.hooks.result(&request.function, &body) {
            Some(result) => result.last,
            None => request
                .operation
                .last_result
                .as_ref()
                .is_none_or(|it| it.holds(&body)),
        }
    }

    /// Publishes an event of a target under the fronted name, at every broker where callers are. `ends`:
    /// the job that ends with it.
    async fn relay_event(self: &Arc<Self>, mut delivery: Delivery, ends: Option<Arc<Request>>) {
        let acknowledgement = delivery.acknowledgement.take();
        let Some((topic, capability, event)) = self.fronted_event(&delivery) else {
            return self.drop_malformed(delivery, &"its capability or name is no level of a topic");
        };
        let mut headers = delivery.headers;
        headers.set(name::SOURCE, self.settings.identity.as_str());
        headers.set(name::CAPABILITY_NAME, capability);
        let message = Publication {
            topic,
            content_type: delivery.content_type,
            headers,
            body: delivery.body,
            persistence: Persistence::Persistent,
            expiry: None,
            mandatory: false,
        };
        self.events.lock().begin(event.clone());
        let left = Arc::new(AtomicUsize::new(self.fronts.len()));
        let once = Arc::new(Mutex::new(Some((acknowledgement, ends, event))));
        for front in &self.fronts {
            let (left, once, shared) = (Arc::clone(&left), Arc::clone(&once), Arc::clone(self));
            let done = move |_: Result<(), _>| {
                if left.fetch_sub(1, Ordering::AcqRel) == 1
                    && let Some((acknowledgement, ends, event)) = once.lock().take()
                {
                    let repeated = shared.events.lock().end(event);
                    let all = acknowledgement.into_iter().chain(repeated).collect();
                    shared.event_relayed(all, ends);
                }
            };
            front.outbox.send(message.clone(), Box::new(done)).await;
        }
    }

    fn event_relayed(
        self: &Arc<Self>,
        acknowledgements: Vec<Box<dyn crate::broker::Acknowledge>>,
        ends: Option<Arc<Request>>,
    ) {
        self.counts.events_relayed.add();
        if let Some(request) = ends {
            let shared = Arc::clone(self);
            // The result is acknowledged once the end is written down: given again it would be of no job.
            self.tasks.spawn(async move {
                shared.finish(&request).await;
                acknowledgements.into_iter().for_each(|it| it.acknowledge());
            });
        } else {
            acknowledgements.into_iter().for_each(|it| it.acknowledge());
        }
    }

    /// Where an event of a target goes, the name of its capability there, and its id.
    fn fronted_event(&self, delivery: &Delivery) -> Option<(Topic, SmolStr, SmolStr)> {
        let head = EventHead::read(&delivery.headers).ok()?;
        let capability = self.fronted_capability(&head.capability);
        let topic = self.settings.identity.event(&capability, &head.event)?;
        Some((topic, capability, head.message_id))
    }

    /// The fronted name of a target's capability: those that do the fronted functions are the fronted one.
    pub(super) fn fronted_capability(&self, capability: &str) -> SmolStr {
        let targets = self.targets();
        let does = targets.iter().any(|target| {
            let mut operations = target.settings.operation_map.values();
            operations.any(|it| it.split_once('.').is_some_and(|(of, _)| of == capability))
        });
        match does {
            true => SmolStr::new(&self.settings.capability_name),
            false => capability.into(),
        }
    }

    /// A request on the proxy's own request topic: of a target that gives a result that way, or of anybody
    /// who asks how the proxy is.
    pub(super) async fn take_own_request(self: &Arc<Self>, delivery: Delivery) {
        let head = match RequestHead::read(&delivery.headers) {
            Ok(head) => head,
            Err(fault) => return self.drop_malformed(delivery, &fault),
        };
        if head.destination != self.settings.caller.as_str() {
            self.counts.requests_misdirected.add();
            return acknowledge(delivery);
        }
        let sender = self
            .targets()
            .into_iter()
            .find(|it| it.settings.destination.as_str() == head.source);
        let Some(target) = sender else {
            self.counts.requests_misdirected.add();
            return acknowledge(delivery);
        };
        target.life.lock().sign(Instant::now());
        match self.whose(&target, &delivery) {
            Verdict::Result(id) => self.relay_request(&id, &target, head, delivery).await,
            Verdict::Early(id) => {
                let from = SmolStr::new(target.name());
                let kept = self.jobs.lock().keep_early(&id, from, delivery);
                if let Err(delivery) = kept {
                    self.relay_request(&id, &target, head, delivery).await;
                }
            }
            Verdict::Ordinary | Verdict::Late => self.refuse_result(&target, &head, delivery).await,
        }
    }

    /// A target's request that is no result of a job that it has.
    async fn refuse_result(&self, target: &Target, head: &RequestHead, delivery: Delivery) {
        self.counts.results_late.add();
        let text = refusal::unavailable(&head.operation_id, "No open job of yours has that key.");
        self.reply_to_target(target, head, TEXT, text.into(), true)
            .await;
        acknowledge(delivery);
    }

    /// A result that came before its job's acknowledgement was known, as an event or as a request.
    pub(super) async fn relay_early(
        self: &Arc<Self>,
        id: &SmolStr,
        from: &str,
        delivery: Delivery,
    ) {
        if delivery.topic != self.settings.caller.requests() {
            return self.relay_result(id, from, delivery).await;
        }
        let (target, head) = (self.target(from), RequestHead::read(&delivery.headers));
        if let (Some(target), Ok(head)) = (target, head) {
            return self.relay_request(id, &target, head, delivery).await;
        }
        // The target was removed meanwhile: nobody waits for an answer.
        self.counts.results_late.add();
        acknowledge(delivery);
    }

    /// Hands a target's request on to the caller of its job.
    async fn relay_request(
        self: &Arc<Self>,
        id: &SmolStr,
        target: &Arc<Target>,
        head: RequestHead,
        mut delivery: Delivery,
    ) {
        let Some((request, last)) = self.count_result(id, target.name(), &delivery) else {
            return self.refuse_result(target, &head, delivery).await;
        };
        let acknowledgement = delivery.acknowledgement.take();
        let Some(topic) = requests_of(&request.head.source) else {
            acknowledgement.into_iter().for_each(|it| it.acknowledge());
            return;
        };
        let request_id = fresh_id();
        let mut headers = delivery.headers;
        headers.set(name::MESSAGE_ID, fresh_id());
        headers.set(name::CAMPAIGN_ID, request.head.campaign_id.clone());
        headers.set(name::REQUEST_ID, request_id.clone());
        headers.set(name::SOURCE, self.settings.identity.as_str());
        headers.set(name::DESTINATION, request.head.source.clone());
        let relayed = RelayedRequest {
            head,
            target: Arc::clone(target),
        };
        self.relayed.lock().expect(request_id, relayed);
        let mut message = Publication::new(topic, delivery.body);
        message.content_type = delivery.content_type;
        message.headers = headers;
        let shared = Arc::clone(self);
        let ends = last.then(|| Arc::clone(&request));
        if last {
            self.counts.jobs_finished.add();
        }
        let done = move |_: Result<(), _>| {
            shared.counts.requests_relayed.add();
            shared.event_relayed(acknowledgement.into_iter().collect(), ends);
        };
        self.fronts[request.front]
            .outbox
            .send(message, Box::new(done))
            .await;
    }

    /// A message on the fronted identity's response topic: a caller's reply to a target's request.
    pub(super) async fn take_callers_reply(self: &Arc<Self>, delivery: Delivery) {
        let head = match RequestHead::read(&delivery.headers) {
            Ok(head) => head,
            Err(fault) => return self.drop_malformed(delivery, &fault),
        };
        let relayed = self.relayed.lock().take(&head.request_id);
        let Some(relayed) = relayed else {
            self.counts.replies_late.add();
            return acknowledge(delivery);
        };
        let content_type = delivery.content_type.clone().unwrap_or_else(|| JSON.into());
        let body = delivery.body.clone();
        self.reply_to_target(
            &relayed.target,
            &relayed.head,
            &content_type,
            body,
            head.has_error,
        )
        .await;
        acknowledge(delivery);
    }

    async fn reply_to_target(
        &self,
        target: &Target,
        to: &RequestHead,
        content_type: &str,
        body: bytes::Bytes,
        has_error: bool,
    ) {
        let Some(topic) = responses_of(&to.source) else {
            return;
        };
        let mut message = Publication::new(topic, body);
        message.content_type = Some(content_type.into());
        message.headers = reply_headers(to, &self.version(), has_error);
        if let Err(error) = target.broker.publish(message).await {
            tracing::warn!(target = %target.name(), %error, "a reply to a target was lost");
        }
    }
}

/// The broker need not give it again.
pub(super) fn acknowledge(delivery: Delivery) {
    if let Some(it) = delivery.acknowledgement {
        it.acknowledge();
    }
}
