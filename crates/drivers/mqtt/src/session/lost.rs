//! Transient messages that found no room and are let go, as their quality of service allows.

use tokio::time::{Duration, Instant};

/// Told at most so often.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// How many were let go.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    untold: u64,
    told: Option<Instant>,
}

impl Lost {
    /// Another one. How many there were since it was last told, where it is time to tell.
    pub(crate) fn one(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        match self.told {
            Some(told) if now.saturating_duration_since(told) < TOLD_EVERY => None,
            _ => {
                self.told = Some(now);
                Some(std::mem::take(&mut self.untold))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_those_that_follow_together() {
        let (mut lost, now) = (Lost::default(), Instant::now());
        assert_eq!(lost.one(now), Some(1));
        assert_eq!([lost.one(now), lost.one(now + TOLD_EVERY / 2)], [None; 2]);
        assert_eq!(lost.one(now + TOLD_EVERY), Some(3));
    }
}
