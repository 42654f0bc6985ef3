//! One try at one target: forward the request, wait for its reply, and say what it means.

use std::sync::Arc;

use bytes::Bytes;
use mainstay_engine::{Attempt, Sent};
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::broker::{Link, Publication, PublishError, PublishErrorKind};
use crate::envelope::{DataHandler, forwarded_headers, fresh_id, name};
use crate::object::ObjectPlace;
use crate::pending::Reply;
use crate::request::Request;
use crate::store::{Change, Record, Stage};
use crate::target::{OpenAttempt, Target};

use super::{AttemptError, ErrorReply, Judged};
use crate::service::shared::Shared;

/// One try.
pub(super) struct Exchange<'a> {
    shared: &'a Arc<Shared>,
    request: &'a Arc<Request>,
    target: &'a Arc<Target>,
    tried: &'a [Arc<str>],
    request_id: SmolStr,
}

/// Ends a job's attempt when it is dropped before it was acknowledged: what came of it is dropped.
struct Driving<'a> {
    shared: &'a Arc<Shared>,
    id: &'a SmolStr,
    acknowledged: bool,
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if self.acknowledged {
            return;
        }
        let early = self.shared.jobs.lock().attempt_over(self.id);
        for (_, mut delivery) in early {
            self.shared.counts.results_late.add();
            delivery.acknowledge();
        }
    }
}

impl<'a> Exchange<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        request: &'a Arc<Request>,
        target: &'a Arc<Target>,
        tried: &'a [Arc<str>],
    ) -> Self {
        Exchange {
            shared,
            request,
            target,
            tried,
            request_id: fresh_id(),
        }
    }

    /// Gives a good reply, and by which name the target knows the operation.
    pub(super) async fn run(
        &self,
        attempt: &Attempt<Arc<Target>>,
        open: &OpenAttempt,
    ) -> Result<(Reply, Arc<str>), AttemptError> {
        let Some(operation) = self.target.operation(&self.request.function).cloned() else {
            // Its map has changed since it was chosen.
            return Err(AttemptError::NotAcknowledged);
        };
        let (body, object) = self.body().await?;
        let result = self.exchange(attempt, open, &operation, body).await;
        if let (Some(place), Err(_)) = (object, &result) {
            self.shared.remove_object(place);
        }
        result.map(|reply| (reply, operation))
    }

    async fn exchange(
        &self,
        attempt: &Attempt<Arc<Target>>,
        open: &OpenAttempt,
        operation: &Arc<str>,
        body: Bytes,
    ) -> Result<Reply, AttemptError> {
        let shared = self.shared;
        if self.request.is_write() {
            self.write_down().await?;
        }
        let mut driving = self.request.is_job().then(|| {
            let mut jobs = shared.jobs.lock();
            jobs.driving(&self.request.id, self.target.name(), &self.request_id);
            Driving {
                shared,
                id: &self.request.id,
                acknowledged: false,
            }
        });
        let destination = &self.target.settings.destination;
        let mut awaited = shared.pending.expect(
            self.request_id.clone(),
            destination.as_str().into(),
            SmolStr::new(operation),
        );
        // From here on the target is waited for; what was put down for it before took its own time.
        let end = Instant::now() + shared.ack_timeout(self.request);
        let publishing = self.publish(attempt, operation, body, end);
        let before = self.link_number();
        match first_of(publishing, awaited.reply(), end).await {
            Came::Reply(reply) => return self.judged(*reply, operation, &mut driving),
            Came::Error(error) => return Err(error),
            Came::Published | Came::Nothing => {}
        }
        match tokio::time::timeout_at(end, awaited.reply()).await {
            Ok(reply) => self.judged(reply, operation, &mut driving),
            Err(_) => Err(AttemptError::NoReply {
                waited: shared.ack_timeout(self.request),
                busy: open.waits_behind_other_work(),
                unlinked: before.is_none() || before != self.link_number(),
                sent: match attempt.is_handed_over() {
                    true => Sent::Maybe,
                    false => Sent::No,
                },
            }),
        }
    }

    /// Which connection to the target's broker stands; `None`: none does.
    fn link_number(&self) -> Option<u64> {
        match *self.target.link().borrow() {
            Link::Up { number, .. } => Some(number),
            Link::Down { .. } | Link::Closed => None,
        }
    }

    fn judged(
        &self,
        mut reply: Reply,
        operation: &Arc<str>,
        driving: &mut Option<Driving<'_>>,
    ) -> Result<Reply, AttemptError> {
        self.target.life.lock().sign(Instant::now());
        let Some(judged) = self.shared.judge(self.request, &reply) else {
            if let Some(driving) = driving {
                driving.acknowledged = true;
            }
            return Ok(reply);
        };
        // It is used up: what follows from it is decided here.
        reply.acknowledge();
        Err(match judged {
            Judged::Refused(meaning) => AttemptError::Refused(Box::new(ErrorReply {
                headers: reply.delivery.headers,
                content_type: reply.delivery.content_type,
                body: reply.delivery.body,
                meaning,
                operation: Arc::clone(operation),
            })),
            Judged::NotAcknowledged => AttemptError::NotAcknowledged,
        })
    }

    /// Publishes the request as soon as the connection stands. Nothing that may have left is repeated: if
    /// the confirmation is lost, the reply tells.
    async fn publish(
        &self,
        attempt: &Attempt<Arc<Target>>,
        operation: &Arc<str>,
        body: Bytes,
        end: Instant,
    ) -> Result<(), AttemptError> {
        let mut link = self.target.link();
        loop {
            let wait = link.wait_for(|link| link.is_up() || *link == Link::Closed);
            if wait.await.is_err() {
                return Err(AttemptError::Publish(PublishError::unsent(
                    PublishErrorKind::Closed,
                )));
            }
            let message = self.message(operation, &body, end);
            attempt.handed_over();
            match self.target.broker.publish(message).await {
                Ok(()) => return Ok(()),
                Err(error) => match error.kind {
                    PublishErrorKind::NotConnected { .. } => tokio::task::yield_now().await,
                    PublishErrorKind::Lost { .. } if error.sent == Sent::No => {}
                    PublishErrorKind::Lost { .. } => return Ok(()),
                    _ => return Err(AttemptError::Publish(error)),
                },
            }
        }
    }

    /// The request as the target gets it, worth nothing after `end`.
    fn message(&self, operation: &Arc<str>, body: &Bytes, end: Instant) -> Publication {
        let destination = &self.target.settings.destination;
        let told = &self.request.message;
        let mut message = Publication::new(destination.requests(), body.clone());
        message.content_type.clone_from(&told.content_type);
        let caller = &self.shared.settings.caller;
        let id = &self.request_id;
        message.headers = forwarded_headers(&told.headers, caller, destination, operation, id);
        if self.request.fetched {
            let handler = DataHandler::Minio.as_str();
            message.headers.set(name::DATA_HANDLER, handler);
        }
        message.expiry = Some(end.saturating_duration_since(Instant::now()));
        message.mandatory = true;
        message
    }

    /// What the target gets, and where it was put if it only gets a place.
    async fn body(&self) -> Result<(Bytes, Option<ObjectPlace>), AttemptError> {
        let request = self.request;
        let target = self.target.name();
        let own = self
            .shared
            .hooks
            .rewrite(&request.function, target, &request.message.body);
        let body = own.unwrap_or_else(|| request.message.body.clone());
        if !request.fetched {
            return Ok((body, None));
        }
        let put = self.shared.put_object(request, body).await;
        let place = put.map_err(AttemptError::Object)?;
        let text = serde_json::to_vec(&place).unwrap_or_default();
        Ok((text.into(), Some(place)))
    }

    /// Writes down that a write is about to be published: from then on it must not be driven again.
    async fn write_down(&self) -> Result<(), AttemptError> {
        let record = Record {
            stage: Stage::Started,
            tried: self.tried.to_vec(),
            target: Some(Arc::clone(self.target.name())),
            forwarded_as: vec![self.request_id.clone()],
            ..self.request.record()
        };
        let update = Change::Update {
            id: self.request.id.clone(),
            record,
        };
        match self.shared.write(vec![update], true).await {
            true => Ok(()),
            false => Err(AttemptError::NotWritten),
        }
    }
}

enum Came {
    Reply(Box<Reply>),
    Error(AttemptError),
    Published,
    Nothing,
}

/// The reply, which may come before the confirmation, or the confirmation, or the end of the time.
async fn first_of(
    publishing: impl Future<Output = Result<(), AttemptError>>,
    reply: impl Future<Output = Reply>,
    end: Instant,
) -> Came {
    tokio::select! {
        biased;
        reply = reply => Came::Reply(Box::new(reply)),
        published = publishing => match published {
            Ok(()) => Came::Published,
            Err(error) => Came::Error(error),
        },
        () = tokio::time::sleep_until(end) => Came::Nothing,
    }
}
