//! The background check of every target, and what its lifecycle messages say.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::broker::{Delivery, Publication};
use crate::envelope::{JSON, Lifecycle, fresh_id, name, request_headers};
use crate::life::LifeState;
use crate::target::Target;

use super::shared::{Shared, up};

impl Shared {
    /// Checks one target until it is gone.
    pub(super) async fn monitor(self: Arc<Self>, target: Arc<Target>) {
        loop {
            up(&target.broker).await;
            let begun = Instant::now();
            let good = self.check(&target).await;
            self.checked(&target, good);
            let timeouts = &self.settings.timeouts;
            let usual = begun + timeouts.heartbeat_interval;
            let back = target.life.lock().due_back(timeouts.failback_after);
            // Good checks bring it back at the very end of that time, not at the next round after it.
            let next = back.map_or(usual, |back| back.min(usual));
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = target.check_now.notified() => {}
            }
        }
    }

    /// Takes a check's result into account.
    fn checked(&self, target: &Target, good: bool) {
        self.counts.checks.add();
        let timeouts = &self.settings.timeouts;
        let busy = target.is_busy();
        let change = {
            let mut life = target.life.lock();
            match good {
                true => life.good(timeouts.failback_after, Instant::now()),
                false => life.miss(busy, timeouts.missed_intervals),
            }
        };
        if !good {
            self.counts.checks_missed.add();
        }
        self.follow(target, change);
        let state = target.life.lock().state(busy, timeouts.missed_intervals);
        if target.discovered && state == LifeState::Dead {
            // It gets requests again when it announces itself.
            let _ = self.source.drain_endpoint(target.name());
        }
    }

    /// Calls the status operation. Gives whether a good answer came in time. The message expires with the
    /// wait, so that checks do not pile up before a target that is away.
    pub(super) async fn check(&self, target: &Target) -> bool {
        let timeouts = &self.settings.timeouts;
        let limit = timeouts.ack_timeout.min(timeouts.heartbeat_interval);
        let destination = &target.settings.destination;
        let operation = &self.settings.status_operation;
        let request_id = fresh_id();
        let mut awaited = self.pending.expect(
            request_id.clone(),
            destination.as_str().into(),
            SmolStr::new(operation),
        );
        let mut message = Publication::new(destination.requests(), "null");
        message.content_type = Some(JSON.into());
        message.headers = request_headers(
            &self.settings.caller,
            destination.as_str(),
            operation,
            &request_id,
            &self.version(),
        );
        message.expiry = Some(limit);
        message.mandatory = true;
        let exchange = async {
            if target.broker.publish(message).await.is_err() {
                return false;
            }
            let mut reply = awaited.reply().await;
            reply.acknowledge();
            let version = reply
                .delivery
                .headers
                .get(name::SDK_VERSION)
                .map(SmolStr::new);
            self.schema.lock().heard(version);
            !reply.head.has_error
        };
        tokio::time::timeout(limit, exchange).await.unwrap_or(false)
    }

    /// A lifecycle message of a target: a sign of life, and what it says of itself.
    pub(super) async fn take_lifecycle(
        self: &Arc<Self>,
        target: &Arc<Target>,
        mut delivery: Delivery,
    ) {
        let (source, kind) = match Lifecycle::read(&delivery.headers) {
            Ok(read) => read,
            Err(fault) => return self.drop_malformed(delivery, &fault),
        };
        if source != target.settings.destination.as_str() {
            return self.drop_malformed(delivery, &"another sent it than its topic says");
        }
        match kind {
            Lifecycle::Startup | Lifecycle::Polling => {
                let aside = {
                    let mut life = target.life.lock();
                    life.sign(Instant::now());
                    life.is_aside()
                };
                self.learn(target, &delivery).await;
                if aside {
                    // It talks: whether it works as well, a check finds out.
                    target.check_now.notify_one();
                }
            }
            Lifecycle::Shutdown => {
                let change = target.life.lock().failed("it has shut down");
                self.follow(target, change);
            }
            Lifecycle::FunctionsAllowed | Lifecycle::FunctionsBlocked => {
                target.life.lock().sign(Instant::now());
                self.relay_lifecycle(target, kind, &delivery).await;
            }
        }
        delivery.acknowledge();
    }

    async fn learn(self: &Arc<Self>, target: &Target, delivery: &Delivery) {
        let Ok(said) = serde_json::from_slice::<Value>(&delivery.body) else {
            return;
        };
        if said.get("schema").is_none() {
            return;
        }
        let version = delivery.headers.get(name::SDK_VERSION);
        self.take_said(target.rank, said, version).await;
    }

    /// Takes what a target says of itself for the service, which is announced when the first one has.
    pub(super) async fn take_said(self: &Arc<Self>, rank: u32, said: Value, version: Option<&str>) {
        let first = {
            let mut schema = self.schema.lock();
            let counts = schema.learn(rank, said, version);
            counts && !std::mem::replace(&mut schema.announced, true)
        };
        if first {
            self.announce(Lifecycle::Startup).await;
        }
    }

    /// Blocked and allowed functions of the target that is preferred are those of the service.
    async fn relay_lifecycle(
        self: &Arc<Self>,
        target: &Target,
        kind: Lifecycle,
        delivery: &Delivery,
    ) {
        let best = self
            .targets()
            .into_iter()
            .filter(|it| !it.life.lock().is_aside());
        let is_best = best
            .min_by_key(|it| it.rank)
            .is_some_and(|it| it.rank == target.rank);
        if is_best {
            self.publish_lifecycle(kind, delivery.body.clone()).await;
        }
    }

    /// Says what the service is and that it lives, if any target has said so.
    pub(super) async fn announce(self: &Arc<Self>, kind: Lifecycle) {
        if let Some(body) = self.lifecycle_body() {
            self.publish_lifecycle(kind, body).await;
        }
    }

    /// Publishes a lifecycle message under the fronted name.
    pub(super) async fn publish_lifecycle(self: &Arc<Self>, kind: Lifecycle, body: bytes::Bytes) {
        let identity = &self.settings.identity;
        for front in &self.fronts {
            let mut message = Publication::new(identity.lifecycle(), body.clone());
            message.content_type = Some(JSON.into());
            message.headers = crate::envelope::lifecycle_headers(identity, kind, &self.version());
            message.persistence = crate::broker::Persistence::Transient;
            front.outbox.send(message, Box::new(|_| {})).await;
        }
    }

    /// Says that the service lives, as often as services of the SDK do.
    pub(super) async fn poll(self: Arc<Self>) {
        /// The SDK's default `status_interval`.
        const INTERVAL: Duration = Duration::from_secs(300);
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.announce(Lifecycle::Polling).await;
        }
    }
}
