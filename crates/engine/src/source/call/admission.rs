//! Before the first attempt: drain, deadline, rate, queue, budget.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::slot::Counted;
use super::{Member, Run, deadline_passed};
use crate::policy::{LimitSettings, OverRate, Policy};
use crate::queue::{DirectPlace, Place, QueueRefusal};
use crate::rejection::{Reason, Rejection};

/// A call's place among those under way, held to its end.
pub(super) enum Admitted<'a> {
    Directly(#[expect(dead_code, reason = "held for its drop")] DirectPlace<'a>),
    FromQueue(#[expect(dead_code, reason = "held for its drop")] Place),
}

impl<'a, M: Member, E: fmt::Display> Run<'a, M, E> {
    /// Lets the call in at once, or says why not. `None`: it has to wait, see
    /// [`admit_later`](Self::admit_later).
    pub(super) fn admit(&mut self) -> Result<Option<Admitted<'a>>, Rejection> {
        let inner = self.inner;
        if inner.draining.load(Ordering::Acquire) {
            return Err(draining());
        }
        if self.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(deadline_passed());
        }
        let Some(fresh) = &self.fresh else {
            return Ok(None);
        };
        let policy = &fresh.snapshot.policy;
        if policy.limits.rate.is_some() {
            return Ok(None);
        }
        let Some(place) = inner.queue.try_enter_direct(policy.limits.concurrency) else {
            return Ok(None);
        };
        self.deposit(policy, fresh.at);
        Ok(Some(Admitted::Directly(place)))
    }

    /// Lets the call in after the waits that rate and queue ask for, or says why not.
    #[cold]
    pub(super) async fn admit_later(&mut self) -> Result<Admitted<'a>, Rejection> {
        self.fresh = None;
        let snapshot = self.inner.snapshot.load_full();
        let limits = &snapshot.policy.limits;
        if let Some(rate) = limits.rate {
            self.take_rate(limits, rate).await?;
        }
        let place = self.queue(limits).await?;
        let now = self.inner.origin.nanos(Instant::now());
        self.deposit(&snapshot.policy, now);
        Ok(Admitted::FromQueue(place))
    }

    fn deposit(&self, policy: &Policy, at: u64) {
        if let Some(budget) = &policy.retry.budget {
            self.inner.budget.deposit_at(budget, at);
        }
    }

    async fn take_rate(&self, limits: &LimitSettings, rate: f64) -> Result<(), Rejection> {
        let burst = burst(limits, rate);
        let mut now = Instant::now();
        let give_up = now + limits.queue_wait;
        let mut waiting = None;
        loop {
            let Err(retry_in) = self.inner.rate.take(rate, burst, now) else {
                return Ok(());
            };
            let due = now + retry_in;
            let too_late = due > give_up || self.ends_at.is_some_and(|end| due >= end);
            if limits.over_rate != OverRate::Queue || too_late {
                return Err(Rejection::new(
                    Reason::RateLimited,
                    Some(retry_in),
                    format!("over {rate} calls per second; try again in {retry_in:?}"),
                ));
            }
            let waiting = waiting.get_or_insert_with(|| Counted::one(&self.inner.waiting_for_rate));
            if waiting.others >= u64::from(limits.queue_depth) {
                return Err(Rejection::new(
                    Reason::QueueFull,
                    Some(retry_in),
                    format!(
                        "over {rate} calls per second and {} calls wait already; send less or raise limits.queue_depth",
                        waiting.others
                    ),
                ));
            }
            tokio::time::sleep_until(due).await;
            now = Instant::now();
        }
    }

    async fn queue(&self, limits: &LimitSettings) -> Result<Place, Rejection> {
        let entered = self
            .inner
            .queue
            .enter(limits, self.operation.priority, self.ends_at)
            .await;
        entered.map_err(|refusal| match refusal {
            QueueRefusal::Full { depth } => Rejection::new(
                Reason::QueueFull,
                Some(limits.queue_wait),
                format!("{depth} calls wait already; send less or raise limits.queue_depth"),
            ),
            QueueRefusal::Timeout { waited } => Rejection::new(
                Reason::QueueTimeout,
                Some(limits.queue_wait),
                format!(
                    "no place was free within {waited:?}; send less or raise limits.concurrency"
                ),
            ),
            QueueRefusal::Deadline => deadline_passed(),
            QueueRefusal::Paused => Rejection::new(
                Reason::Paused,
                Some(Duration::from_secs(1)),
                "the source is paused by its operator; try again after it was resumed",
            ),
            QueueRefusal::Closed => draining(),
        })
    }
}

pub(super) fn burst(limits: &LimitSettings, rate: f64) -> u32 {
    // One second's worth, at least one.
    limits
        .burst
        .unwrap_or_else(|| rate.ceil().clamp(1.0, f64::from(u32::MAX)) as u32)
}

fn draining() -> Rejection {
    Rejection::new(
        Reason::Draining,
        None,
        "the source is being drained and takes no new calls; use another instance",
    )
}
