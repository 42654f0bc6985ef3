//! Instants as numbers, so that they fit into atomics.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// The first instant a machine has seen; later ones are counted in nanoseconds from it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Origin(OnceLock<Instant>);

impl Origin {
    pub(crate) const fn new() -> Self {
        Origin(OnceLock::new())
    }

    /// Counts from `first`.
    pub(crate) fn since(first: Instant) -> Self {
        Origin(OnceLock::from(first))
    }

    /// Nanoseconds from the first instant to `now`; 0 for an earlier one, as a thread may bring that
    /// was overtaken.
    pub(crate) fn nanos(&self, now: Instant) -> u64 {
        let first = *self.0.get_or_init(|| now);
        nanos(now.saturating_duration_since(first))
    }
}

/// A duration in nanoseconds, saturating at 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    time.as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(time.subsec_nanos()))
}

/// `now + wait`, or an instant that nobody lives to see where that cannot be represented.
pub(crate) fn after(now: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);
    now + wait.min(FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_before_the_first_counts_as_the_first() {
        let origin = Origin::new();
        let now = Instant::now() + Duration::from_secs(5);
        assert_eq!(origin.nanos(now), 0);
        assert_eq!(origin.nanos(now - Duration::from_secs(1)), 0);
        assert_eq!(origin.nanos(now + Duration::from_micros(3)), 3_000);
    }

    #[test]
    fn the_longest_wait_does_not_overflow_an_instant() {
        let now = Instant::now();
        assert!(after(now, Duration::MAX) > now);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
    }
}
