//! Threads that outlive their connections.
//!
//! A cut statement is interrupted, and its thread ends within microseconds, unless it is inside one long
//! function: SQLite looks for an interrupt between the steps of its machine only. Such a thread still uses a
//! processor and memory, so it is counted until it has really ended, and no new connection is opened beside
//! too many of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_engine::{Blame, Category, Failure, Sent};
use mainstay_sql::{Code, SqlError};
use tokio::sync::Notify;

/// As many as a pool cleans up at once.
const LEFT_MAX: usize = 4;
/// How long a new connection waits for one of them to end.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The threads of one endpoint whose connections are gone.
#[derive(Debug, Default)]
pub(crate) struct Left {
    count: AtomicUsize,
    ended: Notify,
}

impl Left {
    /// Waits until there are few enough.
    pub(crate) async fn wait(&self) -> Result<(), SqlError> {
        let few = async {
            loop {
                let mut ended = std::pin::pin!(self.ended.notified());
                ended.as_mut().enable();
                if self.count.load(Ordering::Acquire) < LEFT_MAX {
                    return;
                }
                ended.await;
            }
        };
        let waited = tokio::time::timeout(WAIT_MAX, few).await;
        waited.map_err(|_| too_many())
    }
}

fn too_many() -> SqlError {
    let message = format!(
        "{LEFT_MAX} statements that were cut go on inside one long function each, and no connection is opened beside them"
    );
    // The endpoint is well, and whoever has a connection goes on.
    let failure = Failure::new(Category::Saturation, message)
        .blame(Blame::Us)
        .sent(Sent::No);
    SqlError::new(Code::PoolTimeout, failure)
        .hint("wait until they end; lower the endpoint's option value_max_bytes, or give such statements more time")
}

/// Where one thread stands, shared between it and its connection.
#[derive(Debug)]
pub(crate) struct Stay {
    of: Arc<Left>,
    is_left: AtomicBool,
    has_ended: AtomicBool,
}

impl Stay {
    pub(crate) fn new(of: Arc<Left>) -> Self {
        Stay {
            of,
            is_left: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    /// The connection is gone while a statement runs.
    pub(crate) fn leave(&self) {
        self.of.count.fetch_add(1, Ordering::AcqRel);
        self.is_left.store(true, Ordering::SeqCst);
        if self.has_ended.load(Ordering::SeqCst) {
            self.forget();
        }
    }

    /// The thread ends.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.forget();
    }

    /// Counted no more, once.
    fn forget(&self) {
        if self.is_left.swap(false, Ordering::SeqCst) {
            self.of.count.fetch_sub(1, Ordering::AcqRel);
            self.of.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn threads_that_were_left_are_counted_until_they_end_in_whatever_order() {
        let left = Arc::new(Left::default());
        let stays: Vec<Stay> = (0..5).map(|_| Stay::new(Arc::clone(&left))).collect();
        stays[4].end();
        stays[4].leave();
        for stay in &stays[..3] {
            stay.leave();
        }
        left.wait().await.unwrap();
        stays[3].leave();
        let refused = left.wait().await.unwrap_err();
        assert_eq!(refused.code(), Code::PoolTimeout);
        assert_eq!(
            (refused.failure().blame, refused.sent()),
            (Blame::Us, Sent::No)
        );
        let (waited, ()) = tokio::join!(left.wait(), async { stays[0].end() });
        waited.unwrap();
        stays[0].end();
        for stay in &stays {
            stay.end();
        }
        assert_eq!(left.count.load(Ordering::Acquire), 0);
    }
}
