//! A service that does the work, as the proxy sees it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::broker::{Broker, Link};
use crate::life::Life;
use crate::settings::TargetSettings;

/// A target with what stands behind it. Shared by all calls.
pub struct Target {
    pub(crate) settings: TargetSettings,
    /// Its place in the order of groups and of the file, the lowest first.
    pub(crate) rank: u32,
    /// It announced itself.
    pub(crate) discovered: bool,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) life: Mutex<Life>,
    /// Everything that listens to it; ends with it.
    pub(crate) tasks: Tasks,
    /// It should be checked before its next turn.
    pub(crate) check_now: Notify,
    work: Mutex<Work>,
}

/// The work that is open on a target.
#[derive(Debug, Default)]
struct Work {
    next: u64,
    /// Attempts by when they began.
    attempts: BTreeSet<u64>,
    jobs: u32,
}

/// An attempt under way on a target; ends with its drop.
pub(crate) struct OpenAttempt {
    target: Arc<Target>,
    number: u64,
}

/// A job that a target has acknowledged; ends with its drop.
pub(crate) struct OpenJob {
    target: Arc<Target>,
}

impl Target {
    pub(crate) fn new(
        settings: TargetSettings,
        rank: u32,
        broker: Arc<dyn Broker>,
        tasks: Tasks,
    ) -> Self {
        Target {
            settings,
            rank,
            broker,
            discovered: false,
            life: Mutex::new(Life::new()),
            tasks,
            check_now: Notify::new(),
            work: Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.settings.name
    }

    /// Its own operation for a fronted function.
    pub(crate) fn operation(&self, function: &str) -> Option<&Arc<str>> {
        self.settings.operation_map.get(function)
    }

    pub(crate) fn link(&self) -> watch::Receiver<Link> {
        self.broker.link()
    }

    /// Begins an attempt.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenAttempt {
        let mut work = self.work.lock();
        let number = work.next;
        work.next += 1;
        work.attempts.insert(number);
        OpenAttempt {
            target: Arc::clone(self),
            number,
        }
    }

    /// Begins a job.
    pub(crate) fn begin_job(self: &Arc<Self>) -> OpenJob {
        self.work.lock().jobs += 1;
        OpenJob {
            target: Arc::clone(self),
        }
    }

    /// Whether it has anything to do.
    pub(crate) fn is_busy(&self) -> bool {
        let work = self.work.lock();
        work.jobs > 0 || !work.attempts.is_empty()
    }

    /// Attempts and jobs.
    pub(crate) fn open_work(&self) -> (usize, u32) {
        let work = self.work.lock();
        (work.attempts.len(), work.jobs)
    }
}

impl OpenAttempt {
    /// Whether the target has work that it began before this: then silence means that it is busy. Of
    /// attempts that begin together the first one to fail speaks for all.
    pub(crate) fn waits_behind_other_work(&self) -> bool {
        let work = self.target.work.lock();
        work.jobs > 0
            || work
                .attempts
                .first()
                .is_some_and(|first| *first < self.number)
    }
}

impl Drop for OpenAttempt {
    fn drop(&mut self) {
        self.target.work.lock().attempts.remove(&self.number);
    }
}

impl Drop for OpenJob {
    fn drop(&mut self) {
        self.target.work.lock().jobs -= 1;
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}
