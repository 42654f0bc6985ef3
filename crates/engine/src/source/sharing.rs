//! Sharing a source's circuits with other instances through a store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Member, Source, WeakSource};
use crate::circuit::store::{
    CircuitKey, CircuitStore, SharedChange, SharedState, StoreUnreachable,
};
use crate::event::{EventKind, EventStream, Received};

/// How long to leave a store alone that did not answer.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

impl<M: Member> Source<M> {
    /// Tells `store` of each change of a circuit from now on, and follows what other instances decide:
    /// an opening, a closing and an isolation there hold here as well. `instance` tells this one apart
    /// from the others.
    ///
    /// Runs in the background until the source's tasks are shut down or the source is gone, so it must be called inside a
    /// runtime. Calls never wait for it; while the store does not answer, circuits are decided here
    /// alone, which the events `store_lost` and `store_back` say.
    pub fn share_circuits(&self, store: Arc<dyn CircuitStore>, instance: u64) {
        let sharing = Sharing {
            source: self.downgrade(),
            name: Arc::clone(self.name()),
            store,
            instance,
            lost: false,
        };
        // Subscribed before the task runs, so that no change in between is missed.
        let own = self.events();
        self.inner.tasks.spawn(sharing.run(own));
    }
}

struct Sharing<M> {
    source: WeakSource<M>,
    name: Arc<str>,
    store: Arc<dyn CircuitStore>,
    instance: u64,
    /// The store did not answer last time.
    lost: bool,
}

impl<M: Member> Sharing<M> {
    async fn run(mut self, mut own: EventStream) {
        loop {
            let ended = self.follow(&mut own).await;
            let Err(unreachable) = ended else {
                return;
            };
            if !self.lost {
                self.lost = true;
                self.publish_event(EventKind::StoreLost {
                    reason: unreachable.to_string(),
                });
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    /// Follows both sides until the store does not answer; `Ok`: the source is gone.
    async fn follow(&mut self, own: &mut EventStream) -> Result<(), StoreUnreachable> {
        let mut theirs = self.store.subscribe().await?;
        self.take_over().await?;
        if self.lost {
            self.lost = false;
            self.tell_all().await?;
            self.publish_event(EventKind::StoreBack);
        }
        loop {
            tokio::select! {
                change = theirs.next() => match change? {
                    Some(change) => self.obey(&change),
                    None => self.take_over().await?,
                },
                event = own.next() => match event {
                    Some(Received::Event(event)) => {
                        if let EventKind::Circuit { endpoint, reason, .. } = &event.kind
                            && reason != crate::circuit::Reason::Forced.as_str()
                        {
                            self.tell(endpoint.as_str()).await?;
                        }
                    }
                    Some(Received::Lost(_)) => self.tell_all().await?,
                    None => return Ok(()),
                },
            }
        }
    }

    fn key(&self, endpoint: &crate::attempt::EndpointId) -> CircuitKey {
        CircuitKey {
            source: Arc::clone(&self.name),
            endpoint: endpoint.clone(),
        }
    }

    /// Takes over what the store knows, where it holds traffic back.
    async fn take_over(&self) -> Result<(), StoreUnreachable> {
        let Some(source) = self.source.upgrade() else {
            return Ok(());
        };
        let snapshot = source.snapshot();
        for placed in &snapshot.endpoints {
            let key = self.key(&placed.endpoint.id);
            if let Some(state) = self.store.read(&key).await?
                && matches!(state, SharedState::Open { .. } | SharedState::Isolated)
            {
                placed.endpoint.force_circuit(state.at(Instant::now()));
            }
        }
        Ok(())
    }

    /// Does as another instance decided. Its half-open state is its own affair: here the opening ends
    /// when its time is over.
    fn obey(&self, change: &SharedChange) {
        let is_ours = change.instance == self.instance
            || change.key.source != self.name
            || change.state == SharedState::HalfOpen;
        if is_ours {
            return;
        }
        let Some(source) = self.source.upgrade() else {
            return;
        };
        if let Some(placed) = source.snapshot().endpoint(change.key.endpoint.as_str()) {
            placed
                .endpoint
                .force_circuit(change.state.at(Instant::now()));
        }
    }

    async fn tell_all(&self) -> Result<(), StoreUnreachable> {
        let Some(source) = self.source.upgrade() else {
            return Ok(());
        };
        let snapshot = source.snapshot();
        for placed in &snapshot.endpoints {
            self.tell(placed.endpoint.id.as_str()).await?;
        }
        Ok(())
    }

    /// Tells the store of a circuit as it is now, which may already be later than the event.
    async fn tell(&self, endpoint: &str) -> Result<(), StoreUnreachable> {
        let Some(source) = self.source.upgrade() else {
            return Ok(());
        };
        let snapshot = source.snapshot();
        let Some(placed) = snapshot.endpoint(endpoint) else {
            return Ok(());
        };
        let now = Instant::now();
        let change = SharedChange {
            key: self.key(&placed.endpoint.id),
            state: SharedState::of(placed.endpoint.circuit_state(now), now),
            instance: self.instance,
        };
        self.store.publish(change).await
    }

    fn publish_event(&self, kind: EventKind) {
        if let Some(source) = self.source.upgrade() {
            source.publish(kind);
        }
    }
}
