//! Targets that come and go: by the settings, by the admin's hand, and by announcing themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::source::ControlError;
use mainstay_engine::{EndpointId, EndpointSpec};
use serde_json::Value;

use crate::broker::{Broker, Delivery, Queue, Subscription, TopicFilter};
use crate::envelope::Lifecycle;
use crate::identity::{Identity, queue_name};
use crate::settings::{Discovery, TargetSettings};
use crate::target::Target;

use super::shared::Shared;
use super::{BACKLOG_MAX, Service};

/// A queue of events that nobody reads for so long ends: its target was removed.
const EVENTS_UNUSED_FOR: Duration = Duration::from_secs(24 * 3600);
/// How often one who has announced himself is asked whether he answers.
const ASKED_TIMES: u32 = 6;
/// Before he is asked for the second time; twice as long each time, 8 s together.
const ASKED_AGAIN: Duration = Duration::from_millis(250);
/// How many are asked at once; announcements of more are passed over.
const ASKED_MAX: usize = 1000;

/// A change of targets that was refused; nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// There is no connection to the broker that it names.
    #[error(
        "target {target} is on broker {broker}, to which there is no connection; the service has {known}"
    )]
    UnknownBroker {
        /// The target.
        target: Arc<str>,
        /// The broker.
        broker: Arc<str>,
        /// The brokers that there are.
        known: String,
    },
    /// Another target is that service already.
    #[error("{destination} is target {known} already; remove it first")]
    SameDestination {
        /// The service.
        destination: Identity,
        /// The target.
        known: Arc<str>,
    },
    /// Its messages would come back to the proxy.
    #[error(
        "{destination} is the proxy's own name on that broker; a target needs a name of its own"
    )]
    OwnName {
        /// The name.
        destination: Identity,
    },
    /// The engine refused.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl Service {
    /// Adds a target: it gets requests at once.
    ///
    /// # Errors
    /// If its name or destination is taken, its broker is not known, or its weight is none.
    pub fn add_target(&self, settings: TargetSettings) -> Result<(), TargetError> {
        self.shared.place(settings)
    }

    /// Takes a target out. Its open jobs are driven again on others, requests under way go to the next
    /// one.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn remove_target(&self, name: &str) -> Result<(), TargetError> {
        let removed = self.shared.source.remove_endpoint(name)?;
        removed.member.tasks.stop();
        self.shared.schema.lock().forget(removed.member.rank);
        self.move_jobs(name);
        Ok(())
    }

    fn move_jobs(&self, name: &str) {
        let jobs = self.shared.jobs.lock().on(name);
        for id in jobs {
            let shared = Arc::clone(&self.shared);
            self.shared
                .tasks
                .spawn(async move { shared.leave_target(&id, "it was removed").await });
        }
    }

    /// Gives a target no new requests; its jobs go on.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn drain_target(&self, name: &str) -> Result<(), TargetError> {
        self.shared.source.drain_endpoint(name)?;
        Ok(())
    }

    /// Gives a drained target requests again.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn undrain_target(&self, name: &str) -> Result<(), TargetError> {
        Ok(self.shared.source.undrain_endpoint(name)?)
    }

    /// Sets a target's weight.
    ///
    /// # Errors
    /// If there is none of that name, or the weight is none that a target may have.
    pub fn set_target_weight(&self, name: &str, weight: f64) -> Result<(), TargetError> {
        Ok(self.shared.source.set_weight(name, weight)?)
    }
}

impl Shared {
    /// Adds a target and everything that listens to it.
    pub(super) fn place(self: &Arc<Self>, settings: TargetSettings) -> Result<(), TargetError> {
        let target = self.add(settings, false)?;
        self.listen_to(&target);
        Ok(())
    }

    /// Adds a target. Nothing of it is heard yet.
    pub(super) fn add(
        &self,
        settings: TargetSettings,
        discovered: bool,
    ) -> Result<Arc<Target>, TargetError> {
        let broker = self.broker_of(&settings)?;
        if let Some(known) = self.target_at(&broker, settings.destination.as_str()) {
            return Err(TargetError::SameDestination {
                destination: settings.destination,
                known: Arc::clone(known.name()),
            });
        }
        let is_front = self
            .fronts
            .iter()
            .any(|front| Arc::ptr_eq(&front.broker, &broker));
        let own = settings.destination == self.settings.caller
            || (is_front && settings.destination == self.settings.identity);
        if own {
            return Err(TargetError::OwnName {
                destination: settings.destination,
            });
        }
        let rank = self.rank(&settings);
        let mut target = Target::new(settings, rank, broker, self.tasks.child());
        target.discovered = discovered;
        let target = Arc::new(target);
        let spec = EndpointSpec::new(EndpointId::from(&**target.name()), Arc::clone(&target))
            .weight(target.settings.weight)
            .policy(Arc::clone(&target.settings.policy));
        self.source.add_endpoint(spec)?;
        Ok(target)
    }

    fn broker_of(&self, settings: &TargetSettings) -> Result<Arc<dyn Broker>, TargetError> {
        let found = self.broker(settings.broker.as_ref());
        found
            .map(|(_, broker)| Arc::clone(broker))
            .ok_or_else(|| TargetError::UnknownBroker {
                target: Arc::clone(&settings.name),
                broker: settings.broker.clone().unwrap_or_default(),
                known: self
                    .brokers
                    .keys()
                    .map(|it| &**it)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    /// Hears a target's events and what it says of its life, and checks it.
    pub(super) fn listen_to(self: &Arc<Self>, target: &Arc<Target>) {
        let destination = &target.settings.destination;
        let events = destination.events();
        // Our own queue: the one that the SDK would name is shared by all who listen.
        let queue = queue_name(&format!(
            "{} listens to {}",
            self.settings.caller,
            events.as_str()
        ));
        let mut events = target.broker.subscribe(Subscription {
            filter: events,
            queue: Queue::Own {
                name: queue.into(),
                unused_for: EVENTS_UNUSED_FOR,
            },
            backlog_max: BACKLOG_MAX,
        });
        let (it, of) = (Arc::clone(self), Arc::clone(target));
        target.tasks.spawn(async move {
            while let Some(delivery) = events.deliveries.next().await {
                it.take_event(&of, delivery).await;
            }
        });
        if !self.discovers_at(&target.broker) {
            let mut lifecycle = target.broker.subscribe(Subscription {
                filter: (&destination.lifecycle()).into(),
                queue: Queue::Transient,
                backlog_max: BACKLOG_MAX,
            });
            let (it, of) = (Arc::clone(self), Arc::clone(target));
            target.tasks.spawn(async move {
                while let Some(delivery) = lifecycle.deliveries.next().await {
                    it.take_lifecycle(&of, delivery).await;
                }
            });
        }
        target
            .tasks
            .spawn(Arc::clone(self).monitor(Arc::clone(target)));
    }

    /// Whether lifecycle messages of everybody are heard at a broker.
    fn discovers_at(&self, broker: &Arc<dyn Broker>) -> bool {
        self.settings.discover.iter().any(|it| {
            let at = self.broker(it.broker.as_ref());
            at.is_some_and(|(_, at)| Arc::ptr_eq(at, broker))
        })
    }

    /// Hears lifecycle messages of everybody at brokers where targets may announce themselves.
    pub(super) fn discover(self: &Arc<Self>) {
        for (name, broker) in &self.brokers {
            if !self.discovers_at(broker) {
                continue;
            }
            let Ok(filter) = TopicFilter::parse("*/*/*/*/*/lifecycle") else {
                continue;
            };
            let mut all = broker.subscribe(Subscription {
                filter,
                queue: Queue::Transient,
                backlog_max: BACKLOG_MAX,
            });
            let it = Arc::clone(self);
            let (name, broker) = (Arc::clone(name), Arc::clone(broker));
            self.tasks.spawn(async move {
                while let Some(delivery) = all.deliveries.next().await {
                    it.take_anybodys_lifecycle(&name, &broker, delivery).await;
                }
            });
        }
    }

    /// A lifecycle message of a target, or of somebody who may become one.
    async fn take_anybodys_lifecycle(
        self: &Arc<Self>,
        name: &Arc<str>,
        broker: &Arc<dyn Broker>,
        mut delivery: Delivery,
    ) {
        let (source, kind) = match Lifecycle::read(&delivery.headers) {
            Ok(read) => read,
            Err(fault) => return self.drop_malformed(delivery, &fault),
        };
        if let Some(target) = self.target_at(broker, &source) {
            if kind == Lifecycle::Shutdown && target.discovered {
                // Its jobs may still end; nothing new goes there until it announces itself again.
                let _ = self.source.drain_endpoint(target.name());
            } else if kind == Lifecycle::Startup && target.discovered {
                let _ = self.source.undrain_endpoint(target.name());
            }
            return self.take_lifecycle(&target, delivery).await;
        }
        if matches!(kind, Lifecycle::Startup | Lifecycle::Polling) {
            self.consider(name, &source, &delivery).await;
        }
        delivery.acknowledge();
    }

    /// Takes somebody who announces himself as a target, if a pattern fits, his schema has every operation
    /// and he answers.
    async fn consider(self: &Arc<Self>, broker: &Arc<str>, source: &str, delivery: &Delivery) {
        let Ok(identity) = Identity::parse(source) else {
            return;
        };
        let own = identity == self.settings.identity || identity == self.settings.caller;
        let fitting = self.settings.discover.iter().find(|it| {
            let at = self.broker(it.broker.as_ref());
            at.is_some_and(|(at, _)| at == broker) && fits(&it.pattern, source)
        });
        let (Some(discovery), false) = (fitting, own) else {
            return;
        };
        let said: Value = serde_json::from_slice(&delivery.body).unwrap_or_default();
        let Some(operation_map) = self.mapped_by(&said) else {
            tracing::info!(service = %self.settings.name, source, "not taken: operations are missing in its schema");
            return;
        };
        let settings = discovered(discovery, &identity, broker, operation_map);
        {
            let mut asked = self.asked.lock();
            if asked.len() >= ASKED_MAX || !asked.insert(Arc::clone(&settings.name)) {
                return;
            }
        }
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            let name = Arc::clone(&settings.name);
            shared.take_discovered(settings, said).await;
            shared.asked.lock().remove(&name);
        });
    }

    /// A target that announced itself to an earlier run and has open work: it is one again.
    pub(super) fn rediscover(&self, name: &str) -> Option<Arc<Target>> {
        let identity = Identity::parse(name).ok()?;
        let discovery = self
            .settings
            .discover
            .iter()
            .find(|it| fits(&it.pattern, name))?;
        let (broker, _) = self.broker(discovery.broker.as_ref())?;
        let capability = &self.settings.capability_name;
        let map = self.functions().into_iter().map(|function| {
            let operation = Arc::from(format!("{capability}.{function}"));
            (function, operation)
        });
        let settings = discovered(discovery, &identity, broker, map.collect());
        self.add(settings, true).ok()
    }

    /// The fronted functions.
    fn functions(&self) -> Vec<Arc<str>> {
        let mut functions: Vec<Arc<str>> = self.settings.operations.keys().cloned().collect();
        for target in &self.settings.targets {
            functions.extend(target.operation_map.keys().cloned());
        }
        functions
    }

    /// The operations of a schema under the fronted functions; `None`: one is missing.
    fn mapped_by(&self, said: &Value) -> Option<BTreeMap<Arc<str>, Arc<str>>> {
        let capability = &self.settings.capability_name;
        let endpoints = said
            .get("schema")?
            .get("capabilities")?
            .get(&**capability)?
            .get("endpoints")?;
        // The SDK does not list it.
        let status = self.settings.status_operation.rsplit('.').next();
        let mapped = self.functions().into_iter().map(|function| {
            if status != Some(&*function) {
                endpoints.get(&*function)?;
            }
            let operation = Arc::from(format!("{capability}.{function}"));
            Some((function, operation))
        });
        mapped.collect()
    }

    /// Whether one who has announced himself answers. The SDK says STARTUP before it listens.
    async fn answers(&self, target: &Target) -> bool {
        let mut pause = ASKED_AGAIN;
        for _ in 1..ASKED_TIMES {
            if self.check(target).await {
                return true;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.check(target).await
    }

    async fn take_discovered(self: &Arc<Self>, settings: TargetSettings, said: Value) {
        let Ok(broker) = self.broker_of(&settings) else {
            return;
        };
        // It has no place in the order yet.
        let asked = Target::new(settings.clone(), u32::MAX, broker, self.tasks.child());
        if !self.answers(&asked).await {
            tracing::info!(service = %self.settings.name, target = %settings.name, "not taken: it does not answer");
            return;
        }
        match self.add(settings, true) {
            Ok(target) => {
                self.listen_to(&target);
                self.take_said(target.rank, said, None).await;
            }
            Err(error) => tracing::warn!(service = %self.settings.name, %error, "not taken"),
        }
    }
}

/// The settings of a target that announced itself.
fn discovered(
    discovery: &Discovery,
    identity: &Identity,
    broker: &Arc<str>,
    operation_map: BTreeMap<Arc<str>, Arc<str>>,
) -> TargetSettings {
    TargetSettings {
        name: identity.as_str().into(),
        group: Arc::clone(&discovery.group),
        destination: identity.clone(),
        broker: Some(Arc::clone(broker)),
        operation_map,
        weight: discovery.weight,
        max_in_flight: discovery.max_in_flight,
        policy: Arc::clone(&discovery.policy),
    }
}

/// Whether a name fits a pattern, part by part, `*` standing for any characters of a part.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (patterns, parts): (Vec<_>, Vec<_>) =
        (pattern.split('.').collect(), name.split('.').collect());
    patterns.len() == parts.len()
        && patterns
            .iter()
            .zip(&parts)
            .all(|(it, part)| fits_part(it, part))
}

fn fits_part(pattern: &str, part: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = part.strip_prefix(first) else {
        return false;
    };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty();
    };
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_part_by_part() {
        for (pattern, name, expected) in [
            ("org.fac.sys.-.worker-*", "org.fac.sys.-.worker-7", true),
            ("org.fac.sys.-.worker-*", "org.fac.sys.-.worker-", true),
            ("org.fac.sys.-.worker-*", "org.fac.sys.sub.worker-7", false),
            ("org.fac.sys.-.worker-*", "org.fac.sys.-.worker", false),
            ("org.*.sys.*.w*r", "org.fac.sys.-.worker", true),
            ("org.*.sys.*.w*r", "org.fac.sys.-.work", false),
            ("org.fac.sys.-.a*a", "org.fac.sys.-.a", false),
            ("org.fac.sys.-.*b*c*", "org.fac.sys.-.abcd", true),
            ("org.fac.sys.-", "org.fac.sys.-.worker", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
