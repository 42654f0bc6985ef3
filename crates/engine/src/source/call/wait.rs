//! What a call waits for where no endpoint lets it in: another round, a slot, a primary.

use std::fmt;

use tokio::time::Instant;

use super::super::{Member, Need, Snapshot};
use super::begin::WaitFor;
use super::{Run, Stop, deadline_passed};
use crate::rejection::{Reason, Rejection};

impl<M: Member, E: fmt::Display> Run<'_, M, E> {
    /// Waits, where the policy says so, until another look is worth it.
    #[cold]
    pub(super) async fn wait(&mut self, nothing: WaitFor<M>) -> Result<(), Stop> {
        match nothing {
            WaitFor::Exhausted(mut snapshot) => {
                snapshot.keep();
                self.next_round(&snapshot).await
            }
            WaitFor::Nobody(mut snapshot, need, now) => {
                snapshot.keep();
                self.wait_for_somebody(&snapshot, need, now).await
            }
        }
    }

    /// Everything that fits was tried or refused: another round, a wait for a slot, or the end.
    async fn next_round(&mut self, snapshot: &Snapshot<M>) -> Result<(), Stop> {
        let progress = self.progress();
        if progress.waits_for_slot() {
            return self.wait_for_slot(snapshot).await;
        }
        let tried = !progress.excluded.tried.is_empty();
        if tried && progress.again_in_next_round {
            return self.wait_for_next_round(snapshot).await;
        }
        match (tried, progress.rejection(&snapshot.policy)) {
            (true, None) => Err(Stop::Stopped(progress.why_stopped())),
            (_, Some(rejection)) => Err(Stop::Rejected(rejection)),
            (false, None) => Err(Stop::Rejected(Rejection::new(
                Reason::NoEndpoint,
                None,
                "every endpoint is down or too far behind; see the source's status",
            ))),
        }
    }

    /// Nothing fits: a write waits for a primary if the policy says so.
    async fn wait_for_somebody(
        &mut self,
        snapshot: &Snapshot<M>,
        need: Need,
        now: Instant,
    ) -> Result<(), Stop> {
        let lacks_primary = need == Need::Primary && snapshot.lacks_primary();
        if !lacks_primary {
            return Err(Stop::Rejected(Rejection::new(
                Reason::NoEndpoint,
                None,
                "no endpoint fits the call: roles, drains and what the call asks for leave none",
            )));
        }
        self.inner.urge.notify_one();
        let wait = snapshot.policy.route.primary_wait;
        let give_up = *self.progress().primary_wait_ends.get_or_insert(now + wait);
        let until = self.ends_at.map_or(give_up, |end| end.min(give_up));
        let mut changed = self.inner.changed.subscribe();
        let again = self.inner.snapshot.load().lacks_primary();
        if again
            && tokio::time::timeout_at(until, changed.changed())
                .await
                .is_err()
        {
            if self.ends_at.is_some_and(|end| Instant::now() >= end) {
                return Err(Stop::Rejected(deadline_passed()));
            }
            return Err(Stop::Rejected(Rejection::new(
                Reason::NoPrimary,
                Some(snapshot.policy.health.urgent_interval),
                "no endpoint is primary; nothing was written: try again when one was promoted",
            )));
        }
        Ok(())
    }
}
