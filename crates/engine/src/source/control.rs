//! Changes of a source while it runs: policies, endpoints, roles, weights, drains. Each makes a new
//! snapshot in one step; state that the change does not concern is kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::{Member, Snapshot, Source};
use crate::attempt::EndpointId;
use crate::endpoint::{Endpoint, Placed};
use crate::event::{EventKind, Role};
use crate::policy::{Policy, PolicyProblem, Settings};

/// An endpoint to add.
#[derive(Debug, Clone)]
pub struct EndpointSpec<M> {
    /// Its name within the source.
    pub id: EndpointId,
    /// What stands behind it.
    pub member: M,
    /// Its role at the beginning.
    pub role: Role,
    /// Its weight, from [`WEIGHT_MIN`] to [`WEIGHT_MAX`].
    pub weight: f64,
    /// Its own policy; `None`: the source's.
    pub policy: Option<Arc<Policy>>,
}

impl<M> EndpointSpec<M> {
    /// An equal member of weight 1 under the source's policy.
    pub fn new(id: impl Into<EndpointId>, member: M) -> Self {
        EndpointSpec {
            id: id.into(),
            member,
            role: Role::Member,
            weight: 1.0,
            policy: None,
        }
    }

    /// Sets the role.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// Sets the weight.
    #[must_use]
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = weight;
        self
    }

    /// Sets a policy of its own.
    #[must_use]
    pub fn policy(mut self, policy: Arc<Policy>) -> Self {
        self.policy = Some(policy);
        self
    }
}

/// A change that was refused; nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// No endpoint has that name.
    #[error("source {source_name} has no endpoint {endpoint}; it has {known}")]
    UnknownEndpoint {
        /// The source.
        source_name: Arc<str>,
        /// The name that was asked for.
        endpoint: String,
        /// The names it has.
        known: String,
    },
    /// The name is taken.
    #[error(
        "source {source_name} already has an endpoint {endpoint}; remove it first or choose another name"
    )]
    Duplicate {
        /// The source.
        source_name: Arc<str>,
        /// The name.
        endpoint: EndpointId,
    },
    /// A weight that is not between [`WEIGHT_MIN`] and [`WEIGHT_MAX`].
    #[error("the weight {0} is not from {least} to {most}", least = WEIGHT_MIN, most = WEIGHT_MAX)]
    Weight(f64),
    /// Somebody else is primary.
    #[error("{0} is primary; at most one endpoint can be: demote it first")]
    SecondPrimary(EndpointId),
    /// The settings make no sense.
    #[error("the policy was refused and the old one stays: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Policy(Vec<PolicyProblem>),
}

impl<M: Member> Source<M> {
    /// Makes a new snapshot from the present one, one change at a time.
    fn change<T>(
        &self,
        make: impl FnOnce(&Snapshot<M>) -> Result<(Snapshot<M>, T), ControlError>,
    ) -> Result<T, ControlError> {
        let made = {
            let _one_at_a_time = self.inner.change.lock();
            let (snapshot, made) = make(&self.inner.snapshot.load())?;
            self.inner.snapshot.store(Arc::new(snapshot));
            self.inner.version.fetch_add(1, Ordering::AcqRel);
            made
        };
        self.inner.changed.send_modify(|version| *version += 1);
        Ok(made)
    }

    fn unknown(&self, snapshot: &Snapshot<M>, id: &str) -> ControlError {
        let known: Vec<_> = snapshot
            .endpoints
            .iter()
            .map(|placed| placed.endpoint.id.as_str())
            .collect();
        ControlError::UnknownEndpoint {
            source_name: Arc::clone(&self.inner.name),
            endpoint: id.to_owned(),
            known: known.join(", "),
        }
    }

    fn find(&self, id: &str) -> Result<Placed<M>, ControlError> {
        let snapshot = self.snapshot();
        snapshot
            .endpoint(id)
            .cloned()
            .ok_or_else(|| self.unknown(&snapshot, id))
    }

    pub(super) fn place(&self, spec: EndpointSpec<M>) -> Result<(), ControlError> {
        check_weight(spec.weight)?;
        self.change(|old| {
            if old.endpoint(spec.id.as_str()).is_some() {
                return Err(ControlError::Duplicate {
                    source_name: Arc::clone(&self.inner.name),
                    endpoint: spec.id.clone(),
                });
            }
            if let (Role::Primary, Some(primary)) = (spec.role, old.primary()) {
                return Err(ControlError::SecondPrimary(primary.endpoint.id.clone()));
            }
            let policy = spec.policy.as_ref().unwrap_or(&old.policy);
            let endpoint = Endpoint::new(
                spec.id.clone(),
                self.inner.next_endpoint.fetch_add(1, Ordering::Relaxed),
                spec.weight,
                Arc::clone(policy),
                Arc::clone(&self.inner.events),
                &self.inner.origin,
            );
            let mut endpoints = old.endpoints.clone();
            endpoints.push(Placed {
                endpoint: Arc::new(endpoint),
                member: spec.member.clone(),
                role: spec.role,
                policy: Arc::clone(policy),
            });
            Ok((with(old, endpoints), ()))
        })
    }

    /// Adds an endpoint.
    ///
    /// # Errors
    /// If the name is taken, the weight is not positive or it would be a second primary.
    pub fn add_endpoint(&self, spec: EndpointSpec<M>) -> Result<(), ControlError> {
        let endpoint = spec.id.clone();
        self.place(spec)?;
        self.inner.events.publish(EventKind::Added { endpoint });
        Ok(())
    }

    /// Takes an endpoint out. Work in flight on it is cut. Gives back what stood behind it.
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn remove_endpoint(&self, id: &str) -> Result<Placed<M>, ControlError> {
        let removed = self.change(|old| {
            let removed = old
                .endpoint(id)
                .cloned()
                .ok_or_else(|| self.unknown(old, id))?;
            let mut endpoints = old.endpoints.clone();
            endpoints.retain(|placed| placed.endpoint.id.as_str() != id);
            let mut snapshot = with(old, endpoints);
            if removed.role == Role::Primary {
                snapshot.epoch += 1;
            }
            Ok((snapshot, removed))
        })?;
        removed.endpoint.remove();
        self.inner.events.publish(EventKind::Removed {
            endpoint: removed.endpoint.id.clone(),
        });
        Ok(removed)
    }

    /// Makes `id` the primary, or nobody; whoever was primary becomes a replica. Role and epoch change
    /// in one step. Writes in flight on the former primary are cut.
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn set_primary(&self, id: Option<&str>, reason: &str) -> Result<(), ControlError> {
        let changed = self.change(|old| {
            if let Some(id) = id
                && old.endpoint(id).is_none()
            {
                return Err(self.unknown(old, id));
            }
            let before = old.primary().cloned();
            if before.as_ref().map(|placed| placed.endpoint.id.as_str()) == id {
                return Ok((with(old, old.endpoints.clone()), None));
            }
            let mut endpoints = old.endpoints.clone();
            let mut promoted = None;
            for placed in &mut endpoints {
                if Some(placed.endpoint.id.as_str()) == id {
                    promoted = Some(placed.clone());
                    placed.role = Role::Primary;
                } else if placed.role == Role::Primary {
                    placed.role = Role::Replica;
                }
            }
            let mut snapshot = with(old, endpoints);
            snapshot.epoch += 1;
            let epoch = snapshot.epoch;
            Ok((snapshot, Some((before, promoted, epoch))))
        })?;
        if let Some((before, promoted, epoch)) = changed {
            self.announce_primary(before, promoted, reason, epoch);
        }
        Ok(())
    }

    fn announce_primary(
        &self,
        before: Option<Placed<M>>,
        promoted: Option<Placed<M>>,
        reason: &str,
        epoch: u64,
    ) {
        if let Some(before) = before {
            before.endpoint.cut_writes_in_flight();
            self.inner.events.publish(EventKind::RoleDemoted {
                endpoint: before.endpoint.id.clone(),
                from: Role::Primary,
                to: Role::Replica,
                reason: reason.to_owned(),
                epoch,
            });
        }
        match promoted {
            Some(promoted) => {
                tracing::info!(endpoint = %promoted.endpoint.id, epoch, reason, "promoted");
                self.inner.events.publish(EventKind::RolePromoted {
                    endpoint: promoted.endpoint.id.clone(),
                    from: promoted.role,
                    to: Role::Primary,
                    reason: reason.to_owned(),
                    epoch,
                });
            }
            None => self.inner.events.publish(EventKind::NoPrimary),
        }
    }

    /// Gives an endpoint a role. Primary goes through [`set_primary`](Source::set_primary).
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn set_role(&self, id: &str, role: Role, reason: &str) -> Result<(), ControlError> {
        if role == Role::Primary {
            return self.set_primary(Some(id), reason);
        }
        let was = self.find(id)?.role;
        if was == Role::Primary {
            self.set_primary(None, reason)?;
        }
        self.change(|old| {
            let mut endpoints = old.endpoints.clone();
            for placed in &mut endpoints {
                if placed.endpoint.id.as_str() == id {
                    placed.role = role;
                }
            }
            Ok((with(old, endpoints), ()))
        })
    }

    /// Sets an endpoint's weight.
    ///
    /// # Errors
    /// If there is no such endpoint or the weight is none that an endpoint may have.
    pub fn set_weight(&self, id: &str, weight: f64) -> Result<(), ControlError> {
        check_weight(weight)?;
        self.find(id)?.endpoint.set_weight(weight);
        Ok(())
    }

    /// Gives an endpoint no new work; what is in flight goes on.
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn drain_endpoint(&self, id: &str) -> Result<Placed<M>, ControlError> {
        let placed = self.find(id)?;
        placed.endpoint.set_draining(true);
        self.inner.events.publish(EventKind::Drained {
            endpoint: placed.endpoint.id.clone(),
        });
        Ok(placed)
    }

    /// Gives a drained endpoint work again.
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn undrain_endpoint(&self, id: &str) -> Result<(), ControlError> {
        let placed = self.find(id)?;
        placed.endpoint.set_draining(false);
        self.inner.events.publish(EventKind::Undrained {
            endpoint: placed.endpoint.id.clone(),
        });
        Ok(())
    }

    /// Sets an endpoint aside, by what a face's own monitor knows: it is tried only after all others. Work in flight goes on and keeps its tries there, unlike where a health check declares an
    /// endpoint down. Says whether that was a change.
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn set_aside(&self, id: &str, reason: &str) -> Result<bool, ControlError> {
        let endpoint = self.find(id)?.endpoint;
        let changed = endpoint.set_aside(true);
        if changed {
            tracing::warn!(endpoint = %endpoint.id, reason, "endpoint set aside");
            self.inner.events.publish(EventKind::Down {
                endpoint: endpoint.id.clone(),
                reason: reason.to_owned(),
            });
        }
        Ok(changed)
    }

    /// Gives an endpoint that was set aside work again. Says whether that was a change.
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn take_back(&self, id: &str) -> Result<bool, ControlError> {
        let endpoint = self.find(id)?.endpoint;
        let changed = endpoint.set_aside(false);
        if changed {
            let endpoint = endpoint.id.clone();
            self.inner.events.publish(EventKind::Recovered { endpoint });
        }
        Ok(changed)
    }

    /// Holds an endpoint's circuit open until it is released; work in flight on it is cut.
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn isolate(&self, id: &str) -> Result<(), ControlError> {
        let placed = self.find(id)?;
        if let Some(transition) = placed.endpoint.gate.circuit().isolate(Instant::now()) {
            placed.endpoint.publish(&transition);
        }
        placed.endpoint.cut_in_flight();
        Ok(())
    }

    /// Counts a failure against an endpoint that came after the call's answer had begun: a stream that
    /// broke, a lease that was lost.
    pub fn blame(&self, id: &EndpointId, failure: &crate::failure::Failure) {
        let snapshot = self.snapshot();
        if let Some(placed) = snapshot.endpoint(id.as_str()) {
            placed.endpoint.blame(failure);
        }
    }

    /// Releases an isolated endpoint: its circuit becomes half-open.
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn release(&self, id: &str) -> Result<(), ControlError> {
        let placed = self.find(id)?;
        if let Some(transition) = placed.endpoint.gate.circuit().release(Instant::now()) {
            placed.endpoint.publish(&transition);
        }
        Ok(())
    }

    /// Takes a policy over for the source and for every endpoint that `endpoint_policy` gives none.
    /// Pools, counters and circuits whose own settings are equal are kept.
    pub fn apply(
        &self,
        policy: Arc<Policy>,
        endpoint_policy: impl Fn(&EndpointId) -> Option<Arc<Policy>>,
    ) {
        let event = EventKind::PolicyApplied {
            name: policy.name.to_string(),
            version: policy.version,
        };
        let applied = self.change(|old| {
            let mut endpoints = old.endpoints.clone();
            for placed in &mut endpoints {
                let own = endpoint_policy(&placed.endpoint.id);
                placed.policy = own.unwrap_or_else(|| Arc::clone(&policy));
                placed.endpoint.apply(Arc::clone(&placed.policy));
            }
            let mut snapshot = with(old, endpoints);
            snapshot.policy = Arc::clone(&policy);
            Ok((snapshot, ()))
        });
        if applied.is_ok() {
            self.inner.events.publish(event);
        }
    }

    /// Checks settings and takes them over for the source and all endpoints; nonsense is refused whole
    /// and the old policy stays.
    ///
    /// # Errors
    /// Everything that is wrong with the settings.
    pub fn apply_settings(&self, settings: Settings) -> Result<Arc<Policy>, ControlError> {
        match Policy::new(settings) {
            Ok(policy) => {
                self.apply(Arc::clone(&policy), |_| None);
                Ok(policy)
            }
            Err(problems) => {
                let texts = problems.iter().map(ToString::to_string).collect();
                self.inner
                    .events
                    .publish(EventKind::PolicyRefused { problems: texts });
                Err(ControlError::Policy(problems))
            }
        }
    }

    /// Stops admitting calls; those that wait are refused.
    pub fn pause(&self) {
        self.inner.queue.pause(crate::queue::Pause::Refuse);
        self.inner.events.publish(EventKind::Paused);
    }

    /// Admits calls again.
    pub fn resume(&self) {
        self.inner.queue.resume();
        self.inner.events.publish(EventKind::Resumed);
    }

    /// Stops admitting calls for good and waits for those in flight, at most `limit`. Returns whether
    /// all ended.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.inner.draining.store(true, Ordering::Release);
        self.inner.queue.close();
        let end = Instant::now() + limit;
        // Calls first: while none is left, no attempt begins.
        while self.inner.queue.in_use() > 0 || attempts_in_flight(&self.snapshot()) > 0 {
            if Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }
}

/// Attempts in flight, and what is held on endpoints.
fn attempts_in_flight<M>(snapshot: &Snapshot<M>) -> u32 {
    let endpoints = snapshot.endpoints.iter();
    endpoints.map(|placed| placed.endpoint.in_flight()).sum()
}

/// The least weight: shares a thousand times apart are more than any load tells apart.
pub const WEIGHT_MIN: f64 = 0.001;
/// The greatest weight.
pub const WEIGHT_MAX: f64 = 1_000_000.0;

/// Whether an endpoint may have that weight.
///
/// # Errors
/// [`ControlError::Weight`] if it is none, or beyond [`WEIGHT_MIN`] and [`WEIGHT_MAX`].
pub fn check_weight(weight: f64) -> Result<(), ControlError> {
    if (WEIGHT_MIN..=WEIGHT_MAX).contains(&weight) {
        Ok(())
    } else {
        Err(ControlError::Weight(weight))
    }
}

fn with<M>(old: &Snapshot<M>, endpoints: smallvec::SmallVec<[Placed<M>; 4]>) -> Snapshot<M> {
    Snapshot {
        policy: Arc::clone(&old.policy),
        endpoints,
        epoch: old.epoch,
    }
}
