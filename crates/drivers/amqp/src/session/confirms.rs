//! Publications that the broker has not confirmed yet.

use std::collections::VecDeque;

use mainstay_message::{PublishError, PublishErrorKind, Topic};
use tokio::sync::oneshot;

/// Where the end of a publication is told.
pub(crate) type Reply = oneshot::Sender<Result<(), PublishError>>;

/// One of them.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) topic: Topic,
    /// It comes back with a message that no queue takes.
    pub(crate) number: Option<u64>,
    /// Where its bytes begin.
    pub(crate) place: u64,
    pub(crate) reply: Reply,
}

/// By the broker's numbers, which count the publications of a channel from 1.
#[derive(Debug)]
pub(crate) struct Confirms {
    /// The number of the first.
    first: u64,
    pending: VecDeque<Option<Pending>>,
}

impl Confirms {
    pub(crate) fn new() -> Self {
        Confirms {
            first: 1,
            pending: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn push(&mut self, pending: Pending) {
        self.pending.push_back(Some(pending));
    }

    /// The broker has done with this one, or with all up to it. False: there was no such one.
    pub(crate) fn settle(&mut self, number: u64, multiple: bool, nacked: bool) -> bool {
        let last = self.first + self.pending.len() as u64;
        // Zero is "all of them" of the standard.
        let number = if number == 0 && multiple {
            last.saturating_sub(1)
        } else {
            number
        };
        if number >= last || number == 0 {
            return false;
        }
        let place = number.checked_sub(self.first).map(|place| place as usize);
        match (place, multiple) {
            (Some(place), true) => {
                for pending in self.pending.drain(..=place).flatten() {
                    tell(pending, nacked);
                }
                self.first = number + 1;
            }
            (Some(place), false) => {
                if let Some(pending) = self.pending[place].take() {
                    tell(pending, nacked);
                }
            }
            // A second word about what is done already.
            (None, _) => {}
        }
        while let Some(None) = self.pending.front() {
            self.pending.pop_front();
            self.first += 1;
        }
        true
    }

    /// No queue takes the one that was sent with this number of ours; the broker's confirmation still follows.
    pub(crate) fn give_back(&mut self, number: u64) {
        let returned = self.pending.iter_mut().find(|pending| {
            pending
                .as_ref()
                .is_some_and(|pending| pending.number == Some(number))
        });
        if let Some(pending) = returned.and_then(Option::take) {
            let kind = PublishErrorKind::Unroutable {
                topic: pending.topic,
            };
            let _ = pending.reply.send(Err(PublishError::unprocessed(kind)));
        }
    }

    /// All that are left, in order; numbers begin anew.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Pending> + use<> {
        std::mem::replace(self, Confirms::new())
            .pending
            .into_iter()
            .flatten()
    }
}

fn tell(pending: Pending, nacked: bool) {
    let outcome = match nacked {
        false => Ok(()),
        // Of several queues one may have taken it.
        true => Err(PublishError::unknown(PublishErrorKind::Refused {
            reason: "it could not keep the message (nack)".into(),
        })),
    };
    // Nobody may wait for it any more.
    let _ = pending.reply.send(outcome);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pend(confirms: &mut Confirms, number: u64) -> oneshot::Receiver<Result<(), PublishError>> {
        let (reply, told) = oneshot::channel();
        let topic = Topic::parse("a/b").unwrap();
        confirms.push(Pending {
            topic,
            number: Some(number),
            place: 0,
            reply,
        });
        told
    }

    #[test]
    fn confirmations_come_alone_together_and_out_of_order() {
        let mut confirms = Confirms::new();
        let mut told: Vec<_> = (1..=6)
            .map(|number| pend(&mut confirms, 10 + number))
            .collect();
        let done = |told: &mut Vec<oneshot::Receiver<_>>| -> Vec<bool> {
            told.iter_mut()
                .map(|one| matches!(one.try_recv(), Ok(Ok(()))))
                .collect()
        };
        assert!(confirms.settle(2, false, false));
        assert_eq!(done(&mut told), [false, true, false, false, false, false]);
        assert!(confirms.settle(3, true, false));
        assert_eq!(done(&mut told)[..3], [true, false, true]);
        assert_eq!(confirms.len(), 3);
        assert!(
            confirms.settle(2, true, false),
            "known, and nothing is left of it"
        );
        assert!(!confirms.settle(7, false, false));
        assert!(confirms.settle(4, false, true));
        let nacked = told[3].try_recv().unwrap().unwrap_err();
        assert_eq!(nacked.sent, mainstay_engine::Sent::Maybe);
        confirms.give_back(16);
        let returned = told[5].try_recv().unwrap().unwrap_err();
        assert!(matches!(returned.kind, PublishErrorKind::Unroutable { .. }));
        assert!(confirms.settle(0, true, false), "all of them");
        assert_eq!((done(&mut told)[4], confirms.len()), (true, 0));
    }
}
