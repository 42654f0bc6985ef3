//! Endpoints as a reader sees them.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::{Member, Source};
use crate::attempt::EndpointId;
use crate::circuit::CircuitState;
use crate::endpoint::{Fitness, Placed};
use crate::event::Role;

/// An endpoint as a reader sees it.
#[derive(Debug, Clone, Serialize)]
pub struct EndpointStatus {
    /// Its name.
    pub endpoint: EndpointId,
    /// Its role.
    pub role: Role,
    /// `up`, `down` or `unknown`.
    pub health: &'static str,
    /// Its circuit's state.
    pub circuit: &'static str,
    /// When the next trial is due, while open.
    pub trial_in_ms: Option<u64>,
    /// Its weight.
    pub weight: f64,
    /// Whether it is being drained.
    pub draining: bool,
    /// Attempts in flight.
    pub in_flight: u32,
    /// Whether it has a history of its own, so that no read may see it.
    pub estranged: bool,
    /// How far it is behind the primary, where known.
    pub lag_ms: Option<u64>,
    /// Good health checks in a row.
    pub checks_good: u32,
    /// Failed health checks in a row.
    pub checks_failed: u32,
    /// How long ago it was last checked.
    pub checked_ago_ms: Option<u64>,
    /// Why the last check failed, redacted; `None`: it was good, or there was none.
    pub check_error: Option<Arc<str>>,
    /// Numbers of its traffic.
    pub stats: crate::stats::StatsSnapshot,
}

impl<M: Member> Source<M> {
    /// The endpoints as a reader sees them.
    pub fn status(&self) -> Vec<EndpointStatus> {
        let now = Instant::now();
        let snapshot = self.snapshot();
        snapshot
            .endpoints
            .iter()
            .map(|placed| status_of(placed, now))
            .collect()
    }
}

fn status_of<M>(placed: &Placed<M>, now: Instant) -> EndpointStatus {
    let endpoint = &placed.endpoint;
    let circuit = endpoint.circuit_state(now);
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (checks_good, checks_failed) = endpoint.checks_in_row();
    EndpointStatus {
        endpoint: endpoint.id.clone(),
        role: placed.role,
        health: match endpoint.fitness() {
            Fitness::Unknown => "unknown",
            Fitness::Up => "up",
            Fitness::Down => "down",
        },
        circuit: circuit.as_str(),
        trial_in_ms: match circuit {
            CircuitState::Open { until } => Some(millis(until.saturating_duration_since(now))),
            _ => None,
        },
        weight: endpoint.weight(),
        draining: endpoint.is_draining(),
        in_flight: endpoint.in_flight(),
        estranged: endpoint.is_estranged(),
        lag_ms: endpoint.lag().map(millis),
        checks_good,
        checks_failed,
        checked_ago_ms: endpoint
            .last_check()
            .map(|checked| millis(now.saturating_duration_since(checked))),
        check_error: endpoint.check_error(),
        stats: endpoint.stats().snapshot(now),
    }
}
