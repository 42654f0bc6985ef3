//! Before an attempt: choosing an endpoint and asking its gate. Nothing here waits.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::super::candidates::{Choice, Excluded, Wish, is_admissible};
use super::super::held::Fresh;
use super::super::{HeldSnapshot, Member, Need, Snapshot};
use super::{Run, Stop};
use crate::endpoint::{CutMark, Endpoint, Fitness, Placed};
use crate::event::EventKind;
use crate::gate::{Refusal, Ticket};
use crate::in_flight::InFlight;
use crate::rejection::Stopped;

/// A trial of a half-open circuit keeps its permit for so long if attempts have no limit.
const TRIAL_LEASE: Duration = Duration::from_secs(30);
/// And longer than the attempt's limit by this, so that an attempt that times out still decides.
const TRIAL_LEASE_MARGIN: Duration = Duration::from_secs(1);

/// What came of looking for an endpoint.
pub(super) enum Begin<M> {
    /// One let the attempt in.
    Attempt(InFlight<M>),
    /// None did.
    Wait(WaitFor<M>),
}

/// Why no endpoint let the attempt in.
pub(super) enum WaitFor<M> {
    /// Everything that fits was tried or has refused.
    Exhausted(HeldSnapshot<M>),
    /// Nothing fits.
    Nobody(HeldSnapshot<M>, Need, Instant),
}

/// When an attempt ends.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limit {
    /// How far the endpoint's cuts were when it was found fit.
    pub mark: CutMark,
    pub ends_at: Option<Instant>,
    /// The caller's deadline ends the attempt earlier than the policy would.
    pub cut_by_deadline: bool,
}

impl<M: Member, E: fmt::Display> Run<'_, M, E> {
    /// Finds an endpoint that lets the next attempt in.
    pub(super) fn begin(&mut self) -> Result<Begin<M>, Stop> {
        let inner = self.inner;
        loop {
            let fresh = self.fresh.take().unwrap_or_else(|| Fresh::new(inner));
            let Fresh {
                now,
                at,
                version,
                snapshot,
            } = fresh;
            if self.ends_at.is_some_and(|end| now >= end) {
                return Err(Stop::Stopped(Stopped::Deadline));
            }
            let need = self.need(&snapshot);
            let (index, last_resort) = match self.choose(&snapshot, need, now) {
                Choice::Use { index, last_resort } => (index, last_resort),
                Choice::Exhausted => return Ok(Begin::Wait(WaitFor::Exhausted(snapshot))),
                Choice::Nobody => return Ok(Begin::Wait(WaitFor::Nobody(snapshot, need, now))),
            };
            let placed = snapshot.placed(index);
            let mark = placed.endpoint.cut_mark(!self.operation.safety.is_read());
            let went_down = !last_resort && placed.endpoint.fitness() == Fitness::Down;
            if went_down || inner.version.load(Ordering::Acquire) != version {
                // A cut for that came before the mark: this attempt would never be cut.
                continue;
            }
            self.check_time_left(&placed.endpoint, now)?;
            if let Some(ticket) = self.ask(placed, now) {
                self.limit.mark = mark;
                self.note_admission(&snapshot, index, last_resort);
                let in_flight = InFlight::new(snapshot, index, ticket, now, at);
                return Ok(Begin::Attempt(in_flight));
            }
        }
    }

    /// The role that the call needs.
    pub(super) fn need(&self, snapshot: &Snapshot<M>) -> Need {
        let read_from = snapshot.policy.route.read_from;
        let by_safety = || Need::of(self.operation.safety, read_from);
        self.route.need.unwrap_or_else(by_safety)
    }

    fn note_admission(&mut self, snapshot: &Snapshot<M>, index: usize, last_resort: bool) {
        let endpoint = &snapshot.placed(index).endpoint;
        if last_resort {
            self.last_resort = true;
            let endpoint = endpoint.id.clone();
            self.inner
                .events
                .publish(EventKind::LastResort { endpoint });
        }
        self.waits = None;
        self.epoch = snapshot.epoch;
        self.policy_version = snapshot.policy.version;
    }

    fn choose(&mut self, snapshot: &Snapshot<M>, need: Need, now: Instant) -> Choice {
        let inner = self.inner;
        let filter = self.route.filter;
        let wish = Wish {
            need,
            filter,
            rank: self.route.rank,
        };
        let Some(progress) = self.progress.as_deref_mut() else {
            return inner.choose(snapshot, wish, &Excluded::default(), now);
        };
        if let Some(number) = progress.stay_on.take() {
            // It may have lost its role meanwhile.
            let staying = snapshot.endpoints.iter().position(|placed| {
                placed.endpoint.number == number && is_admissible(placed, need, filter)
            });
            if let Some(index) = staying {
                return Choice::Use {
                    index,
                    last_resort: false,
                };
            }
        }
        let used = &progress.used;
        let within = |placed: &Placed<M>| {
            used.contains(&placed.endpoint.number) && filter.is_none_or(|fits| fits(placed))
        };
        match snapshot.policy.retry.endpoints_max {
            Some(max) if used.len() >= max as usize => {
                let wish = Wish {
                    filter: Some(&within),
                    ..wish
                };
                inner.choose(snapshot, wish, &progress.excluded, now)
            }
            _ => inner.choose(snapshot, wish, &progress.excluded, now),
        }
    }

    /// A second or later attempt is not begun if less time is left than the endpoint usually needs.
    fn check_time_left(&self, endpoint: &Endpoint, now: Instant) -> Result<(), Stop> {
        let (Some(end), true) = (self.ends_at, self.account.begun > 0) else {
            return Ok(());
        };
        let left = end.saturating_duration_since(now);
        match endpoint.stats.p50_if_fresh(now) {
            Some(usual) if left < usual => Err(Stop::Stopped(Stopped::Deadline)),
            _ => Ok(()),
        }
    }

    /// Asks the endpoint's gate. `None`: refused; the refusal is remembered.
    fn ask(&mut self, placed: &Placed<M>, now: Instant) -> Option<Ticket> {
        let Placed {
            endpoint, policy, ..
        } = placed;
        let limit = policy.attempt_limit(self.deadline);
        let lease = limit.map_or(TRIAL_LEASE, |limit| {
            limit + TRIAL_LEASE_MARGIN + self.route.grace
        });
        // A trial of a whole call may take as long as the call.
        let call_lease = || {
            self.ends_at.map_or_else(
                || lease.saturating_mul(policy.retry.attempts_max),
                |end| end.saturating_duration_since(now) + TRIAL_LEASE_MARGIN + self.route.grace,
            )
        };
        let admitted = self
            .whole_calls
            .admit(placed, call_lease, now)
            .map_err(Refusal::from)
            .and_then(|()| {
                endpoint
                    .gate
                    .admit(&policy.circuit, &policy.limits, lease, now)
            });
        match admitted {
            Ok(ticket) => {
                self.whole_calls.used(endpoint);
                if let Some(transition) = ticket.pass.transition() {
                    endpoint.publish(&transition);
                }
                let own_end = limit.and_then(|limit| now.checked_add(limit));
                let ends_at = match (own_end, self.ends_at) {
                    (Some(own), Some(end)) => Some(own.min(end)),
                    (own, end) => own.or(end),
                };
                self.limit = Limit {
                    mark: CutMark::default(),
                    ends_at,
                    cut_by_deadline: ends_at == self.ends_at && ends_at != own_end,
                };
                Some(ticket)
            }
            Err(refusal) => {
                self.whole_calls.refused(endpoint);
                endpoint.stats.reject();
                let number = endpoint.number;
                self.progress()
                    .refused_by(number, refusal, policy.limits.over_rate);
                None
            }
        }
    }
}
