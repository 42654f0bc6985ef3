//! One interchangeable member of a source with its health, circuit and numbers. Its identity and its
//! state survive a reload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::attempt::EndpointId;
use crate::circuit::{CircuitState, Pass, Transition};
use crate::event::{EventKind, Events, Role};
use crate::failure::{Category, Failure};
use crate::freed::Freed;
use crate::gate::Gate;
use crate::health::{Health, HealthChange, HealthState};
use crate::latency::Latency;
use crate::occupancy::Entry;
use crate::origin::Origin;
use crate::policy::{CircuitMode, Policy};
use crate::stats::EndpointStats;
use crate::watchdog::Kinship;

/// Lag that is not known.
const LAG_UNKNOWN: u64 = u64::MAX;

/// What a health check says about an endpoint's fitness for traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fitness {
    /// Not checked yet: used like a healthy one.
    Unknown = 0,
    /// Checks are good.
    Up = 1,
    /// Checks fail.
    Down = 2,
}

/// One endpoint as its source sees it, without what stands behind it.
pub struct Endpoint {
    /// Its name within the source.
    pub id: EndpointId,
    /// Unique in the process; keys the routing state.
    pub number: u64,
    pub(crate) gate: Gate,
    pub(crate) latency: Latency,
    pub(crate) stats: EndpointStats,
    policy: ArcSwap<Policy>,
    health: Mutex<Health>,
    fitness: AtomicU8,
    /// `f64` bits.
    weight: AtomicU64,
    draining: AtomicBool,
    /// A face has set it aside.
    aside: AtomicBool,
    removed: AtomicBool,
    lag_us: AtomicU64,
    /// What it is known to have written or replayed; 0: not known.
    position: AtomicU64,
    /// Whether that is a position in the history of the primary that is followed.
    is_comparable: AtomicBool,
    /// It has a history of its own: no read may see it.
    estranged: AtomicBool,
    /// Raised with each cut of the work in flight; odd and even have no meaning.
    cut_all: AtomicU64,
    cut_writes: AtomicU64,
    cut: Notify,
    /// The pass of the last failure that nothing matched: it weighs once a health check fails too.
    unknown: Mutex<Option<Pass>>,
    last_check: Mutex<Option<Instant>>,
    /// Why the last check failed, redacted; `None`: it was good, or there was none.
    check_error: Mutex<Option<Arc<str>>>,
    events: Arc<Events>,
    pub(crate) freed: Freed,
}

/// How far the cuts were when an attempt began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CutMark {
    all: u64,
    writes: u64,
    is_write: bool,
}

impl Endpoint {
    pub(crate) fn new(
        id: EndpointId,
        number: u64,
        weight: f64,
        policy: Arc<Policy>,
        events: Arc<Events>,
        origin: &Origin,
    ) -> Self {
        Endpoint {
            id,
            number,
            gate: Gate::new(),
            latency: Latency::since(origin),
            stats: EndpointStats::since(origin),
            policy: ArcSwap::new(policy),
            health: Mutex::new(Health::new()),
            fitness: AtomicU8::new(Fitness::Unknown as u8),
            weight: AtomicU64::new(weight.to_bits()),
            draining: AtomicBool::new(false),
            aside: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            lag_us: AtomicU64::new(LAG_UNKNOWN),
            position: AtomicU64::new(0),
            is_comparable: AtomicBool::new(true),
            estranged: AtomicBool::new(false),
            cut_all: AtomicU64::new(0),
            cut_writes: AtomicU64::new(0),
            cut: Notify::new(),
            unknown: Mutex::new(None),
            last_check: Mutex::new(None),
            check_error: Mutex::new(None),
            events,
            freed: Freed::default(),
        }
    }

    /// The policy in force at this endpoint.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    pub(crate) fn policy_guard(&self) -> arc_swap::Guard<Arc<Policy>> {
        self.policy.load()
    }

    /// Takes a policy over. The circuit starts anew only if its own settings differ; in mode
    /// `operations` the retry count is one of them, since it defines what one failure is.
    pub(crate) fn apply(&self, new: Arc<Policy>) {
        let old = self.policy.swap(Arc::clone(&new));
        let counts_operations = new.circuit.mode == CircuitMode::Operations;
        let retries_differ = old.retry.attempts_max != new.retry.attempts_max;
        if (old.circuit != new.circuit || (counts_operations && retries_differ))
            && let Some(transition) = self.gate.circuit().reset(Instant::now())
        {
            self.publish(&transition);
        }
    }

    /// What its health checks say.
    pub fn fitness(&self) -> Fitness {
        match self.fitness.load(Ordering::Acquire) {
            1 => Fitness::Up,
            2 => Fitness::Down,
            _ => Fitness::Unknown,
        }
    }

    /// Its weight in strategies that use one; at least 0.
    pub fn weight(&self) -> f64 {
        f64::from_bits(self.weight.load(Ordering::Relaxed))
    }

    pub(crate) fn set_weight(&self, weight: f64) {
        self.weight.store(weight.to_bits(), Ordering::Relaxed);
    }

    /// Whether it takes no new work.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub(crate) fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Release);
    }

    /// Whether a face has set it aside: no call begins there while another endpoint is left, but those
    /// under way keep their tries there.
    pub fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Acquire)
    }

    /// Sets it aside or takes it back. Says whether that was a change.
    pub(crate) fn set_aside(&self, aside: bool) -> bool {
        let was = self.aside.swap(aside, Ordering::AcqRel);
        if was && !aside {
            self.come_back(Instant::now());
        }
        was != aside
    }

    pub(crate) fn remove(&self) {
        self.removed.store(true, Ordering::Release);
        self.cut_in_flight();
    }

    /// Whether it was taken out of its source.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// How far it is behind the primary; `None`: not known.
    pub fn lag(&self) -> Option<Duration> {
        match self.lag_us.load(Ordering::Acquire) {
            LAG_UNKNOWN => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    /// Sets how far it is behind; whoever probes it knows.
    pub fn set_lag(&self, lag: Option<Duration>) {
        let micros = lag.map_or(LAG_UNKNOWN, |lag| {
            u64::try_from(lag.as_micros()).unwrap_or(LAG_UNKNOWN - 1)
        });
        self.lag_us.store(micros, Ordering::Release);
    }

    /// What it is known to have written or replayed, at least; 0 where that is no position in the
    /// history of the primary that is followed.
    pub fn position(&self) -> u64 {
        match self.is_comparable.load(Ordering::Acquire) {
            true => self.position.load(Ordering::Acquire),
            false => 0,
        }
    }

    /// Takes note of what it has in common with the primary. Says whether it has just become a stranger.
    pub(crate) fn note_kinship(&self, kinship: Kinship) -> bool {
        let is_comparable = kinship == Kinship::Same;
        self.is_comparable.store(is_comparable, Ordering::Release);
        let is_stranger = matches!(kinship, Kinship::None(_));
        let was = self.estranged.swap(is_stranger, Ordering::AcqRel);
        is_stranger && !was
    }

    /// Whether it has a history of its own, so that no read may see it.
    pub fn is_estranged(&self) -> bool {
        self.estranged.load(Ordering::Acquire)
    }

    /// Takes note of what it has written or replayed.
    pub fn note_position(&self, position: u64) {
        self.position.store(position, Ordering::Release);
    }

    /// Its circuit's state now.
    pub fn circuit_state(&self, now: Instant) -> CircuitState {
        self.gate.circuit().state(&self.policy.load().circuit, now)
    }

    /// Attempts in flight, including those whose work at the back end is not over yet.
    pub fn in_flight(&self) -> u32 {
        self.gate.in_flight()
    }

    /// Its numbers.
    pub fn stats(&self) -> &EndpointStats {
        &self.stats
    }

    /// When it was last checked.
    pub fn last_check(&self) -> Option<Instant> {
        *self.last_check.lock()
    }

    /// Why the last health check failed, redacted; `None`: it was good, or there was none.
    pub fn check_error(&self) -> Option<Arc<str>> {
        self.check_error.lock().clone()
    }

    /// Health checks in a row: (good, failed).
    pub fn checks_in_row(&self) -> (u32, u32) {
        let health = self.health.lock();
        (health.good_in_a_row(), health.bad_in_a_row())
    }

    /// Takes the result of a health check in. `why` it failed is redacted.
    pub(crate) fn checked(&self, good: bool, why: &str, begun: Instant) {
        let now = Instant::now();
        let events = Arc::clone(&self.events);
        let policy = self.policy.load_full();
        *self.last_check.lock() = Some(now);
        *self.check_error.lock() = (!good).then(|| Arc::from(why));
        let (change, state) = {
            let mut health = self.health.lock();
            (health.observe(&policy.health, good, now), health.state())
        };
        if state == HealthState::Up {
            let before = self.fitness.swap(Fitness::Up as u8, Ordering::AcqRel);
            if before == Fitness::Down as u8 {
                self.come_back(now);
            }
        }
        let circuit = self.gate.circuit();
        if let Some(transition) = circuit.probed(&policy.circuit, good, begun, now) {
            self.come_back(now);
            self.publish(&transition);
        }
        if !good {
            let pending = self.unknown.lock().take();
            if let Some(pass) = pending {
                let weighs = crate::circuit::Verdict::Failure {
                    weight: 1,
                    retry_after: None,
                    elapsed: Duration::ZERO,
                    generation: None,
                };
                if let Some(transition) = circuit.record(&policy.circuit, pass, weighs, now) {
                    self.publish(&transition);
                }
            }
        }
        let id = self.id.clone();
        match change {
            Some(HealthChange::Down) => {
                self.fitness.store(Fitness::Down as u8, Ordering::Release);
                self.cut_in_flight();
                tracing::warn!(endpoint = %id, reason = why, "endpoint down");
                events.publish(EventKind::Down {
                    endpoint: id,
                    reason: why.to_owned(),
                });
            }
            Some(HealthChange::Healthy) => events.publish(EventKind::Healthy { endpoint: id }),
            Some(HealthChange::Recovered) => events.publish(EventKind::Recovered { endpoint: id }),
            None => {}
        }
    }

    /// Routing looks at it anew, as at one that was never measured: what it did before it failed or
    /// while it failed would keep it without traffic, and a circuit without its trials.
    fn come_back(&self, now: Instant) {
        self.latency.forget();
        self.stats.came_back(now);
    }

    /// Counts a failure that no attempt in flight stands for. The circuit takes it only while closed:
    /// what broke may have begun before an opening, and a trial is decided by attempts alone. A mistake
    /// of the caller's is none of the endpoint's.
    pub(crate) fn blame(&self, failure: &Failure) {
        if !failure.weighs_on_endpoint() {
            return;
        }
        let now = Instant::now();
        let policy = self.policy.load_full();
        let circuit = self.gate.circuit();
        self.stats.record(false, Duration::ZERO, now);
        let Some(pass) = circuit.closed() else {
            return;
        };
        let weighs = crate::circuit::Verdict::Failure {
            weight: failure.weight(policy.circuit.failures),
            retry_after: failure.retry_after,
            elapsed: Duration::ZERO,
            generation: failure.generation,
        };
        if let Some(transition) = circuit.record(&policy.circuit, pass, weighs, now) {
            self.publish(&transition);
        }
    }

    /// Remembers a failure that nothing matched until a health check has its say.
    pub(crate) fn remember_unknown(&self, failure: &Failure, pass: Pass) {
        if failure.category == Category::Unknown {
            *self.unknown.lock() = Some(pass);
        }
    }

    /// Publishes a change of the circuit and counts openings.
    pub(crate) fn publish(&self, transition: &Transition) {
        if matches!(transition.to, CircuitState::Open { .. }) {
            self.stats.circuit_opened();
            tracing::warn!(endpoint = %self.id, reason = %transition.reason, "circuit opened");
        }
        self.events.publish(EventKind::Circuit {
            endpoint: self.id.clone(),
            from: transition.from.as_str(),
            to: transition.to.as_str(),
            reason: transition.reason.to_string(),
        });
    }

    /// Takes over a state of its circuit that another instance decided. Work in flight is left alone,
    /// but for an isolation.
    pub(crate) fn force_circuit(&self, state: CircuitState) {
        if let Some(transition) = self.gate.circuit().force(state, Instant::now()) {
            self.publish(&transition);
            if state == CircuitState::Isolated {
                self.cut_in_flight();
            }
        }
    }

    /// Gives a concurrency slot back and lets a waiter know.
    pub(crate) fn release_slot(&self, entry: Entry) {
        self.gate.release_slot(entry);
        self.freed.tell_one();
    }

    /// Ends every attempt in flight: the endpoint is down, isolated or removed.
    pub(crate) fn cut_in_flight(&self) {
        self.cut_all.fetch_add(1, Ordering::AcqRel);
        self.cut.notify_waiters();
    }

    /// Ends writes in flight: the endpoint is not primary any more.
    pub(crate) fn cut_writes_in_flight(&self) {
        self.cut_writes.fetch_add(1, Ordering::AcqRel);
        self.cut.notify_waiters();
    }

    pub(crate) fn cut_mark(&self, is_write: bool) -> CutMark {
        CutMark {
            all: self.cut_all.load(Ordering::Acquire),
            writes: self.cut_writes.load(Ordering::Acquire),
            is_write,
        }
    }

    fn is_cut_since(&self, mark: CutMark) -> bool {
        self.cut_all.load(Ordering::Acquire) != mark.all
            || (mark.is_write && self.cut_writes.load(Ordering::Acquire) != mark.writes)
    }

    /// Ends when work that began at `mark` is to be given up.
    pub(crate) async fn cut_since(&self, mark: CutMark) {
        loop {
            let notified = self.cut.notified();
            tokio::pin!(notified);
            // Registered before the check, so that a cut between the two is not missed.
            notified.as_mut().enable();
            if self.is_cut_since(mark) {
                return;
            }
            notified.await;
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .field("fitness", &self.fitness())
            .field("weight", &self.weight())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

/// An endpoint with what stands behind it and its role in one snapshot of its source.
#[derive(Debug, Clone)]
pub struct Placed<M> {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// What stands behind it.
    pub member: M,
    /// Its role in this snapshot.
    pub role: Role,
    /// The policy in force at it.
    pub policy: Arc<Policy>,
}
