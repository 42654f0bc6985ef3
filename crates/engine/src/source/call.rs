//! The path of a call: admission, choice of an endpoint, attempt, and what follows a failure.

mod admission;
mod attempt;
mod begin;
mod decision;
mod slot;
mod wait;
mod whole_calls;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::candidates::{Filter, Rank};
use super::held::Fresh;
use super::{Account, Ended, Inner, Member, Need, Source};
use crate::attempt::{Attempt, EndpointId, Marks};
use crate::failure::Classify;
use crate::in_flight::says_nothing;
use crate::operation::{CorrelationId, Operation};
use crate::rejection::{CallError, CallErrorKind, Carried, Rejection, Stopped};
use attempt::AttemptEnd;
use begin::{Begin, Limit};
use decision::{Failed, Progress};
use slot::SlotWaits;
use whole_calls::{CallEnd, WholeCalls};

/// What a face asks of the way to an endpoint. The default asks for nothing.
pub struct Route<'a, M> {
    /// The role it needs; `None`: by the operation's safety and the policy.
    pub need: Option<Need>,
    /// Leaves endpoints out.
    pub filter: Option<Filter<'a, M>>,
    /// Orders endpoints: one of a higher rank is used only when none of a lower one is left. The strategy
    /// chooses among equals.
    pub rank: Option<Rank<'a, M>>,
    /// Whether the work reports by [`Attempt::handed_over`] when bytes leave. If not, every attempt
    /// counts as handed over from its beginning.
    pub tracks: bool,
    /// How long the work may go on after the attempt's limit, to cancel at the back end and wait for
    /// the proof.
    pub grace: Duration,
    /// Why this way, for the audit entry.
    pub reason: Option<&'static str>,
    /// The attempt around this call, where the source stands behind another source's endpoint.
    pub outer: Option<Arc<Marks>>,
    /// The account of a redirected call that goes on with this one.
    pub carried: Option<Carried>,
}

impl<M> Default for Route<'_, M> {
    fn default() -> Self {
        Route {
            need: None,
            filter: None,
            rank: None,
            tracks: false,
            grace: Duration::ZERO,
            reason: None,
            outer: None,
            carried: None,
        }
    }
}

impl<M> fmt::Debug for Route<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("need", &self.need)
            .field("tracks", &self.tracks)
            .finish()
    }
}

/// A result with where it came from.
#[derive(Debug)]
pub struct Done<T> {
    /// The result.
    pub value: T,
    /// The endpoint that gave it.
    pub endpoint: EndpointId,
    /// Attempts made.
    pub attempts: u32,
    /// The call's id.
    pub correlation_id: CorrelationId,
    /// The whole call.
    pub elapsed: Duration,
    /// The policy it ran under.
    pub policy_version: u64,
    /// Health or lag had excluded every endpoint; the least bad answered.
    pub last_resort: bool,
    /// The source's epoch: it rises with every change of the primary.
    pub epoch: u64,
}

/// Something held on an endpoint for longer than one call. Its concurrency slot is given back when it
/// is dropped.
#[derive(Debug)]
pub struct Leased<T> {
    /// What is held.
    pub value: T,
    /// The endpoint it is held on.
    pub endpoint: EndpointId,
    /// The source's epoch when that endpoint was chosen: it rises with every change of the primary.
    pub epoch: u64,
    _slot: Option<Arc<Marks>>,
}

impl<T> Leased<T> {
    /// Takes the value out; the slot is held by the rest.
    pub fn split(self) -> (T, Leased<()>) {
        let Leased {
            value,
            endpoint,
            epoch,
            _slot,
        } = self;
        (
            value,
            Leased {
                value: (),
                endpoint,
                epoch,
                _slot,
            },
        )
    }
}

impl<M: Member> Source<M> {
    /// Runs one-shot work that may be repeated elsewhere: chooses an endpoint, runs the closure under
    /// the policy's limits, and repeats it where that is safe and allowed.
    ///
    /// `classify` says what a result means; a closure of the form `|result| -> Outcome` is enough.
    ///
    /// # Errors
    /// [`CallError`] says whether it was refused or failed, with every attempt.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the attempt in flight: it decides nothing in circuit and budget, and
    /// every permit comes back.
    pub fn call<T, E, F, Fut>(
        &self,
        operation: &Operation,
        classify: &impl Classify<T, E>,
        work: F,
    ) -> impl Future<Output = Result<T, CallError<E>>>
    where
        F: Fn(Attempt<M>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: Send + fmt::Display,
    {
        self.call_local(operation, classify, work)
    }

    /// The same for work that stays on its thread: neither the closure nor what it gives needs to be
    /// `Send`. Where all of them are, the future is `Send` as well.
    ///
    /// # Errors
    /// As [`call`](Source::call).
    ///
    /// # Cancel safety
    /// As [`call`](Source::call).
    pub async fn call_local<T, E, F, Fut>(
        &self,
        operation: &Operation,
        classify: &impl Classify<T, E>,
        work: F,
    ) -> Result<T, CallError<E>>
    where
        F: Fn(Attempt<M>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: fmt::Display,
    {
        let route = Route::default();
        let mut run = Run::open(&self.inner, operation, &route, None);
        run.conduct(classify, &work).await.map(|(value, _)| value)
    }

    /// Like [`call`](Source::call) with what a face asks of the way, and says where the result came
    /// from.
    ///
    /// # Errors
    /// As [`call`](Source::call).
    #[allow(
        clippy::manual_async_fn,
        reason = "a block uses what it captures in place; an async function keeps its arguments twice"
    )]
    pub fn call_on<T, E, F, Fut>(
        &self,
        operation: &Operation,
        mut route: Route<'_, M>,
        classify: &impl Classify<T, E>,
        work: F,
    ) -> impl Future<Output = Result<Done<T>, CallError<E>>>
    where
        F: Fn(Attempt<M>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: Send + fmt::Display,
    {
        async move {
            let carried = route.carried.take();
            let mut run = Run::open(&self.inner, operation, &route, carried);
            let (value, elapsed) = run.conduct(classify, &work).await?;
            Ok(run.done(value, elapsed))
        }
    }

    /// Gets something that is held on an endpoint for longer than one call: a transaction, a
    /// subscription, a stream. What the closure returns is held until the lease is dropped.
    ///
    /// # Errors
    /// As [`call`](Source::call); the account is that of getting it.
    pub async fn lease<T, E, F, Fut>(
        &self,
        operation: &Operation,
        route: Route<'_, M>,
        classify: &impl Classify<(T, Option<Arc<Marks>>), E>,
        work: F,
    ) -> Result<Leased<T>, CallError<E>>
    where
        F: Fn(Attempt<M>) -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, E>> + Send,
        T: Send,
        E: Send + fmt::Display,
    {
        let route = Route {
            tracks: true,
            ..route
        };
        let held = |attempt: Attempt<M>| {
            let slot = attempt.hold();
            let getting = work(attempt);
            async move { getting.await.map(|value| (value, slot)) }
        };
        let done = self.call_on(operation, route, classify, held).await?;
        let (value, slot) = done.value;
        Ok(Leased {
            value,
            endpoint: done.endpoint,
            epoch: done.epoch,
            _slot: slot,
        })
    }
}

/// One call on its way.
struct Run<'a, M: Member, E> {
    inner: &'a Inner<M>,
    operation: &'a Operation,
    route: &'a Route<'a, M>,
    account: Account<'a, M>,
    /// When the whole call ends; `None`: never.
    ends_at: Option<Instant>,
    /// The whole call's limit, from which attempts take their share.
    deadline: Option<Duration>,
    /// Nothing, until something fails or refuses.
    progress: Option<Box<Progress<E>>>,
    whole_calls: WholeCalls,
    /// Of the attempt under way.
    limit: Limit,
    last_resort: bool,
    epoch: u64,
    policy_version: u64,
    /// The moment of the admission, while no wait has made it old.
    fresh: Option<Fresh<M>>,
    /// While every fitting endpoint is at its limit.
    waits: Option<Box<SlotWaits<'a>>>,
}

/// Why a call goes no further.
enum Stop {
    /// Refused; nothing, or nothing more, was tried.
    Rejected(Rejection),
    /// No further attempt.
    Stopped(Stopped),
}

impl<'a, M: Member, E: fmt::Display> Run<'a, M, E> {
    #[inline(always)]
    fn open(
        inner: &'a Inner<M>,
        operation: &'a Operation,
        route: &'a Route<'a, M>,
        carried: Option<Carried>,
    ) -> Self {
        let fresh = Fresh::new(inner);
        let now = fresh.now;
        let policy = &fresh.snapshot.policy;
        let deadline = operation.deadline.or(policy.retry.deadline);
        let mut account = Account::open(inner, operation, now, fresh.at);
        account.route_reason = route.reason;
        if let Some(carried) = carried {
            account.take_over(carried);
        }
        Run {
            inner,
            operation,
            route,
            account,
            // A deadline too far away for the clock is none.
            ends_at: deadline.and_then(|deadline| now.checked_add(deadline)),
            deadline,
            progress: None,
            whole_calls: WholeCalls::default(),
            limit: Limit::default(),
            last_resort: false,
            epoch: 0,
            policy_version: policy.version,
            fresh: Some(fresh),
            waits: None,
        }
    }

    /// The whole way of a call. Returns the result and how long it took.
    async fn conduct<T, F, Fut>(
        &mut self,
        classify: &impl Classify<T, E>,
        work: &F,
    ) -> Result<(T, Duration), CallError<E>>
    where
        F: Fn(Attempt<M>) -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        // What is rare is boxed: the future of a call is moved about, and most calls need none of it.
        let admitted = match self.admit() {
            Ok(None) => Box::pin(self.admit_later()).await,
            Ok(Some(place)) => Ok(place),
            Err(rejection) => Err(rejection),
        };
        let _place = match admitted {
            Ok(place) => place,
            Err(rejection) => return Err(self.reject(rejection)),
        };
        loop {
            // Nothing is held over a wait that is not needed after it: the future has room for all of it.
            let failed = match self.begin() {
                Ok(Begin::Attempt(mut in_flight)) => {
                    match self.attempt(&mut in_flight, classify, work).await {
                        AttemptEnd::Success(value, now, at) => {
                            return Ok((value, self.succeed(now, at)));
                        }
                        AttemptEnd::Neutral(error) => return Err(self.neutral(error)),
                        AttemptEnd::Redirect(error) => return Err(self.redirect(error)),
                        // Its slot is free while the call waits for its next attempt.
                        AttemptEnd::Failure(failed) => Ok(failed),
                    }
                }
                Ok(Begin::Wait(nothing)) => Err(Box::new(nothing)),
                Err(stop) => return Err(self.stop(stop)),
            };
            let stop = match failed {
                Ok(failed) => Box::pin(self.after(failed)).await,
                Err(nothing) => Box::pin(self.wait(*nothing)).await.err(),
            };
            if let Some(stop) = stop {
                return Err(self.stop(stop));
            }
        }
    }

    /// Settles a call that worked.
    fn succeed(&mut self, now: Instant, at: u64) -> Duration {
        self.whole_calls.settle(CallEnd::Answered, now);
        let elapsed = Duration::from_nanos(at.saturating_sub(self.account.began_nanos));
        self.account.settle_success(elapsed);
        elapsed
    }

    fn done<T>(&self, value: T, elapsed: Duration) -> Done<T> {
        Done {
            value,
            endpoint: self.account.endpoint.clone().unwrap_or_default(),
            attempts: self.account.begun,
            correlation_id: self.account.correlation_id,
            elapsed,
            policy_version: self.policy_version,
            last_resort: self.last_resort,
            epoch: self.epoch,
        }
    }

    #[cold]
    fn neutral(&mut self, error: E) -> CallError<E> {
        let id = self.account.correlation_id;
        let (attempts, elapsed) = self.account.settle_at(&Ended::Neutral, Instant::now());
        CallError::new(CallErrorKind::Neutral(error), attempts, id, elapsed)
    }

    #[cold]
    fn redirect(&mut self, error: E) -> CallError<E> {
        let id = self.account.correlation_id;
        let carried = self.account.carry();
        let elapsed = carried.began.elapsed();
        let kind = CallErrorKind::Redirected { error, carried };
        CallError::new(kind, Vec::new(), id, elapsed)
    }

    #[cold]
    fn reject(&mut self, rejection: Rejection) -> CallError<E> {
        let id = self.account.correlation_id;
        let ended = Ended::Rejected(rejection.reason.as_str());
        let (attempts, elapsed) = self.account.settle_at(&ended, Instant::now());
        CallError::new(CallErrorKind::Rejected(rejection), attempts, id, elapsed)
    }

    #[cold]
    fn stop(&mut self, stop: Stop) -> CallError<E> {
        let (stopped, rejection) = match stop {
            Stop::Rejected(rejection) => (Stopped::Circuit, Some(rejection)),
            Stop::Stopped(stopped) => (stopped, None),
        };
        // The budget's refusal hands the first error on, everything else the last.
        let progress = self.progress();
        let (first, last) = (progress.first.take(), progress.last.take());
        let failed = match stopped {
            Stopped::Budget => first.or(last),
            _ => last.or(first),
        };
        match (failed, rejection) {
            (Some(failed), rejection) => self.fail(*failed, stopped, rejection),
            (None, Some(rejection)) => self.reject(rejection),
            (None, None) => self.reject(deadline_passed()),
        }
    }

    #[cold]
    fn fail(
        &mut self,
        mut failed: Failed<E>,
        stopped: Stopped,
        rejection: Option<Rejection>,
    ) -> CallError<E> {
        let now = Instant::now();
        let end = match says_nothing(&failed.failure) {
            true => CallEnd::Ours,
            false if failed.failure.weight(1) > 0 => CallEnd::Failed,
            false => CallEnd::Answered,
        };
        self.whole_calls.settle(end, now);
        failed.failure.sent = self.account.sent(failed.failure.sent);
        let id = self.account.correlation_id;
        let (attempts, elapsed) = self
            .account
            .settle_at(&Ended::Failure(&failed.failure), now);
        let Failed { error, failure, .. } = failed;
        CallError::new(
            CallErrorKind::Failed {
                error,
                failure,
                stopped,
                rejection,
            },
            attempts,
            id,
            elapsed,
        )
    }
}

fn deadline_passed() -> Rejection {
    Rejection::new(
        crate::rejection::Reason::DeadlineExceeded,
        None,
        "the deadline passed before anything was tried; give the call more time",
    )
}
