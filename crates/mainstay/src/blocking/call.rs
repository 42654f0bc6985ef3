//! The engine's call as a plain function.

use std::fmt::Display;
use std::future::ready;
use std::io;
use std::sync::Arc;

use mainstay_engine::source::Member;
use mainstay_engine::{Attempt, CallError, Classify, Operation};

use super::Runtime;

/// A [`Source`](mainstay_engine::Source) whose calls wait on their thread.
#[derive(Debug)]
pub struct Source<M: Member = ()> {
    source: mainstay_engine::Source<M>,
    runtime: Arc<Runtime>,
}

impl<M: Member> Clone for Source<M> {
    fn clone(&self) -> Self {
        Source {
            source: self.source.clone(),
            runtime: Arc::clone(&self.runtime),
        }
    }
}

impl<M: Member> Source<M> {
    /// Calls on that source wait on a runtime without threads of its own, which is enough for work that
    /// is not asynchronous.
    ///
    /// # Errors
    /// If the system gives no runtime.
    pub fn new(source: mainstay_engine::Source<M>) -> io::Result<Self> {
        Ok(Self::on(Arc::new(Runtime::on_demand()?), source))
    }

    /// The same on a given runtime.
    pub fn on(runtime: Arc<Runtime>, source: mainstay_engine::Source<M>) -> Self {
        Source { source, runtime }
    }

    /// The source itself: policy, events, numbers, control.
    pub fn source(&self) -> &mainstay_engine::Source<M> {
        &self.source
    }

    /// Runs one-shot work under the policy's limits, again where that is safe and allowed, as
    /// [`Source::call`](mainstay_engine::Source::call) does. Pauses block the thread.
    ///
    /// Work that has begun is not interrupted: a time limit is looked at between attempts.
    ///
    /// # Errors
    /// As [`Source::call`](mainstay_engine::Source::call).
    pub fn call<T, E, F>(
        &self,
        operation: &Operation,
        classify: &impl Classify<T, E>,
        work: F,
    ) -> Result<T, CallError<E>>
    where
        F: Fn(Attempt<M>) -> Result<T, E>,
        E: Display,
    {
        let work = |attempt| ready(work(attempt));
        self.runtime
            .wait(self.source.call_local(operation, classify, work))
    }
}
