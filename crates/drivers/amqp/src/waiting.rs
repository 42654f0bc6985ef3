//! Publications that wait to be written.

use std::collections::VecDeque;

use crate::session::Outgoing;

/// So many may wait before it is looked whether their callers still do.
const LOOK_AT: usize = 1024;

/// In the order of their calls. Each is held by a caller; those that nobody waits for any more are dropped, so there
/// are never more than twice as many as callers, or [`LOOK_AT`].
#[derive(Debug)]
pub(crate) struct Waiting {
    messages: VecDeque<Outgoing>,
    look_at: usize,
}

impl Waiting {
    pub(crate) fn new() -> Self {
        Waiting {
            messages: VecDeque::new(),
            look_at: LOOK_AT,
        }
    }

    pub(crate) fn push(&mut self, message: Outgoing) {
        if self.messages.len() >= self.look_at {
            self.messages.retain(|message| !message.reply.is_closed());
            self.look_at = LOOK_AT.max(2 * self.messages.len());
        }
        self.messages.push_back(message);
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        self.messages.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use mainstay_message::Topic;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn what_no_caller_waits_for_does_not_pile_up() {
        let mut waiting = Waiting::new();
        let mut told = vec![];
        for number in 0..10 * LOOK_AT as u64 {
            let (reply, kept) = oneshot::channel();
            if number % 100 == 0 {
                told.push(kept);
            }
            waiting.push(Outgoing {
                head: BytesMut::new(),
                properties: 0,
                expires: None,
                body: Bytes::new(),
                topic: Topic::parse("a/b").unwrap(),
                number: Some(number),
                reply,
            });
            assert!(waiting.messages.len() <= LOOK_AT);
        }
        let kept: Vec<_> = std::iter::from_fn(|| waiting.pop())
            .filter(|message| !message.reply.is_closed())
            .filter_map(|message| message.number)
            .collect();
        let expected: Vec<_> = (0..10 * LOOK_AT as u64).step_by(100).collect();
        assert_eq!(kept, expected);
    }
}
