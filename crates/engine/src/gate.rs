//! Admission of one endpoint: circuit, concurrency and rate together.

use std::time::Duration;

use tokio::time::Instant;

use crate::circuit::{Circuit, CircuitState, Held, Pass, Transition, Verdict};
use crate::occupancy::{Entry, Occupancy};
use crate::policy::{CircuitSettings, LimitSettings};
use crate::rate::Rate;

/// The gate of one endpoint. Settings and time are arguments; share it by reference.
#[derive(Debug, Default)]
pub struct Gate {
    circuit: Circuit,
    rate: Rate,
    in_flight: Occupancy,
}

/// Leave for one attempt. Comes back by [`Gate::finish`]; the place among those in flight comes back
/// apart from it, by [`Gate::release_slot`], once the back end's work is over.
#[derive(Debug)]
pub struct Ticket {
    /// The circuit's part of it.
    pub pass: Pass,
    /// Its place among those in flight.
    pub entry: Entry,
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
        let entry = self
            .take_slot(limits.concurrency)
            .and_then(|entry| {
                self.take_token(limits, now)
                    .inspect_err(|_| self.release_slot(entry))?;
                Ok(entry)
            })
            .inspect_err(|_| self.circuit.give_back(pass))?;
        Ok(Ticket { pass, entry })
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
    pub fn release_slot(&self, entry: Entry) {
        self.in_flight.leave(entry);
    }

    /// Attempts whose place has not come back.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.count()
    }

    /// The circuit.
    pub fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    fn take_slot(&self, limit: Option<u32>) -> Result<Entry, Refusal> {
        match (self.in_flight.enter(limit), limit) {
            (Some(entry), _) => Ok(entry),
            (None, limit) => Err(Refusal::Concurrency {
                limit: limit.unwrap_or(u32::MAX),
            }),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::CircuitMode;

    const SECOND: Duration = Duration::from_secs(1);
    const LEASE: Duration = Duration::from_secs(30);

    fn circuit() -> CircuitSettings {
        CircuitSettings {
            mode: CircuitMode::WeightedConsecutive,
            failures: 1,
            open_for: 10 * SECOND,
            successes: 1,
            ..CircuitSettings::default()
        }
    }

    fn limits(rate: Option<f64>, burst: Option<u32>, concurrency: Option<u32>) -> LimitSettings {
        LimitSettings {
            rate,
            burst,
            concurrency,
            ..LimitSettings::default()
        }
    }

    fn admit(gate: &Gate, limits: &LimitSettings, now: Instant) -> Result<Ticket, Refusal> {
        gate.admit(&circuit(), limits, LEASE, now)
    }

    /// A gate whose circuit admits its first trial now.
    fn due(now: Instant) -> Gate {
        let gate = Gate::new();
        let before = now - 10 * SECOND;
        let ticket = admit(&gate, &limits(None, None, None), before).unwrap();
        let entry = ticket.entry;
        gate.finish(&circuit(), ticket, Verdict::failure(1), before);
        gate.release_slot(entry);
        gate
    }

    #[test]
    fn without_limits_everything_passes_and_is_counted() {
        let gate = Gate::new();
        let now = Instant::now();
        let none = limits(None, None, None);
        let tickets: Vec<Ticket> = (0..5).map(|_| admit(&gate, &none, now).unwrap()).collect();
        assert_eq!(gate.in_flight(), 5);
        for ticket in tickets {
            gate.finish(&circuit(), ticket, Verdict::success(), now);
        }
        assert_eq!(
            gate.in_flight(),
            5,
            "finishing does not give the place back"
        );
        (0..5).for_each(|_| gate.release_slot(Entry::Unlimited));
        assert_eq!(gate.in_flight(), 0);
    }

    #[test]
    fn each_limit_refuses_by_its_name() {
        let now = Instant::now();
        let gate = Gate::new();
        let two = limits(None, None, Some(2));
        let _tickets = [
            admit(&gate, &two, now).unwrap(),
            admit(&gate, &two, now).unwrap(),
        ];
        let refusal = admit(&gate, &two, now).unwrap_err();
        assert_eq!(refusal, Refusal::Concurrency { limit: 2 });

        let gate = Gate::new();
        let rate = limits(Some(2.0), Some(1), None);
        admit(&gate, &rate, now).unwrap();
        let retry_in = SECOND / 2;
        let refusal = admit(&gate, &rate, now).unwrap_err();
        assert_eq!(refusal, Refusal::Rate { retry_in });

        gate.circuit().isolate(now);
        assert_eq!(admit(&gate, &rate, now).unwrap_err(), Refusal::Isolated);

        let gate = due(now + SECOND);
        let refusal = admit(&gate, &two, now).unwrap_err();
        let retry_in = Some(SECOND);
        assert_eq!(refusal, Refusal::CircuitOpen { retry_in });
    }

    #[test]
    fn without_a_burst_one_second_of_the_rate_comes_at_once() {
        let now = Instant::now();
        for (rate, expected) in [(0.5, 1), (1.0, 1), (2.5, 3), (100.0, 100)] {
            let gate = Gate::new();
            let limits = limits(Some(rate), None, None);
            let passed = (0..1000)
                .filter(|_| admit(&gate, &limits, now).is_ok())
                .count();
            assert_eq!(passed, expected, "{rate}");
        }
    }

    /// Whatever refuses, the next call finds trial, place and token where they were.
    #[test]
    fn a_refusal_takes_nothing() {
        let now = Instant::now();
        let full = limits(None, None, Some(0));
        let dry = limits(Some(0.001), Some(1), Some(5));
        let free = limits(None, None, Some(1));

        let gate = due(now);
        for _ in 0..3 {
            let refusal = admit(&gate, &full, now).unwrap_err();
            assert_eq!(refusal, Refusal::Concurrency { limit: 0 });
        }
        let ticket = admit(&gate, &free, now).unwrap();
        assert!(ticket.pass.trial.is_some(), "the trial was not lost");
        assert!(ticket.pass.transition().is_some(), "nor was its news");

        let gate = due(now);
        let trial = admit(&gate, &dry, now).unwrap();
        let entry = trial.entry;
        gate.finish(&circuit(), trial, Verdict::Cancelled, now);
        gate.release_slot(entry);
        for _ in 0..3 {
            let refusal = admit(&gate, &dry, now).unwrap_err();
            assert!(matches!(refusal, Refusal::Rate { .. }));
            assert_eq!(gate.in_flight(), 0, "the place was not lost");
        }
        let ticket = admit(&gate, &free, now).unwrap();
        assert!(ticket.pass.trial.is_some(), "the trial was not lost");

        let gate = Gate::new();
        let one = limits(Some(0.001), Some(2), Some(1));
        let ticket = admit(&gate, &one, now).unwrap();
        for _ in 0..10 {
            let refusal = admit(&gate, &one, now).unwrap_err();
            assert_eq!(refusal, Refusal::Concurrency { limit: 1 });
        }
        gate.release_slot(ticket.entry);
        assert!(admit(&gate, &one, now).is_ok(), "the token was not lost");
    }

    #[test]
    fn eight_threads_never_exceed_the_concurrency_and_leave_nothing_behind() {
        let gate = Gate::new();
        let now = Instant::now();
        let three = limits(Some(1e6), Some(1_000), Some(3));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for step in 0..20_000_u32 {
                        let now = now + step * Duration::from_micros(1);
                        if let Ok(ticket) = admit(&gate, &three, now) {
                            assert!(gate.in_flight() <= 3);
                            let entry = ticket.entry;
                            gate.finish(&circuit(), ticket, Verdict::success(), now);
                            gate.release_slot(entry);
                        }
                    }
                });
            }
        });
        assert_eq!(gate.in_flight(), 0);
    }
}
