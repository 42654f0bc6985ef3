//! One request: as what it is taken for, and once more as a write if it turns out to be one.

use std::future::Future;

use mainstay_engine::endpoint::Placed;
use mainstay_engine::event::EventKind;
use mainstay_engine::rejection::{CallErrorParts, Carried};
use mainstay_engine::{Attempt, CallError, CallErrorKind, Done, Operation, Route, Safety};

use super::route::{operation, path, route};
use super::{DataProxy, Member, errors};
use crate::database::{Access, Answer, Request, Scope, Work};
use crate::error::{Code, SqlError};

impl DataProxy {
    pub(super) fn operation(&self, request: &Request, safety: Safety, scope: &Scope) -> Operation {
        operation(request.name.clone(), safety, &request.options, scope)
    }

    /// Runs a request, once more as a write if a read-only session says that it is one.
    #[allow(
        clippy::manual_async_fn,
        reason = "a block uses what it captures in place; an async function keeps its arguments twice"
    )]
    pub(super) fn run_request(
        &self,
        request: &Request,
        scope: Scope,
    ) -> impl Future<Output = Result<Answer, SqlError>> + Send {
        async move {
            self.refuse_unavailable(&request.options)?;
            if self.is_proven(request, &scope) {
                return Box::pin(self.run_proven(request, scope)).await;
            }
            let error = match self.run_once(request, request.safety, &scope, None).await {
                Ok(done) => return Ok(answer(done)),
                Err(error) => error,
            };
            Box::pin(self.go_on(request, scope, error)).await
        }
    }

    /// What follows when the first way gave no answer.
    async fn go_on(
        &self,
        request: &Request,
        scope: Scope,
        error: CallError<SqlError>,
    ) -> Result<Answer, SqlError> {
        let parts = error.into_parts();
        match parts.kind {
            CallErrorKind::Redirected { .. } => self.run_as_write(request, scope, parts).await,
            _ => {
                let operation = self.operation(request, request.safety, &scope);
                Err(self.failed(parts, &operation, request.access, request.safety))
            }
        }
    }

    /// The statement writes after all. From a session that we keep read-only it runs once more, on the
    /// primary; from the believed primary itself it does not: somebody else is primary now.
    async fn run_as_write(
        &self,
        request: &Request,
        scope: Scope,
        parts: CallErrorParts<SqlError>,
    ) -> Result<Answer, SqlError> {
        // What the caller declared to be a read stays one. And behind another proxy's endpoint only that
        // proxy knows the primary and what may be repeated.
        let stays = request.access == Access::ReadWrite
            || scope.attempt.is_some()
            || request.options.safety.is_some();
        if stays {
            let operation = self.operation(request, request.safety, &scope);
            return Err(self.failed(parts, &operation, request.access, request.safety));
        }
        let CallErrorKind::Redirected { carried, .. } = parts.kind else {
            return Err(SqlError::internal("a redirect without its account"));
        };
        self.learn(request);
        let mut write = request.clone();
        // Of a text that was taken for a read.
        write.class = None;
        write.access = Access::ReadWrite;
        write.safety = Safety::Write;
        let done = self
            .run_once(&write, Safety::Write, &scope, Some(carried))
            .await;
        match done {
            Ok(done) => Ok(answer(done)),
            Err(error) => {
                let operation = self.operation(&write, Safety::Write, &scope);
                let parts = error.into_parts();
                Err(self.failed(parts, &operation, write.access, write.safety))
            }
        }
    }

    /// The believed primary says that it is read-only: nothing happened, and nothing is sent again.
    pub(super) fn not_primary(
        &self,
        error: SqlError,
        carried: Carried,
        operation: &Operation,
    ) -> SqlError {
        self.source().urge();
        self.source()
            .settle_carried(operation, carried, error.failure());
        let mut failure = error.failure().clone();
        failure.retry_after = Some(self.source().snapshot().policy.health.urgent_interval);
        SqlError::new(Code::NoPrimary, failure).hint(
            "the server that was primary is read-only now; nothing was written: try again when the roles were looked up anew",
        )
    }

    /// A text that was taken for a read is a write.
    pub(super) fn learn(&self, request: &Request) {
        if let Work::Statement { text, .. } = &request.work {
            // Callers who met it together learned it together.
            if !self.shared.schema.remember_write(text) {
                return;
            }
            let fingerprint = self.shared.schema.classify(text).fingerprint;
            let fingerprint = format!("{fingerprint:016x}");
            self.source()
                .publish(EventKind::LearnedWrite { fingerprint });
        }
    }

    #[allow(clippy::manual_async_fn, reason = "as above")]
    pub(super) fn run_once<'a>(
        &'a self,
        request: &'a Request,
        safety: Safety,
        scope: &'a Scope,
        carried: Option<Carried>,
    ) -> impl Future<Output = Result<Done<Answer>, CallError<SqlError>>> + Send + 'a {
        async move {
            let operation = self.operation(request, safety, scope);
            let wanted = self.wanted(&request.options, safety, scope).await;
            let filter = |placed: &Placed<Member>| wanted.admits(placed);
            let route = Route {
                carried,
                ..route(wanted, &filter, &request.options, request.access, scope)
            };
            let work = |attempt: Attempt<Member>| {
                let (member, attempt) = attempt.split();
                let endpoint = attempt.endpoint.clone();
                let scope = self.within(attempt, wanted, scope);
                async move {
                    let ran = member.collect(request, scope).await;
                    ran.map_err(|error| errors::at(&endpoint, error))
                }
            };
            let writing = self.begin_write(&request.options, safety);
            let source = self.source();
            let ended = source
                .call_on(&operation, route, &errors::classify, work)
                .await;
            match writing.is_counted() {
                true => Box::pin(self.end_write(writing, ended)).await,
                false => ended,
            }
        }
    }
}

pub(super) fn answer(done: Done<Answer>) -> Answer {
    let mut answer = done.value;
    answer.meta.endpoint = Some(path(&done.endpoint, answer.meta.endpoint.as_deref()));
    answer.meta.attempts = done.attempts;
    answer.meta.cache = "off";
    answer.meta.elapsed = done.elapsed;
    answer.meta.correlation_id = Some(done.correlation_id);
    answer.meta.policy_version = done.policy_version;
    answer.meta.last_resort |= done.last_resort;
    answer
}
