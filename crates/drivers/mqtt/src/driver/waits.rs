//! How long to wait before the next connection.

use std::time::Duration;

use mainstay_engine::backoff::Backoff;
use mainstay_engine::policy::{Jitter, Preset, RetrySettings, Series};

/// The first wait; those after it grow.
const FIRST: Duration = Duration::from_millis(100);
/// A connection that stood so long, and twice as long as a wait lasts, was a good one, and waits begin
/// anew. One that ends sooner may be of those that two clients of one name take from each other.
const GOOD_AFTER: Duration = Duration::from_secs(10);

/// The waits of one broker.
#[derive(Debug)]
pub(crate) struct Waits {
    settings: RetrySettings,
    chance: fastrand::Rng,
    backoff: Backoff,
}

impl Waits {
    pub(crate) fn new(max: Duration, mut chance: fastrand::Rng) -> Self {
        let settings = RetrySettings {
            series: Series::Exponential,
            delay: FIRST.min(max),
            factor: 2.0,
            delay_max: Some(max),
            jitter: Jitter::Equal,
            ..Preset::Balanced.settings().retry
        };
        Waits {
            settings,
            backoff: Backoff::new(chance.fork()),
            chance,
        }
    }

    /// A connection has stood so long.
    pub(crate) fn stood(&mut self, time: Duration) {
        let longest = self.settings.delay_max.unwrap_or_default();
        if time >= GOOD_AFTER.max(longest * 2) {
            self.backoff = Backoff::new(self.chance.fork());
        }
    }

    /// The next wait; a long one after another client took the session.
    pub(crate) fn next(&mut self, taken_over: bool) -> Duration {
        let least = self.settings.delay_max.filter(|_| taken_over);
        self.backoff.next(&self.settings, false, least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits() -> Waits {
        Waits::new(Duration::from_secs(5), fastrand::Rng::with_seed(1))
    }

    #[test]
    fn waits_grow_to_their_maximum_and_begin_anew_after_a_good_connection() {
        let mut waits = waits();
        for most in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let wait = waits.next(false).as_millis();
            assert!((most / 2..=most).contains(&wait), "{wait} of {most}");
            waits.stood(Duration::from_secs(1));
        }
        waits.stood(GOOD_AFTER);
        assert!(waits.next(false) <= Duration::from_millis(100));
    }

    #[test]
    fn a_session_that_was_taken_is_not_taken_back_at_once() {
        let mut waits = waits();
        for _ in 0..10 {
            assert!(waits.next(true) >= Duration::from_secs(5));
        }
    }
}
