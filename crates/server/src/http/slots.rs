//! Slots for connections. When all are taken, a connection that asks for nothing makes room for a new one:
//! idle clients, and those whose head drips in, cost a caller who has something to ask nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::phase::{Phase, Step};

/// A head that is not complete after so long makes room; most are there at once.
const HEAD_GRACE: Duration = Duration::from_secs(1);
/// So many connections are looked at for one that needs a slot.
const LOOKS_MAX: usize = 4096;
/// How long one that makes room may take to be gone.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// The slots of one listener. Used by the one task that accepts.
pub(super) struct Slots {
    max: usize,
    free: Arc<Semaphore>,
    /// Passed by a hand, as in a clock: who was used since it passed last is passed over.
    seats: VecDeque<Seat>,
}

/// A connection as the slots see it.
struct Seat {
    phase: Phase,
    close: CancellationToken,
    /// How many requests it had begun when the hand passed; `None`: it has not passed yet.
    begun: Option<u32>,
    /// Since when its head is seen to be incomplete.
    head_since: Option<Instant>,
}

/// What a connection holds while it is open.
pub(super) struct Slot {
    /// Cancelled when it is to make room.
    pub(super) close: CancellationToken,
    pub(super) phase: Phase,
    free: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Slots {
    pub(super) fn new(max: u32) -> Self {
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let max = max.min(Semaphore::MAX_PERMITS);
        Slots {
            max,
            free: Arc::new(Semaphore::new(max)),
            seats: VecDeque::new(),
        }
    }

    /// A slot for a new connection, with whether another one makes room for it. `None`: all are at work.
    pub(super) fn take(&mut self) -> Option<(Slot, bool)> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok();
        let waits = permit.is_none();
        if waits && !self.make_room() {
            return None;
        }
        let slot = Slot {
            close: CancellationToken::new(),
            phase: Phase::default(),
            free: Arc::clone(&self.free),
            permit,
        };
        // Those that have ended are found when the hand passes, or here.
        if self.seats.len() > 2 * self.max {
            self.seats.retain(|seat| !seat.phase.has_ended());
        }
        self.seats.push_back(Seat {
            phase: slot.phase.clone(),
            close: slot.close.clone(),
            begun: None,
            head_since: None,
        });
        Some((slot, waits))
    }

    /// Closes a connection that asks for nothing. Returns whether there was one.
    pub(super) fn make_room(&mut self) -> bool {
        let now = Instant::now();
        let mut used = None;
        // Once around to see who is used, once more to take whoever is not.
        for _ in 0..(2 * self.seats.len()).min(LOOKS_MAX) {
            let Some(mut seat) = self.seats.pop_front() else {
                break;
            };
            // It is gone, or about to be.
            if seat.phase.has_ended() || seat.close.is_cancelled() {
                continue;
            }
            if seat.gives_way(now) {
                seat.close.cancel();
                return true;
            }
            if used.is_none() && seat.phase.step() == Step::Idle {
                used = Some(seat.close.clone());
            }
            self.seats.push_back(seat);
        }
        // There are more than were looked at, so that one used a moment ago is as good as any.
        if let Some(close) = &used {
            close.cancel();
        }
        used.is_some()
    }
}

impl Seat {
    /// Whether it is idle since the hand passed last, or its head has dripped in for too long.
    fn gives_way(&mut self, now: Instant) -> bool {
        let begun = self.phase.begun();
        let is_unused = self.begun.replace(begun) == Some(begun);
        match self.phase.step() {
            Step::Idle => {
                self.head_since = None;
                is_unused
            }
            Step::Head if is_unused => {
                let since = *self.head_since.get_or_insert(now);
                now.saturating_duration_since(since) >= HEAD_GRACE
            }
            _ => {
                self.head_since = None;
                false
            }
        }
    }
}

impl Slot {
    /// Waits for the one that makes room. `false`: it did not leave in time.
    pub(super) async fn ready(&mut self) -> bool {
        if self.permit.is_none() {
            let free = Arc::clone(&self.free).acquire_owned();
            let free = tokio::time::timeout(LEAVING_MAX, free).await;
            self.permit = free.ok().and_then(Result::ok);
        }
        self.permit.is_some()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.phase.end();
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Version;

    use super::*;

    fn taken(slots: &mut Slots) -> Slot {
        let (slot, waits) = slots.take().unwrap();
        assert!(!waits);
        slot
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_idle_longest_makes_room_and_who_works_never_does() {
        let mut slots = Slots::new(3);
        let works = taken(&mut slots);
        works.phase.begin(Version::HTTP_11, false);
        let idle = taken(&mut slots);
        let used = taken(&mut slots);
        used.phase.begin(Version::HTTP_11, false);
        used.phase.rest();
        let (mut new, waits) = slots.take().unwrap();
        assert!(waits && idle.close.is_cancelled());
        assert!(!used.close.is_cancelled() && !works.close.is_cancelled());
        drop(idle);
        assert!(new.ready().await);
        new.phase.begin(Version::HTTP_11, true);
        let (mut last, _) = slots.take().unwrap();
        assert!(used.close.is_cancelled());
        // It does not leave.
        assert!(!last.ready().await);
        drop(last);
        assert!(slots.take().is_none(), "all others are at work");
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_drips_in_makes_room_after_its_grace() {
        let mut slots = Slots::new(1);
        let slow = taken(&mut slots);
        slow.phase.advance(Step::Idle, Step::Head);
        assert!(slots.take().is_none());
        assert!(slots.take().is_none());
        tokio::time::sleep(HEAD_GRACE / 2).await;
        assert!(slots.take().is_none());
        tokio::time::sleep(HEAD_GRACE / 2).await;
        assert!(slots.take().is_some());
        assert!(slow.close.is_cancelled());
    }

    #[tokio::test]
    async fn one_of_many_idle_ones_makes_room_at_once() {
        let count = 2 * LOOKS_MAX;
        let mut slots = Slots::new(u32::try_from(count).unwrap());
        let idle: Vec<Slot> = (0..count).map(|_| taken(&mut slots)).collect();
        for already in 0..3 {
            let (_new, waits) = slots.take().unwrap();
            assert!(waits);
            let closed = idle.iter().filter(|it| it.close.is_cancelled()).count();
            assert_eq!(closed, already + 1);
        }
    }

    #[tokio::test]
    async fn connections_that_have_ended_are_forgotten() {
        let mut slots = Slots::new(10);
        for _ in 0..1000 {
            drop(taken(&mut slots));
        }
        assert!(slots.seats.len() <= 21, "{}", slots.seats.len());
        assert_eq!(slots.free.available_permits(), 10);
    }
}
