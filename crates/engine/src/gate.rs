//! Admission of one endpoint: circuit, concurrency and rate together.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Relaxed},
};
use std::time::Duration;

use tokio::time::Instant;

use crate::circuit::{Circuit, CircuitState, Held, Pass, Transition, Verdict};
use crate::policy::{CircuitSettings, LimitSettings};
use crate::rate::Rate;

/// The gate of one endpoint. Settings and time are arguments; share it by reference.
#[derive(Debug, Default)]
pub struct Gate {
    circuit: Circuit,
    rate: Rate,
    in_flight: AtomicU32,
}

/// Leave for one attempt. Comes back by [`Gate::finish`]; the place among those in flight comes back
/// apart from it, by [`Gate::release_slot`], once the back end's work is over.
#[derive(Debug)]
pub struct Ticket {
    /// The circuit's part of it.
    pub pass: Pass,
}

/// Why an attempt was refused. Nothing was taken: no trial, no token, no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The circuit is open, or half-open with all its trials under way.
    CircuitOpen {
        /// When the next trial is due.
        retry_in: Option<Duration>,
    },
    /// A person holds the circuit open.
    Isolated,
    /// As many attempts as allowed are in flight.
    Concurrency {
        /// The limit.
        limit: u32,
    },
    /// More calls per second than allowed.
    Rate {
        /// When there will be a token.
        retry_in: Duration,
    },
}

impl Gate {
    /// A gate with a closed circuit, nothing in flight and a full bucket.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for an attempt. `trial_lease` is how long a trial of a half-open circuit keeps its permit,
    /// see [`Circuit::admit`].
    pub fn admit(
        &self,
        circuit: &CircuitSettings,
        limits: &LimitSettings,
        trial_lease: Duration,
        now: Instant,
    ) -> Result<Ticket, Refusal> {
        let pass = self.circuit.admit(circuit, trial_lease, now)?;
        // The token comes last, because nothing can refuse after it; place and pass are given back.
        self.take_slot(limits.concurrency)
            .and_then(|()| {
                self.take_token(limits, now)
                    .inspect_err(|_| self.release_slot())
            })
            .inspect_err(|_| self.circuit.give_back(pass))?;
        Ok(Ticket { pass })
    }

    /// Records what the attempt came to. Does not give its place back.
    pub fn finish(
        &self,
        circuit: &CircuitSettings,
        ticket: Ticket,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Transition> {
        self.circuit.record(circuit, ticket.pass, verdict, now)
    }

    /// Gives one place back; once per ticket.
    pub fn release_slot(&self) {
        let before = self.in_flight.fetch_sub(1, AcqRel);
        debug_assert!(before > 0, "more places given back than taken");
    }

    /// Attempts whose place has not come back.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// The circuit.
    pub fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    fn take_slot(&self, limit: Option<u32>) -> Result<(), Refusal> {
        let Some(limit) = limit else {
            self.in_flight.fetch_add(1, AcqRel);
            return Ok(());
        };
        let taken = self.in_flight.fetch_update(AcqRel, Relaxed, |taken| {
            (taken < limit).then_some(taken + 1)
        });
        match taken {
            Ok(_) => Ok(()),
            Err(_) => Err(Refusal::Concurrency { limit }),
        }
    }

    fn take_token(&self, limits: &LimitSettings, now: Instant) -> Result<(), Refusal> {
        let Some(rate) = limits.rate else {
            return Ok(());
        };
        // Without a burst one second's worth may come at once; the cast saturates.
        let burst = limits.burst.unwrap_or(rate.ceil() as u32).max(1);
        self.rate
            .take(rate, burst, now)
            .map_err(|retry_in| Refusal::Rate { retry_in })
    }
}

impl From<Held> for Refusal {
    fn from(held: Held) -> Self {
        match held.state {
            CircuitState::Isolated => Refusal::Isolated,
            _ => Refusal::CircuitOpen {
                retry_in: held.retry_in,
            },
        }
    }
}
