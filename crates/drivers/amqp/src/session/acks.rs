//! Acknowledgements on their way to the broker: given one at a time from anywhere, sent together.

use std::collections::BTreeSet;
use std::sync::Arc;

use mainstay_message::Acknowledge;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Where acknowledgements of one channel of one connection wait. After its end they are dropped: the broker gives the
/// messages again.
#[derive(Debug)]
pub(crate) struct AckQueue {
    tags: Mutex<Option<Vec<u64>>>,
    wake: Arc<Notify>,
}

impl AckQueue {
    pub(crate) fn new(wake: Arc<Notify>) -> Arc<Self> {
        Arc::new(AckQueue {
            tags: Mutex::new(Some(Vec::new())),
            wake,
        })
    }

    /// Puts one in. There are never more than messages were given.
    fn push(&self, tag: u64) {
        let is_first = match self.tags.lock().as_mut() {
            Some(tags) => {
                tags.push(tag);
                tags.len() == 1
            }
            None => false,
        };
        if is_first {
            self.wake.notify_one();
        }
    }

    /// Takes all that wait.
    pub(crate) fn take_into(&self, into: &mut Vec<u64>) {
        if let Some(tags) = self.tags.lock().as_mut() {
            into.append(tags);
        }
    }

    /// The channel is over.
    pub(crate) fn close(&self) {
        *self.tags.lock() = None;
    }
}

/// Acknowledges one message.
#[derive(Debug)]
pub(crate) struct Ack {
    pub(crate) queue: Arc<AckQueue>,
    pub(crate) tag: u64,
}

impl Acknowledge for Ack {
    fn acknowledge(self: Box<Self>) {
        self.queue.push(self.tag);
    }
}

/// Which messages of a channel are not acknowledged, so that a run of them takes one frame.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The last tag that came.
    last: u64,
    waiting: BTreeSet<u64>,
}

impl Window {
    /// A message came. False: its tag does not follow on the last.
    pub(crate) fn delivered(&mut self, tag: u64) -> bool {
        let follows = tag == self.last + 1;
        if follows {
            self.last = tag;
            self.waiting.insert(tag);
        }
        follows
    }

    /// How many the broker still waits for.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes acknowledgements, puts them in order, and calls `tell(tag, multiple)` for what the broker has to hear.
    pub(crate) fn acknowledge(&mut self, tags: &mut Vec<u64>, mut tell: impl FnMut(u64, bool)) {
        tags.retain(|tag| self.waiting.remove(tag));
        tags.sort_unstable();
        let first_left = self.waiting.first().copied().unwrap_or(u64::MAX);
        let (run, alone) = tags.split_at(tags.partition_point(|tag| *tag < first_left));
        if let Some(last) = run.last() {
            tell(*last, run.len() > 1);
        }
        for tag in alone {
            tell(*tag, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_in_one_and_the_others_at_once() {
        for (steps, expected) in [
            (vec![vec![1]], vec![(1, false)]),
            (vec![vec![1, 2, 3]], vec![(3, true)]),
            (vec![vec![3, 1, 2]], vec![(3, true)]),
            (
                vec![vec![3], vec![1], vec![2]],
                vec![(3, false), (1, false), (2, false)],
            ),
            // Up to 4, not up to 5: what was told alone is not known there any more.
            (vec![vec![5], vec![1, 2, 3, 4]], vec![(5, false), (4, true)]),
            (vec![vec![2], vec![1, 3]], vec![(2, false), (3, true)]),
            (vec![vec![4, 1, 2]], vec![(2, true), (4, false)]),
            (vec![vec![1], vec![1], vec![9, 0]], vec![(1, false)]),
        ] {
            let (mut window, mut told) = (Window::default(), vec![]);
            (1..=6).for_each(|tag| assert!(window.delivered(tag)));
            for tags in &steps {
                window.acknowledge(&mut tags.clone(), |tag, multiple| {
                    told.push((tag, multiple))
                });
            }
            assert_eq!(told, expected, "{steps:?}");
        }
    }

    #[test]
    fn tags_that_do_not_follow_are_seen() {
        let mut window = Window::default();
        assert!(!window.delivered(2));
        assert!(window.delivered(1));
        window.acknowledge(&mut vec![1], |_, _| {});
        assert!(window.delivered(2) && !window.delivered(2));
        assert_eq!(window.waiting(), 1);
    }
}
