//! Exactly one audit entry and one counted result per call, on every way out: the account is opened at
//! the call's begin and settled when it ends or is dropped.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::{Inner, Source};
use crate::attempt::EndpointId;
use crate::audit::{AttemptRecord, AuditEntry, CacheState, CallOutcome, Sink};
use crate::event::EventKind;
use crate::failure::{Failure, Sent};
use crate::operation::{CorrelationId, Operation};
use crate::rejection::Carried;
use crate::stripes::Stripes;

/// Calls of a source by how they ended.
#[derive(Debug, Default)]
pub struct SourceCounts(Stripes<Ends>);

#[derive(Debug, Default)]
struct Ends {
    succeeded: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
    cancelled: AtomicU64,
}

/// The same as plain numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// All calls that ended.
    pub calls: u64,
    /// With a result.
    pub succeeded: u64,
    /// With a failure.
    pub failed: u64,
    /// Refused before a back end.
    pub rejected: u64,
    /// Left by their caller, or cancelled at the back end.
    pub cancelled: u64,
}

impl SourceCounts {
    /// The numbers now.
    pub fn read(&self) -> Counts {
        let mut sum = Counts::default();
        for ends in self.0.iter() {
            sum.succeeded += ends.succeeded.load(Ordering::Relaxed);
            sum.failed += ends.failed.load(Ordering::Relaxed);
            sum.rejected += ends.rejected.load(Ordering::Relaxed);
            sum.cancelled += ends.cancelled.load(Ordering::Relaxed);
        }
        sum.calls = sum.succeeded + sum.failed + sum.rejected + sum.cancelled;
        sum
    }

    fn count(&self, outcome: CallOutcome) {
        let ends = self.0.mine();
        let count = match outcome {
            CallOutcome::Success => &ends.succeeded,
            CallOutcome::Failure => &ends.failed,
            CallOutcome::Rejected => &ends.rejected,
            CallOutcome::Cancelled | CallOutcome::Neutral | CallOutcome::Panicked => {
                &ends.cancelled
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended<'a> {
    /// With a result.
    Success,
    /// With a failure.
    Failure(&'a Failure),
    /// Refused, with the reason.
    Rejected(&'a str),
    /// Neither.
    Neutral,
}

/// The account of one call. Dropping it unsettled counts the call as cancelled, or as panicked while a
/// panic unwinds.
pub struct Account<'a, M> {
    inner: &'a Inner<M>,
    operation: &'a Operation,
    /// The call's id.
    pub correlation_id: CorrelationId,
    /// When the call was admitted.
    pub began: Instant,
    /// The same in nanoseconds of the source's origin.
    pub(super) began_nanos: u64,
    /// The failed attempts so far, and the last one if it succeeded.
    pub(super) attempts: Vec<AttemptRecord>,
    /// The endpoint used last.
    pub(super) endpoint: Option<EndpointId>,
    /// Attempts begun.
    pub(super) begun: u32,
    /// Why the endpoint was chosen, where there is something to say.
    pub(super) route_reason: Option<&'static str>,
    settled: bool,
}

/// A call whose account was closed by a face.
#[derive(Debug, Clone, Copy)]
pub struct Settled {
    /// The whole call.
    pub elapsed: Duration,
    /// Attempts made.
    pub attempts: u32,
    /// The call's id.
    pub correlation_id: CorrelationId,
}

impl<M: super::Member> Source<M> {
    /// Ends the account of a redirected call that does not go on; gives the attempts that were made.
    pub fn settle_carried(
        &self,
        operation: &Operation,
        carried: Carried,
        failure: &Failure,
    ) -> Vec<AttemptRecord> {
        let mut account = self.account_since(operation, carried.began);
        account.take_over(carried);
        let attempts = account.attempts.clone();
        account.settle(&Ended::Failure(failure));
        attempts
    }

    /// Ends the account of a redirected call whose result was found out otherwise.
    pub fn settle_carried_success(
        &self,
        operation: &Operation,
        carried: Carried,
        endpoint: EndpointId,
    ) -> Settled {
        let mut account = self.account_since(operation, carried.began);
        account.take_over(carried);
        account.endpoint = Some(endpoint);
        let (correlation_id, attempts) = (account.correlation_id, account.begun);
        Settled {
            elapsed: account.settle(&Ended::Success),
            attempts,
            correlation_id,
        }
    }

    /// Opens the account of a call that a face runs on a leased connection.
    pub fn account<'a>(&'a self, operation: &'a Operation) -> Account<'a, M> {
        self.account_since(operation, Instant::now())
    }

    pub(super) fn account_since<'a>(
        &'a self,
        operation: &'a Operation,
        began: Instant,
    ) -> Account<'a, M> {
        let at = self.inner.origin.nanos(began);
        Account::open(&self.inner, operation, began, at)
    }
}

impl<'a, M> Account<'a, M> {
    /// `at` is `now` in nanoseconds of the source's origin.
    pub(super) fn open(
        inner: &'a Inner<M>,
        operation: &'a Operation,
        now: Instant,
        at: u64,
    ) -> Self {
        let correlation_id = operation
            .correlation_id
            .unwrap_or_else(|| CorrelationId::draw(&inner.chance));
        Account {
            inner,
            operation,
            correlation_id,
            began: now,
            began_nanos: at,
            attempts: Vec::new(),
            endpoint: None,
            begun: 0,
            route_reason: None,
            settled: false,
        }
    }

    /// Notes the endpoint that the call runs on.
    pub fn on(&mut self, endpoint: EndpointId) {
        self.begun += 1;
        self.endpoint = Some(endpoint);
    }

    /// Whether anybody wants entries.
    pub(super) fn is_audited(&self) -> bool {
        self.inner.audited.load(Ordering::Acquire)
    }

    /// Settles the account. Returns how long the call took.
    pub fn settle(mut self, ended: &Ended<'_>) -> Duration {
        let now = Instant::now();
        // A face that runs a call on a leased connection makes one attempt, which ends with the call.
        if self.begun == 1 && self.attempts.is_empty() {
            let elapsed = now.saturating_duration_since(self.began);
            match ended {
                Ended::Success => self.attempted(elapsed, None),
                Ended::Failure(failure) => self.attempted(elapsed, Some(failure)),
                Ended::Rejected(_) | Ended::Neutral => {}
            }
        }
        self.write_down(ended, now)
    }

    /// Goes on where another call left off.
    pub(super) fn take_over(&mut self, carried: Carried) {
        self.correlation_id = carried.correlation_id;
        self.began = carried.began;
        self.began_nanos = self.inner.origin.nanos(carried.began);
        self.attempts = carried.attempts;
        self.begun = carried.begun;
    }

    /// What the attempts together prove, the last of which proves `last`.
    pub(super) fn sent(&self, last: Sent) -> Sent {
        let attempts = self.attempts.iter();
        attempts
            .filter_map(|attempt| attempt.sent)
            .fold(last, Sent::and)
    }

    /// Leaves the account open for another call.
    pub(super) fn carry(&mut self) -> Carried {
        self.settled = true;
        Carried {
            began: self.began,
            correlation_id: self.correlation_id,
            attempts: std::mem::take(&mut self.attempts),
            begun: self.begun,
        }
    }

    /// Settles a call that worked. The attempts stay where they are.
    pub(super) fn settle_success(&mut self, elapsed: Duration) {
        self.settled = true;
        self.note(CallOutcome::Success, &Ended::Success, elapsed);
    }

    /// Settles any other end. Returns the attempts and how long the call took.
    pub(super) fn settle_at(
        &mut self,
        ended: &Ended<'_>,
        now: Instant,
    ) -> (Vec<AttemptRecord>, Duration) {
        let elapsed = self.write_down(ended, now);
        (std::mem::take(&mut self.attempts), elapsed)
    }

    fn write_down(&mut self, ended: &Ended<'_>, now: Instant) -> Duration {
        self.settled = true;
        let outcome = match ended {
            Ended::Success => CallOutcome::Success,
            Ended::Failure(_) => CallOutcome::Failure,
            Ended::Rejected(_) => CallOutcome::Rejected,
            Ended::Neutral => CallOutcome::Neutral,
        };
        let elapsed = now.saturating_duration_since(self.began);
        self.note(outcome, ended, elapsed);
        elapsed
    }

    fn note(&mut self, outcome: CallOutcome, ended: &Ended<'_>, elapsed: Duration) {
        let inner = self.inner;
        inner.counts.count(outcome);
        if self.is_audited() {
            let entry = Arc::new(self.entry(outcome, ended, elapsed));
            if inner.keeps_recent.load(Ordering::Acquire) {
                inner.recent.offer(Arc::clone(&entry));
            }
            inner.sink.offer(entry);
        }
        if inner.events.is_observed() {
            inner.events.publish_call(EventKind::CallEnded {
                operation: self.operation.name.to_string(),
                endpoint: self.endpoint.clone(),
                outcome: outcome.as_str(),
                attempts: self.begun,
                elapsed,
            });
        }
    }

    fn entry(&self, outcome: CallOutcome, ended: &Ended<'_>, elapsed: Duration) -> AuditEntry {
        let snapshot = self.inner.snapshot.load();
        let (sent, reason) = match ended {
            Ended::Success => (None, None),
            Ended::Failure(failure) => (Some(failure.sent), Some(self.redacted(failure))),
            Ended::Rejected(reason) => (Some(Sent::No), Some((*reason).to_owned())),
            Ended::Neutral => (Some(Sent::Maybe), None),
        };
        AuditEntry {
            correlation_id: self.correlation_id,
            operation: self.operation.name.clone(),
            source: Arc::clone(&self.inner.name).into(),
            endpoint: self.endpoint.clone(),
            succeeded: outcome == CallOutcome::Success,
            outcome,
            attempts: self.attempts.clone(),
            elapsed_us: micros(elapsed),
            failure_reason: reason,
            started: started(elapsed),
            safety: self.operation.safety,
            safety_declared: self.operation.safety_declared,
            sent,
            policy_name: snapshot.policy.name.clone(),
            policy_version: snapshot.policy.version,
            route_reason: self.route_reason.map(Cow::Borrowed),
            cache: CacheState::Off,
        }
    }

    fn redacted(&self, failure: &Failure) -> String {
        self.inner.redacted(failure)
    }

    /// Writes an attempt down: failed ones always, since errors carry them; good ones if somebody
    /// wants entries.
    pub(super) fn attempted(&mut self, elapsed: Duration, failure: Option<&Failure>) {
        if failure.is_none() && !self.is_audited() {
            return;
        }
        let attempt = self.attempt(elapsed);
        self.attempts.push(AttemptRecord {
            succeeded: failure.is_none(),
            category: failure.map(|failure| failure.category),
            code: failure.and_then(|failure| failure.code.clone()),
            message: failure.map(|failure| Cow::Owned(self.redacted(failure))),
            sent: failure.map(|failure| failure.sent),
            ..attempt
        });
    }

    /// Writes down an attempt that neither worked nor failed, if somebody wants entries: it was cancelled,
    /// or sent elsewhere.
    pub(super) fn attempted_in_vain(&mut self, elapsed: Duration, why: &impl std::fmt::Display) {
        if self.is_audited() {
            let attempt = self.attempt(elapsed);
            let message = self.inner.without_secrets(why.to_string());
            self.attempts.push(AttemptRecord {
                message: Some(Cow::Owned(message)),
                ..attempt
            });
        }
    }

    /// The attempt that was begun last, as one that came to nothing.
    fn attempt(&self, elapsed: Duration) -> AttemptRecord {
        AttemptRecord {
            endpoint: self.endpoint.clone().unwrap_or_default(),
            number: self.begun,
            succeeded: false,
            duration_us: micros(elapsed),
            category: None,
            code: None,
            message: None,
            sent: None,
            started: started(elapsed),
        }
    }
}

impl<M> Inner<M> {
    /// What happened, for a reader, without secrets and literals.
    pub(super) fn redacted(&self, failure: &Failure) -> String {
        self.without_secrets(failure.to_string())
    }

    fn without_secrets(&self, text: String) -> String {
        match self.snapshot.load().policy.audit.redact {
            true => self.redactor.redact_message(&text).into_owned(),
            false => text,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// When something began that has taken `elapsed`: wall time only labels.
fn started(elapsed: Duration) -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    now.checked_sub(elapsed).unwrap_or(now)
}

impl<M> Drop for Account<'_, M> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let outcome = if std::thread::panicking() {
            CallOutcome::Panicked
        } else {
            CallOutcome::Cancelled
        };
        let elapsed = self.began.elapsed();
        self.note(outcome, &Ended::Neutral, elapsed);
    }
}
