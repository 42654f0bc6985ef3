//! What happened, as data. Metrics, logs, dashboards and tests are observers of one stream of events.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::attempt::EndpointId;

/// How many events a slow subscriber may be behind before it loses the oldest.
const SUBSCRIBER_BACKLOG: usize = 1024;

/// The role of an endpoint within its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Takes writes and, unless the policy says otherwise, reads.
    Primary,
    /// Takes reads.
    Replica,
    /// Takes reads only when nothing else is left.
    Standby,
    /// One of several equals that take everything: sources without roles.
    Member,
}

impl Role {
    /// The stable lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Replica => "replica",
            Role::Standby => "standby",
            Role::Member => "member",
        }
    }

    /// The role of that name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "primary" => Some(Role::Primary),
            "replica" => Some(Role::Replica),
            "standby" => Some(Role::Standby),
            "member" => Some(Role::Member),
            _ => None,
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that happened in a source.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// The source.
    pub source: Arc<str>,
    /// Rises by one with each event of the source; a gap means that events were lost.
    pub number: u64,
    /// UTC, for readers; nothing is decided by it.
    pub time: String,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A call goes on at another endpoint after a failure.
    Failover {
        /// The endpoint that failed.
        from: EndpointId,
        /// Why it failed, redacted.
        reason: String,
    },
    /// An attempt is repeated after a wait.
    Retry {
        /// The endpoint that failed.
        endpoint: EndpointId,
        /// The attempt that failed.
        attempt: u32,
        /// The wait before the next one.
        #[serde(serialize_with = "as_millis", rename = "wait_ms")]
        wait: Duration,
        /// Why it failed, redacted.
        reason: String,
    },
    /// Another attempt would have been allowed but for the retry budget.
    BudgetSpent {
        /// The endpoint of the failed attempt.
        endpoint: EndpointId,
    },
    /// A circuit changed its state.
    Circuit {
        /// Whose.
        endpoint: EndpointId,
        /// From which state.
        from: &'static str,
        /// To which state.
        to: &'static str,
        /// Why.
        reason: String,
    },
    /// An endpoint has a history of its own, so that no read may see it.
    Estranged {
        /// Which.
        endpoint: EndpointId,
        /// How that is known.
        reason: String,
    },
    /// An endpoint failed its health checks.
    Down {
        /// Which.
        endpoint: EndpointId,
        /// Why, redacted.
        reason: String,
    },
    /// An endpoint gets reads again.
    Healthy {
        /// Which.
        endpoint: EndpointId,
    },
    /// An endpoint that was down is back for good.
    Recovered {
        /// Which.
        endpoint: EndpointId,
    },
    /// An endpoint became primary.
    RolePromoted {
        /// Which.
        endpoint: EndpointId,
        /// What it was.
        from: Role,
        /// What it is.
        to: Role,
        /// Why.
        reason: String,
        /// The source's epoch since then.
        epoch: u64,
    },
    /// An endpoint is not primary any more.
    RoleDemoted {
        /// Which.
        endpoint: EndpointId,
        /// What it was.
        from: Role,
        /// What it is.
        to: Role,
        /// Why.
        reason: String,
        /// The source's epoch since then.
        epoch: u64,
    },
    /// Two endpoints say that they are primary; the second gets no writes.
    TwoPrimaries {
        /// The one that keeps the role; none at a cold start that cannot be decided.
        kept: Option<EndpointId>,
        /// The other.
        other: EndpointId,
    },
    /// Commits wait because no synchronous standby is attached.
    NoSyncStandby {
        /// The primary.
        endpoint: EndpointId,
    },
    /// There is no primary; writes wait or fail.
    NoPrimary,
    /// A call used an endpoint that health or lag had excluded, since nothing else was left.
    LastResort {
        /// Which.
        endpoint: EndpointId,
    },
    /// Lag is not looked at while there is no primary to compare with.
    LagSuspended,
    /// An endpoint is being drained.
    Drained {
        /// Which.
        endpoint: EndpointId,
    },
    /// An endpoint takes work again.
    Undrained {
        /// Which.
        endpoint: EndpointId,
    },
    /// An endpoint was added.
    Added {
        /// Which.
        endpoint: EndpointId,
    },
    /// An endpoint was removed.
    Removed {
        /// Which.
        endpoint: EndpointId,
    },
    /// The source takes no new calls.
    Paused,
    /// The source takes calls again.
    Resumed,
    /// A policy is in force.
    PolicyApplied {
        /// Its name.
        name: String,
        /// Its version.
        version: u64,
    },
    /// A policy was refused; the old one stays.
    PolicyRefused {
        /// All that is wrong.
        problems: Vec<String>,
    },
    /// A statement that looked like a read was refused by a read-only session and is a write from now
    /// on.
    LearnedWrite {
        /// Which, without its literals.
        fingerprint: String,
    },
    /// The answer to a COMMIT was lost, and what became of it was looked up.
    CommitProven {
        /// Where it was found out.
        endpoint: Option<EndpointId>,
        /// `committed`, `aborted` or `unknown`.
        fate: &'static str,
    },
    /// The store of shared circuits does not answer: circuits are decided here alone.
    StoreLost {
        /// Why.
        reason: String,
    },
    /// The store of shared circuits answers again.
    StoreBack,
    /// The audit sink lost entries or could not write.
    AuditProblem {
        /// What happened.
        message: String,
    },
    /// A call ended. Shown to observers and in the stream with calls only.
    CallEnded {
        /// The operation.
        operation: String,
        /// The endpoint that answered or failed last.
        endpoint: Option<EndpointId>,
        /// `success`, `failure`, `rejected`, `cancelled`, `neutral` or `panicked`.
        outcome: &'static str,
        /// Attempts made.
        attempts: u32,
        /// The whole call.
        #[serde(serialize_with = "as_micros", rename = "elapsed_us")]
        elapsed: Duration,
    },
}

fn as_millis<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn as_micros<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Sees every event. Called outside all locks, on the path of the call that caused the event: it must
/// not block. A panic is caught and counted.
pub trait Observer: Send + Sync {
    /// Takes note.
    fn observe(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> Observer for F {
    fn observe(&self, event: &Event) {
        self(event);
    }
}

/// The events of one source: a list of observers and a bounded stream for subscribers.
pub struct Events {
    source: Arc<str>,
    /// How many want to see each call's end: spares the common path the list.
    watching_calls: Arc<AtomicUsize>,
    observers: ArcSwap<Vec<Arc<dyn Observer>>>,
    stream: broadcast::Sender<Arc<Event>>,
    stream_with_calls: broadcast::Sender<Arc<Event>>,
    number: AtomicU64,
    panics: AtomicU64,
}

impl Events {
    /// No observers yet.
    pub fn new(source: Arc<str>) -> Self {
        Events {
            source,
            watching_calls: Arc::default(),
            observers: ArcSwap::from_pointee(Vec::new()),
            stream: broadcast::Sender::new(SUBSCRIBER_BACKLOG),
            stream_with_calls: broadcast::Sender::new(SUBSCRIBER_BACKLOG),
            number: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    /// Adds an observer.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.observers.rcu(|list| {
            let mut list = Vec::clone(list);
            list.push(Arc::clone(&observer));
            list
        });
        self.watching_calls.fetch_add(1, Ordering::AcqRel);
    }

    /// Subscribes to everything from now on. A subscriber that is more than 1024 events behind loses
    /// the oldest and is told how many.
    pub fn subscribe(&self) -> EventStream {
        EventStream {
            receiver: self.stream.subscribe(),
            _watching: None,
        }
    }

    /// Subscribes to the same and to the end of every call.
    pub fn subscribe_with_calls(&self) -> EventStream {
        EventStream {
            receiver: self.stream_with_calls.subscribe(),
            _watching: Some(WatchingCalls::new(&self.watching_calls)),
        }
    }

    /// Whether anybody would see an event: callers on hot paths ask before they make one.
    pub fn is_watched(&self) -> bool {
        self.is_observed() || self.stream.receiver_count() > 0
    }

    /// Observers that panicked, counted per event.
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Whether anybody would see a call's end.
    pub fn is_observed(&self) -> bool {
        self.watching_calls.load(Ordering::Acquire) > 0
    }

    /// Publishes the end of a call, to observers and to those who subscribed to calls: whoever wants to
    /// know what happens to a source would be drowned in them.
    pub fn publish_call(&self, kind: EventKind) {
        let event = Arc::new(self.event(kind));
        self.show(&event);
        // An error only says that nobody is subscribed.
        let _ = self.stream_with_calls.send(event);
    }

    /// Publishes an event.
    pub fn publish(&self, kind: EventKind) {
        if !self.is_watched() {
            self.number.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let event = Arc::new(self.event(kind));
        self.show(&event);
        // An error only says that nobody is subscribed.
        let _ = self.stream_with_calls.send(Arc::clone(&event));
        let _ = self.stream.send(event);
    }

    fn event(&self, kind: EventKind) -> Event {
        Event {
            source: Arc::clone(&self.source),
            number: self.number.fetch_add(1, Ordering::Relaxed),
            time: jiff::Timestamp::now().to_string(),
            kind,
        }
    }

    fn show(&self, event: &Event) {
        for observer in self.observers.load_full().iter() {
            if catch_unwind(AssertUnwindSafe(|| observer.observe(event))).is_err() {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Somebody wants to see each call's end.
#[derive(Debug)]
struct WatchingCalls(Arc<AtomicUsize>);

impl WatchingCalls {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        WatchingCalls(Arc::clone(count))
    }
}

impl Drop for WatchingCalls {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A bounded stream of events.
#[derive(Debug)]
pub struct EventStream {
    receiver: broadcast::Receiver<Arc<Event>>,
    _watching: Option<WatchingCalls>,
}

/// What a subscriber gets.
#[derive(Debug, Clone)]
pub enum Received {
    /// An event.
    Event(Arc<Event>),
    /// So many events were lost because the subscriber was too slow.
    Lost(u64),
}

impl EventStream {
    /// The next event; `None`: the source is gone. Cancel safe.
    pub async fn next(&mut self) -> Option<Received> {
        match self.receiver.recv().await {
            Ok(event) => Some(Received::Event(event)),
            Err(broadcast::error::RecvError::Lagged(count)) => Some(Received::Lost(count)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }

    /// What has already arrived, without waiting.
    pub fn try_next(&mut self) -> Option<Received> {
        match self.receiver.try_recv() {
            Ok(event) => Some(Received::Event(event)),
            Err(broadcast::error::TryRecvError::Lagged(count)) => Some(Received::Lost(count)),
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
