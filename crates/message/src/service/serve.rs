//! The way of one request: written down, driven to a target, answered; and of a job: watched, driven again,
//! ended.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future;
use mainstay_engine::{CallErrorKind, Marks, Sent, Stopped};
use smol_str::SmolStr;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::broker::{Headers, PublishError};
use crate::envelope::{DataHandler, TEXT, relayed_reply_headers, reply_headers};
use crate::hooks::JobFailure;
use crate::pending::Reply;
use crate::refusal;
use crate::request::{Request, publication, responses_of};
use crate::store::{Change, Record, Stage, StoredMessage};
use crate::target::OpenJob;

use super::attempt::{AttemptError, ErrorReply, Undriven};
use super::intake::InFirstPhase;
use super::shared::Shared;

/// A good reply of a target.
pub(crate) struct Driven {
    pub reply: Reply,
    pub target: Arc<str>,
    /// The target's own name of the operation.
    pub operation: Arc<str>,
    /// Of a job: what it holds of its target.
    pub held: Option<(Option<Arc<Marks>>, OpenJob)>,
}

/// A reply to a caller.
pub(crate) struct Answer {
    headers: Headers,
    content_type: Option<SmolStr>,
    body: Bytes,
}

impl Shared {
    /// Serves a request to the end of its first phase.
    pub(super) async fn serve(self: &Arc<Self>, request: Arc<Request>, phase: InFirstPhase) {
        let (request, original) = match request.head.data_handler {
            DataHandler::Message => (request, None),
            DataHandler::Minio => match self.fetch(&request).await {
                Ok((fetched, place)) => (fetched, Some(place)),
                Err(error) => {
                    tracing::warn!(service = %self.settings.name, %error, "argument not fetched");
                    return self.refuse(&request, refusal::NO_DATA.to_owned()).await;
                }
            },
        };
        let accept = Change::Accept {
            id: request.id.clone(),
            record: request.record(),
            request: request.message.clone(),
        };
        let written = async {
            let written = self.write(vec![accept], false).await;
            if written {
                request.set_written();
                self.let_go(&request);
            }
            // Until then a request that the broker gives once more needs it.
            if let Some(place) = original.filter(|_| written) {
                self.remove_object(place);
            }
            written
        };
        if !request.is_write() {
            // Nothing that follows depends on it: later changes stand behind it in the store's queue.
            future::join(written, self.run(Arc::clone(&request))).await;
        } else if written.await {
            self.run(Arc::clone(&request)).await;
        } else {
            let reason = "It could not be written down before it would run.";
            let text = refusal::unavailable(&request.head.operation_id, reason);
            self.refuse(&request, text).await;
        }
        drop(phase);
    }

    /// Drives a request that is written down and answers it.
    pub(super) async fn run(self: &Arc<Self>, request: Arc<Request>) {
        if request.is_job() {
            self.jobs.lock().open(&request, request.job_key());
        }
        match self.drive(&request, &[]).await {
            Ok(driven) if request.is_job() => self.accept(&request, driven, true).await,
            Ok(driven) => {
                self.answer_with(&request, driven.reply, &driven.operation)
                    .await
            }
            Err(error) => {
                self.jobs.lock().end(&request.id);
                let answer = self.answer_of(&request, error);
                self.counts.error_replies.add();
                self.answer(&request, answer).await;
            }
        }
    }

    pub(super) async fn refuse(self: &Arc<Self>, request: &Arc<Request>, text: String) {
        self.counts.error_replies.add();
        let answer = self.error(request, text);
        self.answer(request, answer).await;
    }

    fn error(&self, request: &Request, text: String) -> Answer {
        Answer {
            headers: reply_headers(&request.head, &self.version(), true),
            content_type: Some(TEXT.into()),
            body: text.into(),
        }
    }

    /// The answer to a request that no target acknowledged.
    fn answer_of(&self, request: &Request, undriven: Undriven) -> Answer {
        let operation = &request.head.operation_id;
        let parts = undriven.error.into_parts();
        let text = match parts.kind {
            CallErrorKind::Failed {
                failure,
                stopped: Stopped::NotSafe,
                error,
                ..
            } if !matches!(error, Some(AttemptError::Refused(_))) => {
                refusal::outcome_unknown(operation, &failure.message)
            }
            // As the service itself would answer.
            CallErrorKind::Failed { .. } if let Some(reply) = undriven.refused => {
                return relayed(request, Told::error(&reply));
            }
            CallErrorKind::Rejected(rejection) => {
                let message = rejection.message;
                refusal::unavailable(operation, &format!("No target could be asked: {message}."))
            }
            CallErrorKind::Failed { failure, .. } => {
                let tried = parts.attempts.iter().map(|it| it.endpoint.to_string());
                let tried = tried.collect::<Vec<_>>().join(", ");
                let reason = format!("Tried {tried}: {}.", failure.message);
                match failure.sent {
                    Sent::Maybe => refusal::unanswered(operation, &reason),
                    Sent::No | Sent::YesUnprocessed => refusal::unavailable(operation, &reason),
                }
            }
            CallErrorKind::Neutral(_) | CallErrorKind::Redirected { .. } => {
                refusal::unavailable(operation, "It was cancelled.")
            }
        };
        self.error(request, text)
    }

    /// Answers with a target's reply.
    pub(super) async fn answer_with(
        self: &Arc<Self>,
        request: &Arc<Request>,
        mut reply: Reply,
        operation: &str,
    ) {
        let answer = relayed(request, Told::reply(&reply, operation));
        self.answer(request, answer).await;
        if let Some(it) = reply.take_acknowledgement() {
            it.acknowledge();
        }
    }

    /// Publishes the one reply to a request, and ends it.
    pub(super) async fn answer(self: &Arc<Self>, request: &Arc<Request>, answer: Answer) {
        let Some(reply) = stored(request, answer) else {
            return self.finish(request).await;
        };
        let change = Change::Reply {
            id: request.id.clone(),
            reply: reply.clone(),
        };
        // Both at once: its confirmation counts only when both are done. A kill in between leaves a reply that may
        // come twice.
        let written = self.write(vec![change], false);
        future::join(written, self.publish_reply(request, reply)).await;
        self.finish(request).await;
    }

    /// Waits until a reply is confirmed. One that the broker never takes is replaced by one that says so.
    pub(super) async fn publish_reply(
        self: &Arc<Self>,
        request: &Arc<Request>,
        reply: StoredMessage,
    ) {
        let Err(error) = self.publish_one(request.front, reply).await else {
            return self.counts.replies.add();
        };
        let reason = format!("Its reply could not be published: {error}.");
        let text = refusal::unavailable(&request.head.operation_id, &reason);
        if let Some(reply) = stored(request, self.error(request, text))
            && self.publish_one(request.front, reply).await.is_ok()
        {
            self.counts.replies.add();
        }
    }

    async fn publish_one(&self, front: usize, message: StoredMessage) -> Result<(), PublishError> {
        let Some(message) = publication(message) else {
            return Ok(());
        };
        let (to, from) = oneshot::channel();
        let done = Box::new(move |result| {
            let _ = to.send(result);
        });
        self.fronts[front].outbox.send(message, done).await;
        match from.await {
            Ok(result) => result,
            // The service stops: whatever is not confirmed is published again by the next start.
            Err(_) => std::future::pending().await,
        }
    }

    /// Ends a request: the broker need not give it again, and nothing of it is kept but its id.
    pub(super) async fn finish(self: &Arc<Self>, request: &Arc<Request>) {
        let finish = Change::Finish {
            id: request.id.clone(),
        };
        self.write(vec![finish], false).await;
        self.seen.lock().finish(&request.id);
        request.acknowledge();
    }

    /// A target has acknowledged a job: it is written down, its caller told, and its results are watched.
    pub(super) async fn accept(
        self: &Arc<Self>,
        request: &Arc<Request>,
        driven: Driven,
        replies: bool,
    ) {
        let Driven {
            mut reply,
            target,
            operation,
            held,
            ..
        } = driven;
        let Some((slot, open)) = held else {
            return;
        };
        let key = request.job_key().or_else(|| self.key_of(request, &reply));
        let answer = relayed(request, Told::reply(&reply, &operation));
        let stored = stored(request, answer).filter(|_| replies);
        let record = {
            let mut jobs = self.jobs.lock();
            jobs.name(&request.id, key.clone());
            jobs.get(&request.id)
                .map(|job| self.record_of(job, Some(&target)))
        };
        let Some(record) = record else {
            // Its last result came before its acknowledgement was known.
            if let Some(reply) = stored {
                self.send_job_reply(request, reply).await;
            }
            reply
                .take_acknowledgement()
                .into_iter()
                .for_each(|it| it.acknowledge());
            return;
        };
        let update = Change::Update {
            id: request.id.clone(),
            record,
        };
        let reply_change = stored.clone().map(|reply| Change::Reply {
            id: request.id.clone(),
            reply,
        });
        let changes = std::iter::once(update).chain(reply_change).collect();
        if self.write(changes, true).await {
            request.acknowledge();
        }
        // One that is not written down is watched all the same; a restart gets it from its broker again, which has no
        // acknowledgement until its end.
        if let Some(it) = reply.take_acknowledgement() {
            it.acknowledge();
        }
        if replies {
            self.counts.jobs_accepted.add();
        }
        self.start_job(request, key, slot, open, stored).await;
    }

    /// Publishes a job's reply, then the results that came before it, and watches what follows.
    pub(super) async fn start_job(
        self: &Arc<Self>,
        request: &Arc<Request>,
        key: Option<Arc<str>>,
        slot: Option<Arc<Marks>>,
        open: OpenJob,
        reply: Option<StoredMessage>,
    ) {
        if let Some(reply) = reply {
            self.send_job_reply(request, reply).await;
        }
        let mut held = Some((slot, open));
        loop {
            let deadline = Instant::now() + self.result_timeout(request);
            // Results go on coming while the first ones are relayed: they wait until none is left.
            let early = self
                .jobs
                .lock()
                .start(&request.id, key.clone(), &mut held, deadline);
            if early.is_empty() {
                break;
            }
            for (target, delivery) in early {
                self.relay_early(&request.id, &target, delivery).await;
            }
        }
        self.jobs_changed.notify_one();
    }

    /// Publishes a job's reply, ahead of everything that follows for it.
    pub(super) async fn send_job_reply(
        self: &Arc<Self>,
        request: &Arc<Request>,
        reply: StoredMessage,
    ) {
        let Some(reply) = publication(reply) else {
            return;
        };
        let shared = Arc::clone(self);
        let id = request.id.clone();
        let done = move |result: Result<(), PublishError>| shared.reply_confirmed(id, result);
        self.fronts[request.front]
            .outbox
            .send(reply, Box::new(done))
            .await;
    }

    /// A job's reply has arrived, or never will.
    fn reply_confirmed(self: &Arc<Self>, id: SmolStr, result: Result<(), PublishError>) {
        if result.is_ok() {
            self.counts.replies.add();
        }
        let record = {
            let mut jobs = self.jobs.lock();
            let Some(job) = jobs.get_mut(&id) else {
                return;
            };
            job.replied = true;
            let target = job.target.clone();
            self.record_of(job, target.as_ref())
        };
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            shared
                .write(vec![Change::Update { id, record }], false)
                .await;
        });
    }

    fn key_of(&self, request: &Request, reply: &Reply) -> Option<Arc<str>> {
        let pointer = request.operation.job_key.as_ref()?;
        let body = serde_json::from_slice(&reply.delivery.body).ok()?;
        pointer.key(&body).map(Arc::from)
    }

    /// What is written down of an accepted job.
    pub(super) fn record_of(&self, job: &crate::jobs::Job, target: Option<&Arc<str>>) -> Record {
        Record {
            stage: Stage::Accepted,
            tried: job.tried.clone(),
            target: target.cloned(),
            forwarded_as: job.forwarded_as.clone(),
            job_key: job.key.clone(),
            replied: job.replied,
            ..job.request.record()
        }
    }

    /// A job that nobody finishes: its caller is told by an event.
    pub(super) async fn fail_job(
        self: &Arc<Self>,
        id: &SmolStr,
        reason: String,
        outcome_unknown: bool,
    ) {
        let Some(job) = self.jobs.lock().end(id) else {
            return;
        };
        self.counts.jobs_failed.add();
        let request = &job.request;
        let failure = JobFailure {
            id: id.to_string(),
            operation: request.head.operation_id.to_string(),
            key: job.key.clone(),
            targets: job.tried.clone(),
            reason,
            outcome_unknown,
        };
        tracing::warn!(service = %self.settings.name, id = %id, reason = %failure.reason, "job failed");
        self.remember_failed(&job, &failure);
        self.hooks.job_failed(&failure);
        self.publish_job_failed(request, &failure).await;
        self.finish(request).await;
    }

    async fn publish_job_failed(self: &Arc<Self>, request: &Arc<Request>, failure: &JobFailure) {
        let Some(event) = &self.settings.job_failed_event else {
            return;
        };
        let Some(topic) = self
            .settings
            .identity
            .event(&self.settings.capability_name, event)
        else {
            return;
        };
        let body = serde_json::json!({
            "job_id": failure.key,
            "operation": failure.operation,
            "request_id": request.head.request_id,
            "campaign_id": request.head.campaign_id,
            "source": request.head.source,
            "reason": failure.reason,
            "outcome_unknown": failure.outcome_unknown,
            "targets": failure.targets,
        });
        let headers = crate::envelope::event_headers(
            &self.settings.identity,
            &self.settings.capability_name,
            event,
            &self.version(),
        );
        let message = StoredMessage {
            topic: topic.as_str().into(),
            content_type: Some(crate::envelope::JSON.into()),
            headers,
            body: body.to_string().into(),
        };
        // Everywhere: where the event is listened to is not known.
        let all = self
            .fronts
            .iter()
            .enumerate()
            .map(|(front, _)| self.publish_one(front, message.clone()));
        future::join_all(all).await;
    }
}

/// What a target said, and by which name it knows the operation.
struct Told<'a> {
    has_error: bool,
    headers: &'a Headers,
    content_type: &'a Option<SmolStr>,
    body: &'a Bytes,
    operation: &'a str,
}

impl<'a> Told<'a> {
    fn reply(reply: &'a Reply, operation: &'a str) -> Self {
        Told {
            has_error: reply.head.has_error,
            headers: &reply.delivery.headers,
            content_type: &reply.delivery.content_type,
            body: &reply.delivery.body,
            operation,
        }
    }

    fn error(reply: &'a ErrorReply) -> Self {
        Told {
            has_error: reply.head.has_error,
            headers: &reply.headers,
            content_type: &reply.content_type,
            body: &reply.body,
            operation: &reply.operation,
        }
    }
}

/// A target's reply as its caller gets it.
fn relayed(request: &Request, told: Told<'_>) -> Answer {
    let fronted = request.head.operation_id.as_str();
    // Texts of errors name the operation that was called.
    let body = match told.has_error && told.operation != fronted {
        true => String::from_utf8_lossy(told.body)
            .replace(told.operation, fronted)
            .into(),
        false => told.body.clone(),
    };
    Answer {
        headers: relayed_reply_headers(told.headers, &request.head),
        content_type: told.content_type.clone(),
        body,
    }
}

fn stored(request: &Request, answer: Answer) -> Option<StoredMessage> {
    Some(StoredMessage {
        topic: responses_of(&request.head.source)?.as_str().into(),
        content_type: answer.content_type,
        headers: answer.headers,
        body: answer.body,
    })
}
