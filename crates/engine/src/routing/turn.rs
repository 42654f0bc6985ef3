//! Whose turn it is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Endpoints remembered without allocating.
const USUAL: usize = 16;

/// Turns by identity, so that they stay fair while candidates come and go.
#[derive(Debug)]
pub(super) struct Turn {
    /// Who had the last plain turn.
    last: AtomicU64,
    /// Credit of each in the smooth weighted turn.
    credits: Mutex<Vec<Credit>>,
}

#[derive(Debug)]
struct Credit {
    id: u64,
    credit: f64,
}

impl Default for Turn {
    fn default() -> Self {
        Turn {
            last: AtomicU64::new(u64::MAX),
            credits: Mutex::new(Vec::with_capacity(USUAL)),
        }
    }
}

impl Turn {
    /// The index of the next id after the one that had the last turn, in a circle by value.
    pub(super) fn next(&self, ids: &[u64], is_in: impl Fn(usize) -> bool) -> usize {
        let mut last = self.last.load(Relaxed);
        loop {
            let members = || (0..ids.len()).filter(|index| is_in(*index));
            let after = members().filter(|index| ids[*index] > last);
            let Some(chosen) = after
                .min_by_key(|index| ids[*index])
                .or_else(|| members().min_by_key(|index| ids[*index]))
            else {
                return 0;
            };
            match self
                .last
                .compare_exchange_weak(last, ids[chosen], Relaxed, Relaxed)
            {
                Ok(_) => return chosen,
                Err(seen) => last = seen,
            }
        }
    }

    /// Smooth weighted round robin, as in nginx: all gain their weight, the richest is chosen and pays
    /// for all. `weight` is `None` for those left out.
    pub(super) fn next_weighted(
        &self,
        ids: &[u64],
        weight: impl Fn(usize) -> Option<f64>,
    ) -> usize {
        let mut credits = self.credits.lock();
        if credits.len() > USUAL.max(4 * ids.len()) {
            credits.retain(|known| ids.contains(&known.id));
        }
        let mut total = 0.0;
        let mut richest: Option<(usize, usize, f64)> = None;
        for (index, id) in ids.iter().enumerate() {
            let Some(weight) = weight(index) else {
                continue;
            };
            total += weight;
            let place = match credits.iter().position(|known| known.id == *id) {
                Some(place) => place,
                None => {
                    credits.push(Credit {
                        id: *id,
                        credit: 0.0,
                    });
                    credits.len() - 1
                }
            };
            credits[place].credit += weight;
            let credit = credits[place].credit;
            if richest.is_none_or(|(_, _, most)| credit > most) {
                richest = Some((index, place, credit));
            }
        }
        let Some((index, place, _)) = richest else {
            return 0;
        };
        credits[place].credit -= total;
        index
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.credits.lock().len()
    }
}
