//! The one prober of a source: checks all endpoints at once, keeps their health and lag, and lets roles
//! follow. Its checks are never counted as traffic.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::circuit::CircuitState;
use crate::endpoint::{Endpoint, Fitness, Placed};
use crate::event::EventKind;
use crate::failure::Failure;
use crate::lag::PrimaryPositions;
use crate::source::{Member, Source, WeakSource};
use crate::watchdog::{Decision, History, Kinship, Promotion, Report, Says, decide};

/// Asks one member how it is.
pub trait Probe<M>: Send + Sync + 'static {
    /// One check, on a connection of its own. The prober bounds its time.
    fn probe<'a>(
        &'a self,
        member: &'a M,
    ) -> Pin<Box<dyn Future<Output = Result<Says, Failure>> + Send + 'a>>;
}

/// Good checks in a row after which an open circuit has had its chance: the two that it needs, and one
/// before them that may have begun before it opened.
const SETTLED_AFTER: u32 = 3;

/// How long the prober sleeps at most, so that it sees new endpoints and settings.
const NAP_MAX: Duration = Duration::from_secs(1);

impl<M: Member> Source<M> {
    /// Starts the prober, which runs until the source's tasks are shut down or the source is gone. Roles
    /// change by `promotion`.
    pub fn watch(&self, probe: Arc<dyn Probe<M>>, promotion: Promotion) {
        let watch = Watch {
            source: self.downgrade(),
            urge: Arc::clone(self.inner_urge()),
            probe,
            promotion,
            known: HashMap::new(),
            positions: PrimaryPositions::new(),
            history: History::default(),
            urgent_until: None,
            told: Told::default(),
        };
        self.tasks().spawn(watch.run());
    }

    /// Asks for a round of checks now: something suggests that the primary is gone or read-only.
    pub fn urge(&self) {
        self.inner_urge().notify_one();
    }
}

struct Known {
    endpoint: Arc<Endpoint>,
    due: Instant,
    running: bool,
    /// Of the last check; `None`: it failed or there was none.
    says: Option<Says>,
}

/// What was already announced, so that it is announced once.
#[derive(Default)]
struct Told {
    two_primaries: Option<String>,
    no_sync_standby: bool,
}

struct Watch<M> {
    source: WeakSource<M>,
    urge: Arc<Notify>,
    probe: Arc<dyn Probe<M>>,
    promotion: Promotion,
    known: HashMap<u64, Known>,
    positions: PrimaryPositions,
    history: History,
    urgent_until: Option<Instant>,
    told: Told,
}

struct Checked {
    number: u64,
    begun: Instant,
    result: Result<Says, Failure>,
}

/// Why the prober goes on.
enum Woken {
    Checked(Checked),
    Rested,
    Urged,
}

type Check = Pin<Box<dyn Future<Output = Checked> + Send>>;

impl<M: Member> Watch<M> {
    async fn run(mut self) {
        let mut checks: FuturesUnordered<Check> = FuturesUnordered::new();
        // Between two steps nothing here keeps the source alive.
        while let Some(source) = self.source.upgrade() {
            self.begin_due(&source, &mut checks);
            drop(source);
            let nap = tokio::time::sleep_until(self.next_due());
            let woken = tokio::select! {
                Some(checked) = checks.next() => Woken::Checked(checked),
                () = nap => Woken::Rested,
                () = self.urge.notified() => Woken::Urged,
            };
            let Some(source) = self.source.upgrade() else {
                return;
            };
            match woken {
                Woken::Checked(checked) => self.take_in(&source, checked),
                Woken::Rested => {}
                Woken::Urged => self.be_urgent(&source),
            }
        }
    }

    fn begin_due(&mut self, source: &Source<M>, checks: &mut FuturesUnordered<Check>) {
        let now = Instant::now();
        let snapshot = source.snapshot();
        self.known.retain(|_, known| !known.endpoint.is_removed());
        for placed in &snapshot.endpoints {
            let number = placed.endpoint.number;
            let settings = placed.endpoint.policy();
            if !settings.health.enabled {
                continue;
            }
            let known = self.known.entry(number).or_insert_with(|| Known {
                endpoint: Arc::clone(&placed.endpoint),
                due: now,
                running: false,
                says: None,
            });
            if known.running || known.due > now {
                continue;
            }
            known.running = true;
            checks.push(check(
                Arc::clone(&self.probe),
                placed.clone(),
                settings.health.timeout,
            ));
        }
    }

    fn next_due(&self) -> Instant {
        let soonest = self
            .known
            .values()
            .filter(|known| !known.running)
            .map(|known| known.due)
            .min();
        let latest = Instant::now() + NAP_MAX;
        soonest.map_or(latest, |due| due.min(latest))
    }

    /// Checks every quarter of a second for a while: the primary may be gone.
    fn be_urgent(&mut self, source: &Source<M>) {
        let now = Instant::now();
        let health = &source.snapshot().policy.health;
        self.urgent_until = Some(now + health.urgent_for);
        for known in self.known.values_mut() {
            known.due = known.due.min(now);
        }
    }

    fn take_in(&mut self, source: &Source<M>, checked: Checked) {
        let now = Instant::now();
        let Some(known) = self.known.get_mut(&checked.number) else {
            return;
        };
        known.running = false;
        let good = checked.result.is_ok();
        let why = match &checked.result {
            Ok(_) => String::new(),
            Err(failure) => source.redacted(failure),
        };
        known.says = checked.result.ok();
        let endpoint = Arc::clone(&known.endpoint);
        endpoint.checked(good, &why, checked.begun);
        // Roles first: what an endpoint has in common with the primary depends on who that is.
        self.decide(source);
        self.look_at_lag(source, &endpoint, now);
        self.schedule(source, checked.number, checked.begun, now);
    }

    /// The next check: soon while a primary is missing, else at the usual interval.
    fn schedule(&mut self, source: &Source<M>, number: u64, begun: Instant, now: Instant) {
        let snapshot = source.snapshot();
        let has_primary = !snapshot.has_roles() || snapshot.primary().is_some();
        if !has_primary && self.urgent_until.is_none() {
            self.urgent_until = Some(now + snapshot.policy.health.urgent_for);
        }
        let Some(known) = self.known.get_mut(&number) else {
            return;
        };
        let doubtful = known.says.is_none() && known.endpoint.fitness() != Fitness::Down;
        let urgent = self.urgent_until.is_some_and(|until| now < until);
        let recovers = known.says.is_some() && is_recovering(&known.endpoint, now);
        let health = &known.endpoint.policy().health;
        let interval = match recovers || (urgent && (!has_primary || doubtful)) {
            true => health.urgent_interval.min(health.interval),
            false => health.interval,
        };
        // From the beginning of the last one, so that a slow check does not slow the rhythm.
        known.due = (begun + interval).max(now);
        if has_primary && !doubtful {
            self.calm_down();
        }
    }

    fn calm_down(&mut self) {
        let all_known = self
            .known
            .values()
            .all(|known| known.says.is_some() || known.endpoint.fitness() == Fitness::Down);
        if all_known {
            self.urgent_until = None;
        }
    }

    fn look_at_lag(&mut self, source: &Source<M>, endpoint: &Arc<Endpoint>, now: Instant) {
        let snapshot = source.snapshot();
        let Some(says) = self
            .known
            .get(&endpoint.number)
            .and_then(|known| known.says)
        else {
            return;
        };
        let primary = snapshot.primary();
        let is_primary = primary.is_some_and(|p| p.endpoint.number == endpoint.number);
        let kinship = match self.promotion == Promotion::Follow && !is_primary {
            true => self.history.kinship(&endpoint.id, &says, primary.is_some()),
            false => Kinship::Same,
        };
        let newly_estranged = endpoint.note_kinship(kinship);
        if let Kinship::None(reason) = kinship
            && newly_estranged
        {
            tracing::error!(endpoint = %endpoint.id, reason, "gets no reads");
            source.publish(EventKind::Estranged {
                endpoint: endpoint.id.clone(),
                reason: reason.to_owned(),
            });
        }
        let Some(position) = says.position else {
            // Members of one store are never behind.
            endpoint.set_lag(Some(Duration::ZERO));
            return;
        };
        endpoint.note_position(position);
        if is_primary {
            self.positions.seen(position, now);
            endpoint.set_lag(Some(Duration::ZERO));
        } else {
            let lag = self.positions.lag(position, now);
            endpoint.set_lag(lag.filter(|_| kinship == Kinship::Same));
        }
    }

    /// Lag is measured from the new primary on; what is known of the others is compared at once, so that
    /// a promotion does not leave them unusable until their next check.
    fn measure_from_new_primary(&mut self, source: &Source<M>) {
        self.positions.clear();
        let now = Instant::now();
        let snapshot = source.snapshot();
        let Some(primary) = snapshot.primary() else {
            return;
        };
        self.look_at_lag(source, &primary.endpoint, now);
        for placed in &snapshot.endpoints {
            self.look_at_lag(source, &placed.endpoint, now);
        }
    }

    fn reports(&self, source: &Source<M>) -> Vec<Report> {
        let now = Instant::now();
        let snapshot = source.snapshot();
        let report = |placed: &Placed<M>| Report {
            id: placed.endpoint.id.clone(),
            role: placed.role,
            is_up: match placed.endpoint.fitness() {
                Fitness::Unknown => None,
                Fitness::Up => Some(true),
                Fitness::Down => Some(false),
            },
            says: self
                .known
                .get(&placed.endpoint.number)
                .and_then(|known| known.says),
            weight: placed.endpoint.weight(),
            p95: placed.endpoint.stats.quantile_if_fresh(0.95, now),
        };
        snapshot
            .endpoints
            .iter()
            .filter(|p| !p.endpoint.is_draining())
            .map(report)
            .collect()
    }

    fn decide(&mut self, source: &Source<M>) {
        let reports = self.reports(source);
        self.history.see(&reports);
        let decision = decide(self.promotion, &reports, &self.history);
        match decision {
            Decision::Keep => self.told.two_primaries = None,
            Decision::Promote { id, reason } => {
                // A refusal means that the endpoint was removed meanwhile: the next check sees it.
                let _ = source.set_primary(Some(id.as_str()), reason);
                self.told = Told::default();
                self.measure_from_new_primary(source);
            }
            Decision::Demote { reason } => {
                let _ = source.set_primary(None, reason);
                source.publish(EventKind::LagSuspended);
                self.be_urgent(source);
            }
            Decision::TwoPrimaries { kept, other } => {
                if self.told.two_primaries.as_deref() != Some(other.as_str()) {
                    self.told.two_primaries = Some(other.as_str().to_owned());
                    tracing::error!(kept = ?kept, %other, "two endpoints say that they are primary");
                    source.publish(EventKind::TwoPrimaries { kept, other });
                }
            }
        }
        self.look_at_primary(source, &reports);
    }

    fn look_at_primary(&mut self, source: &Source<M>, reports: &[Report]) {
        let snapshot = source.snapshot();
        let Some(primary) = snapshot.primary() else {
            return;
        };
        let says = reports
            .iter()
            .find(|report| report.id == primary.endpoint.id)
            .and_then(|r| r.says);
        let Some(says) = says.filter(|says| says.is_primary == Some(true)) else {
            return;
        };
        self.history.follow(&primary.endpoint.id, &says);
        if says.lacks_sync_standby && !self.told.no_sync_standby {
            let endpoint = primary.endpoint.id.clone();
            source.publish(EventKind::NoSyncStandby { endpoint });
        }
        self.told.no_sync_standby = says.lacks_sync_standby;
    }
}

/// Whether the next good check brings an endpoint nearer to traffic: nobody should wait a whole interval
/// for it. Ends after a few good checks, whatever they brought.
fn is_recovering(endpoint: &Endpoint, now: Instant) -> bool {
    let policy = endpoint.policy();
    let (good, _) = endpoint.checks_in_row();
    let is_shut = matches!(endpoint.circuit_state(now), CircuitState::Open { .. })
        && policy.circuit.probe_reopens;
    let is_left = endpoint.fitness() == Fitness::Down || is_shut;
    is_left && good < SETTLED_AFTER.max(policy.health.healthy_after)
}

fn check<M: Member>(probe: Arc<dyn Probe<M>>, placed: Placed<M>, limit: Duration) -> Check {
    Box::pin(async move {
        let begun = Instant::now();
        let result = tokio::time::timeout(limit, probe.probe(&placed.member)).await;
        let result = result.unwrap_or_else(|_| {
            let message = format!("health check gave no answer within {limit:?}");
            Err(Failure::new(crate::failure::Category::Timeout, message))
        });
        Checked {
            number: placed.endpoint.number,
            begun,
            result,
        }
    })
}
