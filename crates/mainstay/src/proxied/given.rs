//! The arguments of a call, handed out to its attempts.

use std::sync::{Mutex, PoisonError};

/// Arguments by value of one call.
///
/// An attempt that may have a successor gets others like them, because what is handed over does not come
/// back. The one attempt of a call that has no other gets the arguments themselves.
///
/// In a lock, which nobody ever waits for, so that the arguments of a future that is sent to other threads
/// need only be `Send`.
pub(super) struct Given<A> {
    kept: Mutex<Option<A>>,
    is_once: bool,
}

impl<A> Given<A> {
    pub(super) fn new(given: A, is_once: bool) -> Self {
        Given {
            kept: Mutex::new(Some(given)),
            is_once,
        }
    }

    pub(super) fn give(&self, again: impl Fn(&A) -> A) -> A {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let given = match self.is_once {
            true => kept.take(),
            false => kept.as_ref().map(again),
        };
        match given {
            Some(given) => given,
            None => unreachable!("the operation has one attempt, so it asks once"),
        }
    }
}

/// Whether there is nothing to be kept.
pub(super) const fn is_nothing<A>() -> bool {
    size_of::<A>() == 0 && !std::mem::needs_drop::<A>()
}
