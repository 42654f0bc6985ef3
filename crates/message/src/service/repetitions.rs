//! Messages of targets that were relayed, so that one which its broker gives once more is not relayed twice.

use std::collections::{HashMap, VecDeque};

use smol_str::SmolStr;

use crate::broker::{Acknowledge, Delivery};

/// Messages that are remembered after they have been relayed; the oldest are forgotten first. More than any broker
/// gives again at once: it gives what was unacknowledged.
const DONE_MAX: usize = 20_000;

/// Relayed messages by their message id.
#[derive(Default)]
pub(crate) struct Repetitions {
    known: HashMap<SmolStr, Known>,
    done: VecDeque<SmolStr>,
}

enum Known {
    /// On its way; acknowledgements of its repetitions wait for its end.
    Under(Vec<Box<dyn Acknowledge>>),
    Done,
}

/// A message that was seen before, with the acknowledgement that may be made at once.
pub(crate) struct Repeated(pub Option<Box<dyn Acknowledge>>);

impl Repetitions {
    /// Gives a message back that was not seen before. A repetition is acknowledged with the first one.
    pub(crate) fn unless_known(
        &mut self,
        id: &str,
        mut delivery: Delivery,
    ) -> Result<Delivery, Repeated> {
        let Some(known) = self.known.get_mut(id) else {
            return Ok(delivery);
        };
        let acknowledgement = delivery.acknowledgement.take();
        match known {
            Known::Under(held) => {
                held.extend(acknowledgement);
                Err(Repeated(None))
            }
            Known::Done => Err(Repeated(acknowledgement)),
        }
    }

    /// A message is being relayed.
    pub(crate) fn begin(&mut self, id: SmolStr) {
        self.known.insert(id, Known::Under(Vec::new()));
    }

    /// It has been relayed. Gives the acknowledgements of its repetitions.
    pub(crate) fn end(&mut self, id: SmolStr) -> Vec<Box<dyn Acknowledge>> {
        let held = match self.known.insert(id.clone(), Known::Done) {
            Some(Known::Under(held)) => held,
            Some(Known::Done) | None => Vec::new(),
        };
        self.done.push_back(id);
        if self.done.len() > DONE_MAX
            && let Some(oldest) = self.done.pop_front()
        {
            self.known.remove(&oldest);
        }
        held
    }
}
