//! A source: what a caller names, with its endpoints behind it.
//!
//! One atomic pointer holds the current [`Snapshot`] (policy, endpoints, roles, epoch); every change
//! makes a new one, so that no observer ever sees half a change.

mod account;
mod call;
mod candidates;
mod control;
mod held;
mod sharing;
mod status;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub use account::{Account, Counts, Ended, Settled, SourceCounts};
pub use call::{Done, Leased, Route};
pub use candidates::{Filter, Need, Rank};
pub use control::{ControlError, EndpointSpec, WEIGHT_MAX, WEIGHT_MIN, check_weight};
pub(crate) use held::HeldSnapshot;
pub use status::EndpointStatus;

use crate::attempt::EndpointId;
use crate::audit::{Recent, SwapSink};
use crate::budget::Budget;
use crate::chance::Chance;
use crate::endpoint::Placed;
use crate::event::{EventKind, EventStream, Events, Observer, Role};
use crate::intercept::{Fault, Interceptor};
use crate::operation::Operation;
use crate::origin::Origin;
use crate::policy::Policy;
use crate::queue::Queue;
use crate::rate::Rate;
use crate::redact::Redactor;
use crate::routing::Router;
use crate::tasks::Tasks;

/// What stands behind an endpoint: cheap to copy, used by many calls at once.
pub trait Member: Clone + Send + Sync + 'static {}

impl<T: Clone + Send + Sync + 'static> Member for T {}

/// Policy, endpoints and roles at one moment.
#[derive(Debug)]
pub struct Snapshot<M> {
    /// The source's policy.
    pub policy: Arc<Policy>,
    /// The endpoints with their roles; at most one is primary.
    pub endpoints: SmallVec<[Placed<M>; 4]>,
    /// Rises with every change of the primary.
    pub epoch: u64,
}

impl<M> Snapshot<M> {
    /// The primary, if there is one.
    pub fn primary(&self) -> Option<&Placed<M>> {
        self.endpoints
            .iter()
            .find(|placed| placed.role == Role::Primary)
    }

    /// The endpoint of that name.
    pub fn endpoint(&self, id: &str) -> Option<&Placed<M>> {
        self.endpoints
            .iter()
            .find(|placed| placed.endpoint.id.as_str() == id)
    }

    /// Whether endpoints differ in what they may do.
    pub fn has_roles(&self) -> bool {
        self.endpoints
            .iter()
            .any(|placed| placed.role != Role::Member)
    }
}

/// What a source is made from.
pub struct SourceBuilder<M> {
    name: Arc<str>,
    policy: Arc<Policy>,
    endpoints: Vec<EndpointSpec<M>>,
    tasks: Option<Tasks>,
    chance: Option<Chance>,
    observers: Vec<Arc<dyn Observer>>,
    interceptor: Option<Arc<dyn Interceptor>>,
}

impl<M: Member> SourceBuilder<M> {
    /// Adds an endpoint.
    #[must_use]
    pub fn endpoint(mut self, spec: EndpointSpec<M>) -> Self {
        self.endpoints.push(spec);
        self
    }

    /// Runs its background work within this group, so that it ends with it, and before it when the
    /// source is gone.
    #[must_use]
    pub fn tasks(mut self, tasks: Tasks) -> Self {
        self.tasks = Some(tasks);
        self
    }

    /// Uses this source of randomness.
    #[must_use]
    pub fn chance(mut self, chance: Chance) -> Self {
        self.chance = Some(chance);
        self
    }

    /// Adds an observer of its events.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Injects faults before attempts.
    #[must_use]
    pub fn interceptor(mut self, interceptor: impl Interceptor + 'static) -> Self {
        self.interceptor = Some(Arc::new(interceptor));
        self
    }

    /// Makes the source.
    ///
    /// # Errors
    /// If two endpoints have one name, a weight is not a positive number, or two are primary.
    pub fn build(self) -> Result<Source<M>, ControlError> {
        let now = Instant::now();
        let events = Arc::new(Events::new(Arc::clone(&self.name)));
        for observer in self.observers {
            events.observe(observer);
        }
        let recent = Recent::new(self.policy.audit.recent_max);
        let source = Source {
            inner: Arc::new(Inner {
                name: self.name,
                snapshot: ArcSwap::from_pointee(Snapshot {
                    policy: self.policy,
                    endpoints: SmallVec::new(),
                    epoch: 1,
                }),
                change: Mutex::new(()),
                version: AtomicU64::new(0),
                changed: watch::Sender::new(0),
                next_endpoint: AtomicU64::new(1),
                tasks: self.tasks.unwrap_or_default().child(),
                chance: self.chance.unwrap_or_else(Chance::from_entropy),
                events,
                sink: SwapSink::default(),
                redactor: Redactor::default(),
                keeps_recent: AtomicBool::new(false),
                audited: AtomicBool::new(false),
                recent,
                origin: Origin::since(now),
                budget: Budget::new(now),
                rate: Rate::new(),
                queue: Queue::new(),
                router: Router::new(),
                waiting: AtomicU64::new(0),
                waiting_for_rate: AtomicU64::new(0),
                urge: Arc::default(),
                counts: SourceCounts::default(),
                intercepts: AtomicBool::new(self.interceptor.is_some()),
                interceptor: ArcSwapOption::new(self.interceptor.map(Arc::new)),
                draining: AtomicBool::new(false),
            }),
        };
        for spec in self.endpoints {
            source.place(spec)?;
        }
        Ok(source)
    }
}

/// A source. Copies share everything.
pub struct Source<M = ()> {
    inner: Arc<Inner<M>>,
}

impl<M> Clone for Source<M> {
    fn clone(&self) -> Self {
        Source {
            inner: Arc::clone(&self.inner),
        }
    }
}

pub(crate) struct Inner<M> {
    name: Arc<str>,
    snapshot: ArcSwap<Snapshot<M>>,
    /// One change at a time; never held across an await.
    change: Mutex<()>,
    /// Rises with each new snapshot, right after it is in force.
    version: AtomicU64,
    /// The same for those who wait for it.
    changed: watch::Sender<u64>,
    next_endpoint: AtomicU64,
    tasks: Tasks,
    chance: Chance,
    events: Arc<Events>,
    sink: SwapSink,
    redactor: Redactor,
    /// Whether the last entries are kept.
    keeps_recent: AtomicBool,
    /// Whether anybody wants entries, sink or list.
    audited: AtomicBool,
    recent: Recent,
    /// What the machines of the source and its endpoints count time from.
    origin: Origin,
    budget: Budget,
    rate: Rate,
    queue: Queue,
    router: Router,
    /// Calls that wait for a concurrency slot of an endpoint.
    waiting: AtomicU64,
    /// Calls that wait for a token of the source's own rate.
    waiting_for_rate: AtomicU64,
    /// Health should be looked at now: the primary may be gone.
    urge: Arc<Notify>,
    counts: SourceCounts,
    /// Whether there is an interceptor: spares the common path its pointer.
    intercepts: AtomicBool,
    interceptor: ArcSwapOption<Arc<dyn Interceptor>>,
    draining: AtomicBool,
}

impl<M> Drop for Inner<M> {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// A source as its background work holds it: so that it does not keep alive what nobody uses.
pub struct WeakSource<M> {
    inner: Weak<Inner<M>>,
}

impl<M> WeakSource<M> {
    /// The source; `None`: the last copy of it was dropped.
    pub fn upgrade(&self) -> Option<Source<M>> {
        self.inner.upgrade().map(|inner| Source { inner })
    }
}

impl<M> Inner<M> {
    /// What the interceptor, if there is one, does to this attempt.
    fn fault(&self, operation: &Operation, endpoint: &EndpointId, attempt: u32) -> Option<Fault> {
        if !self.intercepts.load(Ordering::Acquire) {
            return None;
        }
        let interceptor = self.interceptor.load_full()?;
        interceptor.before(operation, endpoint, attempt)
    }
}

impl Source<()> {
    /// A source that protects one async function: a single endpoint with nothing behind it.
    pub fn single(name: impl Into<Arc<str>>, policy: Arc<Policy>) -> Source<()> {
        let name = name.into();
        let built = Source::<()>::builder(Arc::clone(&name), policy)
            .endpoint(EndpointSpec::new(EndpointId::from(name), ()))
            .build();
        match built {
            Ok(source) => source,
            Err(problem) => unreachable!("one endpoint of weight 1 is valid: {problem}"),
        }
    }
}

impl<M: Member> Source<M> {
    /// Begins a source.
    pub fn builder(name: impl Into<Arc<str>>, policy: Arc<Policy>) -> SourceBuilder<M> {
        SourceBuilder {
            name: name.into(),
            policy,
            endpoints: Vec::new(),
            tasks: None,
            chance: None,
            observers: Vec::new(),
            interceptor: None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.inner.name
    }

    /// Policy, endpoints and roles as they are now.
    pub fn snapshot(&self) -> Arc<Snapshot<M>> {
        self.inner.snapshot.load_full()
    }

    /// Tells of every new snapshot.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Its events from now on.
    pub fn events(&self) -> EventStream {
        self.inner.events.subscribe()
    }

    /// Its events from now on, with the end of every call.
    pub fn events_with_calls(&self) -> EventStream {
        self.inner.events.subscribe_with_calls()
    }

    /// Adds an observer of its events.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.inner.events.observe(observer);
    }

    /// Publishes an event of a face built on this source.
    pub fn publish(&self, kind: EventKind) {
        self.inner.events.publish(kind);
    }

    /// The source without keeping it alive.
    pub fn downgrade(&self) -> WeakSource<M> {
        WeakSource {
            inner: Arc::downgrade(&self.inner),
        }
    }

    /// Where its background work runs: a group of its own, which ends with the last copy of the source.
    /// Work in it holds a [`WeakSource`], or neither ends.
    pub fn tasks(&self) -> &Tasks {
        &self.inner.tasks
    }

    /// Its source of randomness.
    pub fn chance(&self) -> &Chance {
        &self.inner.chance
    }

    /// What went wrong, for a reader, without secrets.
    pub(crate) fn redacted(&self, failure: &crate::failure::Failure) -> String {
        self.inner.redacted(failure)
    }

    pub(crate) fn inner_urge(&self) -> &Arc<Notify> {
        &self.inner.urge
    }

    /// Calls counted by how they ended.
    pub fn counts(&self) -> &SourceCounts {
        &self.inner.counts
    }

    /// The last audit entries, if [`keep_recent_audit`](Source::keep_recent_audit) was called.
    pub fn recent_audit(&self) -> &Recent {
        &self.inner.recent
    }

    /// Sends audit entries there from now on; `None`: nowhere. Returns the former sink, to be closed.
    pub fn set_audit_sink(
        &self,
        sink: Option<Arc<dyn crate::audit::Sink>>,
    ) -> Option<Arc<dyn crate::audit::Sink>> {
        let mut wanted = sink.is_some();
        let former = self.inner.sink.swap(sink);
        wanted |= self.inner.keeps_recent.load(Ordering::Acquire);
        self.inner.audited.store(wanted, Ordering::Release);
        former
    }

    /// Keeps the last entries for [`recent_audit`](Source::recent_audit); off until called, since it
    /// costs an allocation a call.
    pub fn keep_recent_audit(&self) {
        self.inner.keeps_recent.store(true, Ordering::Release);
        self.inner.audited.store(true, Ordering::Release);
    }

    /// Injects faults before attempts from now on; `None`: none.
    pub fn set_interceptor(&self, interceptor: Option<Arc<dyn Interceptor>>) {
        let intercepts = interceptor.is_some();
        self.inner.interceptor.store(interceptor.map(Arc::new));
        self.inner.intercepts.store(intercepts, Ordering::Release);
    }

    /// Waits for a snapshot that `fits`, at most `limit`.
    pub async fn wait_for(
        &self,
        limit: Duration,
        fits: impl Fn(&Snapshot<M>) -> bool,
    ) -> Option<Arc<Snapshot<M>>> {
        let mut changes = self.changes();
        let end = Instant::now() + limit;
        loop {
            changes.borrow_and_update();
            let snapshot = self.snapshot();
            if fits(&snapshot) {
                return Some(snapshot);
            }
            match tokio::time::timeout_at(end, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }
}

impl<M> std::fmt::Debug for Source<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.inner.name)
            .finish_non_exhaustive()
    }
}
