//! Tracked tasks: everything the engine runs in the background is started here, counted, and ended
//! by [`Tasks::shutdown`]. Nothing else in the workspace may call `tokio::spawn`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A group of background tasks that end together.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    /// Counts this group's tasks as well.
    parent: Option<Arc<Tasks>>,
}

impl Tasks {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// A group within this one: it can be ended by itself, and ends with this one, which counts its tasks
    /// and waits for them as for its own.
    #[must_use]
    pub fn child(&self) -> Self {
        Tasks {
            tracker: TaskTracker::new(),
            stop: self.stop.child_token(),
            parent: Some(Arc::new(self.clone())),
        }
    }

    /// Runs a task until it ends or the group is shut down, whichever is first. At shutdown it is
    /// dropped at its next await point.
    #[allow(clippy::disallowed_methods)] // the one place that spawns
    pub fn spawn<F>(&self, task: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        let counted = self.counted();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
            drop(counted);
        })
    }

    /// Runs a task that shutdown waits for but does not drop: clean-up work with a limit of its own.
    #[allow(clippy::disallowed_methods)] // the one place that spawns
    pub fn spawn_bounded<F>(&self, limit: Duration, task: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let counted = self.counted();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(limit, task).await;
            drop(counted);
        })
    }

    /// Counts one task, here and in every group around this one, until it is dropped.
    fn counted(&self) -> Vec<TaskTrackerToken> {
        let groups = std::iter::successors(Some(self), |group| group.parent.as_deref());
        groups.map(|group| group.tracker.token()).collect()
    }

    /// How many tasks are running.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Tells when shutdown has begun.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Tells every task of the group to end, without waiting for them.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Ends every task and waits for them, at most `limit`. Returns how many were still running.
    pub async fn shutdown(&self, limit: Duration) -> usize {
        self.stop.cancel();
        self.tracker.close();
        let _ = tokio::time::timeout(limit, self.tracker.wait()).await;
        self.tracker.len()
    }

    /// Waits until no task is running, at most `limit`; the group stays usable.
    pub async fn idle(&self, limit: Duration) -> bool {
        let waited = tokio::time::timeout(limit, async {
            while !self.tracker.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        waited.await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_child_ends_by_itself_and_is_counted_by_its_parent_until_then() {
        let parent = Tasks::new();
        let (one, other) = (parent.child(), parent.child());
        for group in [&parent, &one, &other] {
            group.spawn(pending());
        }
        assert_eq!((parent.running(), one.running()), (3, 1));
        assert_eq!(one.shutdown(LIMIT).await, 0);
        assert_eq!((parent.running(), other.running()), (2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_parents_shutdown_ends_its_children_and_waits_for_what_they_clean_up() {
        let parent = Tasks::new();
        let child = parent.child().child();
        child.spawn(pending());
        child.spawn_bounded(LIMIT, tokio::time::sleep(LIMIT / 2));
        assert_eq!(parent.running(), 2);
        assert_eq!(parent.shutdown(LIMIT).await, 0);
        assert_eq!(child.running(), 0);
    }
}
