//! Which endpoints a call may use, and which of them it tries next.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::{Inner, Member, Snapshot};
use crate::endpoint::{Fitness, Placed};
use crate::event::Role;
use crate::operation::Safety;
use crate::policy::ReadFrom;
use crate::routing::Candidate;

/// What role a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A read from these roles.
    Read(ReadFrom),
    /// The primary of the current epoch, never another role.
    Primary,
}

impl Need {
    pub(super) fn of(safety: Safety, read_from: ReadFrom) -> Self {
        match safety {
            Safety::Read => Need::Read(read_from),
            Safety::IdempotentWrite | Safety::Write => Need::Primary,
        }
    }

    /// In which order roles are considered: 0 first; `None`: never.
    fn tier(self, role: Role) -> Option<u8> {
        match (self, role) {
            (_, Role::Member) | (Need::Primary, Role::Primary) => Some(0),
            (Need::Primary, _) => None,
            (Need::Read(ReadFrom::Primary), Role::Primary) => Some(0),
            (Need::Read(ReadFrom::Primary), _) => None,
            (Need::Read(ReadFrom::Any), Role::Primary | Role::Replica) => Some(0),
            (Need::Read(ReadFrom::Replica), Role::Replica) => Some(0),
            (Need::Read(ReadFrom::Replica), Role::Primary) => Some(1),
            (Need::Read(_), Role::Standby) => Some(2),
        }
    }
}

/// Endpoints by their number; few, so a list is fastest.
pub(super) type Numbers = SmallVec<[u64; 8]>;

/// What is left out of a choice.
#[derive(Default)]
pub(super) struct Excluded {
    /// Tried in this round.
    pub tried: Numbers,
    /// Refused by their gate in this round.
    pub refused: Numbers,
    /// One of them is merely full or over its rate: it will soon let somebody in.
    pub is_full: bool,
}

impl Excluded {
    fn has(&self, number: u64) -> bool {
        self.tried.contains(&number) || self.refused.contains(&number)
    }

    pub(super) fn clear(&mut self) {
        self.tried.clear();
        self.forget_refused();
    }

    pub(super) fn forget_refused(&mut self) {
        self.refused.clear();
        self.is_full = false;
    }
}

/// What a choice came to.
pub(super) enum Choice {
    /// This endpoint, by its index in the snapshot.
    Use {
        index: usize,
        /// Health or lag had excluded everything; this one is the least bad.
        last_resort: bool,
    },
    /// Everything that fits was tried or refused already.
    Exhausted,
    /// Nothing fits: no endpoint has the role, or the fitting ones are draining.
    Nobody,
}

/// A filter of a face over endpoints, beside role, health and lag.
pub type Filter<'a, M> = &'a (dyn Fn(&Placed<M>) -> bool + Send + Sync);

/// A face's order of endpoints, the lowest first.
pub type Rank<'a, M> = &'a (dyn Fn(&Placed<M>) -> u32 + Send + Sync);

/// What a face asks of a choice.
pub(super) struct Wish<'a, M> {
    pub need: Need,
    pub filter: Option<Filter<'a, M>>,
    pub rank: Option<Rank<'a, M>>,
}

impl<M> Clone for Wish<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Wish<'_, M> {}

impl<M> Wish<'_, M> {
    /// In which order an endpoint is considered, the lowest first; `None`: never. One that is set aside comes
    /// after all others, whatever its role and rank.
    fn tier(self, placed: &Placed<M>) -> Option<(bool, u8, u32)> {
        let role = tier_of(placed, self.need, self.filter)?;
        let rank = self.rank.map_or(0, |rank| rank(placed));
        Some((placed.endpoint.is_aside(), role, rank))
    }
}

impl<M: Member> Inner<M> {
    /// Chooses among the endpoints that fit, leaving out what is excluded.
    pub(super) fn choose(
        &self,
        snapshot: &Snapshot<M>,
        wish: Wish<'_, M>,
        excluded: &Excluded,
        now: Instant,
    ) -> Choice {
        let mut best_tier = (true, u8::MAX, u32::MAX);
        let mut fitting: SmallVec<[usize; 8]> = SmallVec::new();
        let (mut anybody, mut anyone_healthy) = (false, false);
        for (index, placed) in snapshot.endpoints.iter().enumerate() {
            let Some(tier) = wish.tier(placed) else {
                continue;
            };
            anybody = true;
            if !is_healthy(snapshot, placed) {
                continue;
            }
            anyone_healthy = true;
            if excluded.has(placed.endpoint.number) || tier > best_tier {
                continue;
            }
            if tier < best_tier {
                best_tier = tier;
                fitting.clear();
            }
            fitting.push(index);
        }
        match fitting.as_slice() {
            [index] => Choice::Use {
                index: *index,
                last_resort: false,
            },
            [] if !anybody => Choice::Nobody,
            [] if !snapshot.policy.route.last_resort => Choice::Exhausted,
            // A healthy one was tried: what follows is another round. Or one is merely full: what follows
            // is a wait. If all of them were refused by their circuits, the others are still better than
            // nothing.
            [] if anyone_healthy && (excluded.is_full || !excluded.tried.is_empty()) => {
                Choice::Exhausted
            }
            [] => self.least_bad(snapshot, wish, excluded),
            several => {
                let index = self.pick(snapshot, several, now);
                Choice::Use {
                    index,
                    last_resort: false,
                }
            }
        }
    }

    fn pick(&self, snapshot: &Snapshot<M>, indices: &[usize], now: Instant) -> usize {
        let strategy = snapshot.policy.route.strategy;
        let mut candidates: SmallVec<[Candidate; 8]> = SmallVec::new();
        let mut numbers = Numbers::new();
        for &index in indices {
            let placed = &snapshot.endpoints[index];
            let endpoint = &placed.endpoint;
            candidates.push(Candidate {
                weight: endpoint.weight(),
                in_flight: endpoint.in_flight(),
                latency: endpoint.latency.estimate(now),
                failure_rate: endpoint.stats.failure_rate(now),
                is_primary: placed.role == Role::Primary,
                is_standby: placed.role == Role::Standby,
            });
            numbers.push(endpoint.number);
        }
        let mut rng = self.chance.stream();
        let picked = self.router.pick(strategy, &candidates, &numbers, &mut rng);
        indices.get(picked).copied().unwrap_or(indices[0])
    }

    /// Of those that only health or lag exclude: healthy before down, then the smallest lag.
    fn least_bad(&self, snapshot: &Snapshot<M>, wish: Wish<'_, M>, excluded: &Excluded) -> Choice {
        let least = snapshot
            .endpoints
            .iter()
            .enumerate()
            .filter(|(_, placed)| !excluded.has(placed.endpoint.number))
            .filter_map(|(index, placed)| {
                let tier = wish.tier(placed)?;
                let is_down = placed.endpoint.fitness() == Fitness::Down;
                let lag = placed.endpoint.lag().unwrap_or(Duration::MAX);
                Some(((is_down, lag, tier), index))
            })
            .min();
        match least {
            Some((_, index)) => Choice::Use {
                index,
                last_resort: true,
            },
            None => Choice::Exhausted,
        }
    }
}

/// The tier of an endpoint that role, drain, kinship and the face's filter leave in.
fn tier_of<M>(placed: &Placed<M>, need: Need, filter: Option<Filter<'_, M>>) -> Option<u8> {
    let tier = need.tier(placed.role)?;
    let endpoint = &placed.endpoint;
    let is_in = !endpoint.is_draining() && !endpoint.is_estranged();
    let fits = is_in && filter.is_none_or(|filter| filter(placed));
    fits.then_some(tier)
}

fn is_healthy<M>(snapshot: &Snapshot<M>, placed: &Placed<M>) -> bool {
    placed.endpoint.fitness() != Fitness::Down && !lags(snapshot, placed)
}

/// Whether role, drain and the face's filter leave an endpoint in.
pub(super) fn is_admissible<M>(
    placed: &Placed<M>,
    need: Need,
    filter: Option<Filter<'_, M>>,
) -> bool {
    tier_of(placed, need, filter).is_some()
}

/// Whether a replica is too far behind for reads. Unknown counts as lagging. Without a primary there is
/// nothing to compare with, and sources without roles have no lag.
fn lags<M>(snapshot: &Snapshot<M>, placed: &Placed<M>) -> bool {
    let Some(max) = snapshot.policy.route.lag_max else {
        return false;
    };
    if matches!(placed.role, Role::Primary | Role::Member) || snapshot.primary().is_none() {
        return false;
    }
    placed.endpoint.lag().is_none_or(|lag| lag > max)
}

impl<M> Snapshot<M> {
    /// Whether a choice now would find an endpoint that is not excluded.
    pub(super) fn has_another(
        &self,
        need: Need,
        filter: Filter<'_, M>,
        excluded: &Excluded,
    ) -> bool {
        let mut fitting = self
            .endpoints
            .iter()
            .filter(|placed| is_admissible(placed, need, Some(filter)));
        let any_healthy = fitting.clone().any(|placed| is_healthy(self, placed));
        fitting.any(|placed| {
            let is_in = match any_healthy {
                true => is_healthy(self, placed),
                false => self.policy.route.last_resort,
            };
            is_in && !excluded.has(placed.endpoint.number)
        })
    }

    /// The place of an endpoint in the list.
    pub(super) fn placed(&self, index: usize) -> &Placed<M> {
        &self.endpoints[index]
    }

    /// Whether nothing that a write could use is there.
    pub(super) fn lacks_primary(&self) -> bool {
        !self
            .endpoints
            .iter()
            .any(|placed| matches!(placed.role, Role::Primary | Role::Member))
    }
}
