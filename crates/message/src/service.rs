//! A proxied service: the fronted identity, its targets, and everything that runs for them.

mod accepted;
mod answer;
mod argument;
mod attempt;
mod intake;
mod monitor;
mod relay;
mod repetitions;
mod restart;
mod schema;
mod serve;
mod shared;
mod status;
mod targets;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, Source};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::broker::{Broker, Queue, Registration, Subscription, Topic};
use crate::envelope::Lifecycle;
use crate::hooks::{Hooks, NoHooks};
use crate::identity::queue_name;
use crate::object::ObjectStore;
use crate::outbox::Outbox;
use crate::pending::Pending;
use crate::settings::ServiceSettings;
use crate::store::{JobStore, MemoryStore, StoreError};
use crate::target::Target;

use shared::{Front, Shared, up};
pub use status::{FailedJob, JobStatus, LinkStatus, ServiceStatus, TargetStatus};
pub use targets::TargetError;

/// Messages that may wait here for each subscription, beyond the protocol's own window.
const BACKLOG_MAX: usize = 256;

/// How long the last words may take where no time is left.
const GOODBYE_MAX: Duration = Duration::from_millis(100);

/// What a service is started from.
pub struct ServiceParts {
    /// Its settings.
    pub settings: ServiceSettings,
    /// A connection to each broker that the settings name.
    pub brokers: BTreeMap<Arc<str>, Arc<dyn Broker>>,
    /// Where requests and jobs are written down. Default: in memory.
    pub store: Arc<dyn JobStore>,
    /// Where arguments by reference are; the first is where targets get theirs.
    pub objects: Vec<Arc<dyn ObjectStore>>,
    /// Knowledge beyond the settings. Default: none.
    pub hooks: Arc<dyn Hooks>,
    /// What everything runs in. Default: a group of its own.
    pub tasks: Tasks,
    /// Default: from the system's randomness.
    pub chance: Chance,
}

impl ServiceParts {
    /// A service with nothing but its settings and its brokers.
    pub fn new(settings: ServiceSettings, brokers: BTreeMap<Arc<str>, Arc<dyn Broker>>) -> Self {
        ServiceParts {
            settings,
            brokers,
            store: Arc::new(MemoryStore::new()),
            objects: Vec::new(),
            hooks: Arc::new(NoHooks),
            tasks: Tasks::new(),
            chance: Chance::from_entropy(),
        }
    }
}

/// Why a service was not started.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings name a broker that was not given.
    #[error(
        "service {service} names the broker {broker}, to which there is no connection; list it under brokers"
    )]
    UnknownBroker {
        /// The service.
        service: Arc<str>,
        /// The broker.
        broker: Arc<str>,
    },
    /// A target cannot be placed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// What an earlier run left cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A running service. Copies share everything; it runs until [`stop`](Service::stop).
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
}

impl Service {
    /// Takes the identity over: reads what an earlier run left, listens, and answers. Brokers and targets
    /// may all be down; it begins as soon as they are there.
    ///
    /// # Errors
    /// If a broker that the settings name was not given, two targets have one name, or the store cannot be
    /// read.
    pub async fn start(parts: ServiceParts) -> Result<Self, StartError> {
        let found = parts.store.found(&parts.settings.name).await?;
        let shared = Arc::new(build(parts)?);
        for settings in shared.settings.targets.clone() {
            shared.add(settings, false)?;
        }
        // What is open is known before anything is heard of it.
        let open = shared.remember(found).await;
        let service = Service { shared };
        service.listen_to_targets();
        service.shared.resume(open);
        service.listen_to_callers();
        let shared = &service.shared;
        shared.tasks.spawn(Arc::clone(shared).watch_results());
        shared.tasks.spawn(Arc::clone(shared).poll());
        Ok(service)
    }

    /// Listens where targets answer and ask: under the proxy's own name, at every broker.
    fn listen_to_targets(&self) {
        let shared = &self.shared;
        let caller = &shared.settings.caller;
        for target in shared.targets() {
            shared.listen_to(&target);
        }
        for broker in shared.brokers.values() {
            let replies = subscribe(broker, &caller.responses());
            let it = Arc::clone(shared);
            shared.tasks.spawn(async move {
                let mut deliveries = replies.deliveries;
                while let Some(delivery) = deliveries.next().await {
                    it.take_reply(delivery);
                }
            });
            let requests = subscribe(broker, &caller.requests());
            let (it, broker) = (Arc::clone(shared), Arc::clone(broker));
            shared.tasks.spawn(async move {
                let mut deliveries = requests.deliveries;
                while let Some(delivery) = deliveries.next().await {
                    it.take_own_request(&broker, delivery).await;
                }
            });
        }
        shared.discover();
    }

    /// Listens under the fronted name.
    fn listen_to_callers(&self) {
        let shared = &self.shared;
        let identity = &shared.settings.identity;
        for (place, front) in shared.fronts.iter().enumerate() {
            let requests = subscribe(&front.broker, &identity.requests());
            let it = Arc::clone(shared);
            shared.tasks.spawn(async move {
                let mut deliveries = requests.deliveries;
                while let Some(delivery) = deliveries.next().await {
                    it.take_in(delivery, place).await;
                }
            });
            let replies = subscribe(&front.broker, &identity.responses());
            let it = Arc::clone(shared);
            shared.tasks.spawn(async move {
                let mut deliveries = replies.deliveries;
                while let Some(delivery) = deliveries.next().await {
                    it.take_callers_reply(delivery).await;
                }
            });
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.shared.settings.name
    }

    /// Its settings.
    pub fn settings(&self) -> &ServiceSettings {
        &self.shared.settings
    }

    /// The engine's source behind it: its endpoints are the targets, its calls the first phases.
    pub fn source(&self) -> &Source<Arc<Target>> {
        &self.shared.source
    }

    /// What it has counted.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        self.shared.counts.all()
    }

    /// Takes no more requests, waits until those in their first phase are answered and every reply is
    /// confirmed, says that the service ends, and stops everything. Jobs that are open go on with the
    /// next start. Returns whether all was done within `limit`.
    pub async fn stop(&self, limit: Duration) -> bool {
        let shared = &self.shared;
        shared.stopping.store(true, Ordering::Release);
        let end = Instant::now() + limit;
        let is_idle = || {
            let unconfirmed: usize = shared.fronts.iter().map(|it| it.outbox.unconfirmed()).sum();
            shared.in_first_phase.load(Ordering::Acquire) == 0 && unconfirmed == 0
        };
        while !is_idle() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut all = is_idle();
        if shared.schema.lock().announced {
            let goodbye = shared.publish_lifecycle(Lifecycle::Shutdown, "null".into());
            // A front that is away keeps nobody here.
            let _ = tokio::time::timeout_at(end.max(Instant::now() + GOODBYE_MAX), goodbye).await;
        }
        while !is_idle() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        all &= is_idle();
        let left = end
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(100));
        all & (shared.tasks.shutdown(left).await == 0)
    }

    /// Waits until every connection that callers use stands, at most `limit`.
    pub async fn ready(&self, limit: Duration) -> bool {
        let all = self.shared.fronts.iter().map(|front| up(&front.broker));
        tokio::time::timeout(limit, futures_util::future::join_all(all))
            .await
            .is_ok()
    }
}

/// A durable subscription to a topic of ours, with the queue that the SDK would make.
fn subscribe(broker: &Arc<dyn Broker>, topic: &Topic) -> Registration {
    broker.subscribe(Subscription {
        filter: topic.into(),
        queue: Queue::Durable(queue_name(topic.as_str()).into()),
        backlog_max: BACKLOG_MAX,
    })
}

fn build(parts: ServiceParts) -> Result<Shared, StartError> {
    let ServiceParts {
        settings,
        brokers,
        store,
        objects,
        hooks,
        tasks,
        chance,
    } = parts;
    let tasks = tasks.child();
    let unknown = |broker: &Arc<str>| StartError::UnknownBroker {
        service: Arc::clone(&settings.name),
        broker: Arc::clone(broker),
    };
    let mut fronts = Vec::new();
    for name in &settings.fronts {
        let broker = brokers.get(name).ok_or_else(|| unknown(name))?;
        fronts.push(Front {
            broker: Arc::clone(broker),
            outbox: Outbox::start(Arc::clone(broker), &tasks),
        });
    }
    let source = Source::builder(Arc::clone(&settings.name), Arc::clone(&settings.policy))
        .tasks(tasks.clone())
        .chance(chance)
        .build()
        .map_err(TargetError::from)?;
    Ok(Shared {
        settings,
        source,
        brokers,
        fronts,
        pending: Pending::default(),
        jobs: Mutex::default(),
        jobs_changed: tokio::sync::Notify::new(),
        seen: Mutex::default(),
        relayed: Mutex::default(),
        repetitions: Mutex::default(),
        failed: Mutex::default(),
        asked: Mutex::default(),
        store,
        objects,
        hooks,
        counts: crate::counts::Counts::default(),
        schema: Mutex::default(),
        in_first_phase: std::sync::atomic::AtomicUsize::new(0),
        came_later: std::sync::atomic::AtomicUsize::new(0),
        stopping: std::sync::atomic::AtomicBool::new(false),
        started: Instant::now(),
        tasks,
    })
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ServiceParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceParts")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
