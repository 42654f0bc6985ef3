//! How far a replica is behind: the age of the oldest position of the primary that it has not replayed.
//!
//! The replica's own replay time stamp is not used: on an idle primary it grows without any lag.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Samples kept: an hour at four a second, thinned out beyond.
const SAMPLES_MAX: usize = 14_400;

/// Positions of a primary, each with the moment at which it was seen.
#[derive(Debug, Default)]
pub struct PrimaryPositions {
    samples: VecDeque<(Instant, u64)>,
}

impl PrimaryPositions {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of a primary's position. A position below the last one starts anew: it is another
    /// primary's history.
    pub fn seen(&mut self, position: u64, now: Instant) {
        match self.samples.back() {
            Some((_, last)) if *last == position => return,
            Some((_, last)) if *last > position => self.samples.clear(),
            _ => {}
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now, position));
    }

    /// The lag of a server that has replayed up to `replayed`; `None`: no primary was seen yet.
    pub fn lag(&self, replayed: u64, now: Instant) -> Option<Duration> {
        self.samples.back()?;
        let behind = self
            .samples
            .partition_point(|(_, position)| *position <= replayed);
        Some(match self.samples.get(behind) {
            Some((seen, _)) => now.saturating_duration_since(*seen),
            None => Duration::ZERO,
        })
    }

    /// Forgets everything: there is another primary.
    pub fn clear(&mut self) {
        self.samples.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_the_age_of_the_oldest_position_that_was_not_replayed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut positions = PrimaryPositions::new();
        assert_eq!(positions.lag(0, at(0)), None);
        positions.seen(100, at(0));
        positions.seen(200, at(5));
        positions.seen(300, at(10));
        for (replayed, now, lag) in [
            (300, 10, 0),
            (400, 60, 0),
            (200, 12, 2),
            (250, 12, 2),
            (100, 12, 7),
            (99, 12, 12),
        ] {
            assert_eq!(
                positions.lag(replayed, at(now)),
                Some(Duration::from_secs(lag))
            );
        }
    }

    #[test]
    fn an_idle_primary_makes_no_lag() {
        let start = Instant::now();
        let mut positions = PrimaryPositions::new();
        for second in 0..1000 {
            positions.seen(100, start + Duration::from_secs(second));
        }
        let now = start + Duration::from_secs(1000);
        assert_eq!(positions.lag(100, now), Some(Duration::ZERO));
    }
}
