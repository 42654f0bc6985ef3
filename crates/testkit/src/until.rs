//! Waiting for what another process has still to do.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// No server takes this long to get somewhere that a test waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until something holds, asking every few milliseconds.
///
/// # Panics
/// It did not hold within 30 s. A wait without an end would stop the whole run instead.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
