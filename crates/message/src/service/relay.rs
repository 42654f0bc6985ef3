//! Messages of targets: events and results relayed under the fronted name, requests relayed to the callers
//! of jobs, replies handed to whoever waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::broker::{Acknowledge, Broker, Delivery, Persistence, Publication, acknowledge_all};
use crate::envelope::{EventHead, JSON, RequestHead, TEXT, fresh_id, name, reply_headers};
use crate::expression::Pointer;
use crate::hooks::Body;
use crate::jobs::Verdict;
use crate::pending::{Reply, Taken};
use crate::refusal;
use crate::request::{Request, requests_of, responses_of};
use crate::settings::OperationKind;
use crate::target::Target;

use super::repetitions::Repeated;
use super::shared::{RelayedRequest, Shared};

/// A message of a target, with what its headers say.
struct Said<H> {
    head: H,
    body: Body,
    delivery: Delivery,
}

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

    pub(super) fn drop_malformed(&self, mut delivery: Delivery, reason: &dyn std::fmt::Display) {
        self.counts.messages_malformed.add();
        tracing::warn!(service = %self.settings.name, topic = %delivery.topic, %reason, "message dropped");
        delivery.acknowledge();
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
        let Some(mut said) = self.unless_repeated(&head.message_id.clone(), head, delivery) else {
            return;
        };
        match self.whose(target, &said.body) {
            Verdict::Ordinary => self.relay_event(said, None).await,
            Verdict::Result(id) => self.relay_result(&id, target.name(), said).await,
            Verdict::Early(id) => {
                if let Some(said) = self.keep_early(&id, target, said) {
                    self.relay_result(&id, target.name(), said).await;
                }
            }
            Verdict::Late => {
                self.counts.results_late.add();
                said.delivery.acknowledge();
            }
        }
    }

    /// A message that was not relayed already. A repetition is acknowledged with the first one.
    fn unless_repeated<H>(&self, id: &str, head: H, delivery: Delivery) -> Option<Said<H>> {
        let known = self.repetitions.lock().unless_known(id, delivery);
        match known {
            Ok(delivery) => Some(Said::new(head, delivery)),
            Err(Repeated(acknowledgement)) => {
                self.counts.messages_repeated.add();
                acknowledge_all(acknowledgement);
                None
            }
        }
    }

    /// Keeps a result until the acknowledgement of its job is known. Gives it back where it cannot be kept.
    fn keep_early<H>(&self, id: &SmolStr, target: &Target, said: Said<H>) -> Option<Said<H>> {
        let from = SmolStr::new(target.name());
        let Said {
            head,
            body,
            delivery,
        } = said;
        let kept = self.jobs.lock().keep_early(id, from, delivery);
        let delivery = kept.err()?;
        Some(Said {
            head,
            body,
            delivery,
        })
    }

    /// Whose a message of a target is.
    fn whose(&self, target: &Target, body: &Body) -> Verdict {
        let mut has_keyless = false;
        let mut asked: Vec<&Pointer> = Vec::new();
        for (function, operation) in &self.settings.operations {
            if operation.kind != OperationKind::Job {
                continue;
            }
            let by_hook = self.hooks.result(function, body);
            let key = match (by_hook, &operation.job_key) {
                (Some(result), _) => result.key,
                (None, None) => {
                    has_keyless = true;
                    None
                }
                (None, Some(pointer)) if asked.contains(&pointer) => None,
                (None, Some(pointer)) => {
                    asked.push(pointer);
                    pointer.key(body.json()).map(Arc::from)
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
    async fn relay_result(self: &Arc<Self>, id: &SmolStr, target: &str, mut said: Said<EventHead>) {
        let Some((request, last)) = self.count_result(id, target, &said.body) else {
            self.counts.results_late.add();
            return said.delivery.acknowledge();
        };
        self.relay_event(said, last.then_some(request)).await;
    }

    /// A result of a job has come: the next one is waited for anew, or the job has ended. Gives its request, and
    /// whether it was the last one. `None`: that target does not have the job any more.
    fn count_result(
        &self,
        id: &SmolStr,
        target: &str,
        body: &Body,
    ) -> Option<(Arc<Request>, bool)> {
        let request = Arc::clone(&self.jobs.lock().get(id)?.request);
        // Read, and hooks called, outside of the lock.
        let last = self.is_last(&request, body);
        let mut jobs = self.jobs.lock();
        jobs.get(id)
            .filter(|job| job.target.as_deref() == Some(target))?;
        jobs.renew(id, Instant::now() + self.result_timeout(&request));
        if last {
            jobs.end(id);
            self.counts.jobs_finished.add();
        }
        Some((request, last))
    }

    /// Whether a result ends its job.
    fn is_last(&self, request: &Request, body: &Body) -> bool {
        match self.hooks.result(&request.function, body) {
            Some(result) => result.last,
            None => request
                .operation
                .last_result
                .as_ref()
                .is_none_or(|it| it.holds(body.json())),
        }
    }

    /// Publishes an event of a target under the fronted name, at every broker where callers are. `ends`:
    /// the job that ends with it.
    async fn relay_event(self: &Arc<Self>, said: Said<EventHead>, ends: Option<Arc<Request>>) {
        let Said {
            head, mut delivery, ..
        } = said;
        let capability = self.fronted_capability(&head.capability);
        let Some(topic) = self.settings.identity.event(&capability, &head.event) else {
            return self.drop_malformed(delivery, &"its capability or name is no level of a topic");
        };
        let acknowledgement = delivery.acknowledgement.take();
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
        let id = head.message_id;
        self.repetitions.lock().begin(id.clone());
        let left = Arc::new(AtomicUsize::new(self.fronts.len()));
        let once = Arc::new(Mutex::new(Some((acknowledgement, ends))));
        for front in &self.fronts {
            let (left, once, shared) = (Arc::clone(&left), Arc::clone(&once), Arc::clone(self));
            let id = id.clone();
            let done = move |_: Result<(), _>| {
                if left.fetch_sub(1, Ordering::AcqRel) == 1
                    && let Some((acknowledgement, ends)) = once.lock().take()
                {
                    shared.counts.events_relayed.add();
                    shared.relayed(id, acknowledgement, ends);
                }
            };
            front.outbox.send(message.clone(), Box::new(done)).await;
        }
    }

    /// A message of a target is where it was to go.
    fn relayed(
        self: &Arc<Self>,
        id: SmolStr,
        acknowledgement: Option<Box<dyn Acknowledge>>,
        ends: Option<Arc<Request>>,
    ) {
        let repeated = self.repetitions.lock().end(id);
        let all = acknowledgement.into_iter().chain(repeated);
        let Some(request) = ends else {
            return acknowledge_all(all);
        };
        let (shared, all) = (Arc::clone(self), all.collect::<Vec<_>>());
        // The result is acknowledged once the end is written down: given again it would be of no job.
        self.tasks.spawn(async move {
            shared.finish(&request).await;
            acknowledge_all(all);
        });
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

    /// A request on the proxy's own request topic: of a target that gives a result that way. Anybody else has
    /// no business there.
    pub(super) async fn take_own_request(
        self: &Arc<Self>,
        broker: &Arc<dyn Broker>,
        mut delivery: Delivery,
    ) {
        let head = match RequestHead::read(&delivery.headers) {
            Ok(head) => head,
            Err(fault) => return self.drop_malformed(delivery, &fault),
        };
        let sender = self.target_at(broker, &head.source);
        let Some(target) = sender.filter(|_| head.destination == self.settings.caller.as_str())
        else {
            self.counts.requests_misdirected.add();
            return delivery.acknowledge();
        };
        target.life.lock().sign(Instant::now());
        let Some(said) = self.unless_repeated(&head.message_id.clone(), head, delivery) else {
            return;
        };
        match self.whose(&target, &said.body) {
            Verdict::Result(id) => self.relay_request(&id, &target, said).await,
            Verdict::Early(id) => {
                if let Some(said) = self.keep_early(&id, &target, said) {
                    self.relay_request(&id, &target, said).await;
                }
            }
            Verdict::Ordinary | Verdict::Late => self.refuse_result(&target, said).await,
        }
    }

    /// A target's request that is no result of a job that it has.
    async fn refuse_result(&self, target: &Target, mut said: Said<RequestHead>) {
        self.counts.results_late.add();
        let operation = &said.head.operation_id;
        let text = refusal::unavailable(operation, "No open job of yours has that key.");
        self.reply_to_target(target, &said.head, TEXT, text.into(), true)
            .await;
        said.delivery.acknowledge();
    }

    /// A result that came before its job's acknowledgement was known, as an event or as a request.
    pub(super) async fn relay_early(
        self: &Arc<Self>,
        id: &SmolStr,
        from: &str,
        mut delivery: Delivery,
    ) {
        // Both were read before they waited.
        if delivery.topic != self.settings.caller.requests() {
            if let Ok(head) = EventHead::read(&delivery.headers) {
                return self.relay_result(id, from, Said::new(head, delivery)).await;
            }
        } else if let (Some(target), Ok(head)) =
            (self.target(from), RequestHead::read(&delivery.headers))
        {
            return self
                .relay_request(id, &target, Said::new(head, delivery))
                .await;
        }
        // The target was removed meanwhile: nobody waits for an answer.
        self.counts.results_late.add();
        delivery.acknowledge();
    }

    /// Hands a target's request on to the caller of its job.
    async fn relay_request(
        self: &Arc<Self>,
        id: &SmolStr,
        target: &Arc<Target>,
        said: Said<RequestHead>,
    ) {
        let Some((request, last)) = self.count_result(id, target.name(), &said.body) else {
            return self.refuse_result(target, said).await;
        };
        let Said {
            head, mut delivery, ..
        } = said;
        let Some(topic) = requests_of(&request.head.source) else {
            return delivery.acknowledge();
        };
        let acknowledgement = delivery.acknowledgement.take();
        let (request_id, message_id) = (fresh_id(), head.message_id.clone());
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
        self.repetitions.lock().begin(message_id.clone());
        let shared = Arc::clone(self);
        let front = request.front;
        let ends = last.then_some(request);
        let done = move |_: Result<(), _>| {
            shared.counts.requests_relayed.add();
            shared.relayed(message_id, acknowledgement, ends);
        };
        self.fronts[front]
            .outbox
            .send(message, Box::new(done))
            .await;
    }

    /// A message on the fronted identity's response topic: a caller's reply to a target's request.
    pub(super) async fn take_callers_reply(self: &Arc<Self>, mut delivery: Delivery) {
        let head = match RequestHead::read(&delivery.headers) {
            Ok(head) => head,
            Err(fault) => return self.drop_malformed(delivery, &fault),
        };
        let relayed = self.relayed.lock().take(&head.request_id);
        let Some(relayed) = relayed else {
            self.counts.replies_late.add();
            return delivery.acknowledge();
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
        delivery.acknowledge();
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

impl<H> Said<H> {
    fn new(head: H, delivery: Delivery) -> Self {
        Said {
            head,
            body: Body::new(delivery.body.clone()),
            delivery,
        }
    }
}
