//! State that many threads write at once, split so that each mostly has a cache line of its own. A
//! reader adds the stripes up.

use crossbeam_utils::CachePadded;

/// Enough that the threads of a usual machine seldom meet, few enough to be added up at each read.
const STRIPES: usize = 8;
/// Stacks of threads are 2 MiB apart by default, so neighbours have different stripes.
const STACK_BITS: u32 = 21;

/// Eight copies of `T`, each on cache lines of its own.
#[derive(Debug)]
pub(crate) struct Stripes<T>([CachePadded<T>; STRIPES]);

impl<T: Default> Default for Stripes<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T> Stripes<T> {
    pub(crate) fn new(make: impl Fn() -> T) -> Self {
        Stripes(std::array::from_fn(|_| CachePadded::new(make())))
    }

    /// The stripe of the running thread, told by where its stack lies. That is a guess which costs
    /// nothing: two threads on one stripe, or one thread on two, are only slower, never wrong.
    pub(crate) fn mine(&self) -> &T {
        let on_the_stack = 0_u8;
        let address = std::ptr::from_ref(&on_the_stack).addr();
        &self.0[(address >> STACK_BITS) % STRIPES]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &**stripe)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn what_eight_threads_count_adds_up() {
        let stripes = Stripes::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        stripes.mine().fetch_add(1, Relaxed);
                    }
                });
            }
        });
        let sum: u64 = stripes.iter().map(|stripe| stripe.load(Relaxed)).sum();
        assert_eq!(sum, 80_000);
    }

    #[test]
    fn a_thread_finds_its_stripe_again() {
        let stripes = Stripes::<AtomicU64>::default();
        let first = std::ptr::from_ref(stripes.mine());
        let again = std::ptr::from_ref(stripes.mine());
        assert_eq!(first, again);
    }
}
