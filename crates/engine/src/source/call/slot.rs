//! Waiting for a concurrency slot or a rate token of an endpoint, where every fitting one refused.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::select_all;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::super::{Member, Snapshot};
use super::{Run, Stop};
use crate::freed::SlotWait;
use crate::rejection::{Reason, Rejection};

/// A call that waits for a slot, counted while it does.
pub(super) struct SlotWaits<'a> {
    counted: Counted<'a>,
    since: Instant,
    at: SmallVec<[SlotWait; 4]>,
}

impl<'a> SlotWaits<'a> {
    fn begin(count: &'a AtomicU64) -> Self {
        SlotWaits {
            counted: Counted::one(count),
            since: Instant::now(),
            at: SmallVec::new(),
        }
    }

    /// Waits at those that refused as well; says whether one is new.
    fn join<M>(&mut self, snapshot: &Snapshot<M>, refused: &[u64]) -> bool {
        let before = self.at.len();
        for placed in &snapshot.endpoints {
            let number = placed.endpoint.number;
            let waits = self.at.iter().any(|wait| wait.endpoint().number == number);
            if refused.contains(&number) && !waits {
                self.at.push(SlotWait::new(Arc::clone(&placed.endpoint)));
            }
        }
        self.at.len() > before
    }
}

/// One of those that wait for the same, counted while this lives.
pub(super) struct Counted<'a> {
    count: &'a AtomicU64,
    /// How many waited already.
    pub others: u64,
}

impl<'a> Counted<'a> {
    pub(super) fn one(count: &'a AtomicU64) -> Self {
        Counted {
            count,
            others: count.fetch_add(1, Ordering::AcqRel),
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<M: Member, E: fmt::Display> Run<'_, M, E> {
    /// Waits until an endpoint that refused gives a concurrency slot or a rate token back, bounded by
    /// the queue's settings.
    pub(super) async fn wait_for_slot(&mut self, snapshot: &Snapshot<M>) -> Result<(), Stop> {
        let limits = &snapshot.policy.limits;
        let inner = self.inner;
        let progress = self.progress.get_or_insert_default();
        let waits = self
            .waits
            .get_or_insert_with(|| Box::new(SlotWaits::begin(&inner.waiting)));
        if waits.counted.others >= u64::from(limits.queue_depth) {
            return Err(Stop::Rejected(Rejection::new(
                Reason::QueueFull,
                Some(limits.queue_wait),
                "every endpoint is at its limit and the queue is full; send less or raise limits.concurrency",
            )));
        }
        let is_new = waits.join(snapshot, &progress.excluded.refused);
        if !is_new && !waits.at.is_empty() {
            let give_up = waits.since + limits.queue_wait;
            let until = self.ends_at.map_or(give_up, |end| end.min(give_up));
            let token_due = progress.token_due(Instant::now());
            let retry = token_due.map_or(until, |due| due.min(until));
            let mut changed = inner.changed.subscribe();
            let told = async {
                let freed = waits.at.iter().map(|wait| Box::pin(wait.freed()));
                let freed = pin!(select_all(freed));
                tokio::select! {
                    _ = freed => {}
                    _ = changed.changed() => {}
                }
            };
            let timed_out = tokio::time::timeout_at(retry, told).await.is_err();
            if timed_out && Instant::now() >= until {
                return Err(Stop::Rejected(Rejection::new(
                    Reason::QueueTimeout,
                    Some(limits.queue_wait),
                    "no endpoint had a free place in time; send less or raise limits.concurrency",
                )));
            }
        }
        // One who has just begun to wait asks once more: a slot that came back before told nobody.
        let progress = self.progress();
        progress.excluded.forget_refused();
        progress.forget_refusals();
        Ok(())
    }
}
