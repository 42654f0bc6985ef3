//! Accepted jobs: who works on which, until when the next result is waited for, and whose results count.
//! Plain tables under one lock; `now` is an argument.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::Marks;
use smallvec::SmallVec;
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::broker::{Delivery, acknowledge_all};
use crate::envelope::name::MESSAGE_ID;
use crate::request::Request;
use crate::target::OpenJob;

/// Results that may come before the acknowledgement of their job is known; more are let through late.
const EARLY_MAX: usize = 1000;
/// Results that wait so and are not acknowledged: a broker gives only so many before the first is (mosquitto 20), and the
/// acknowledgement of the job comes behind them. Those beyond wait in memory alone.
const EARLY_HELD_MAX: usize = 8;
/// Keys of jobs that have ended, remembered so that late results of a former target are known as such.
const ENDED_MAX: usize = 10_000;

/// A job or a request that becomes one.
pub(crate) struct Job {
    pub request: Arc<Request>,
    pub key: Option<Arc<str>>,
    /// Who works on it; results of anybody else are late.
    pub target: Option<Arc<str>>,
    /// Our request ids towards targets, the present one last.
    pub forwarded_as: Vec<SmolStr>,
    /// Targets that were given up.
    pub tried: Vec<Arc<str>>,
    pub results: u64,
    pub replied: bool,
    phase: Phase,
}

enum Phase {
    /// An attempt is under way; results that come before its acknowledgement wait.
    Driving { early: Vec<(SmolStr, Delivery)> },
    /// Acknowledged.
    Running {
        deadline: Instant,
        /// The target's concurrency slot and the count of its work, held until the job leaves it.
        _slot: Option<Arc<Marks>>,
        _open: OpenJob,
    },
}

/// What a message of a target is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Of no job.
    Ordinary,
    /// A result of this job.
    Result(SmolStr),
    /// A result of a job whose acknowledgement is not known yet: it waits.
    Early(SmolStr),
    /// A result of a job that its sender does not have any more.
    Late,
}

#[derive(Default)]
pub(crate) struct Jobs {
    by_id: HashMap<SmolStr, Job>,
    by_key: HashMap<Arc<str>, SmallVec<[SmolStr; 1]>>,
    /// Key -> who had it last.
    ended: HashMap<Arc<str>, Arc<str>>,
    ended_order: VecDeque<Arc<str>>,
    /// When to look at a job again; a renewed one is put back when its old time comes.
    due: BinaryHeap<Reverse<(Instant, SmolStr)>>,
    running: usize,
    /// Early results that are not acknowledged.
    early_held: usize,
}

impl Jobs {
    /// Takes a request in that becomes a job once it is acknowledged.
    pub(crate) fn open(&mut self, request: &Arc<Request>, key: Option<Arc<str>>) {
        let job = Job {
            request: Arc::clone(request),
            key: None,
            target: None,
            forwarded_as: Vec::new(),
            tried: Vec::new(),
            results: 0,
            replied: false,
            phase: Phase::Driving { early: Vec::new() },
        };
        self.by_id.insert(request.id.clone(), job);
        self.name(&request.id, key);
    }

    /// Gives a job its key, if it has none.
    pub(crate) fn name(&mut self, id: &SmolStr, key: Option<Arc<str>>) {
        let (Some(key), Some(job)) = (key, self.by_id.get_mut(id)) else {
            return;
        };
        if job.key.is_none() {
            job.key = Some(Arc::clone(&key));
            self.by_key.entry(key).or_default().push(id.clone());
        }
    }

    /// An attempt begins: from now on results of this target count.
    pub(crate) fn driving(&mut self, id: &SmolStr, target: &Arc<str>, forwarded_as: &SmolStr) {
        if let Some(job) = self.by_id.get_mut(id) {
            job.target = Some(Arc::clone(target));
            job.forwarded_as.push(forwarded_as.clone());
            job.phase = Phase::Driving { early: Vec::new() };
        }
    }

    /// The attempt was given up: whatever came of it is dropped. Gives the results that waited.
    pub(crate) fn attempt_over(&mut self, id: &SmolStr) -> Vec<(SmolStr, Delivery)> {
        let Some(job) = self.by_id.get_mut(id) else {
            return Vec::new();
        };
        job.target = None;
        let early = match &mut job.phase {
            Phase::Driving { early } => std::mem::take(early),
            Phase::Running { .. } => Vec::new(),
        };
        self.early_held -= unacknowledged(&early);
        early
    }

    /// The target has acknowledged: the job runs, once no result waits any more. Gives those that wait, in
    /// their order; as long as there are any the job does not run yet.
    pub(crate) fn start(
        &mut self,
        id: &SmolStr,
        key: Option<Arc<str>>,
        held: &mut Option<(Option<Arc<Marks>>, OpenJob)>,
        deadline: Instant,
    ) -> Vec<(SmolStr, Delivery)> {
        self.name(id, key);
        let Some(job) = self.by_id.get_mut(id) else {
            return Vec::new();
        };
        if let Phase::Driving { early } = &mut job.phase
            && !early.is_empty()
        {
            let early = std::mem::take(early);
            self.early_held -= unacknowledged(&early);
            return early;
        }
        if let Some((slot, open)) = held.take() {
            job.phase = Phase::Running {
                deadline,
                _slot: slot,
                _open: open,
            };
            self.running += 1;
            self.due.push(Reverse((deadline, id.clone())));
        }
        Vec::new()
    }

    /// Whose a message of a target is, by the key in it or, for jobs without keys, by their order.
    pub(crate) fn whose(&self, target: &str, key: Option<&str>) -> Verdict {
        let Some(key) = key else {
            return Verdict::Ordinary;
        };
        let ids = self.by_key.get(key);
        let mut known = false;
        for id in ids.into_iter().flatten() {
            let Some(job) = self.by_id.get(id) else {
                continue;
            };
            known = true;
            if job.target.as_deref() == Some(target) {
                return match job.phase {
                    Phase::Running { .. } => Verdict::Result(id.clone()),
                    Phase::Driving { .. } => Verdict::Early(id.clone()),
                };
            }
        }
        match self.ended.get(key) {
            _ if known => Verdict::Late,
            Some(last) if &**last != target => Verdict::Late,
            Some(_) | None => Verdict::Ordinary,
        }
    }

    /// The oldest job without a key that a target has of these functions.
    pub(crate) fn keyless(&self, target: &str) -> Verdict {
        let fitting = self.by_id.values().filter(|job| {
            job.key.is_none()
                && job.request.operation.job_key.is_none()
                && job.target.as_deref() == Some(target)
        });
        let oldest = fitting.min_by_key(|job| (job.request.received_at_ms, job.request.id.clone()));
        match oldest {
            None => Verdict::Ordinary,
            Some(job) => match job.phase {
                Phase::Running { .. } => Verdict::Result(job.request.id.clone()),
                Phase::Driving { .. } => Verdict::Early(job.request.id.clone()),
            },
        }
    }

    /// Keeps a result until its job's acknowledgement is known. Gives it back where it cannot be kept.
    pub(crate) fn keep_early(
        &mut self,
        id: &SmolStr,
        from: SmolStr,
        mut delivery: Delivery,
    ) -> Result<(), Delivery> {
        match self.by_id.get_mut(id).map(|job| &mut job.phase) {
            Some(Phase::Driving { early }) if early.len() < EARLY_MAX => {
                if delivery.redelivered && is_kept(early, &mut delivery) {
                    return Ok(());
                }
                if self.early_held < EARLY_HELD_MAX {
                    self.early_held += usize::from(delivery.acknowledgement.is_some());
                } else {
                    delivery.acknowledge();
                }
                early.push((from, delivery));
                Ok(())
            }
            _ => Err(delivery),
        }
    }

    /// A result came: the next one is waited for anew.
    pub(crate) fn renew(&mut self, id: &SmolStr, deadline: Instant) {
        if let Some(job) = self.by_id.get_mut(id) {
            job.results += 1;
            if let Phase::Running {
                deadline: until, ..
            } = &mut job.phase
            {
                *until = deadline;
            }
        }
    }

    /// Waits longer, without a result.
    pub(crate) fn postpone(&mut self, id: &SmolStr, deadline: Instant) {
        if let Some(Phase::Running {
            deadline: until, ..
        }) = self.by_id.get_mut(id).map(|job| &mut job.phase)
        {
            *until = deadline;
            self.due.push(Reverse((deadline, id.clone())));
        }
    }

    /// Jobs whose next result is overdue, and when the next one will be.
    pub(crate) fn overdue(&mut self, now: Instant) -> (Vec<SmolStr>, Option<Instant>) {
        let mut overdue = Vec::new();
        while let Some(Reverse((at, id))) = self.due.peek().cloned() {
            if at > now {
                return (overdue, Some(at));
            }
            self.due.pop();
            let Some(Phase::Running { deadline, .. }) = self.by_id.get(&id).map(|job| &job.phase)
            else {
                continue;
            };
            match *deadline > now {
                true => self.due.push(Reverse((*deadline, id))),
                false => overdue.push(id),
            }
        }
        (overdue, None)
    }

    /// Whether a job that was overdue is so still. One that has got a result meanwhile is looked at again later.
    pub(crate) fn is_overdue(&mut self, id: &SmolStr, now: Instant) -> bool {
        match self.by_id.get(id).map(|job| &job.phase) {
            Some(Phase::Running { deadline, .. }) if *deadline <= now => true,
            Some(Phase::Running { deadline, .. }) => {
                self.due.push(Reverse((*deadline, id.clone())));
                false
            }
            Some(Phase::Driving { .. }) | None => false,
        }
    }

    /// Takes a job from its target, whose results are late from now on. `None`: it has none, or another
    /// took it meanwhile. Gives the target.
    pub(crate) fn take_from_target(&mut self, id: &SmolStr) -> Option<Arc<str>> {
        let job = self.by_id.get_mut(id)?;
        if !matches!(job.phase, Phase::Running { .. }) {
            return None;
        }
        let target = job.target.take()?;
        job.tried.push(Arc::clone(&target));
        job.phase = Phase::Driving { early: Vec::new() };
        self.running -= 1;
        Some(target)
    }

    /// Ends a job, or a request that does not become one.
    pub(crate) fn end(&mut self, id: &SmolStr) -> Option<Job> {
        let job = self.by_id.remove(id)?;
        match &job.phase {
            Phase::Running { .. } => self.running -= 1,
            Phase::Driving { early } => self.early_held -= unacknowledged(early),
        }
        if let Some(key) = &job.key {
            if let Some(ids) = self.by_key.get_mut(key) {
                ids.retain(|known| known != id);
                if ids.is_empty() {
                    self.by_key.remove(key);
                }
            }
            let last = job.target.clone().unwrap_or_default();
            if self.ended.insert(Arc::clone(key), last).is_none() {
                self.ended_order.push_back(Arc::clone(key));
            }
            if self.ended_order.len() > ENDED_MAX
                && let Some(oldest) = self.ended_order.pop_front()
            {
                self.ended.remove(&oldest);
            }
        }
        Some(job)
    }

    pub(crate) fn get(&self, id: &SmolStr) -> Option<&Job> {
        self.by_id.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &SmolStr) -> Option<&mut Job> {
        self.by_id.get_mut(id)
    }

    /// Jobs that a target works on.
    pub(crate) fn on(&self, target: &str) -> Vec<SmolStr> {
        let on = self.by_id.values().filter(|job| {
            job.target.as_deref() == Some(target) && matches!(job.phase, Phase::Running { .. })
        });
        on.map(|job| job.request.id.clone()).collect()
    }

    /// Acknowledged jobs that are not ended.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.by_id.values()
    }
}

/// Whether a result that its broker gives once more waits already; the acknowledgement that counts is then the new
/// one.
fn is_kept(early: &mut [(SmolStr, Delivery)], again: &mut Delivery) -> bool {
    let id = |delivery: &Delivery| delivery.headers.get(MESSAGE_ID).map(SmolStr::new);
    let wanted = id(again);
    let Some((_, kept)) = early.iter_mut().find(|(_, kept)| id(kept) == wanted) else {
        return false;
    };
    match (&mut kept.acknowledgement, again.acknowledgement.take()) {
        (Some(old), Some(new)) => *old = new,
        (_, new) => acknowledge_all(new),
    }
    true
}

/// Results that are not acknowledged.
fn unacknowledged(early: &[(SmolStr, Delivery)]) -> usize {
    let held = early.iter().filter(|(_, it)| it.acknowledgement.is_some());
    held.count()
}

impl Job {
    /// What is left of the time for its next result; `None`: no target has acknowledged it.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        match &self.phase {
            Phase::Driving { .. } => None,
            Phase::Running { deadline, .. } => Some(deadline.saturating_duration_since(now)),
        }
    }
}
