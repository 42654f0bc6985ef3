//! Choosing one of several candidates.
//!
//! Who may be a candidate at all (role, health, lag, circuit) is decided before; here the best of them
//! is picked, by one scoring function for every strategy.

mod turn;

use std::time::Duration;

use crate::origin::nanos;
use crate::policy::Strategy;
use turn::Turn;

/// A failed answer counts as one so many times as slow as the slowest candidate: it hides at least
/// another attempt elsewhere.
const FAILURE_IS_SLOWER: f64 = 10.0;
/// Keeps a weight of 0 from dividing by it; such a candidate gets what nobody else can take.
const WEIGHT_MIN: f64 = 1e-9;
/// How often `lowest_latency`, which otherwise never would, tries one whose latency is unknown.
const EXPLORE: f64 = 0.05;
/// Keeps a candidate that never failed from getting everything (engine.md's constant).
const FAILURE_RATE_OFFSET: f64 = 0.01;

/// One endpoint that may be chosen, as it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Its share relative to the others.
    pub weight: f64,
    /// Attempts under way on it.
    pub in_flight: u32,
    /// Its latency estimate; `None`: not measured yet.
    pub latency: Option<Duration>,
    /// Share of its recent attempts that failed, 0 to 1.
    pub failure_rate: f64,
    /// Whether it is the primary.
    pub is_primary: bool,
    /// Whether it is a standby: chosen only where nothing else is left.
    pub is_standby: bool,
}

/// What strategies that go in turn remember. Share it by reference.
#[derive(Debug, Default)]
pub struct Router {
    turn: Turn,
}

impl Router {
    /// Nobody had a turn yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The index of the candidate to try next.
    ///
    /// `candidates` are those still to try, `ids` their identities in the same order, by which turns
    /// are remembered although the list differs from call to call. Of an empty list the answer is 0.
    /// Standbys are chosen only if all are. Allocates nothing up to 16 candidates.
    pub fn pick(
        &self,
        strategy: Strategy,
        candidates: &[Candidate],
        ids: &[u64],
        rng: &mut fastrand::Rng,
    ) -> usize {
        let field = Field::new(strategy, candidates);
        match strategy {
            Strategy::WeightedLatency | Strategy::P2c => field.better_of_two(rng),
            Strategy::LeastOutstanding => field.best(rng),
            Strategy::LowestLatency => field.explored(rng).unwrap_or_else(|| field.best(rng)),
            Strategy::PrimaryWithStandby => field.best(rng),
            Strategy::HealthWeighted => field.drawn(rng),
            Strategy::RoundRobin => self.turn.next(ids, |index| field.is_in(index)),
            Strategy::WeightedRoundRobin => self.turn.next_weighted(ids, |index| {
                field
                    .is_in(index)
                    .then(|| candidates[index].weight.max(WEIGHT_MIN))
            }),
        }
    }
}

/// The candidates of one choice with what they are measured against.
struct Field<'a> {
    strategy: Strategy,
    candidates: &'a [Candidate],
    /// All are standbys, so they are not left out.
    standbys_only: bool,
    /// Mean latency of the measured ones in nanoseconds: what an unmeasured one is taken for.
    mean: f64,
    /// The slowest of the measured ones.
    slowest: f64,
}

impl<'a> Field<'a> {
    fn new(strategy: Strategy, candidates: &'a [Candidate]) -> Self {
        let (mut sum, mut measured, mut slowest) = (0.0, 0_u32, 0.0_f64);
        for latency in candidates.iter().filter_map(|c| c.latency) {
            let latency = nanos(latency) as f64;
            sum += latency;
            measured += 1;
            slowest = slowest.max(latency);
        }
        // With nothing measured all are alike, so load and weight decide.
        let mean = if measured == 0 {
            1.0
        } else {
            sum / f64::from(measured)
        };
        Field {
            strategy,
            candidates,
            standbys_only: candidates.iter().all(|c| c.is_standby),
            mean,
            slowest: slowest.max(mean),
        }
    }

    fn is_in(&self, index: usize) -> bool {
        self.standbys_only || !self.candidates[index].is_standby
    }

    fn members(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.candidates.len()).filter(|index| self.is_in(*index))
    }

    /// The one scoring function: the lower, the better.
    fn score(&self, index: usize) -> f64 {
        let candidate = &self.candidates[index];
        let weight = candidate.weight.max(WEIGHT_MIN);
        let load = f64::from(candidate.in_flight) + 1.0;
        match self.strategy {
            Strategy::LeastOutstanding => load,
            Strategy::LowestLatency => self.latency(candidate),
            Strategy::HealthWeighted => {
                (candidate.failure_rate.max(0.0) + FAILURE_RATE_OFFSET) / weight
            }
            Strategy::PrimaryWithStandby if candidate.is_primary => 0.0,
            Strategy::PrimaryWithStandby
            | Strategy::WeightedLatency
            | Strategy::P2c
            | Strategy::RoundRobin
            | Strategy::WeightedRoundRobin => self.latency(candidate) * load / weight,
        }
    }

    /// Nanoseconds a call is expected to take, with failures as the slow answers they hide.
    fn latency(&self, candidate: &Candidate) -> f64 {
        let measured = candidate
            .latency
            .map_or(self.mean, |latency| nanos(latency) as f64);
        let failed = candidate.failure_rate.clamp(0.0, 1.0);
        measured + failed * self.slowest * FAILURE_IS_SLOWER
    }

    /// Power of two choices (Mitzenmacher, 2001): the better of two drawn ones, so that callers who
    /// see the same numbers do not all run to the same endpoint.
    fn better_of_two(&self, rng: &mut fastrand::Rng) -> usize {
        let count = self.members().count();
        if count < 2 {
            return self.members().next().unwrap_or(0);
        }
        let first = rng.usize(..count);
        let second = (first + rng.usize(1..count)) % count;
        let first = self.members().nth(first).unwrap_or(0);
        let second = self.members().nth(second).unwrap_or(0);
        if self.score(second) < self.score(first) {
            second
        } else {
            first
        }
    }

    /// The best of all, one of them by chance where several are equal.
    fn best(&self, rng: &mut fastrand::Rng) -> usize {
        let (mut chosen, mut best, mut equals) = (0, f64::INFINITY, 0_u32);
        for index in self.members() {
            let score = self.score(index);
            if score < best {
                (chosen, best, equals) = (index, score, 1);
            } else if score == best {
                equals += 1;
                if rng.u32(..equals) == 0 {
                    chosen = index;
                }
            }
        }
        chosen
    }

    /// One by chance, with shares in inverse proportion to the scores.
    fn drawn(&self, rng: &mut fastrand::Rng) -> usize {
        let total: f64 = self.members().map(|index| 1.0 / self.score(index)).sum();
        let mut left = rng.f64() * total;
        let mut chosen = 0;
        for index in self.members() {
            chosen = index;
            left -= 1.0 / self.score(index);
            if left < 0.0 {
                break;
            }
        }
        chosen
    }

    /// Now and then one that was never measured, if there is one.
    fn explored(&self, rng: &mut fastrand::Rng) -> Option<usize> {
        let is_unmeasured = |index: &usize| self.candidates[*index].latency.is_none();
        let count = self.members().filter(is_unmeasured).count();
        if count == 0 || rng.f64() >= EXPLORE {
            return None;
        }
        self.members().filter(is_unmeasured).nth(rng.usize(..count))
    }
}

#[cfg(test)]
mod tests;
