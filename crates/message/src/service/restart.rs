//! What an earlier run of the proxy left: replies are published again, requests driven, jobs watched.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Attempt, Failure, Marks, Operation, Outcome, Route};

use crate::envelope::RequestHead;
use crate::refusal;
use crate::request::Request;
use crate::store::{Change, Found, Stage, Unfinished};
use crate::target::Target;

use super::intake::InFirstPhase;
use super::shared::Shared;

impl Shared {
    /// Goes on with what an earlier run left.
    pub(super) async fn resume(self: &Arc<Self>, found: Found) {
        {
            let mut seen = self.seen.lock();
            found.finished.iter().for_each(|id| seen.finish(id));
        }
        if !found.unfinished.is_empty() {
            let count = found.unfinished.len();
            tracing::info!(service = %self.settings.name, count, "going on with what was open");
        }
        for left in found.unfinished {
            let Ok(head) = RequestHead::read(&left.request.headers) else {
                // Written by another version: it cannot be answered.
                self.write(vec![Change::Finish { id: left.id }], false)
                    .await;
                continue;
            };
            let request = Arc::new(self.request_of(head, &left));
            self.seen
                .lock()
                .open
                .insert(request.id.clone(), Arc::clone(&request));
            let shared = Arc::clone(self);
            let phase = InFirstPhase::new(self);
            match left.record.stage {
                // Before anything is heard of its target.
                Stage::Accepted => self.watch_again(&request, left, phase).await,
                Stage::Received | Stage::Started => {
                    self.tasks
                        .spawn(async move { shared.serve_again(request, left, phase).await });
                }
            }
        }
    }

    fn request_of(&self, head: RequestHead, left: &Unfinished) -> Request {
        let function = Arc::clone(&left.record.function);
        let operation = self.settings.operation(&function);
        // One that is not there any more: the first is as good as any.
        let fronts = &self.settings.fronts;
        let front = fronts
            .iter()
            .position(|it| *it == left.record.front)
            .unwrap_or(0);
        let message = left.request.clone();
        let mut request = Request::new(head, function, operation, message, self.front(front));
        request.fetched = left.record.fetched;
        request.received_at_ms = left.record.received_at_ms;
        request
    }

    /// A request whose first phase had not ended.
    async fn serve_again(
        self: Arc<Self>,
        request: Arc<Request>,
        left: Unfinished,
        phase: InFirstPhase,
    ) {
        if let Some(reply) = left.reply {
            // Whether it had arrived is not known.
            self.counts.replies_again.add();
            self.publish_reply(&request, reply).await;
            self.finish(&request).await;
        } else if left.record.stage == Stage::Started {
            self.await_started(&request, &left).await;
        } else {
            self.run(request).await;
        }
        drop(phase);
    }

    /// A write that was, or was about to be, published: its reply may still come, and it is not driven
    /// again.
    async fn await_started(self: &Arc<Self>, request: &Arc<Request>, left: &Unfinished) {
        let target = left
            .record
            .target
            .as_deref()
            .and_then(|name| self.target(name));
        let reply = match (target, left.record.forwarded_as.last()) {
            (Some(target), Some(request_id)) => {
                self.reply_of_started(request, &target, request_id).await
            }
            _ => None,
        };
        if let Some((target, reply, operation)) = reply {
            return self
                .answer_started(request, &target, reply, operation)
                .await;
        }
        let reason = "the proxy was restarted while it ran";
        let text = refusal::outcome_unknown(&request.head.operation_id, reason);
        self.refuse(request, text).await;
    }

    async fn reply_of_started(
        self: &Arc<Self>,
        request: &Request,
        target: &Arc<Target>,
        request_id: &smol_str::SmolStr,
    ) -> Option<(Arc<Target>, crate::pending::Reply, Arc<str>)> {
        let operation = Arc::clone(target.operation(&request.function)?);
        let from = target.settings.destination.as_str().into();
        let mut awaited = self
            .pending
            .expect(request_id.clone(), from, (&*operation).into());
        let limit = self.ack_timeout(request);
        let waited = async {
            super::shared::up(&target.broker).await;
            awaited.reply().await
        };
        let reply = tokio::time::timeout(limit, waited).await.ok()?;
        Some((Arc::clone(target), reply, operation))
    }

    async fn answer_started(
        self: &Arc<Self>,
        request: &Arc<Request>,
        target: &Arc<Target>,
        reply: crate::pending::Reply,
        operation: Arc<str>,
    ) {
        let is_good = !reply.head.has_error;
        if request.is_job() && is_good {
            {
                let mut jobs = self.jobs.lock();
                jobs.open(request, request.job_key());
                let id = reply.head.request_id.clone();
                jobs.driving(&request.id, target.name(), &id);
            }
            let driven = super::serve::Driven {
                reply,
                target: Arc::clone(target.name()),
                operation,
                held: Some((self.slot_on(request, target).await, target.begin_job())),
            };
            return self.accept(request, driven, true).await;
        }
        self.answer_with(request, reply, &operation).await;
    }

    /// A job that a target had acknowledged: its results are watched anew.
    async fn watch_again(
        self: &Arc<Self>,
        request: &Arc<Request>,
        left: Unfinished,
        phase: InFirstPhase,
    ) {
        let record = left.record;
        let name = record.target.clone();
        {
            let mut jobs = self.jobs.lock();
            jobs.open(request, record.job_key.clone());
            if let Some(job) = jobs.get_mut(&request.id) {
                job.tried.clone_from(&record.tried);
                job.replied = record.replied;
            }
            if let (Some(name), Some(id)) = (&name, record.forwarded_as.last()) {
                jobs.driving(&request.id, name, id);
            }
        }
        request.acknowledge();
        let reply = left.reply.filter(|_| !record.replied);
        if reply.is_some() {
            self.counts.replies_again.add();
        }
        let target = name.as_deref().and_then(|name| self.target(name));
        let shared = Arc::clone(self);
        let request = Arc::clone(request);
        self.tasks.spawn(async move {
            match target {
                Some(target) => {
                    let slot = shared.slot_on(&request, &target).await;
                    let open = target.begin_job();
                    shared
                        .start_job(&request, record.job_key, slot, open, reply)
                        .await;
                }
                None => shared.drive_again(&request, reply, record.tried).await,
            }
            drop(phase);
        });
    }

    /// A concurrency slot of a target, for a job that it had before the restart. `None`: it has none free
    /// at once, and gets fewer new requests only when one of its jobs ends.
    async fn slot_on(&self, request: &Request, target: &Arc<Target>) -> Option<Arc<Marks>> {
        let operation = Operation::new(Arc::clone(&request.function), request.operation.safety);
        let only = |placed: &mainstay_engine::endpoint::Placed<Arc<Target>>| {
            Arc::ptr_eq(&placed.member, target)
        };
        let route = Route {
            filter: Some(&only),
            tracks: true,
            ..Route::default()
        };
        let classify = |result: &Result<Option<Arc<Marks>>, Failure>| match result {
            Ok(_) => Outcome::Success,
            Err(failure) => Outcome::Failure(failure.clone()),
        };
        let take = |attempt: Attempt<Arc<Target>>| {
            let slot = attempt.hold();
            async move { Ok(slot) }
        };
        let taken = self.source.call_on(&operation, route, &classify, take);
        let taken = tokio::time::timeout(Duration::from_millis(100), taken)
            .await
            .ok()?;
        taken.ok().and_then(|done| done.value)
    }

    /// A job that was between two targets.
    async fn drive_again(
        self: &Arc<Self>,
        request: &Arc<Request>,
        reply: Option<crate::store::StoredMessage>,
        tried: Vec<Arc<str>>,
    ) {
        if let Some(reply) = reply {
            self.publish_reply(request, reply).await;
        }
        match self.drive(request, &tried).await {
            Ok(driven) => {
                self.counts.jobs_redriven.add();
                self.accept(request, driven, false).await;
            }
            Err(undriven) => {
                let reason = format!("no other target took it over: {}", undriven.error);
                self.fail_job(&request.id, reason, false).await;
            }
        }
    }
}
