//! Circuits in mode `operations`, which count whole calls instead of attempts.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::circuit::{Held, Pass};
use crate::endpoint::{Endpoint, Placed};
use crate::policy::CircuitMode;

/// The passes that this call holds, one per endpoint it tried. Dropped unsettled they go back unused.
#[derive(Default)]
pub(super) struct WholeCalls {
    passes: SmallVec<[(Arc<Endpoint>, Pass); 1]>,
}

impl WholeCalls {
    /// Asks for the whole call at its first attempt on an endpoint.
    pub(super) fn admit<M>(
        &mut self,
        placed: &Placed<M>,
        trial_lease: Duration,
        now: Instant,
    ) -> Result<(), Held> {
        let Placed {
            endpoint, policy, ..
        } = placed;
        if policy.circuit.mode != CircuitMode::Operations
            || self
                .passes
                .iter()
                .any(|(held, _)| held.number == endpoint.number)
        {
            return Ok(());
        }
        let pass = endpoint
            .gate
            .circuit()
            .admit_operation(&policy.circuit, trial_lease, now)?;
        if let Some(transition) = pass.transition() {
            endpoint.publish(&transition);
        }
        self.passes.push((Arc::clone(endpoint), pass));
        Ok(())
    }

    /// Says how the call ended: on the endpoint used last as it did, on those before as failed.
    pub(super) fn settle(&mut self, failed: bool, now: Instant) {
        let last = self.passes.len().saturating_sub(1);
        for (index, (endpoint, pass)) in self.passes.drain(..).enumerate() {
            let policy = endpoint.policy_guard();
            let circuit = endpoint.gate.circuit();
            let failed_here = failed || index < last;
            if let Some(transition) =
                circuit.record_operation(&policy.circuit, pass, failed_here, now)
            {
                endpoint.publish(&transition);
            }
        }
    }
}

impl Drop for WholeCalls {
    fn drop(&mut self) {
        for (endpoint, pass) in self.passes.drain(..) {
            endpoint.gate.circuit().give_back(pass);
        }
    }
}
