//! The sweeper: closes what grew old while nobody asked, and keeps `min_idle` connections ready.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::state::{Idle, Phase};
use super::{Connector, Shared};
use crate::policy::PoolSettings;

/// Often enough that a missing `min_idle` connection is replaced soon, seldom enough to cost nothing.
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(5);
/// However short the limits are, a sweep is not the pool's main work.
const SWEEP_EVERY_MIN: Duration = Duration::from_millis(20);

fn period(settings: &PoolSettings) -> Duration {
    let shortest = settings.idle_for.min(settings.lifetime_max);
    (shortest / 4).clamp(SWEEP_EVERY_MIN, SWEEP_EVERY_MAX)
}

/// Runs until the pool is gone or closed.
pub(super) async fn run<C: Connector>(pool: Weak<Shared<C>>) {
    loop {
        let Some(shared) = pool.upgrade() else {
            return;
        };
        if shared.state.lock().phase == Phase::Closed {
            return;
        }
        sweep(&shared).await;
        let period = period(&shared.state.lock().settings);
        let changed = shared.changed.clone();
        drop(shared);
        let _ = tokio::time::timeout(period, changed.notified()).await;
    }
}

async fn sweep<C: Connector>(shared: &Arc<Shared<C>>) {
    let old = shared.state.lock().evict_old(Instant::now());
    drop(old);
    evict_closed(shared);
    fill(shared).await;
}

/// Turns each mode's idle connections once around and leaves those out that are known to be closed.
fn evict_closed<C: Connector>(shared: &Shared<C>) {
    let modes = shared.state.lock().idle_by_mode();
    for (mode, count) in modes {
        for _ in 0..count {
            let taken = shared.state.lock().take_front(mode);
            let Some((idle, generation)) = taken else {
                break;
            };
            let closed = shared.connector.is_closed(&idle.connection);
            let surplus = {
                let mut state = shared.state.lock();
                let retired = state.generation != generation;
                if closed || retired || !state.keeps() {
                    state.counts.evictions += 1;
                    Some(idle)
                } else {
                    state.keep(idle)
                }
            };
            drop(surplus);
        }
    }
}

async fn fill<C: Connector>(shared: &Arc<Shared<C>>) {
    let missing = shared.state.lock().missing();
    for _ in 0..missing {
        let (mode, limit) = {
            let state = shared.state.lock();
            (state.asked, state.settings.wait_max)
        };
        // A failure is not repeated here: the next sweep comes soon enough, and callers report theirs.
        let Ok(Ok((connection, origin))) = tokio::time::timeout(limit, shared.open(mode)).await
        else {
            return;
        };
        let surplus = {
            let mut state = shared.state.lock();
            let idle = Idle {
                connection,
                origin,
                since: Instant::now(),
            };
            if state.keeps() && idle.origin.generation == state.generation {
                state.keep(idle)
            } else {
                Some(idle)
            }
        };
        drop(surplus);
    }
}
