//! Tracked tasks: everything the engine runs in the background is started here, counted, and ended
//! by [`Tasks::shutdown`]. Nothing else in the workspace may call `tokio::spawn`.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A group of background tasks that end together.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a task until it ends or the group is shut down, whichever is first. At shutdown it is
    /// dropped at its next await point.
    #[allow(clippy::disallowed_methods)] // the one place that spawns
    pub fn spawn<F>(&self, task: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        tokio::spawn(self.tracker.track_future(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        }))
    }

    /// Runs a task that shutdown waits for but does not drop: clean-up work with a limit of its own.
    #[allow(clippy::disallowed_methods)] // the one place that spawns
    pub fn spawn_bounded<F>(&self, limit: Duration, task: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(self.tracker.track_future(async move {
            let _ = tokio::time::timeout(limit, task).await;
        }))
    }

    /// How many tasks are running.
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Tells when shutdown has begun.
    pub fn stopping(&self) -> CancellationToken {
        self.stop.clone()
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
