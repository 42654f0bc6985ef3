//! A service as a reader sees it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::broker::{Broker, Link};
use crate::jobs::Job;
use crate::target::Target;

use super::Service;
use super::shared::Shared;
use crate::hooks::JobFailure;

/// A service at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceStatus {
    /// What it is called here.
    pub name: Arc<str>,
    /// The fronted name.
    pub identity: String,
    /// The proxy's own name.
    pub caller: String,
    /// The fronted capability.
    pub capability_name: Arc<str>,
    /// How targets share the work.
    pub strategy: &'static str,
    /// The connections.
    pub brokers: Vec<LinkStatus>,
    /// The targets, the preferred one first.
    pub targets: Vec<TargetStatus>,
    /// Requests in their first phase.
    pub requests_open: usize,
    /// Accepted jobs that have not ended.
    pub jobs_open: usize,
    /// Replies and events that are not confirmed yet.
    pub unconfirmed: usize,
    /// Whether jobs survive a restart.
    pub jobs_are_kept: bool,
    /// Whether STARTUP was published: some target has said what it is.
    pub announced: bool,
    /// What was counted.
    pub counts: serde_json::Map<String, serde_json::Value>,
}

/// A connection to a broker at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct LinkStatus {
    /// Its name in the settings.
    pub name: Arc<str>,
    /// `up`, `blocked`, `down`, `refused` or `closed`.
    pub state: &'static str,
    /// Why it is not up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// Connections so far.
    pub connections: u64,
}

/// A target at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct TargetStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its group.
    pub group: Arc<str>,
    /// Its own name on the wire.
    pub destination: String,
    /// `alive`, `unresponsive`, `dead` or `unknown`.
    pub state: &'static str,
    /// Whether others are preferred for new requests.
    pub aside: bool,
    /// Whether it gets no new requests.
    pub draining: bool,
    /// Whether it announced itself.
    pub discovered: bool,
    /// Its share where the strategy is weighted.
    pub weight: f64,
    /// Checks missed in a row.
    pub missed: u32,
    /// Since something was last heard of it, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sign_s: Option<f64>,
    /// Requests under way on it.
    pub requests_open: usize,
    /// Jobs that it works on.
    pub jobs_open: u32,
    /// Requests and jobs at once at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// Function -> its own operation.
    pub operation_map: std::collections::BTreeMap<Arc<str>, Arc<str>>,
}

/// An accepted job, or a request that becomes one.
#[derive(Debug, Clone, Serialize)]
pub struct JobStatus {
    /// The message id of its request.
    pub id: SmolStr,
    /// The fronted operation.
    pub operation: SmolStr,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_key: Option<Arc<str>>,
    /// Who asked for it.
    pub source: SmolStr,
    /// `driving` or `running`.
    pub state: &'static str,
    /// Who works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Arc<str>>,
    /// Who was given up.
    pub tried: Vec<Arc<str>>,
    /// Results relayed since the start of the proxy.
    pub results: u64,
    /// Whether its acknowledgement has reached the broker.
    pub replied: bool,
    /// Until the next result must have come, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_s: Option<f64>,
    /// When it came, in milliseconds since 1970.
    pub received_at_ms: i64,
}

/// A job that could not be finished.
#[derive(Debug, Clone, Serialize)]
pub struct FailedJob {
    /// The message id of its request.
    pub id: String,
    /// The fronted operation.
    pub operation: String,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_key: Option<Arc<str>>,
    /// Who asked for it.
    pub source: SmolStr,
    /// Who had it.
    pub tried: Vec<Arc<str>>,
    /// Why nobody finishes it.
    pub reason: String,
    /// Whether it may have taken effect and was not driven again for that reason.
    pub outcome_unknown: bool,
    /// When that was found, in milliseconds since 1970.
    pub failed_at_ms: i64,
}

/// Failures that are kept for readers.
const FAILED_MAX: usize = 1000;

impl Shared {
    /// Keeps what became of a job for readers.
    pub(super) fn remember_failed(&self, job: &Job, failure: &JobFailure) {
        let failed = FailedJob {
            id: failure.id.clone(),
            operation: failure.operation.clone(),
            job_key: failure.key.clone(),
            source: job.request.head.source.clone(),
            tried: failure.targets.clone(),
            reason: failure.reason.clone(),
            outcome_unknown: failure.outcome_unknown,
            failed_at_ms: jiff::Timestamp::now().as_millisecond(),
        };
        let mut kept = self.failed.lock();
        if kept.len() >= FAILED_MAX {
            kept.pop_front();
        }
        kept.push_back(failed);
    }
}

impl Service {
    /// How it is.
    pub fn status(&self) -> ServiceStatus {
        let shared = &self.shared;
        let settings = &shared.settings;
        let mut targets: Vec<_> = shared.targets();
        targets.sort_by_key(|target| target.rank);
        let counts = shared
            .counts
            .all()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()));
        ServiceStatus {
            name: Arc::clone(&settings.name),
            identity: settings.identity.to_string(),
            caller: settings.caller.to_string(),
            capability_name: Arc::clone(&settings.capability_name),
            strategy: settings.spread.as_str(),
            brokers: shared
                .brokers
                .iter()
                .map(|(name, broker)| link(name, broker))
                .collect(),
            targets: targets
                .iter()
                .map(|target| self.target_status(target))
                .collect(),
            requests_open: shared.in_first_phase.load(Ordering::Acquire),
            jobs_open: shared.jobs.lock().running(),
            unconfirmed: shared
                .fronts
                .iter()
                .map(|front| front.outbox.unconfirmed())
                .sum(),
            jobs_are_kept: shared.store.is_lasting(),
            announced: shared.schema.lock().announced,
            counts: counts.collect(),
        }
    }

    fn target_status(&self, target: &Target) -> TargetStatus {
        let snapshot = self.shared.source.snapshot();
        let placed = snapshot.endpoint(target.name());
        let life = target.life.lock().clone();
        let (requests_open, jobs_open) = target.open_work();
        let settings = &target.settings;
        let missed_max = self.shared.settings.timeouts.missed_intervals;
        TargetStatus {
            name: Arc::clone(&settings.name),
            group: Arc::clone(&settings.group),
            destination: settings.destination.to_string(),
            state: life.state(target.is_busy(), missed_max).as_str(),
            aside: life.is_aside(),
            draining: placed.is_some_and(|placed| placed.endpoint.is_draining()),
            discovered: target.discovered,
            weight: placed.map_or(settings.weight, |placed| placed.endpoint.weight()),
            missed: life.missed(),
            last_sign_s: life.last_sign().map(|at| at.elapsed().as_secs_f64()),
            requests_open,
            jobs_open,
            max_in_flight: settings.max_in_flight,
            operation_map: settings.operation_map.clone(),
        }
    }

    /// The target of that name.
    pub fn target(&self, name: &str) -> Option<TargetStatus> {
        self.shared
            .target(name)
            .map(|target| self.target_status(&target))
    }

    /// Its open jobs, the oldest first, at most `count_max`.
    pub fn jobs(&self, count_max: usize) -> Vec<JobStatus> {
        let now = Instant::now();
        let mut jobs: Vec<_> = self
            .shared
            .jobs
            .lock()
            .iter()
            .map(|job| job_status(job, now))
            .collect();
        jobs.sort_by(|a, b| (a.received_at_ms, &a.id).cmp(&(b.received_at_ms, &b.id)));
        jobs.truncate(count_max);
        jobs
    }

    /// The last jobs that could not be finished, the newest first, at most 1,000.
    pub fn failed_jobs(&self) -> Vec<FailedJob> {
        self.shared.failed.lock().iter().rev().cloned().collect()
    }

    /// The open job of that id (the message id of its request) or key.
    pub fn job(&self, id: &str) -> Option<JobStatus> {
        let jobs = self.shared.jobs.lock();
        let now = Instant::now();
        let by_id = jobs.get(&SmolStr::new(id));
        let job = by_id.or_else(|| jobs.iter().find(|job| job.key.as_deref() == Some(id)));
        job.map(|job| job_status(job, now))
    }
}

fn link(name: &Arc<str>, broker: &Arc<dyn Broker>) -> LinkStatus {
    let link = broker.link().borrow().clone();
    let (state, reason, connections) = match link {
        Link::Up {
            number,
            blocked: None,
        } => ("up", None, number),
        Link::Up { number, blocked } => ("blocked", blocked, number),
        Link::Down {
            reason,
            refused: true,
            ..
        } => ("refused", reason, 0),
        Link::Down { reason, .. } => ("down", reason, 0),
        Link::Closed => ("closed", None, 0),
    };
    LinkStatus {
        name: Arc::clone(name),
        state,
        reason,
        connections,
    }
}

fn job_status(job: &Job, now: Instant) -> JobStatus {
    let left = job.left(now);
    JobStatus {
        id: job.request.id.clone(),
        operation: job.request.head.operation_id.clone(),
        job_key: job.key.clone(),
        source: job.request.head.source.clone(),
        state: if left.is_some() { "running" } else { "driving" },
        target: job.target.clone(),
        tried: job.tried.clone(),
        results: job.results,
        replied: job.replied,
        left_s: left.map(|left| left.as_secs_f64()),
        received_at_ms: job.request.received_at_ms,
    }
}
