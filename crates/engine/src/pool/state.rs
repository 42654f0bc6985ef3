//! The pool's bookkeeping: who holds a place, which connections are idle. Plain data with `now` as an
//! argument; whatever is to be closed or woken is returned, so that it happens outside the lock.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Connector, Mode, Permit, PoolError};
use crate::line::Line;
use crate::policy::PoolSettings;

/// What is known about a connection since it was opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) mode: Mode,
    pub(super) opened: Instant,
    /// Thousandths of a tenth of the lifetime that this connection lives less than the longest.
    pub(super) spread: u16,
    pub(super) generation: u64,
}

impl Origin {
    fn is_over(&self, now: Instant, lifetime_max: Duration) -> bool {
        let nanos = u64::try_from(lifetime_max.as_nanos()).unwrap_or(u64::MAX);
        let life = nanos - nanos / 10_000 * u64::from(self.spread.min(1000));
        now.saturating_duration_since(self.opened) >= Duration::from_nanos(life)
    }
}

/// A connection that nobody uses.
pub(super) struct Idle<T> {
    pub(super) connection: T,
    pub(super) origin: Origin,
    pub(super) since: Instant,
}

/// The result of a look for an idle connection.
pub(super) struct Found<T> {
    pub(super) idle: Option<Idle<T>>,
    /// It was idle for so long that it must be asked first.
    pub(super) check: bool,
    /// Too old; to be dropped outside the lock.
    pub(super) stale: Vec<Idle<T>>,
}

impl<T> Found<T> {
    pub(super) fn nothing() -> Self {
        Found {
            idle: None,
            check: false,
            stale: Vec::new(),
        }
    }
}

/// The answer to one who wants a place.
pub(super) enum Begin<T> {
    /// A place, counted, and perhaps an idle connection.
    Admitted(Found<T>),
    /// Every place is taken.
    Full,
    /// Nothing is lent.
    Refused(PoolError),
}

/// Whether the pool lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    Draining,
    Closed,
}

/// Counts since the pool was made, and how it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// Leases that were served by an idle connection.
    pub hits: u64,
    /// Leases for which a connection had to be opened.
    pub misses: u64,
    /// Callers that had to wait for a place.
    pub waits: u64,
    /// Waits that ended without a place.
    pub timeouts: u64,
    /// Idle connections closed by the pool: too old, too many, retired or found closed.
    pub evictions: u64,
    /// Clean-ups of abandoned connections.
    pub cleanups: u64,
    /// Places in use, those of connections in reset or clean-up included.
    pub active: u32,
    /// Idle connections.
    pub idle: u32,
    /// Callers waiting now.
    pub waiting: u32,
}

pub(super) struct State<C: Connector> {
    pub(super) settings: PoolSettings,
    pub(super) phase: Phase,
    /// No idle connections are kept.
    pub(super) resting: bool,
    pub(super) active: u32,
    pub(super) cleaning: u32,
    pub(super) generation: u64,
    /// The mode asked for last: the one that `min_idle` keeps ready.
    pub(super) asked: Mode,
    pub(super) line: Line<Permit<C>>,
    pub(super) counts: PoolStats,
    /// By mode; the longest idle in front.
    idle: Vec<VecDeque<Idle<C::Connection>>>,
    idle_count: u32,
}

type Grant<C> = oneshot::Sender<Permit<C>>;

impl<C: Connector> State<C> {
    pub(super) fn new(settings: PoolSettings) -> Self {
        State {
            settings,
            phase: Phase::Open,
            resting: false,
            active: 0,
            cleaning: 0,
            generation: 0,
            asked: Mode::default(),
            line: Line::new(),
            counts: PoolStats::default(),
            idle: Vec::new(),
            idle_count: 0,
        }
    }

    pub(super) fn stats(&self) -> PoolStats {
        PoolStats {
            active: self.active,
            idle: self.idle_count,
            waiting: u32::try_from(self.line.len()).unwrap_or(u32::MAX),
            ..self.counts
        }
    }

    pub(super) fn refusal(&self) -> Option<PoolError> {
        match self.phase {
            Phase::Open => None,
            Phase::Draining => Some(PoolError::Draining),
            Phase::Closed => Some(PoolError::Closed),
        }
    }

    /// Why nobody may join the line; `None`: there is room.
    pub(super) fn full_line(&self) -> Option<PoolError> {
        let waiting = self.line.len();
        let has_room = u32::try_from(waiting).is_ok_and(|count| count < self.settings.waiting_max);
        (!has_room).then_some(PoolError::QueueFull {
            active: self.active,
            waiting,
        })
    }

    /// Takes a place and an idle connection if there are any.
    pub(super) fn begin(&mut self, mode: Mode, now: Instant) -> Begin<C::Connection> {
        if let Some(error) = self.refusal() {
            return Begin::Refused(error);
        }
        if self.active >= self.settings.active_max {
            return Begin::Full;
        }
        self.active += 1;
        Begin::Admitted(self.next_idle(mode, now))
    }

    /// The idle connection that came back last: the fewest stay warm, the others grow old and go.
    pub(super) fn next_idle(&mut self, mode: Mode, now: Instant) -> Found<C::Connection> {
        self.asked = mode;
        let mut found = Found::nothing();
        let Some(waiting) = self.idle.get_mut(usize::from(mode.0)) else {
            return found;
        };
        while let Some(idle) = waiting.pop_back() {
            self.idle_count -= 1;
            let unused_for = now.saturating_duration_since(idle.since);
            if unused_for >= self.settings.idle_for
                || idle.origin.is_over(now, self.settings.lifetime_max)
            {
                self.counts.evictions += 1;
                found.stale.push(idle);
                continue;
            }
            self.counts.hits += 1;
            found.check = unused_for >= self.settings.check_after;
            found.idle = Some(idle);
            break;
        }
        found
    }

    /// The last one found was no good after all: takes the hit back.
    pub(super) fn evicted_after_test(&mut self) {
        self.counts.hits -= 1;
        self.counts.evictions += 1;
    }

    /// Whether a returned connection would be kept.
    pub(super) fn keeps(&self) -> bool {
        self.phase == Phase::Open && !self.resting && self.settings.idle_max > 0
    }

    /// Keeps a connection. If that is one too many, the one that was idle longest goes.
    pub(super) fn keep(&mut self, idle: Idle<C::Connection>) -> Option<Idle<C::Connection>> {
        let mode = usize::from(idle.origin.mode.0);
        if self.idle.len() <= mode {
            self.idle.resize_with(mode + 1, VecDeque::new);
        }
        self.idle[mode].push_back(idle);
        self.idle_count += 1;
        if self.idle_count > self.settings.idle_max {
            return self.evict_oldest();
        }
        None
    }

    fn evict_oldest(&mut self) -> Option<Idle<C::Connection>> {
        let oldest = self
            .idle
            .iter_mut()
            .filter(|mode| !mode.is_empty())
            .min_by_key(|mode| mode.front().map(|idle| idle.since))?
            .pop_front()?;
        self.idle_count -= 1;
        self.counts.evictions += 1;
        Some(oldest)
    }

    /// Gives a place back: to the first that waits, who is returned to be told, else to nobody.
    pub(super) fn release(&mut self) -> Option<Grant<C>> {
        if self.active <= self.settings.active_max
            && let Some(next) = self.line.pop()
        {
            return Some(next);
        }
        self.active -= 1;
        None
    }

    /// Takes new settings; returns whom a raised limit lets in and whom a lowered one sends off.
    pub(super) fn apply(
        &mut self,
        settings: PoolSettings,
    ) -> (Vec<Grant<C>>, Vec<Idle<C::Connection>>) {
        self.settings = settings;
        let mut granted = Vec::new();
        while self.active < self.settings.active_max
            && let Some(next) = self.line.pop()
        {
            self.active += 1;
            granted.push(next);
        }
        let mut evicted = Vec::new();
        while self.idle_count > self.settings.idle_max {
            evicted.extend(self.evict_oldest());
        }
        (granted, evicted)
    }

    /// A connection of this generation broke: those opened with or before it are suspect.
    pub(super) fn retire(&mut self, generation: u64) -> Vec<Idle<C::Connection>> {
        if generation == self.generation {
            self.generation += 1;
        }
        self.evict(|idle| idle.origin.generation <= generation)
    }

    /// Removes what is too old at `now`; `min_idle` connections may be idle for as long as they live.
    pub(super) fn evict_old(&mut self, now: Instant) -> Vec<Idle<C::Connection>> {
        let (lifetime_max, idle_for) = (self.settings.lifetime_max, self.settings.idle_for);
        let mut evicted = self.evict(|idle| idle.origin.is_over(now, lifetime_max));
        let mut spare = self.idle_count.saturating_sub(self.settings.min_idle);
        evicted.extend(self.evict(|idle| {
            let unused = spare > 0 && now.saturating_duration_since(idle.since) >= idle_for;
            spare -= u32::from(unused);
            unused
        }));
        evicted
    }

    pub(super) fn evict_all(&mut self) -> Vec<Idle<C::Connection>> {
        self.evict(|_| true)
    }

    fn evict(
        &mut self,
        mut goes: impl FnMut(&Idle<C::Connection>) -> bool,
    ) -> Vec<Idle<C::Connection>> {
        let mut evicted = Vec::new();
        for mode in &mut self.idle {
            let (gone, kept): (VecDeque<_>, _) = mode.drain(..).partition(&mut goes);
            evicted.extend(gone);
            *mode = kept;
        }
        // Never more than were counted in.
        let count = evicted.len() as u32;
        self.idle_count -= count;
        self.counts.evictions += u64::from(count);
        evicted
    }

    /// Takes out the longest idle one of a mode, to be tested outside the lock, and says which
    /// generation it is now.
    pub(super) fn take_front(&mut self, mode: Mode) -> Option<(Idle<C::Connection>, u64)> {
        let idle = self.idle.get_mut(usize::from(mode.0))?.pop_front()?;
        self.idle_count -= 1;
        Some((idle, self.generation))
    }

    /// How many idle ones each mode has.
    pub(super) fn idle_by_mode(&self) -> Vec<(Mode, usize)> {
        (0..=u8::MAX)
            .map(Mode)
            .zip(self.idle.iter().map(VecDeque::len))
            .collect()
    }

    /// How many connections are missing to `min_idle`.
    pub(super) fn missing(&self) -> u32 {
        match self.phase {
            Phase::Open if self.resting => 0,
            Phase::Open => {
                let wanted = self.settings.min_idle.min(self.settings.idle_max);
                wanted.saturating_sub(self.idle_count)
            }
            Phase::Draining | Phase::Closed => 0,
        }
    }
}
