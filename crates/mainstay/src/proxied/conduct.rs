//! The engine's call around one method.

use std::fmt::{self, Display};
use std::future::{Future, ready};
use std::sync::Arc;

use mainstay_engine::{
    Blame, CallError, CallErrorKind, Category, Failure, Operation, Outcome, Sent, Source,
};

use super::error::{Cause, MethodError, Parts};
use super::given::{Given, is_nothing};
use super::rules::Judge;
use crate::blocking::Runtime;

/// What answers instead of a method that gave no result.
pub type Fallback<'a, T, E> = &'a (dyn Fn(MethodError<E>) -> Result<T, E> + Send + Sync);

/// A fallback that is always the same value.
pub fn value<T, E>(
    value: T,
) -> impl Fn(MethodError<E>) -> Result<T, E> + Send + Sync + Clone + 'static
where
    T: Clone + Send + Sync + 'static,
{
    move |_| Ok(value.clone())
}

/// The conduct of the methods of one proxy: its source, which methods are included, its rules. Copies
/// share everything.
pub struct Conduct<R> {
    shared: Arc<Shared<R>>,
}

pub(super) struct Shared<R> {
    pub(super) source: Source,
    pub(super) methods: Box<[Entry]>,
    pub(super) rules: R,
    /// Where methods wait that are not asynchronous.
    pub(super) runtime: Option<Arc<Runtime>>,
}

pub(super) struct Entry {
    pub(super) name: &'static str,
    /// `None`: handed through.
    pub(super) operations: Option<Operations>,
}

/// A method as an operation.
pub(super) struct Operations {
    pub(super) usual: Operation,
    /// The same with one attempt, also if the policy changes meanwhile: it gets the arguments themselves.
    once: Operation,
}

impl Operations {
    pub(super) fn new(usual: Operation) -> Self {
        let once = usual.clone().attempts_max(1);
        Operations { usual, once }
    }
}

impl<R> Clone for Conduct<R> {
    fn clone(&self) -> Self {
        Conduct {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<R> Conduct<R> {
    pub(super) fn new(shared: Shared<R>) -> Self {
        Conduct {
            shared: Arc::new(shared),
        }
    }

    pub(super) fn shared(&self) -> &Shared<R> {
        &self.shared
    }

    /// The source behind it: policy, circuit, events, numbers, control.
    pub fn source(&self) -> &Source {
        &self.shared.source
    }

    /// The names of the methods that are included.
    pub fn included(&self) -> impl Iterator<Item = &'static str> + '_ {
        let included = |entry: &&Entry| entry.operations.is_some();
        self.shared
            .methods
            .iter()
            .filter(included)
            .map(|entry| entry.name)
    }

    /// Whether the method of that number is handed through.
    #[inline]
    pub fn passes(&self, method: usize) -> bool {
        self.operations(method).is_none()
    }

    #[inline]
    fn operations(&self, method: usize) -> Option<&Operations> {
        self.shared.methods.get(method)?.operations.as_ref()
    }

    /// Runs an asynchronous method with its arguments, of which `again` makes others. An attempt that can
    /// have no successor gets the arguments themselves.
    ///
    /// # Errors
    /// An error that is not transient as it is; the last transient one, and every refusal, wrapped by
    /// the rules.
    ///
    /// # Cancel safety
    /// As [`Source::call`].
    pub async fn call<A, T, E, F, Fut>(
        &self,
        method: usize,
        fallback: Option<Fallback<'_, T, E>>,
        given: A,
        again: impl Fn(&A) -> A,
        work: F,
    ) -> Result<T, E>
    where
        R: Judge<E>,
        F: Fn(A) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Display,
    {
        let Some(operations) = self.operations(method) else {
            return work(given).await;
        };
        let (operation, given) = self.prepare(operations, given);
        let classify = |result: &Result<T, E>| self.classify(result);
        let called = self
            .shared
            .source
            .call_local(operation, &classify, |_attempt| work(given.give(&again)));
        match called.await {
            Ok(value) => Ok(value),
            Err(error) => self.conclude(method, error, fallback),
        }
    }

    /// Runs a method that is not asynchronous. Pauses between attempts block the thread, see
    /// [`Runtime::wait`].
    ///
    /// # Errors
    /// As [`call`](Conduct::call).
    pub fn call_blocking<A, T, E, F>(
        &self,
        method: usize,
        fallback: Option<Fallback<'_, T, E>>,
        given: A,
        again: impl Fn(&A) -> A,
        work: F,
    ) -> Result<T, E>
    where
        R: Judge<E>,
        F: Fn(A) -> Result<T, E>,
        E: Display,
    {
        match &self.shared.runtime {
            Some(runtime) if !self.passes(method) => {
                let work = |given| ready(work(given));
                runtime.wait(self.call(method, fallback, given, again, work))
            }
            _ => work(given),
        }
    }

    /// Which operation the call is, and how its arguments are handed out. Arguments that are only
    /// references cost nothing to make again.
    #[inline]
    fn prepare<'a, A>(&self, operations: &'a Operations, given: A) -> (&'a Operation, Given<A>) {
        let is_once =
            !is_nothing::<A>() && self.shared.source.snapshot().policy.retry.attempts_max == 1;
        let operation = match is_once {
            true => &operations.once,
            false => &operations.usual,
        };
        (operation, Given::new(given, is_once))
    }

    /// What a result means to the engine.
    #[inline]
    fn classify<T, E>(&self, result: &Result<T, E>) -> Outcome
    where
        R: Judge<E>,
        E: Display,
    {
        match result {
            Ok(_) => Outcome::Success,
            Err(error) => Outcome::Failure(judge(&self.shared.rules, error)),
        }
    }

    #[cold]
    fn conclude<T, E>(
        &self,
        method: usize,
        failed: CallError<E>,
        fallback: Option<Fallback<'_, T, E>>,
    ) -> Result<T, E>
    where
        R: Judge<E>,
    {
        let name = self.shared.methods[method].name;
        let wrapped = wrap(name, failed)?;
        match fallback {
            Some(fallback) => fallback(wrapped),
            None => Err(self.shared.rules.wrap(wrapped)),
        }
    }
}

/// An error in the engine's words.
#[cold]
fn judge<E: Display>(rules: &impl Judge<E>, error: &E) -> Failure {
    let is_transient = rules.is_transient(error);
    let is_failure = rules.is_failure(error, is_transient);
    let (category, blame) = match (is_transient, is_failure) {
        (true, true) => (Category::Transient, Blame::Endpoint),
        // Tried again on the same endpoint, without a weight.
        (true, false) => (Category::Contention, Blame::Endpoint),
        // Weighs, and is not tried again.
        (false, true) => (Category::Endpoint, Blame::Endpoint),
        (false, false) => (Category::Persistent, Blame::Caller),
    };
    let sent = match rules.had_no_effect(error) {
        true => Sent::No,
        false => Sent::Maybe,
    };
    Failure::new(category, error.to_string())
        .blame(blame)
        .sent(sent)
}

/// Wraps what is to be wrapped; an error that is not transient comes back as it is.
fn wrap<E>(method: &'static str, failed: CallError<E>) -> Result<MethodError<E>, E> {
    let sent = failed.sent();
    let parts = failed.into_parts();
    let (cause, stopped) = match parts.kind {
        CallErrorKind::Neutral(error) | CallErrorKind::Redirected { error, .. } => {
            return Err(error);
        }
        CallErrorKind::Rejected(rejection) => (Cause::Refused(rejection), None),
        CallErrorKind::Failed {
            error,
            failure,
            stopped,
            ..
        } => match error {
            None => (Cause::Cut(failure), Some(stopped)),
            Some(error) if is_judged_transient(&failure) => (Cause::Error(error), Some(stopped)),
            Some(error) => return Err(error),
        },
    };
    Ok(MethodError {
        parts: Box::new(Parts {
            method,
            attempts: u32::try_from(parts.attempts.len()).unwrap_or(u32::MAX),
            elapsed: parts.elapsed,
            stopped,
            sent,
            correlation_id: parts.correlation_id,
            cause,
        }),
    })
}

/// Whether [`judge`] found it transient: the predicate is not asked again.
fn is_judged_transient(failure: &Failure) -> bool {
    matches!(failure.category, Category::Transient | Category::Contention)
}

impl<R> fmt::Debug for Conduct<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conduct")
            .field("source", &self.shared.source)
            .finish_non_exhaustive()
    }
}
