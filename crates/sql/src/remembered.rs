//! Bounded maps of what can be found out again.

use std::hash::Hash;

use foldhash::quality::RandomState;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

/// A bounded map for what each call looks up: its hash is quicker than the standard one, and seeded as that.
pub(crate) type Remembered<K, V> = Cache<K, V, UnitWeighter, RandomState>;

/// An empty map of at most so many entries.
pub(crate) fn remembered<K: Eq + Hash, V: Clone>(max: usize) -> Remembered<K, V> {
    Cache::with(
        max,
        max as u64,
        UnitWeighter,
        RandomState::default(),
        DefaultLifecycle::default(),
    )
}
