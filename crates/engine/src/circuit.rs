//! Circuits: when an endpoint is left alone, and when it is tried again.
//!
//! All decisions are in a plain machine; [`Circuit`] puts it behind a short lock that the common
//! path never takes: while the circuit is closed and nothing failed lately, admission is one load and
//! a success is another.

mod machine;
mod state;
pub mod store;
mod tally;

use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::origin::Origin;
use crate::policy::{CircuitMode, CircuitSettings};
use machine::Machine;
pub use state::{CircuitSnapshot, CircuitState, Held, Pass, Reason, Transition, TrialId, Verdict};

/// Bits of the published word: the epoch stands above them.
const CLOSED: u64 = 1;
const CLEAN: u64 = 2;
const EPOCH_SHIFT: u32 = 2;

/// The circuit of one endpoint. Settings and time are arguments; share it by reference.
#[derive(Debug)]
pub struct Circuit {
    /// Epoch, closed and clean, as the machine last had them.
    word: AtomicU64,
    /// Mode `rate`: good calls that the machine has not been told of yet …
    uncounted: AtomicU64,
    /// … and until when (nanoseconds of `origin`) they need not be.
    uncounted_until: AtomicU64,
    origin: Origin,
    machine: Mutex<Machine>,
}

impl Default for Circuit {
    fn default() -> Self {
        Self::new()
    }
}

impl Circuit {
    /// A closed circuit.
    pub fn new() -> Self {
        let machine = Machine::new();
        Circuit {
            word: AtomicU64::new(word(&machine)),
            uncounted: AtomicU64::new(0),
            uncounted_until: AtomicU64::new(0),
            origin: Origin::new(),
            machine: Mutex::new(machine),
        }
    }

    /// Asks for an attempt. Every pass must come back by [`record`](Self::record) or
    /// [`give_back`](Self::give_back); a trial whose pass does not gives its permit back when
    /// `trial_lease` has passed. Choose the lease somewhat longer than the attempt's time limit, so
    /// that an attempt that times out still decides.
    ///
    /// A pass that begins the half-open state says so by [`Pass::transition`].
    ///
    /// In mode `operations` an attempt is only held back while the circuit is open or isolated; whole
    /// calls ask by [`admit_operation`](Self::admit_operation).
    #[inline]
    pub fn admit(
        &self,
        settings: &CircuitSettings,
        trial_lease: Duration,
        now: Instant,
    ) -> Result<Pass, Held> {
        match self.closed() {
            Some(pass) => Ok(pass),
            None => self.admit_unless_closed(settings, trial_lease, now),
        }
    }

    #[cold]
    fn admit_unless_closed(
        &self,
        settings: &CircuitSettings,
        trial_lease: Duration,
        now: Instant,
    ) -> Result<Pass, Held> {
        self.change(|machine| match settings.mode {
            CircuitMode::Operations => machine.admit_within(settings, now),
            _ => machine.admit(settings, trial_lease, now),
        })
    }

    /// Mode `operations`: asks for a whole call, before its first attempt. The pass comes back by
    /// [`record_operation`](Self::record_operation) or [`give_back`](Self::give_back). In the other
    /// modes attempts ask for themselves and this only holds back calls of an isolated circuit.
    pub fn admit_operation(
        &self,
        settings: &CircuitSettings,
        trial_lease: Duration,
        now: Instant,
    ) -> Result<Pass, Held> {
        if let Some(pass) = self.closed() {
            return Ok(pass);
        }
        self.change(|machine| match settings.mode {
            CircuitMode::Operations => machine.admit(settings, trial_lease, now),
            _ => machine.admit_unless_isolated(),
        })
    }

    /// Says what an admitted attempt came to. Results of an older epoch decide nothing, and neither do
    /// trials whose permit has meanwhile gone to another.
    #[inline]
    pub fn record(
        &self,
        settings: &CircuitSettings,
        pass: Pass,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Transition> {
        if settings.mode == CircuitMode::Operations || self.changes_nothing(settings, pass, verdict)
        {
            return None;
        }
        self.record_in_machine(settings, pass, verdict, now)
    }

    fn record_in_machine(
        &self,
        settings: &CircuitSettings,
        pass: Pass,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Transition> {
        if settings.mode == CircuitMode::Rate {
            self.record_rated(settings, pass, verdict, now)
        } else {
            self.change(|machine| machine.record(settings, pass, verdict, now))
        }
    }

    /// Mode `operations`: says what a whole call came to after all its attempts. Does nothing in the
    /// other modes.
    pub fn record_operation(
        &self,
        settings: &CircuitSettings,
        pass: Pass,
        failed: bool,
        now: Instant,
    ) -> Option<Transition> {
        if settings.mode != CircuitMode::Operations {
            return None;
        }
        let verdict = if failed {
            Verdict::failure(1)
        } else {
            Verdict::success()
        };
        if self.changes_nothing(settings, pass, verdict) {
            return None;
        }
        self.change(|machine| machine.record(settings, pass, verdict, now))
    }

    /// Gives a pass back that was not used: as if it had never been admitted.
    pub fn give_back(&self, pass: Pass) {
        if pass.trial.is_some() {
            self.change(|machine| machine.give_back(pass));
        }
    }

    /// Says what a health check found that began at `begun`. With `probe_reopens`, two good ones in a
    /// row that began after the opening make the trial due now, though not before the time that the
    /// back end itself asked for.
    pub fn probed(
        &self,
        settings: &CircuitSettings,
        good: bool,
        begun: Instant,
        now: Instant,
    ) -> Option<Transition> {
        if self.closed().is_some() {
            return None;
        }
        self.change(|machine| machine.probed(settings, good, begun, now))
    }

    /// Holds the circuit open until [`release`](Self::release), whatever its mode.
    pub fn isolate(&self, now: Instant) -> Option<Transition> {
        self.change(|machine| machine.isolate(now))
    }

    /// Ends an isolation: trials decide what comes next.
    pub fn release(&self, now: Instant) -> Option<Transition> {
        self.change(|machine| machine.release(now))
    }

    /// Starts anew, closed and with nothing counted, unless isolated: for a policy whose circuit
    /// settings differ (the caller compares them).
    pub fn reset(&self, now: Instant) -> Option<Transition> {
        self.change(|machine| {
            self.forget_uncounted();
            machine.reset(now)
        })
    }

    /// Takes over a state that a shared store decided.
    pub fn force(&self, state: CircuitState, now: Instant) -> Option<Transition> {
        self.change(|machine| machine.force(state, now))
    }

    /// The state. Reading never changes it: an opening whose time is over stays `Open` until an
    /// attempt asks.
    pub fn state(&self, settings: &CircuitSettings, _now: Instant) -> CircuitState {
        let state = match self.closed() {
            Some(_) => CircuitState::Closed,
            None => self.machine.lock().state(),
        };
        if machine::is_disabled(settings) && state != CircuitState::Isolated {
            CircuitState::Disabled
        } else {
            state
        }
    }

    /// Counters for a reader.
    pub fn snapshot(&self) -> CircuitSnapshot {
        self.machine.lock().snapshot()
    }

    /// The pass of a closed circuit, if it is closed.
    pub(crate) fn closed(&self) -> Option<Pass> {
        let word = self.word.load(Acquire);
        (word & CLOSED != 0).then_some(Pass {
            epoch: word >> EPOCH_SHIFT,
            trial: None,
        })
    }

    /// Whether the machine need not be asked: for all but failures, trials and mode `rate`, mostly.
    fn changes_nothing(&self, settings: &CircuitSettings, pass: Pass, verdict: Verdict) -> bool {
        if pass.trial.is_some() {
            return false;
        }
        let word = self.word.load(Acquire);
        let is_stale = word >> EPOCH_SHIFT != pass.epoch || word & CLOSED == 0;
        if is_stale || machine::is_disabled(settings) {
            return true;
        }
        match (verdict, settings.mode) {
            (Verdict::Cancelled | Verdict::Failure { weight: 0, .. }, _) => true,
            (Verdict::Failure { .. }, _) | (_, CircuitMode::Rate) => false,
            (Verdict::Success { .. }, CircuitMode::Window) => true,
            (Verdict::Success { .. }, _) => word & CLEAN != 0,
        }
    }

    /// Mode `rate`, in which every call counts: good ones are gathered in an atomic until the slice
    /// of the window ends or the machine has to decide.
    fn record_rated(
        &self,
        settings: &CircuitSettings,
        pass: Pass,
        verdict: Verdict,
        now: Instant,
    ) -> Option<Transition> {
        let is_good = matches!(verdict, Verdict::Success { elapsed }
            if settings.slow_after.is_none_or(|slow| elapsed < slow));
        if is_good
            && pass.trial.is_none()
            && self.origin.nanos(now) < self.uncounted_until.load(Relaxed)
        {
            self.uncounted.fetch_add(1, AcqRel);
            return None;
        }
        self.change(|machine| {
            machine.count_good(self.uncounted.swap(0, AcqRel));
            let transition = machine.record(settings, pass, verdict, now);
            let until = machine
                .slice_end(settings)
                .map(|end| self.origin.nanos(end));
            self.uncounted_until.store(until.unwrap_or(0), Relaxed);
            transition
        })
    }

    /// Runs one decision under the lock and publishes what came of it.
    fn change<T>(&self, decide: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.machine.lock();
        let decided = decide(&mut machine);
        self.publish(&machine);
        decided
    }

    fn publish(&self, machine: &MutexGuard<'_, Machine>) {
        let word = word(machine);
        if word & CLOSED == 0 {
            self.forget_uncounted();
        }
        self.word.store(word, Release);
    }

    fn forget_uncounted(&self) {
        self.uncounted_until.store(0, Relaxed);
        self.uncounted.store(0, Relaxed);
    }
}

fn word(machine: &Machine) -> u64 {
    let mut word = machine.epoch() << EPOCH_SHIFT;
    if machine.state() == CircuitState::Closed {
        word |= CLOSED;
    }
    if machine.is_clean() {
        word |= CLEAN;
    }
    word
}

#[cfg(test)]
mod tests;
