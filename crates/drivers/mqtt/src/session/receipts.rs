//! Messages that came and are not settled: with a receiver, or acknowledged and not yet released.

use std::collections::HashMap;

use crate::acknowledgement::Return;
use crate::wire::{Fault, Incoming, Output, Qos, Reason, kind, write_ack};

/// A broker that sends more than this many times what it was allowed is left. mosquitto 2.0 counts wrong
/// where messages go both ways, and sends some more than it may.
const TOLERANCE: usize = 2;

/// Half of the window of a broker that keeps to less than it may, as mosquitto does with 20.
const DROPPED_MAX: usize = 10;

/// What becomes of a message that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Give it to its receiver, under this number.
    New { serial: u64 },
    /// The receiver has it already.
    Known,
}

/// A message that came.
#[derive(Debug)]
struct Receipt {
    serial: u64,
    fingerprint: u64,
    qos: Qos,
    state: State,
    /// It came, perhaps again, on this connection: the broker waits for an answer on it.
    here: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// With its receiver.
    Held,
    /// Acknowledged by its receiver; the broker may not know yet.
    Answered,
    /// Dropped by its receiver: it comes again with the next connection.
    Dropped,
}

/// All of them, by packet identifier.
#[derive(Debug)]
pub(crate) struct Receipts {
    all: HashMap<u16, Receipt, foldhash::fast::RandomState>,
    serial: u64,
    /// Those that came on this connection and that we have not answered.
    unanswered: usize,
    unanswered_max: usize,
    /// Those of them that were dropped, and take up the broker's window until the next connection.
    dropped: usize,
    dropped_max: usize,
}

impl Receipts {
    pub(crate) fn new(max: u16) -> Self {
        Receipts {
            all: HashMap::default(),
            serial: 0,
            unanswered: 0,
            unanswered_max: usize::from(max) * TOLERANCE,
            dropped: 0,
            dropped_max: usize::from(max).div_ceil(2).min(DROPPED_MAX),
        }
    }

    /// Takes note of a message with quality of service 1 or 2.
    ///
    /// An identifier that is in use stands for the same message sent again, unless it is another one: then
    /// the broker has forgotten the first (a broker that was killed).
    pub(crate) fn arrive(
        &mut self,
        message: &Incoming<'_>,
        out: &mut Output,
    ) -> Result<Arrival, Fault> {
        let fingerprint = message.fingerprint();
        match self.all.get_mut(&message.id) {
            Some(known) if known.fingerprint == fingerprint && known.qos == message.qos => {
                if known.state == State::Answered {
                    known.here = true;
                    self.answer(message.id, Reason::SUCCESS, out);
                } else if !known.here {
                    known.here = true;
                    self.unanswered += 1;
                }
                Ok(Arrival::Known)
            }
            _ => {
                self.forget(message.id);
                self.add(message, fingerprint)
            }
        }
    }

    fn add(&mut self, message: &Incoming<'_>, fingerprint: u64) -> Result<Arrival, Fault> {
        if self.unanswered >= self.unanswered_max {
            return Err(Fault::TooMany);
        }
        self.unanswered += 1;
        self.serial += 1;
        let receipt = Receipt {
            serial: self.serial,
            fingerprint,
            qos: message.qos,
            state: State::Held,
            here: true,
        };
        self.all.insert(message.id, receipt);
        Ok(Arrival::New {
            serial: self.serial,
        })
    }

    /// What its receiver did with a message.
    pub(crate) fn settle(&mut self, returned: Return, out: &mut Output) {
        let Some(receipt) = self.held(returned.id, returned.serial) else {
            return;
        };
        let is_here = receipt.here;
        match (returned.done, is_here) {
            (true, true) => {
                receipt.state = State::Answered;
                self.unanswered -= 1;
                self.answer(returned.id, Reason::SUCCESS, out);
            }
            (true, false) => receipt.state = State::Answered,
            // Of the window it takes its part until it comes again.
            (false, true) => {
                receipt.state = State::Dropped;
                self.dropped += 1;
            }
            (false, false) => drop(self.all.remove(&returned.id)),
        }
    }

    /// Tells the broker that nothing can be done with a message.
    pub(crate) fn refuse(&mut self, id: u16, serial: u64, out: &mut Output) {
        let Some(receipt) = self.held(id, serial) else {
            return;
        };
        match receipt.here {
            true => {
                receipt.state = State::Answered;
                self.unanswered -= 1;
                self.answer(id, Reason::UNCLAIMED, out);
            }
            false => drop(self.all.remove(&id)),
        }
    }

    fn held(&mut self, id: u16, serial: u64) -> Option<&mut Receipt> {
        let receipt = self.all.get_mut(&id)?;
        (receipt.serial == serial && receipt.state == State::Held).then_some(receipt)
    }

    /// Writes PUBACK or PUBREC. What nothing follows is forgotten.
    fn answer(&mut self, id: u16, reason: Reason, out: &mut Output) {
        let Some(receipt) = self.all.get(&id) else {
            return;
        };
        let kind = match receipt.qos {
            Qos::Two => kind::PUBREC,
            Qos::Zero | Qos::One => kind::PUBACK,
        };
        write_ack(out, kind, id, reason);
        if kind == kind::PUBACK || reason.is_failure() {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: u16) -> bool {
        let Some(gone) = self.all.remove(&id) else {
            return false;
        };
        let counted = gone.here && gone.state != State::Answered;
        self.unanswered -= usize::from(counted);
        self.dropped -= usize::from(gone.state == State::Dropped);
        true
    }

    /// Whether dropped messages take up so much of the window that they should come again now.
    pub(crate) fn is_choked(&self) -> bool {
        self.dropped >= self.dropped_max
    }

    /// The broker releases a message (PUBREL).
    pub(crate) fn release(&mut self, id: u16, out: &mut Output) {
        let reason = match self.forget(id) {
            true => Reason::SUCCESS,
            false => Reason::UNKNOWN_IDENTIFIER,
        };
        write_ack(out, kind::PUBCOMP, id, reason);
    }

    /// The connection has ended.
    pub(crate) fn lose(&mut self) {
        self.unanswered = 0;
        self.dropped = 0;
        self.all.retain(|_, receipt| {
            receipt.here = false;
            receipt.state != State::Dropped
        });
    }

    /// The broker has no session: nothing comes again.
    pub(crate) fn clear(&mut self) {
        self.unanswered = 0;
        self.dropped = 0;
        self.all.clear();
    }
}
