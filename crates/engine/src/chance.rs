//! One seeded source of randomness. Tests replay a run by its seed; no two calls share a stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A seeded handle; copies draw from one sequence of independent streams.
#[derive(Debug, Clone)]
pub struct Chance {
    seed: u64,
    next: Arc<AtomicU64>,
}

impl Chance {
    /// The same seed gives the same draws in the same order.
    pub fn seeded(seed: u64) -> Self {
        Chance {
            seed,
            next: Arc::new(AtomicU64::new(0)),
        }
    }

    /// A seed from the operating system's randomness.
    pub fn from_entropy() -> Self {
        Self::seeded(fastrand::Rng::new().u64(..))
    }

    /// The seed, to be logged.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A generator of its own for one call: SplitMix64 over seed and stream number (Steele, Lea and
    /// Flood, "Fast splittable pseudorandom number generators", 2014).
    pub fn stream(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.draw())
    }

    /// One 64-bit draw.
    pub fn draw(&self) -> u64 {
        let stream = self.next.fetch_add(1, Ordering::Relaxed);
        mix(self.seed ^ mix(stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// One 128-bit draw.
    pub fn u128(&self) -> u128 {
        let high = self.draw();
        let low = mix(high ^ self.seed.rotate_left(32));
        (u128::from(high) << 64) | u128::from(low)
    }
}

fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_values_and_streams_differ() {
        let (a, b) = (Chance::seeded(7), Chance::seeded(7));
        let first: Vec<u64> = (0..100).map(|_| a.draw()).collect();
        let second: Vec<u64> = (0..100).map(|_| b.draw()).collect();
        assert_eq!(first, second);
        let mut unique = first.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), first.len());
    }
}
