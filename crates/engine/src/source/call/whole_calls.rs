//! Circuits in mode `operations`, which count whole calls instead of attempts.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::circuit::{Held, Pass};
use crate::endpoint::{Endpoint, Placed};
use crate::policy::CircuitMode;

/// How a whole call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// The endpoint used last answered.
    Answered,
    /// It failed.
    Failed,
    /// By our own doing, which says nothing about it.
    Ours,
}

/// The passes that this call holds, one per endpoint it tried. Dropped unsettled they go back unused.
#[derive(Default)]
pub(super) struct WholeCalls {
    passes: SmallVec<[HeldPass; 1]>,
    /// The number of the endpoint whose gate let an attempt in last.
    last: Option<u64>,
}

struct HeldPass {
    endpoint: Arc<Endpoint>,
    pass: Pass,
    /// An attempt ran there.
    was_used: bool,
}

impl WholeCalls {
    /// Asks for the whole call at its first attempt on an endpoint. To be followed by
    /// [`WholeCalls::used`], or, where the endpoint lets the attempt not in after all, by
    /// [`WholeCalls::refused`].
    pub(super) fn admit<M>(
        &mut self,
        placed: &Placed<M>,
        trial_lease: impl FnOnce() -> Duration,
        now: Instant,
    ) -> Result<(), Held> {
        let Placed {
            endpoint, policy, ..
        } = placed;
        if policy.circuit.mode != CircuitMode::Operations || self.held(endpoint.number).is_some() {
            return Ok(());
        }
        let pass = endpoint
            .gate
            .circuit()
            .admit_operation(&policy.circuit, trial_lease(), now)?;
        if let Some(transition) = pass.transition() {
            endpoint.publish(&transition);
        }
        self.passes.push(HeldPass {
            endpoint: Arc::clone(endpoint),
            pass,
            was_used: false,
        });
        Ok(())
    }

    /// An attempt begins on this endpoint.
    pub(super) fn used(&mut self, endpoint: &Endpoint) {
        self.last = Some(endpoint.number);
        if let Some(held) = self.held(endpoint.number) {
            held.was_used = true;
        }
    }

    /// An endpoint let the attempt not in: unless one ran there before, nothing is known about it.
    pub(super) fn refused(&mut self, endpoint: &Endpoint) {
        let at = self
            .passes
            .iter()
            .position(|held| held.endpoint.number == endpoint.number && !held.was_used);
        if let Some(at) = at {
            let held = self.passes.remove(at);
            held.endpoint.gate.circuit().give_back(held.pass);
        }
    }

    fn held(&mut self, number: u64) -> Option<&mut HeldPass> {
        self.passes
            .iter_mut()
            .find(|held| held.endpoint.number == number)
    }

    /// Says how the call ended: on the endpoint used last as it did, on the others as failed.
    pub(super) fn settle(&mut self, end: CallEnd, now: Instant) {
        let last = self.last;
        for HeldPass { endpoint, pass, .. } in self.passes.drain(..) {
            let end = match last == Some(endpoint.number) {
                true => end,
                false => CallEnd::Failed,
            };
            let policy = endpoint.policy_guard();
            let circuit = endpoint.gate.circuit();
            if end == CallEnd::Ours {
                circuit.give_back(pass);
                continue;
            }
            let failed = end == CallEnd::Failed;
            if let Some(transition) = circuit.record_operation(&policy.circuit, pass, failed, now) {
                endpoint.publish(&transition);
            }
        }
    }
}

impl Drop for WholeCalls {
    fn drop(&mut self) {
        for HeldPass { endpoint, pass, .. } in self.passes.drain(..) {
            endpoint.gate.circuit().give_back(pass);
        }
    }
}
