//! The way of one request: written down, driven to a target, answered.

use std::sync::Arc;

use futures_util::future;
use mainstay_engine::{CallErrorKind, Sent, Stopped};
use tokio::sync::oneshot;

use crate::broker::PublishError;
use crate::envelope::DataHandler;
use crate::pending::Reply;
use crate::refusal;
use crate::request::{Request, publication};
use crate::store::{Change, StoredMessage};

use super::answer::{Answer, Told, relayed, stored};
use super::attempt::{AttemptError, Undriven};
use super::intake::InFirstPhase;
use super::shared::Shared;

impl Shared {
    /// Serves a request to the end of its first phase.
    pub(super) async fn serve(self: &Arc<Self>, request: Arc<Request>, _phase: InFirstPhase) {
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
        reply.acknowledge();
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

    pub(super) async fn publish_one(
        &self,
        front: usize,
        message: StoredMessage,
    ) -> Result<(), PublishError> {
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
}
