//! How far a session has written: plain data, with `now` as an argument.

use tokio::time::Instant;

/// Positions of a session's writes. Writes may end in any order; the newest position counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Written {
    /// What covers every write whose position is known; 0: there is none.
    newest: u64,
    /// Writes that no known position covers.
    open: Option<Open>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    /// A position of the primary that is asked for from then on covers them.
    covered_from: Instant,
}

impl Written {
    /// What a replica must have replayed to serve the session; `None`: that is not known, so that only
    /// the primary serves it.
    pub(super) fn position(&self) -> Option<u64> {
        self.open.is_none().then_some(self.newest)
    }

    /// Whether it is worth asking the primary how far it is.
    pub(super) fn may_be_covered(&self, now: Instant) -> bool {
        self.open.is_some_and(|open| now >= open.covered_from)
    }

    /// The primary was asked, and had come so far.
    pub(super) fn cover(&mut self, position: u64, asked_at: Instant) {
        self.newest = self.newest.max(position);
        if self.may_be_covered(asked_at) {
            self.open = None;
        }
    }

    /// There is a write of which no position is known, and none that is asked for before then covers it.
    pub(super) fn leave_open(&mut self, covered_from: Instant) {
        let earlier = self.open.map_or(covered_from, |open| open.covered_from);
        self.open = Some(Open {
            covered_from: covered_from.max(earlier),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Seconds after a common beginning.
    fn clock() -> impl Fn(u64) -> Instant {
        let began = Instant::now();
        move |seconds| began + Duration::from_secs(seconds)
    }

    #[test]
    fn the_newest_position_counts_and_not_the_last_one_noted() {
        let at = clock();
        let mut written = Written::default();
        assert_eq!(written.position(), Some(0));
        written.cover(200, at(2));
        written.cover(100, at(1));
        assert_eq!(written.position(), Some(200));
    }

    #[test]
    fn a_write_without_a_position_is_covered_by_what_is_asked_for_later_only() {
        let at = clock();
        let mut written = Written::default();
        written.cover(100, at(0));
        written.leave_open(at(5));
        assert!(!written.may_be_covered(at(4)));
        written.cover(150, at(4));
        assert_eq!(written.position(), None);
        assert!(written.may_be_covered(at(5)));
        written.cover(160, at(5));
        assert_eq!(written.position(), Some(160));
    }

    #[test]
    fn of_several_open_writes_the_last_to_be_covered_decides() {
        let at = clock();
        let mut written = Written::default();
        written.leave_open(at(300));
        written.leave_open(at(1));
        written.cover(10, at(2));
        assert_eq!(written.position(), None);
        written.cover(20, at(300));
        assert_eq!(written.position(), Some(20));
    }
}
