//! A bounded queue from many tasks to one thread, which takes all that waits at once.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Why nothing was put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shut {
    Full,
    Closed,
}

/// Items come out in the order in which they were put in.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    length_max: usize,
    state: Mutex<State<T>>,
    filled: Condvar,
}

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new(length_max: usize) -> Self {
        Queue {
            length_max,
            state: Mutex::new(State {
                items: VecDeque::new(),
                is_closed: false,
            }),
            filled: Condvar::new(),
        }
    }

    /// Never waits, so that the order of the calls is the order of the items.
    pub(crate) fn put(&self, item: T) -> Result<(), (T, Shut)> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err((item, Shut::Closed));
        }
        if state.items.len() >= self.length_max {
            return Err((item, Shut::Full));
        }
        state.items.push_back(item);
        let was_empty = state.items.len() == 1;
        drop(state);
        if was_empty {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits until there is something and moves all of it into `taken`, which is empty. False if the queue is closed
    /// and nothing is left.
    pub(crate) fn take_all(&self, taken: &mut VecDeque<T>) -> bool {
        let mut state = self.state.lock();
        while state.items.is_empty() && !state.is_closed {
            self.filled.wait(&mut state);
        }
        std::mem::swap(&mut state.items, taken);
        !taken.is_empty()
    }

    /// Nothing more comes in; what is in still comes out.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_order_up_to_the_bound_and_after_the_close() {
        let queue = Queue::new(2);
        assert_eq!(queue.put(1), Ok(()));
        assert_eq!(queue.put(2), Ok(()));
        assert_eq!(queue.put(3), Err((3, Shut::Full)));
        queue.close();
        assert_eq!(queue.put(4), Err((4, Shut::Closed)));
        let mut taken = VecDeque::new();
        assert!(queue.take_all(&mut taken));
        assert_eq!(taken, [1, 2]);
        taken.clear();
        assert!(!queue.take_all(&mut taken));
    }
}
