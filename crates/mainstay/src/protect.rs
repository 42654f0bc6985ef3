//! One line around any async function.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use mainstay_engine::{CallError, Operation, Policy, Preset, Safety, Source, transient};

/// Protects an async function: calls it again after an error that `is_transient` names.
///
/// The policy is the preset `component`: three attempts, waits of about one second between them, no
/// circuit. [`Protected::policy`] sets another one.
pub fn protect<E, P>(name: &'static str, is_transient: P) -> Protected<P>
where
    P: Fn(&E) -> bool + Send + Sync,
{
    Protected {
        source: Source::single(name, Policy::preset(Preset::Component)),
        operation: Operation::new(name, Safety::IdempotentWrite),
        is_transient,
    }
}

/// A protected function. It keeps its circuit, budget and numbers between calls, so make it once and
/// share it.
#[derive(Debug)]
pub struct Protected<P> {
    source: Source,
    operation: Operation,
    is_transient: P,
}

impl<P> Protected<P> {
    /// Uses another policy.
    #[must_use]
    pub fn policy(self, policy: Arc<Policy>) -> Self {
        self.source.apply(policy, |_| None);
        self
    }

    /// Says how safe a repetition is. Default: [`Safety::IdempotentWrite`], since naming an error
    /// transient says that another try is wanted. A [`Safety::Write`] is never repeated here, because
    /// nothing proves that a failed call had no effect.
    #[must_use]
    pub fn safety(mut self, safety: Safety) -> Self {
        self.operation.safety = safety;
        self
    }

    /// The source behind it: events, numbers, control.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Calls the function, again where the policy allows.
    ///
    /// # Errors
    /// [`CallError`] with every attempt; [`CallError::into_error`] gives the function's own error.
    ///
    /// # Cancel safety
    /// Dropping the future drops the call in flight and gives every permit back.
    pub async fn call<T, E, F, Fut>(&self, function: F) -> Result<T, CallError<E>>
    where
        F: Fn() -> Fut + Send + Sync,
        Fut: Future<Output = Result<T, E>> + Send,
        P: Fn(&E) -> bool + Send + Sync,
        T: Send,
        E: Send + Display,
    {
        let classify = transient::by(|error: &E| (self.is_transient)(error));
        self.source
            .call(&self.operation, &classify, |_attempt| function())
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_transient_error_is_tried_again_and_another_one_is_not() {
        for (kind, calls_expected) in [(ErrorKind::ConnectionReset, 3), (ErrorKind::NotFound, 1)] {
            let calls = AtomicU32::new(0);
            let protected = protect("fetch", transient::io);
            let error = protected
                .call(|| {
                    calls.fetch_add(1, Ordering::SeqCst);
                    async move { Err::<(), _>(Error::from(kind)) }
                })
                .await
                .unwrap_err();
            assert_eq!(calls.load(Ordering::SeqCst), calls_expected);
            assert_eq!(error.into_error().unwrap().kind(), kind);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_of_the_component_preset_are_one_second_times_n_minus_one_plus_chance() {
        let began = tokio::time::Instant::now();
        let protected = protect("fetch", transient::io);
        let failing = || async { Err::<(), _>(Error::from(ErrorKind::ConnectionReset)) };
        protected.call(failing).await.unwrap_err();
        let waited = began.elapsed();
        // (0 + random) + (1 + random) seconds.
        assert!(
            waited >= Duration::from_secs(1) && waited <= Duration::from_secs(3),
            "{waited:?}"
        );
    }
}
