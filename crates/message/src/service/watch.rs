//! The watch over the results of jobs: one that gets none in time is given to the next target.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{RejectionReason, Safety};
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::request::Request;
use crate::store::Change;

use super::attempt::Undriven;
use super::shared::Shared;

/// Before another try of a job for which no target has room.
const FULL_PAUSE: Duration = Duration::from_secs(1);
/// The watch looks at least so often, whatever it was told.
const NAP_MAX: Duration = Duration::from_secs(60);

impl Shared {
    /// Watches results until the service stops.
    pub(super) async fn watch_results(self: Arc<Self>) {
        loop {
            let now = Instant::now();
            let (overdue, next) = self.jobs.lock().overdue(now);
            for id in overdue {
                let shared = Arc::clone(&self);
                self.tasks.spawn(async move { shared.overdue(id).await });
            }
            let until = next.unwrap_or(now + NAP_MAX).min(now + NAP_MAX);
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.jobs_changed.notified() => {}
            }
        }
    }

    /// No result came in time.
    async fn overdue(self: &Arc<Self>, id: SmolStr) {
        let job = {
            let mut jobs = self.jobs.lock();
            if !jobs.is_overdue(&id, Instant::now()) {
                return;
            }
            jobs.get(&id)
                .map(|job| (Arc::clone(&job.request), job.target.clone()))
        };
        let Some((request, Some(target))) = job else {
            return;
        };
        let timeout = self.result_timeout(&request);
        let is_linked = self
            .target(&target)
            .is_none_or(|it| it.link().borrow().is_up());
        if !is_linked {
            // Its results wait at the broker, not at the target: they come when the connection stands.
            self.jobs.lock().postpone(&id, Instant::now() + timeout);
            self.jobs_changed.notify_one();
            return;
        }
        self.leave_target(&id, &format!("no result within {timeout:?}"))
            .await;
    }

    /// Takes a job from its target and drives it again on another, or ends it.
    pub(super) async fn leave_target(self: &Arc<Self>, id: &SmolStr, reason: &str) {
        let taken = {
            let mut jobs = self.jobs.lock();
            jobs.take_from_target(id).and_then(|target| {
                let job = jobs.get(id)?;
                let record = self.record_of(job, None);
                Some((target, Arc::clone(&job.request), job.tried.clone(), record))
            })
        };
        let Some((target, request, tried, record)) = taken else {
            return;
        };
        tracing::warn!(service = %self.settings.name, %id, %target, reason, "job taken from its target");
        let update = Change::Update {
            id: id.clone(),
            record,
        };
        self.write(vec![update], false).await;
        self.drive_on(&request, &tried, &format!("{target}: {reason}"))
            .await;
    }

    /// Drives an accepted job on a target that has not had it, or ends it. `reason`: why it needs another.
    pub(super) async fn drive_on(
        self: &Arc<Self>,
        request: &Arc<Request>,
        tried: &[Arc<str>],
        reason: &str,
    ) {
        if request.operation.safety == Safety::Write {
            return self.fail_job(&request.id, reason.to_owned(), true).await;
        }
        // Targets that are full now have room when one of their jobs ends.
        let patience = Instant::now() + self.result_timeout(request);
        let undriven = loop {
            match self.drive(request, tried).await {
                Ok(driven) => {
                    self.counts.jobs_redriven.add();
                    return self.accept(request, driven, false).await;
                }
                Err(undriven) if is_full(&undriven) && Instant::now() < patience => {
                    tokio::time::sleep(FULL_PAUSE).await;
                }
                Err(undriven) => break undriven,
            }
        };
        let why = undriven.reason();
        let reason = format!("{reason}; no other target took it over: {why}");
        self.fail_job(&request.id, reason, false).await;
    }
}

/// Whether every target that fits has as much work as it takes.
fn is_full(undriven: &Undriven) -> bool {
    let rejection = undriven.error.rejection();
    rejection.is_some_and(|it| {
        matches!(
            it.reason,
            RejectionReason::QueueFull | RejectionReason::QueueTimeout
        )
    })
}
