//! A request on its way to a target that acknowledges it: which one is asked, and what its reply means.

mod error;
mod exchange;

use std::sync::Arc;

use mainstay_engine::endpoint::Placed;
use mainstay_engine::{Attempt, CorrelationId, Marks, Operation, Outcome, Route};
use parking_lot::Mutex;

use crate::hooks::Body;
use crate::pending::Reply;
use crate::refusal::{self, Meaning};
use crate::request::Request;
use crate::target::{OpenJob, Target};

use super::shared::Shared;
pub(crate) use error::{AttemptError, ErrorReply, Undriven};
use exchange::Exchange;

/// A good reply of a target.
pub(crate) struct Driven {
    pub reply: Reply,
    pub target: Arc<str>,
    /// The target's own name of the operation.
    pub operation: Arc<str>,
    /// Of a job: what it holds of its target.
    pub held: Option<(Option<Arc<Marks>>, OpenJob)>,
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
        let fits = |placed: &Placed<Arc<Target>>| {
            let target = &placed.member;
            target.operation(&request.function).is_some() && !tried.contains(target.name())
        };
        // Those whose broker is away come last.
        let rank = |placed: &Placed<Arc<Target>>| {
            let target = &placed.member;
            let own = if self.is_ranked() { target.rank } else { 0 };
            let is_up = target.link().borrow().is_up();
            own.saturating_add(if is_up { 0 } else { UNLINKED })
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
        let exchange = Exchange::new(self, request, &target, tried);
        match exchange.run(&attempt, &open).await {
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

    /// What a reply says about its request. `None`: it is a good one.
    pub(super) fn judge(&self, request: &Request, reply: &Reply) -> Option<Judged> {
        if reply.head.has_error {
            let text = reply.text();
            let own = self.hooks.meaning(&request.function, &text);
            let meaning = own.unwrap_or_else(|| refusal::meaning(&text, &self.settings.rules));
            return Some(Judged::Refused(meaning));
        }
        let body = Body::new(reply.delivery.body.clone());
        let by_hook = self.hooks.acknowledges(&request.function, &body);
        let acknowledged = match (by_hook, &request.operation.acknowledged) {
            (Some(acknowledged), _) => acknowledged,
            (None, Some(expression)) => expression.holds(body.json()),
            (None, None) => true,
        };
        (!acknowledged).then_some(Judged::NotAcknowledged)
    }
}

/// Why a reply is none that a caller waits for.
pub(super) enum Judged {
    /// It is an error.
    Refused(Meaning),
    /// It is no error, and not what the settings or a hook take for an acknowledgement.
    NotAcknowledged,
}
