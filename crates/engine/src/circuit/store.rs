//! Circuits that several instances share: what a store must do, and the form of it that lives in one
//! process.
//!
//! The local circuit decides; a store only carries decisions to the others. So a call on a closed
//! circuit never waits for a store, and one that cannot be reached means local decisions, no more.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::CircuitState;
use crate::attempt::EndpointId;
use crate::origin::after;
use crate::pool::BoxFuture;

/// How many changes a slow subscriber may be behind; it then reads the states anew.
const CHANGES_MAX: usize = 256;

/// Whose circuit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CircuitKey {
    /// The source.
    pub source: Arc<str>,
    /// The endpoint.
    pub endpoint: EndpointId,
}

/// A state as it is shared. Instants of one machine mean nothing on another, so an opening says how
/// long it still lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedState {
    /// Traffic flows.
    Closed,
    /// Nothing passes for so long.
    Open {
        /// From now on.
        left: Duration,
    },
    /// A few trials decide.
    HalfOpen,
    /// Held open by a person.
    Isolated,
}

impl SharedState {
    /// A circuit's state at `now`; a disabled circuit lets everything pass.
    pub fn of(state: CircuitState, now: Instant) -> Self {
        match state {
            CircuitState::Closed | CircuitState::Disabled => SharedState::Closed,
            CircuitState::Open { until } => SharedState::Open {
                left: until.saturating_duration_since(now),
            },
            CircuitState::HalfOpen => SharedState::HalfOpen,
            CircuitState::Isolated => SharedState::Isolated,
        }
    }

    /// The same as a circuit here has it.
    pub fn at(self, now: Instant) -> CircuitState {
        match self {
            SharedState::Closed => CircuitState::Closed,
            SharedState::Open { left } => CircuitState::Open {
                until: after(now, left),
            },
            SharedState::HalfOpen => CircuitState::HalfOpen,
            SharedState::Isolated => CircuitState::Isolated,
        }
    }
}

/// A change that one instance decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedChange {
    /// Whose circuit.
    pub key: CircuitKey,
    /// Its state since then.
    pub state: SharedState,
    /// The instance that decided, so that it does not follow itself.
    pub instance: u64,
}

/// A store that did not answer. The circuits here go on by themselves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the circuit store does not answer ({0}); circuits are decided locally until it does")]
pub struct StoreUnreachable(pub String);

/// Changes by all instances, in the store's order.
pub trait Changes: Send {
    /// The next change. `Ok(None)`: some were missed, the states are to be read anew.
    ///
    /// Cancel safe.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<SharedChange>, StoreUnreachable>>;
}

/// Where instances tell each other about their circuits. Every operation is bounded in time by the
/// store itself.
pub trait CircuitStore: fmt::Debug + Send + Sync {
    /// Tells the others of a change.
    fn publish(&self, change: SharedChange) -> BoxFuture<'_, Result<(), StoreUnreachable>>;

    /// Changes from now on.
    fn subscribe(&self) -> BoxFuture<'_, Result<Box<dyn Changes>, StoreUnreachable>>;

    /// Takes the one trial of a half-open circuit among all instances, for at most `lease`; `false`:
    /// another instance has it.
    fn try_trial<'a>(
        &'a self,
        key: &'a CircuitKey,
        instance: u64,
        lease: Duration,
    ) -> BoxFuture<'a, Result<bool, StoreUnreachable>>;

    /// Gives a trial back that this instance has.
    fn release_trial<'a>(
        &'a self,
        key: &'a CircuitKey,
        instance: u64,
    ) -> BoxFuture<'a, Result<(), StoreUnreachable>>;

    /// The state as the store has it; `None`: it was never told.
    fn read<'a>(
        &'a self,
        key: &'a CircuitKey,
    ) -> BoxFuture<'a, Result<Option<SharedState>, StoreUnreachable>>;
}

/// The store of one process: its sources share the circuits of endpoints that they name alike.
#[derive(Debug)]
pub struct LocalStore {
    circuits: Mutex<HashMap<CircuitKey, Shared>>,
    changes: broadcast::Sender<SharedChange>,
}

#[derive(Debug)]
struct Shared {
    state: CircuitState,
    /// Who tries, and until when.
    trial: Option<(u64, Instant)>,
}

impl Default for LocalStore {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalStore {
    /// A store that was told nothing.
    pub fn new() -> Self {
        LocalStore {
            circuits: Mutex::new(HashMap::new()),
            changes: broadcast::Sender::new(CHANGES_MAX),
        }
    }

    fn take_trial(&self, key: &CircuitKey, instance: u64, lease: Duration) -> bool {
        let now = Instant::now();
        let mut circuits = self.circuits.lock();
        let Some(shared) = circuits.get_mut(key) else {
            return true;
        };
        match shared.trial {
            Some((holder, until)) if holder != instance && until > now => false,
            _ => {
                shared.trial = Some((instance, after(now, lease)));
                true
            }
        }
    }
}

impl CircuitStore for LocalStore {
    fn publish(&self, change: SharedChange) -> BoxFuture<'_, Result<(), StoreUnreachable>> {
        {
            let state = change.state.at(Instant::now());
            let shared = Shared { state, trial: None };
            self.circuits.lock().insert(change.key.clone(), shared);
        }
        // Nobody listens: nobody has to be told.
        let _ = self.changes.send(change);
        Box::pin(std::future::ready(Ok(())))
    }

    fn subscribe(&self) -> BoxFuture<'_, Result<Box<dyn Changes>, StoreUnreachable>> {
        let changes: Box<dyn Changes> = Box::new(LocalChanges(self.changes.subscribe()));
        Box::pin(std::future::ready(Ok(changes)))
    }

    fn try_trial<'a>(
        &'a self,
        key: &'a CircuitKey,
        instance: u64,
        lease: Duration,
    ) -> BoxFuture<'a, Result<bool, StoreUnreachable>> {
        let taken = self.take_trial(key, instance, lease);
        Box::pin(std::future::ready(Ok(taken)))
    }

    fn release_trial<'a>(
        &'a self,
        key: &'a CircuitKey,
        instance: u64,
    ) -> BoxFuture<'a, Result<(), StoreUnreachable>> {
        if let Some(shared) = self.circuits.lock().get_mut(key)
            && shared.trial.is_some_and(|(holder, _)| holder == instance)
        {
            shared.trial = None;
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn read<'a>(
        &'a self,
        key: &'a CircuitKey,
    ) -> BoxFuture<'a, Result<Option<SharedState>, StoreUnreachable>> {
        let now = Instant::now();
        let circuits = self.circuits.lock();
        let state = circuits
            .get(key)
            .map(|shared| SharedState::of(shared.state, now));
        Box::pin(std::future::ready(Ok(state)))
    }
}

struct LocalChanges(broadcast::Receiver<SharedChange>);

impl Changes for LocalChanges {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<SharedChange>, StoreUnreachable>> {
        Box::pin(async {
            match self.0.recv().await {
                Ok(change) => Ok(Some(change)),
                Err(broadcast::error::RecvError::Lagged(_)) => Ok(None),
                Err(broadcast::error::RecvError::Closed) => {
                    Err(StoreUnreachable("it was closed".into()))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
