//! One try at one target: forward the request, wait for its reply, and say what it means.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainstay_engine::{
    Attempt, Blame, CallError, CallErrorKind, Category, CorrelationId, Failure, Operation, Outcome,
    Route, Sent, Severity,
};
use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::broker::{Headers, Link, Publication, PublishError, PublishErrorKind};
use crate::envelope::{DataHandler, RequestHead, forwarded_headers, fresh_id, name};
use crate::object::{ObjectError, ObjectPlace};
use crate::pending::Reply;
use crate::refusal::{self, Meaning};
use crate::request::Request;
use crate::store::{Change, Stage};
use crate::target::{OpenAttempt, Target};

use super::serve::Driven;
use super::shared::Shared;

/// An error reply of a target.
#[derive(Debug, Clone)]
pub(crate) struct ErrorReply {
    pub head: RequestHead,
    pub headers: Headers,
    pub content_type: Option<SmolStr>,
    pub body: Bytes,
    pub meaning: Meaning,
    /// The target's own name of the operation.
    pub operation: Arc<str>,
}

impl ErrorReply {
    pub(crate) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }
}

/// A request that no target acknowledged.
pub(crate) struct Undriven {
    pub error: CallError<AttemptError>,
    /// The last error that a target answered with, if any did: it says more than the silence of another.
    pub refused: Option<Box<ErrorReply>>,
}

impl Undriven {
    /// What went wrong, for a reader.
    pub(crate) fn reason(&self) -> String {
        match (&self.refused, &self.error.parts().kind) {
            (Some(reply), _) => reply.text().into_owned(),
            (None, CallErrorKind::Rejected(rejection)) => rejection.message.clone(),
            (None, CallErrorKind::Failed { failure, .. }) => failure.message.clone().into_owned(),
            (None, CallErrorKind::Neutral(_) | CallErrorKind::Redirected { .. }) => {
                "it was cancelled".to_owned()
            }
        }
    }
}

/// Why a try gave no good reply.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// The request was not published.
    Publish(PublishError),
    /// No reply came in time.
    NoReply {
        waited: Duration,
        /// It works on something older: silence says nothing about it.
        busy: bool,
        /// The connection to its broker was down meanwhile.
        unlinked: bool,
        /// Whether the request left at all.
        sent: Sent,
    },
    /// The target answered with an error.
    Refused(Box<ErrorReply>),
    /// The target answered, and not with what acknowledges.
    NotAcknowledged,
    /// The argument could not be put where the target reads it.
    Object(ObjectError),
    /// A write could not be written down before it would run.
    NotWritten,
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttemptError::Publish(error) => write!(f, "not published: {error}"),
            AttemptError::NoReply {
                waited, busy: true, ..
            } => {
                write!(
                    f,
                    "no acknowledgement within {waited:?}, it is busy with older work"
                )
            }
            AttemptError::NoReply {
                waited,
                unlinked: true,
                ..
            } => {
                write!(
                    f,
                    "no acknowledgement within {waited:?}, the connection to its broker was down"
                )
            }
            AttemptError::NoReply { waited, .. } => {
                write!(f, "no acknowledgement within {waited:?}")
            }
            AttemptError::Refused(reply) => write!(f, "error reply: {}", reply.text()),
            AttemptError::NotAcknowledged => {
                f.write_str("its reply does not acknowledge the request")
            }
            AttemptError::Object(error) => write!(f, "the argument was not passed on: {error}"),
            AttemptError::NotWritten => f.write_str("not written down before it would run"),
        }
    }
}

impl AttemptError {
    /// In the engine's words.
    fn failure(&self) -> Failure {
        let failure = |category| Failure::new(category, self.to_string());
        match self {
            AttemptError::Publish(error) => {
                let category = match &error.kind {
                    PublishErrorKind::TooLarge { .. } => Category::Persistent,
                    PublishErrorKind::Refused { .. } | PublishErrorKind::Unroutable { .. } => {
                        Category::Endpoint
                    }
                    _ => Category::Transient,
                };
                failure(category).sent(error.sent)
            }
            // Straight to the next one, and no mark.
            AttemptError::NoReply {
                busy,
                unlinked,
                sent,
                ..
            } if *busy || *unlinked => failure(Category::Endpoint)
                .severity(Severity::None)
                .blame(Blame::Us)
                .sent(*sent),
            AttemptError::NoReply { sent, .. } => failure(Category::Timeout).sent(*sent),
            AttemptError::Refused(reply) => {
                failure(reply.meaning.category).sent(reply.meaning.sent)
            }
            AttemptError::NotAcknowledged => failure(Category::Transient),
            AttemptError::Object(_) => failure(Category::Transient).blame(Blame::Us).sent(Sent::No),
            AttemptError::NotWritten => failure(Category::Endpoint).blame(Blame::Us).sent(Sent::No),
        }
    }

    /// Whether new requests had better go elsewhere.
    fn speaks_against_target(&self) -> bool {
        match self {
            AttemptError::Publish(error) => matches!(
                error.kind,
                PublishErrorKind::Unroutable { .. } | PublishErrorKind::Refused { .. }
            ),
            AttemptError::NoReply { busy, unlinked, .. } => !busy && !unlinked,
            AttemptError::Refused(reply) => matches!(
                reply.meaning.category,
                Category::Transient | Category::Endpoint
            ),
            AttemptError::NotAcknowledged => true,
            AttemptError::Object(_) | AttemptError::NotWritten => false,
        }
    }
}

/// Added to the rank of a target whose broker is away: more than any rank.
const UNLINKED: u32 = 1 << 30;

fn classify<T>(result: &Result<T, AttemptError>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(error) => Outcome::Failure(error.failure()),
    }
}

impl Shared {
    /// Drives a request to a target that acknowledges it, leaving out those of `tried`.
    pub(super) async fn drive(
        self: &Arc<Self>,
        request: &Arc<Request>,
        tried: &[Arc<str>],
    ) -> Result<Driven, Undriven> {
        let mut operation = Operation::new(Arc::clone(&request.function), request.operation.safety)
            .declared(request.operation.safety_declared);
        // The caller's own id follows the call through audit and logs.
        operation.correlation_id = CorrelationId::parse(&request.head.request_id);
        let fits = |placed: &mainstay_engine::endpoint::Placed<Arc<Target>>| {
            let target = &placed.member;
            target.operation(&request.function).is_some() && !tried.contains(target.name())
        };
        // Those whose broker is away come last.
        let rank = |placed: &mainstay_engine::endpoint::Placed<Arc<Target>>| {
            let target = &placed.member;
            let own = if self.is_ranked() { target.rank } else { 0 };
            own.saturating_add(if target.link().borrow().is_up() {
                0
            } else {
                UNLINKED
            })
        };
        let route = Route {
            filter: Some(&fits),
            rank: Some(&rank),
            tracks: true,
            ..Route::default()
        };
        let refused = Mutex::new(None);
        let work = |attempt: Attempt<Arc<Target>>| {
            let refused = &refused;
            async move {
                let result = self.attempt(request, tried, attempt).await;
                if let Err(AttemptError::Refused(reply)) = &result {
                    *refused.lock() = Some(reply.clone());
                }
                result
            }
        };
        let done = self
            .source
            .call_on(&operation, route, &classify, work)
            .await;
        done.map(|done| done.value).map_err(|error| Undriven {
            error,
            refused: refused.into_inner(),
        })
    }

    async fn attempt(
        self: &Arc<Self>,
        request: &Arc<Request>,
        tried: &[Arc<str>],
        attempt: Attempt<Arc<Target>>,
    ) -> Result<Driven, AttemptError> {
        let target = Arc::clone(&attempt.member);
        let open = target.begin();
        let tried = Try {
            shared: self,
            request,
            target: &target,
            tried,
            request_id: fresh_id(),
        };
        let result = tried.run(&attempt, &open).await;
        match result {
            Ok((reply, operation)) => Ok(Driven {
                held: request
                    .is_job()
                    .then(|| (attempt.hold(), target.begin_job())),
                reply,
                target: Arc::clone(target.name()),
                operation,
            }),
            Err(error) => {
                if error.speaks_against_target() {
                    let change = target.life.lock().failed(&error.to_string());
                    self.follow(&target, change);
                }
                Err(error)
            }
        }
    }

    /// What a good reply must be. `None`: it is one.
    fn judge(&self, request: &Request, reply: &Reply) -> Option<Judged> {
        if reply.head.has_error {
            let text = reply.text();
            let own = self.hooks.meaning(&request.function, &text);
            let meaning = own.unwrap_or_else(|| refusal::meaning(&text, &self.settings.rules));
            return Some(Judged::Refused(meaning));
        }
        let body = || serde_json::from_slice(&reply.delivery.body).unwrap_or_default();
        let by_hook = self.hooks.acknowledges(&request.function, &body());
        let acknowledged = match (by_hook, &request.operation.acknowledged) {
            (Some(acknowledged), _) => acknowledged,
            (None, Some(expression)) => expression.holds(&body()),
            (None, None) => true,
        };
        (!acknowledged).then_some(Judged::NotAcknowledged)
    }
}

enum Judged {
    Refused(Meaning),
    NotAcknowledged,
}

/// One try.
struct Try<'a> {
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
        for (_, delivery) in early {
            self.shared.counts.results_late.add();
            if let Some(it) = delivery.acknowledgement {
                it.acknowledge();
            }
        }
    }
}

impl Try<'_> {
    async fn run(
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
        if let Some(it) = reply.take_acknowledgement() {
            it.acknowledge();
        }
        Err(match judged {
            Judged::Refused(meaning) => AttemptError::Refused(Box::new(ErrorReply {
                head: reply.head,
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
        let shared = self.shared;
        let destination = &self.target.settings.destination;
        let mut message = Publication::new(destination.requests(), body);
        message
            .content_type
            .clone_from(&self.request.message.content_type);
        let (from, caller) = (&self.request.message.headers, &shared.settings.caller);
        message.headers = forwarded_headers(from, caller, destination, operation, &self.request_id);
        if self.request.fetched {
            message
                .headers
                .set(name::DATA_HANDLER, DataHandler::Minio.as_str());
        }
        message.mandatory = true;
        let mut link = self.target.link();
        loop {
            let wait = link.wait_for(|link| link.is_up() || *link == Link::Closed);
            if wait.await.is_err() {
                return Err(AttemptError::Publish(PublishError::unsent(
                    PublishErrorKind::Closed,
                )));
            }
            message.expiry = Some(end.saturating_duration_since(Instant::now()));
            attempt.handed_over();
            match self.target.broker.publish(message.clone()).await {
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
        let record = crate::store::Record {
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
