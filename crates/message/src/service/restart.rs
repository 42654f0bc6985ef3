//! What an earlier run of the proxy left: replies are published again, requests driven, jobs watched.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::endpoint::Placed;
use mainstay_engine::{Attempt, Failure, Marks, Operation, Outcome, Route};
use smol_str::SmolStr;

use crate::envelope::RequestHead;
use crate::pending::{Awaited, Reply};
use crate::refusal;
use crate::request::Request;
use crate::store::{Change, Found, Record, Stage, StoredMessage, Unfinished};
use crate::target::Target;

use super::attempt::{Driven, Judged};
use super::intake::InFirstPhase;
use super::shared::{Shared, up};

/// A request that an earlier run left open. It is in the tables already.
pub(super) struct Open {
    request: Arc<Request>,
    left: Unfinished,
    target: Option<Arc<Target>>,
    /// Of a write that was published: its reply is waited for.
    awaited: Option<(Awaited, Arc<str>)>,
    phase: InFirstPhase,
}

impl Shared {
    /// Puts what an earlier run left into the tables, so that whatever is heard from now on finds it there.
    pub(super) async fn remember(self: &Arc<Self>, found: Found) -> Vec<Open> {
        {
            let mut seen = self.seen.lock();
            found.finished.iter().for_each(|id| seen.finish(id));
        }
        if !found.unfinished.is_empty() {
            let count = found.unfinished.len();
            tracing::info!(service = %self.settings.name, count, "going on with what was open");
        }
        let mut all = Vec::with_capacity(found.unfinished.len());
        for left in found.unfinished {
            let Ok(head) = RequestHead::read(&left.request.headers) else {
                // Written by another version: it cannot be answered.
                self.write(vec![Change::Finish { id: left.id }], false)
                    .await;
                continue;
            };
            let request = Arc::new(self.request_of(head, &left));
            request.set_written();
            let mut seen = self.seen.lock();
            seen.open.insert(request.id.clone(), Arc::clone(&request));
            drop(seen);
            all.push(self.remember_one(request, left));
        }
        all
    }

    fn remember_one(self: &Arc<Self>, request: Arc<Request>, left: Unfinished) -> Open {
        let named = left.record.target.as_deref();
        let target = named.and_then(|name| self.target(name).or_else(|| self.rediscover(name)));
        let awaited = match (left.record.stage, &target, left.record.forwarded_as.last()) {
            (Stage::Started, Some(target), Some(id)) if left.reply.is_none() => {
                self.await_again(&request, target, id)
            }
            _ => None,
        };
        if left.record.stage == Stage::Accepted {
            let mut jobs = self.jobs.lock();
            jobs.open(&request, left.record.job_key.clone());
            if let Some(job) = jobs.get_mut(&request.id) {
                job.tried.clone_from(&left.record.tried);
                job.replied = left.record.replied;
            }
            // Results that come before the job goes on wait for that.
            if let (Some(target), Some(id)) = (&target, left.record.forwarded_as.last()) {
                jobs.driving(&request.id, target.name(), id);
            }
        }
        Open {
            request,
            left,
            target,
            awaited,
            phase: InFirstPhase::new(self),
        }
    }

    /// The reply to a write that was, or was about to be, published.
    fn await_again(
        &self,
        request: &Request,
        target: &Target,
        request_id: &SmolStr,
    ) -> Option<(Awaited, Arc<str>)> {
        let operation = Arc::clone(target.operation(&request.function)?);
        let from = target.settings.destination.as_str().into();
        let awaited = self
            .pending
            .expect(request_id.clone(), from, (&*operation).into());
        Some((awaited, operation))
    }

    /// Goes on with what an earlier run left.
    pub(super) fn resume(self: &Arc<Self>, all: Vec<Open>) {
        for open in all {
            let shared = Arc::clone(self);
            self.tasks.spawn(async move { shared.go_on(open).await });
        }
    }

    async fn go_on(self: &Arc<Self>, open: Open) {
        let Open {
            request,
            left,
            target,
            awaited,
            phase,
        } = open;
        match (left.record.stage, left.reply) {
            (Stage::Accepted, reply) => {
                request.acknowledge();
                let reply = reply.filter(|_| !left.record.replied);
                self.watch_again(&request, target, left.record, reply).await;
            }
            (Stage::Received | Stage::Started, Some(reply)) => {
                // Whether it had arrived is not known.
                self.counts.replies_again.add();
                self.publish_reply(&request, reply).await;
                self.finish(&request).await;
            }
            (Stage::Started, None) => self.await_started(&request, target, awaited).await,
            (Stage::Received, None) => self.run(request).await,
        }
        drop(phase);
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

    /// A write that was, or was about to be, published: its reply may still come, and it is not driven
    /// again.
    async fn await_started(
        self: &Arc<Self>,
        request: &Arc<Request>,
        target: Option<Arc<Target>>,
        awaited: Option<(Awaited, Arc<str>)>,
    ) {
        if let (Some(target), Some((mut awaited, operation))) = (target, awaited) {
            let limit = self.ack_timeout(request);
            up(&target.broker).await;
            if let Ok(mut reply) = tokio::time::timeout(limit, awaited.reply()).await {
                match self.judge(request, &reply) {
                    Some(Judged::NotAcknowledged) => reply.acknowledge(),
                    Some(Judged::Refused(_)) | None => {
                        return self
                            .answer_started(request, &target, reply, operation)
                            .await;
                    }
                }
            }
        }
        let reason = "the proxy was restarted while it ran";
        let text = refusal::outcome_unknown(&request.head.operation_id, reason);
        self.refuse(request, text).await;
    }

    async fn answer_started(
        self: &Arc<Self>,
        request: &Arc<Request>,
        target: &Arc<Target>,
        reply: Reply,
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
            let driven = Driven {
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
        target: Option<Arc<Target>>,
        record: Record,
        reply: Option<StoredMessage>,
    ) {
        if reply.is_some() {
            self.counts.replies_again.add();
        }
        if let Some(target) = target {
            let slot = self.slot_on(request, &target).await;
            let open = target.begin_job();
            return self
                .start_job(request, record.job_key, slot, open, reply)
                .await;
        }
        // It was between two targets, or the one that had it is not there any more.
        if let Some(reply) = reply {
            self.send_job_reply(request, reply).await;
        }
        let was_on = record.target.into_iter();
        let tried: Vec<Arc<str>> = record.tried.into_iter().chain(was_on).collect();
        self.drive_on(
            request,
            &tried,
            "the proxy was restarted and its target is not there",
        )
        .await;
    }

    /// A concurrency slot of a target, for a job that it had before the restart. `None`: it has none free
    /// at once, and gets fewer new requests only when one of its jobs ends.
    async fn slot_on(&self, request: &Request, target: &Arc<Target>) -> Option<Arc<Marks>> {
        let operation = Operation::new(Arc::clone(&request.function), request.operation.safety);
        let only = |placed: &Placed<Arc<Target>>| Arc::ptr_eq(&placed.member, target);
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
}
