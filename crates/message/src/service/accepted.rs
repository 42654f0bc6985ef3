//! A job that a target has acknowledged: written down, its caller told, its results watched, and its end if nobody
//! finishes it.

use std::sync::Arc;

use futures_util::future;
use mainstay_engine::Marks;
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::broker::PublishError;
use crate::envelope::{JSON, event_headers};
use crate::hooks::JobFailure;
use crate::jobs::Job;
use crate::pending::Reply;
use crate::request::{Request, publication};
use crate::store::{Change, Record, Stage, StoredMessage};
use crate::target::OpenJob;

use super::answer::{Told, relayed, stored};
use super::attempt::Driven;
use super::shared::Shared;

impl Shared {
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
            return reply.acknowledge();
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
        reply.acknowledge();
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

    /// It is known what became of a job's reply.
    fn reply_confirmed(self: &Arc<Self>, id: SmolStr, result: Result<(), PublishError>) {
        // One that the broker never takes is offered to it again by the next start.
        if result.is_err() {
            return;
        }
        self.counts.replies.add();
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
    pub(super) fn record_of(&self, job: &Job, target: Option<&Arc<str>>) -> Record {
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
        let headers = event_headers(
            &self.settings.identity,
            &self.settings.capability_name,
            event,
            &self.version(),
        );
        let message = StoredMessage {
            topic: topic.as_str().into(),
            content_type: Some(JSON.into()),
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
