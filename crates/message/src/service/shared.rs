//! What every part of a proxied service works with.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_engine::Source;
use mainstay_engine::tasks::Tasks;
use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::repetitions::Repetitions;
use super::schema::Schema;
use super::status::FailedJob;
use crate::broker::{Broker, Link};
use crate::counts::Counts;
use crate::hooks::Hooks;
use crate::jobs::Jobs;
use crate::life::LifeChange;
use crate::object::ObjectStore;
use crate::outbox::Outbox;
use crate::pending::Pending;
use crate::request::Request;
use crate::settings::{ServiceSettings, Spread, TargetSettings};
use crate::store::{Change, FINISHED_MAX, JobStore};
use crate::target::Target;

/// A broker at which callers are.
pub(crate) struct Front {
    pub broker: Arc<dyn Broker>,
    pub outbox: Outbox,
}

/// What every part of a proxied service works with.
pub(crate) struct Shared {
    pub settings: ServiceSettings,
    pub source: Source<Arc<Target>>,
    pub brokers: BTreeMap<Arc<str>, Arc<dyn Broker>>,
    pub fronts: Vec<Front>,
    pub pending: Pending,
    pub jobs: Mutex<Jobs>,
    /// A job's time was set: the watch over results may have to wake earlier.
    pub jobs_changed: Notify,
    pub seen: Mutex<Seen>,
    pub relayed: Mutex<Relayed>,
    pub repetitions: Mutex<Repetitions>,
    /// The last jobs that could not be finished, the oldest first.
    pub failed: Mutex<VecDeque<FailedJob>>,
    /// Who has announced himself and is being asked whether he answers.
    pub asked: Mutex<HashSet<Arc<str>>>,
    pub store: Arc<dyn JobStore>,
    pub objects: Vec<Arc<dyn ObjectStore>>,
    pub hooks: Arc<dyn Hooks>,
    pub counts: Counts,
    pub schema: Mutex<Schema>,
    /// Requests in their first phase.
    pub in_first_phase: AtomicUsize,
    /// Targets that were added later, counted.
    pub came_later: AtomicUsize,
    /// No new requests are taken.
    pub stopping: AtomicBool,
    pub started: Instant,
    pub tasks: Tasks,
}

/// Requests that were seen, so that none runs twice when a broker gives it again.
#[derive(Default)]
pub(crate) struct Seen {
    pub open: HashMap<SmolStr, Arc<Request>>,
    finished: HashSet<SmolStr>,
    order: VecDeque<SmolStr>,
}

impl Seen {
    /// Whether a request of that id has ended.
    pub(super) fn has_finished(&self, id: &str) -> bool {
        self.finished.contains(id)
    }

    /// A request has ended.
    pub(super) fn finish(&mut self, id: &SmolStr) {
        self.open.remove(id);
        if self.finished.insert(id.clone()) {
            self.order.push_back(id.clone());
        }
        if self.order.len() > FINISHED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.finished.remove(&oldest);
        }
    }
}

/// Requests of targets that were relayed to callers, by our request id, until their reply comes.
#[derive(Default)]
pub(crate) struct Relayed {
    waiting: HashMap<SmolStr, RelayedRequest>,
    order: VecDeque<SmolStr>,
}

/// A request of a target that was relayed to a caller.
pub(crate) struct RelayedRequest {
    pub head: crate::envelope::RequestHead,
    pub target: Arc<Target>,
}

/// Relayed requests whose reply may still come; the oldest are forgotten first.
const RELAYED_MAX: usize = 10_000;

impl Relayed {
    pub(super) fn expect(&mut self, request_id: SmolStr, relayed: RelayedRequest) {
        self.order.push_back(request_id.clone());
        self.waiting.insert(request_id, relayed);
        if self.order.len() > RELAYED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.waiting.remove(&oldest);
        }
    }

    pub(super) fn take(&mut self, request_id: &str) -> Option<RelayedRequest> {
        self.waiting.remove(request_id)
    }
}

impl Shared {
    /// A target's place in the order of groups and of the settings, the lowest first. One that came later stands
    /// behind those of its group; a group that is not in the order comes last.
    pub(crate) fn rank(&self, target: &TargetSettings) -> u32 {
        const GROUP: usize = 1 << 16;
        let groups = &self.settings.group_order;
        let group = groups.iter().position(|group| *group == target.group);
        let of_settings = self
            .settings
            .targets
            .iter()
            .position(|it| it.name == target.name);
        let place = of_settings.unwrap_or_else(|| {
            self.settings.targets.len() + self.came_later.fetch_add(1, Ordering::Relaxed)
        });
        let group = group.unwrap_or(groups.len());
        u32::try_from(group * GROUP + place.min(GROUP - 1)).unwrap_or(u32::MAX)
    }

    /// Whether the strategy goes by that order.
    pub(super) fn is_ranked(&self) -> bool {
        self.settings.spread == Spread::ActiveStandby
    }

    /// A broker at which callers are, by its place, with its name.
    pub(crate) fn front(&self, place: usize) -> (usize, Arc<str>) {
        (
            place,
            self.settings.fronts.get(place).cloned().unwrap_or_default(),
        )
    }

    /// The targets as they are now.
    pub(super) fn targets(&self) -> Vec<Arc<Target>> {
        let snapshot = self.source.snapshot();
        snapshot
            .endpoints
            .iter()
            .map(|placed| Arc::clone(&placed.member))
            .collect()
    }

    /// The target of that name.
    pub(super) fn target(&self, name: &str) -> Option<Arc<Target>> {
        let snapshot = self.source.snapshot();
        snapshot
            .endpoint(name)
            .map(|placed| Arc::clone(&placed.member))
    }

    /// The target that is that service at that broker.
    pub(super) fn target_at(&self, broker: &Arc<dyn Broker>, source: &str) -> Option<Arc<Target>> {
        let snapshot = self.source.snapshot();
        let mut members = snapshot.endpoints.iter().map(|placed| &placed.member);
        let found = members.find(|it| {
            Arc::ptr_eq(&it.broker, broker) && it.settings.destination.as_str() == source
        });
        found.cloned()
    }

    /// The broker of that name, or the first one.
    pub(super) fn broker(&self, name: Option<&Arc<str>>) -> Option<(&Arc<str>, &Arc<dyn Broker>)> {
        let name = name.or(self.settings.brokers.first())?;
        self.brokers.get_key_value(name)
    }

    /// How long an operation's acknowledgement is waited for.
    pub(super) fn ack_timeout(&self, request: &Request) -> Duration {
        request
            .operation
            .ack_timeout
            .unwrap_or(self.settings.timeouts.ack_timeout)
    }

    /// How long a job's next result is waited for.
    pub(super) fn result_timeout(&self, request: &Request) -> Duration {
        request
            .operation
            .result_timeout
            .unwrap_or(self.settings.timeouts.result_timeout)
    }

    /// Makes what follows from news of a target.
    pub(super) fn follow(&self, target: &Target, change: Option<LifeChange>) {
        let Some(change) = change else {
            return;
        };
        let reason = match change {
            LifeChange::SetAside(reason) => {
                self.counts.targets_set_aside.add();
                reason
            }
            LifeChange::TakeBack => String::new(),
        };
        // What others have decided meanwhile counts, not the order in which it is told.
        loop {
            let aside = target.life.lock().is_aside();
            let told = match aside {
                true => self.source.set_aside(target.name(), &reason),
                false => self.source.take_back(target.name()),
            };
            // A refusal: the target was removed meanwhile.
            if told.is_err() || target.life.lock().is_aside() == aside {
                return;
            }
        }
    }

    /// Writes changes down. A failure is counted and told; gives whether it worked.
    pub(super) async fn write(&self, changes: Vec<Change>, durable: bool) -> bool {
        match self
            .store
            .write(&self.settings.name, changes, durable)
            .await
        {
            Ok(()) => true,
            Err(error) => {
                self.counts.store_failures.add();
                tracing::error!(service = %self.settings.name, %error, "not written down");
                false
            }
        }
    }
}

/// Waits until a connection stands; ends as well when it is closed for good.
pub(crate) async fn up(broker: &Arc<dyn Broker>) {
    let mut link = broker.link();
    let _ = link
        .wait_for(|link| link.is_up() || *link == Link::Closed)
        .await;
}
