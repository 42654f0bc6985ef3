//! Whether a target lives, as its checks, its replies and its own messages say. A plain machine; `now` is
//! an argument.

use std::time::Duration;

use tokio::time::Instant;

/// Whether a target lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeState {
    /// Nothing was heard of it and nothing speaks against it.
    Unknown,
    /// Its last sign is newer than its last miss.
    Alive,
    /// It missed a check or failed a request; others are preferred.
    Unresponsive,
    /// It missed as many checks in a row as make it dead, and has no open work.
    Dead,
}

impl LifeState {
    /// The stable lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            LifeState::Unknown => "unknown",
            LifeState::Alive => "alive",
            LifeState::Unresponsive => "unresponsive",
            LifeState::Dead => "dead",
        }
    }
}

/// What follows from news of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifeChange {
    /// New requests go elsewhere as long as there is another.
    SetAside(String),
    /// It gets requests again.
    TakeBack,
}

/// The life of one target.
#[derive(Debug, Clone, Default)]
pub struct Life {
    last_sign: Option<Instant>,
    missed: u32,
    aside: bool,
    /// Since when all checks were good; looked at while it is set aside.
    good_since: Option<Instant>,
}

impl Life {
    /// Nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// A message came from it. That alone brings nothing back: it may only be able to talk.
    pub fn sign(&mut self, now: Instant) {
        self.last_sign = Some(now);
        self.missed = 0;
    }

    /// A check was answered. It is taken back once checks were good for `failback_after`.
    pub fn good(&mut self, failback_after: Duration, now: Instant) -> Option<LifeChange> {
        self.sign(now);
        if !self.aside {
            return None;
        }
        let since = *self.good_since.get_or_insert(now);
        if now.saturating_duration_since(since) < failback_after {
            return None;
        }
        self.aside = false;
        self.good_since = None;
        Some(LifeChange::TakeBack)
    }

    /// A check was not answered. A target with open work is busy and not set aside for it.
    pub fn miss(&mut self, busy: bool, missed_max: u32) -> Option<LifeChange> {
        self.missed = self.missed.saturating_add(1);
        self.good_since = None;
        if busy || self.aside || self.missed < missed_max {
            return None;
        }
        self.aside = true;
        let reason = format!("no good answer to {} health checks in a row", self.missed);
        Some(LifeChange::SetAside(reason))
    }

    /// A request failed on it.
    pub fn failed(&mut self, reason: &str) -> Option<LifeChange> {
        self.good_since = None;
        if self.aside {
            return None;
        }
        self.aside = true;
        Some(LifeChange::SetAside(reason.to_owned()))
    }

    /// When a check would bring it back at the earliest; `None`: at the next good one, or it is not set
    /// aside.
    pub fn due_back(&self, failback_after: Duration) -> Option<Instant> {
        let since = self.good_since.filter(|_| self.aside)?;
        since.checked_add(failback_after)
    }

    /// How it is. One with open work that answers no checks is busy, not dead.
    pub fn state(&self, busy: bool, missed_max: u32) -> LifeState {
        if self.missed >= missed_max && !busy {
            LifeState::Dead
        } else if self.missed > 0 || self.aside {
            LifeState::Unresponsive
        } else if self.last_sign.is_some() {
            LifeState::Alive
        } else {
            LifeState::Unknown
        }
    }

    /// Whether others are preferred.
    pub fn is_aside(&self) -> bool {
        self.aside
    }

    /// When something was last heard of it.
    pub fn last_sign(&self) -> Option<Instant> {
        self.last_sign
    }

    /// Checks missed in a row.
    pub fn missed(&self) -> u32 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILBACK: Duration = Duration::from_secs(10);

    /// Plays a history, one second a step: `+` good check, `-` missed, `b` missed while busy, `f` failed
    /// request, `s` sign of life, `.` nothing. Writes what each changed: `a` set aside, `t` taken back.
    fn changes(failback_after: Duration, history: &str) -> String {
        let mut life = Life::new();
        let begin = Instant::now();
        let steps = history.chars().enumerate().map(|(second, step)| {
            let now = begin + Duration::from_secs(second as u64);
            let change = match step {
                '+' => life.good(failback_after, now),
                '-' => life.miss(false, 3),
                'b' => life.miss(true, 3),
                'f' => life.failed("no acknowledgement"),
                's' => {
                    life.sign(now);
                    None
                }
                _ => None,
            };
            match change {
                None => '.',
                Some(LifeChange::SetAside(_)) => 'a',
                Some(LifeChange::TakeBack) => 't',
            }
        });
        steps.collect()
    }

    #[test]
    fn misses_in_a_row_set_aside_and_good_checks_take_back() {
        for (history, expected) in [
            ("---", "..a"),
            ("--+---", ".....a"),
            ("--s---", ".....a"),
            ("----", "..a."),
            ("---+", "..at"),
            ("---s.", "..a.."),
            ("f+", "at"),
            ("ff+", "a.t"),
            ("f-+", "a.t"),
            ("bbbb", "...."),
            ("bbb-", "...a"),
            ("bbb+-", "....."),
        ] {
            assert_eq!(changes(Duration::ZERO, history), expected, "{history}");
        }
    }

    #[test]
    fn traffic_goes_back_after_checks_were_good_for_long_enough() {
        assert_eq!(changes(FAILBACK, "f+.........+"), "a..........t");
        assert_eq!(changes(FAILBACK, "f+........+"), "a..........");
        assert_eq!(
            changes(FAILBACK, "f+....-+....+....+"),
            "a................t"
        );
        assert_eq!(changes(FAILBACK, "f+....f+....+"), "a............");
    }

    #[test]
    fn states_follow_signs_and_misses() {
        let now = Instant::now();
        let mut life = Life::new();
        assert_eq!(life.state(false, 3), LifeState::Unknown);
        life.sign(now);
        assert_eq!(life.state(false, 3), LifeState::Alive);
        life.miss(false, 3);
        assert_eq!(life.state(false, 3), LifeState::Unresponsive);
        life.miss(false, 3);
        life.miss(false, 3);
        assert_eq!(life.state(false, 3), LifeState::Dead);
        assert_eq!(life.state(true, 3), LifeState::Unresponsive, "at work");
        assert_eq!(life.last_sign(), Some(now));
        life.good(FAILBACK, now);
        assert_eq!(
            life.state(false, 3),
            LifeState::Unresponsive,
            "still set aside"
        );
        assert_eq!(life.due_back(FAILBACK), Some(now + FAILBACK));
    }
}
