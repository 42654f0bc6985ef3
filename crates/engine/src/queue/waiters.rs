//! Who waits, by priority: plain data with `now` as an argument.

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Place;
use crate::line::Line;
use crate::operation::Priority;

/// The number of classes of [`Priority`].
const CLASSES: usize = Priority::Critical as usize + 1;

pub(super) struct Waiters {
    /// Calls at once, as the call that came last has it.
    pub(super) limit: Option<u32>,
    /// Paused, and new calls are refused.
    pub(super) refuses: bool,
    classes: [Line<Place>; CLASSES],
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters {
            limit: None,
            refuses: false,
            classes: std::array::from_fn(|_| Line::new()),
        }
    }
}

impl Waiters {
    pub(super) fn len(&self) -> u32 {
        let waiting = self.classes.iter().map(Line::len).sum::<usize>();
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    pub(super) fn join(
        &mut self,
        priority: Priority,
        now: Instant,
    ) -> (u64, oneshot::Receiver<Place>) {
        self.classes[priority as usize].join(now)
    }

    pub(super) fn leave(&mut self, priority: Priority, number: u64) {
        self.classes[priority as usize].leave(number);
    }

    /// Takes the first: of the highest class, where each second of waiting counts as a class; among
    /// equals who came first. The first of each line has waited longest in it, so only these compare.
    pub(super) fn pop(&mut self, now: Instant) -> Option<oneshot::Sender<Place>> {
        let first_of = |(class, line): (usize, &Line<Place>)| {
            let since = line.first_since()?;
            let seconds = now.saturating_duration_since(since).as_secs();
            let risen = usize::try_from(seconds).unwrap_or(CLASSES);
            let risen = class.saturating_add(risen).min(CLASSES - 1);
            Some((std::cmp::Reverse(risen), since, class))
        };
        let (_, _, class) = self
            .classes
            .iter()
            .enumerate()
            .filter_map(first_of)
            .min_by_key(|(risen, since, class)| (*risen, *since, std::cmp::Reverse(*class)))?;
        self.classes[class].pop()
    }

    /// Sends everybody away; the senders are dropped by the caller, outside its lock.
    pub(super) fn take_all(&mut self) -> Vec<oneshot::Sender<Place>> {
        let everybody = self.classes.iter_mut().flat_map(Line::take_all);
        everybody.map(|(_, waiter)| waiter.sender).collect()
    }
}
