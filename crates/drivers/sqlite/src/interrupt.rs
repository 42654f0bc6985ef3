//! Stopping what a connection does, and nothing else.
//!
//! Each job has a number. A cancellation names the job that is under way when it arrives, and the interrupt
//! itself is given under the same lock that marks a job's start and end: it can neither come too early for
//! the job nor hit the next one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use mainstay_sql::{BoxFuture, Cancel};
use parking_lot::Mutex;
use rusqlite::InterruptHandle;

use crate::identity::Identity;

/// No job has this number: none runs, and nothing that SQLite does (closing the file) is cancelled.
const NONE: u64 = u64::MAX;

/// Which job is under way, and whether it was cancelled.
pub(crate) struct Gate {
    state: Mutex<State>,
    /// All jobs up to this number are cancelled; written under the lock, read without it by SQLite's own
    /// call backs.
    cancelled: AtomicU64,
    /// The job that the worker runs, or [`NONE`].
    running: AtomicU64,
    /// The session cannot be used any more.
    is_broken: AtomicBool,
    /// The file that the session has open.
    file: OnceLock<Identity>,
}

#[derive(Default)]
struct State {
    submitted: u64,
    finished: u64,
    is_running: bool,
    session: Option<InterruptHandle>,
    worker: Option<Thread>,
}

impl Default for Gate {
    fn default() -> Self {
        Gate {
            state: Mutex::default(),
            cancelled: AtomicU64::new(0),
            running: AtomicU64::new(NONE),
            is_broken: AtomicBool::new(false),
            file: OnceLock::new(),
        }
    }
}

impl Gate {
    /// Numbers the next job. Called before it is handed over.
    pub(crate) fn submit(&self) -> u64 {
        let mut state = self.state.lock();
        state.submitted += 1;
        state.submitted
    }

    /// Marks the start of a job on the worker; `false`: it was cancelled before and must not start.
    #[must_use]
    pub(crate) fn start(&self, job: u64) -> bool {
        let mut state = self.state.lock();
        if self.cancelled.load(Ordering::Relaxed) >= job {
            return false;
        }
        self.running.store(job, Ordering::Relaxed);
        state.is_running = true;
        true
    }

    /// Marks the end of a job on the worker, before its answer is given.
    pub(crate) fn finish(&self, job: u64) {
        let mut state = self.state.lock();
        self.running.store(NONE, Ordering::Relaxed);
        state.is_running = false;
        state.finished = job;
    }

    /// Cancels the job that is under way, if any.
    pub(crate) fn cancel(&self) {
        let state = self.state.lock();
        if state.finished == state.submitted {
            return;
        }
        self.cancelled.store(state.submitted, Ordering::Relaxed);
        if !state.is_running {
            return;
        }
        if let Some(session) = &state.session {
            session.interrupt();
        }
        if let Some(worker) = &state.worker {
            worker.unpark();
        }
    }

    /// Whether the job that the worker runs is cancelled. SQLite forgets an interrupt that comes before the
    /// first step of a statement, so its progress and busy call backs ask here as well.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) >= self.running.load(Ordering::Relaxed)
    }

    /// Whether the worker is inside a job.
    pub(crate) fn is_running(&self) -> bool {
        self.state.lock().is_running
    }

    /// Takes over the handle of a newly opened session, from its worker thread.
    pub(crate) fn attach(&self, session: InterruptHandle, file: Identity) {
        // A gate has one session.
        let _ = self.file.set(file);
        let mut state = self.state.lock();
        state.session = Some(session);
        state.worker = Some(std::thread::current());
    }

    /// Says that the session cannot be used any more.
    pub(crate) fn break_off(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Whether the session's file was deleted or replaced.
    pub(crate) fn is_file_gone(&self) -> bool {
        self.file.get().is_some_and(Identity::is_gone)
    }

    /// Whether it was when it was last looked at.
    pub(crate) fn was_file_gone(&self) -> bool {
        self.file.get().is_some_and(Identity::was_gone)
    }

    /// The same, as it was a moment ago: what a read may depend on.
    pub(crate) fn is_file_gone_lately(&self) -> bool {
        self.file.get().is_some_and(Identity::is_gone_lately)
    }

    /// Which file the session has open.
    pub(crate) fn history(&self) -> Option<String> {
        self.file.get().and_then(Identity::history)
    }

    /// Whether the session cannot be used any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }
}

/// Cancels what a connection does.
pub(crate) struct Canceller(pub(crate) Arc<Gate>);

impl Cancel for Canceller {
    fn cancel(&self) -> BoxFuture<'_, ()> {
        self.0.cancel();
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancellation_hits_the_job_under_way_and_no_other() {
        let gate = Gate::default();
        assert!(!gate.is_cancelled(), "the file is being opened");
        gate.cancel();
        let first = gate.submit();
        assert!(gate.start(first), "nothing was under way");
        assert!(!gate.is_cancelled());
        gate.finish(first);
        gate.cancel();

        let second = gate.submit();
        assert!(gate.start(second), "the first had ended");
        gate.cancel();
        assert!(gate.is_cancelled());
        gate.finish(second);

        assert!(!gate.is_cancelled());
        let third = gate.submit();
        gate.cancel();
        assert!(!gate.start(third), "cancelled while it waited");
        gate.finish(third);

        let fourth = gate.submit();
        assert!(gate.start(fourth));
        assert!(!gate.is_cancelled());
    }
}
