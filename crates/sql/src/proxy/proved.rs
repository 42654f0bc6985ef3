//! What became of a COMMIT whose answer was lost: asked of whoever is primary, until it is known or the time for
//! it is over.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::endpoint::Placed;
use mainstay_engine::event::EventKind;
use mainstay_engine::rejection::{CallErrorParts, Carried};
use mainstay_engine::{CallErrorKind, Category, EndpointId, Failure, Operation, Sent};
use tokio::time::Instant;

use super::run::answer;
use super::{DataProxy, Member};
use crate::database::{Access, Answer, Request, Scope, Work};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError, Verdict};
use crate::proof::{CommitWatch, Commits, Fate, Mark, Proving};
use crate::transaction::commits_by_itself;

/// One look takes no longer, so that a primary that was lost meanwhile is not asked for ever.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How much longer an endpoint may take to end a look that is cut.
const LOOK_GRACE: Duration = Duration::from_millis(400);

const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What was found out, and where.
pub(super) struct Found {
    pub(super) fate: Fate,
    pub(super) endpoint: Option<EndpointId>,
}

/// A lost COMMIT of a request.
struct Lost {
    error: SqlError,
    /// `None`: the account of its call is closed already.
    carried: Option<Carried>,
}

/// What follows once its fate is known.
enum Next {
    Done(Answer),
    Fails(SqlError),
    /// With what it fails where it may not be run again.
    Again(Carried, SqlError),
}

impl DataProxy {
    /// Whether a request goes the way with a proof.
    pub(super) fn is_proven(&self, request: &Request, scope: &Scope) -> bool {
        // The outermost proxy sees to it.
        if scope.proving.is_some() {
            return false;
        }
        request.options.idempotency_key.is_some() || self.is_watched(request)
    }

    pub(super) async fn run_proven(
        &self,
        request: &Request,
        scope: Scope,
    ) -> Result<Answer, SqlError> {
        match request.options.idempotency_key.is_some() {
            true => self.run_keyed(request, scope).await,
            false => self.run_watched(request, scope).await,
        }
    }

    fn commits(&self) -> Option<&Commits> {
        self.shared.proofs.as_ref()?.commits.as_ref()
    }

    /// Whether its commit is to be proven: every batch, and a single statement that only changes rows. Others
    /// cannot run in a transaction.
    fn is_watched(&self, request: &Request) -> bool {
        if request.access == Access::ReadOnly || self.commits().is_none() {
            return false;
        }
        match &request.work {
            Work::Statement { text, .. } => {
                request.class_of(text, &self.shared.schema).is_single_dml
            }
            Work::Many { .. } | Work::Batch { .. } | Work::Script { .. } => true,
        }
    }

    /// A watch over one transaction, where there is to be one.
    pub(super) fn watch(&self, access: Access, scope: &Scope) -> Option<Arc<Proving>> {
        let commits = self.commits()?;
        if access == Access::ReadOnly || scope.proving.is_some() {
            return None;
        }
        let watch = CommitWatch::new(commits.form, Arc::clone(&commits.table));
        Some(Arc::new(Proving {
            key: None,
            commit: Some(watch),
        }))
    }

    /// Runs a request that is a transaction of its own. One whose COMMIT provably did not take place is run again,
    /// as often as the policy repeats a call.
    async fn run_watched(&self, request: &Request, scope: Scope) -> Result<Answer, SqlError> {
        let proving = self.watch(request.access, &scope);
        let scope = Scope { proving, ..scope };
        let Some(watch) = scope.proving.as_ref().and_then(|it| it.commit.as_ref()) else {
            return Err(SqlError::internal("a commit is proven that nobody watches"));
        };
        // Its deadline shrinks with each run.
        let (mut request, mut carried) = (Cow::Borrowed(request), None);
        let limit = self.source().snapshot().policy.retry.deadline;
        let deadline = request.options.deadline.or(limit);
        let ends_at = deadline.and_then(|limit| Instant::now().checked_add(limit));
        let mut runs_left = self.source().snapshot().policy.retry.attempts_max;
        loop {
            runs_left = runs_left.saturating_sub(1);
            let ran = self.run_once(&request, request.safety, &scope, carried.take());
            let error = match ran.await {
                Ok(done) => return Ok(answer(done)),
                Err(error) => error,
            };
            let operation = self.operation(&request, request.safety, &scope);
            let lost = self.lost(error.into_parts(), &operation, &request, watch)?;
            let next = self.settle(lost, &operation, &request, watch).await;
            let left = ends_at.map(|end| end.saturating_duration_since(Instant::now()));
            carried = match next {
                Next::Done(answer) => return Ok(answer),
                Next::Fails(error) => return Err(error),
                Next::Again(open, _) if runs_left > 0 && left != Some(Duration::ZERO) => Some(open),
                Next::Again(open, error) => return Err(self.close(&operation, open, error)),
            };
            if left.is_some() {
                request.to_mut().options.deadline = left;
            }
        }
    }

    /// The COMMIT that a call has lost; any other end is its error.
    fn lost(
        &self,
        parts: CallErrorParts<SqlError>,
        operation: &Operation,
        request: &Request,
        watch: &CommitWatch,
    ) -> Result<Lost, SqlError> {
        match parts.kind {
            CallErrorKind::Redirected { mut error, carried }
                if error.detail().verdict == Verdict::CommitLost =>
            {
                error.detail_mut().correlation_id = Some(parts.correlation_id);
                let carried = Some(carried);
                return Ok(Lost { error, carried });
            }
            _ => {}
        }
        let error = self.failed(parts, operation, request.access, request.safety);
        match (error.sent(), watch.mark()) {
            // Cut while COMMIT was under way, as when the endpoint goes down.
            (Sent::Maybe, Some(_)) => Ok(Lost {
                error,
                carried: None,
            }),
            // Cut before, and none was ever sent: what there was of it is rolled back. MySQL may keep some.
            (Sent::Maybe, None) if !watch.was_sent() && self.shared.dialect != Dialect::MySql => {
                Err(never_committed(error))
            }
            _ => Err(error),
        }
    }

    /// Finds out and closes the account, unless the call goes on.
    async fn settle(
        &self,
        lost: Lost,
        operation: &Operation,
        request: &Request,
        watch: &CommitWatch,
    ) -> Next {
        let Lost { mut error, carried } = lost;
        let ran_on = error.detail().endpoint.clone();
        let endpoint = ran_on.as_deref().map(|path| first_and_rest(path).0.into());
        if let (Some(_), Some(endpoint)) = (&carried, &endpoint) {
            self.source().blame(endpoint, error.failure());
        }
        let found = self.fate(watch, ran_on.as_deref()).await;
        let shared = &self.shared;
        let keeps = || commits_by_itself(shared.dialect, &shared.schema, request);
        match (found.fate, carried) {
            (Fate::Committed, carried) => {
                let mut answer = watch.take_answer().unwrap_or_default();
                answer.meta.cache = "off";
                answer.meta.policy_version = self.source().snapshot().policy.version;
                answer.meta.correlation_id = error.detail().correlation_id;
                let endpoint = found.endpoint.or(endpoint).unwrap_or_default();
                answer.meta.endpoint = Some(endpoint.clone());
                if let Some(carried) = carried {
                    let settled = self
                        .source()
                        .settle_carried_success(operation, carried, endpoint);
                    answer.meta.elapsed = settled.elapsed;
                    answer.meta.attempts = settled.attempts;
                    answer.meta.correlation_id = Some(settled.correlation_id);
                }
                return Next::Done(answer);
            }
            (Fate::Aborted { is_whole }, carried) => {
                let is_whole = is_whole && !keeps();
                error = instead_of(&error, aborted(Code::AttemptsFailed, is_whole));
                match carried {
                    Some(carried) if is_whole => return Next::Again(carried, error),
                    Some(carried) => error = self.close(operation, carried, error),
                    None => {}
                }
            }
            (Fate::Unknown, Some(carried)) => error = self.close(operation, carried, error),
            (Fate::Unknown, None) => {}
        }
        error.detail_mut().failure.generation = None;
        Next::Fails(error)
    }

    /// Ends the account of a call with its error, which says what is in it.
    fn close(&self, operation: &Operation, carried: Carried, mut error: SqlError) -> SqlError {
        let attempts = self
            .source()
            .settle_carried(operation, carried, error.failure());
        error.detail_mut().attempts = attempts;
        error
    }

    /// What became of the watched COMMIT.
    pub(super) async fn fate(&self, watch: &CommitWatch, ran_on: Option<&str>) -> Found {
        let unknown = Found {
            fate: Fate::Unknown,
            endpoint: None,
        };
        let (Some(mark), Some(commits)) = (watch.mark(), self.commits()) else {
            return unknown;
        };
        let found = self.find_out(&mark, ran_on, commits.wait).await;
        let mut found = found.unwrap_or_else(|| Found {
            fate: Fate::Unknown,
            endpoint: ran_on.map(|path| first_and_rest(path).0.into()),
        });
        match found.fate {
            // Of several COMMITs one did not take place: the others may have.
            Fate::Aborted { .. } if !watch.is_only() => found = unknown,
            Fate::Aborted { .. } => watch.forget(),
            _ => {}
        }
        self.source().publish(EventKind::CommitProven {
            endpoint: found.endpoint.clone(),
            fate: found.fate.as_str(),
        });
        found
    }

    /// Asks whoever is primary until there is an answer, at most for `limit`; `None`: there was none.
    pub(super) async fn find_out(
        &self,
        mark: &Mark,
        ran_on: Option<&str>,
        limit: Duration,
    ) -> Option<Found> {
        let end = Instant::now() + limit;
        let mut pause = PAUSE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            if let Some((endpoint, member)) = self.who_knows(ran_on) {
                let within = ran_on.map(first_and_rest);
                let within = within.filter(|(first, _)| *first == endpoint.as_str());
                let within = within.and_then(|(_, rest)| rest);
                let limit = left.min(LOOK_MAX);
                let look = member.prove(mark, within, limit);
                let look = tokio::time::timeout(limit + LOOK_GRACE, look);
                if let Ok(Ok(fate)) = look.await {
                    let endpoint = Some(endpoint);
                    return Some(Found { fate, endpoint });
                }
            }
            // It is gone, or not primary any more: who is now?
            self.source().urge();
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// The primary; of endpoints that are all alike the one that it ran on.
    fn who_knows(&self, ran_on: Option<&str>) -> Option<(EndpointId, Member)> {
        let snapshot = self.source().snapshot();
        let placed: Option<&Placed<Member>> = match (snapshot.has_roles(), ran_on) {
            (true, _) => snapshot.primary(),
            (false, Some(path)) => snapshot.endpoint(first_and_rest(path).0),
            (false, None) => match snapshot.endpoints.as_slice() {
                [only] => Some(only),
                _ => None,
            },
        };
        placed.map(|placed| (placed.endpoint.id.clone(), Arc::clone(&placed.member)))
    }
}

/// The endpoint of this source in a path, and the path within it.
fn first_and_rest(path: &str) -> (&str, Option<&str>) {
    match path.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    }
}

/// No endpoint could tell what became of a commit, or there was none to ask.
pub(super) fn nobody_answered() -> SqlError {
    let failure = Failure::new(
        Category::Timeout,
        "nobody told in time what became of a commit",
    );
    SqlError::new(Code::AttemptsFailed, failure.sent(Sent::YesUnprocessed)).hint("ask again")
}

/// What was found out, with the account of the error that was known before.
fn instead_of(known: &SqlError, mut found: SqlError) -> SqlError {
    let (known, detail) = (known.detail(), found.detail_mut());
    detail.endpoint.clone_from(&known.endpoint);
    detail.attempts.clone_from(&known.attempts);
    detail.correlation_id = known.correlation_id;
    found
}

/// A transaction that was given up before its COMMIT.
fn never_committed(mut error: SqlError) -> SqlError {
    let detail = error.detail_mut();
    detail.code = match detail.failure.category {
        Category::Timeout => Code::DeadlineExceeded,
        _ => Code::AttemptsFailed,
    };
    detail.failure.sent = Sent::YesUnprocessed;
    error.hint("no COMMIT was sent, so nothing was changed; send it again, or give it more time")
}

/// A COMMIT that did not take place. `is_whole`: nothing is left of the transaction.
pub(super) fn aborted(code: Code, is_whole: bool) -> SqlError {
    let (message, sent, hint) = match is_whole {
        true => (
            "the answer to COMMIT was lost, and the proof shows that it did not take place: nothing was changed",
            Sent::YesUnprocessed,
            "send it again",
        ),
        false => (
            "the answer to COMMIT was lost, and the proof shows that it did not take place; what statements of it committed by themselves, or wrote into tables without transactions, is there to stay",
            Sent::Maybe,
            "look what is there before you send it again",
        ),
    };
    let failure = Failure::new(Category::Transient, message).sent(sent);
    SqlError::new(code, failure).hint(hint)
}
