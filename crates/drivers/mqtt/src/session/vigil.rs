//! Whether the broker is still there.

use std::time::Duration;

use tokio::time::Instant;

/// An answer may have to wait for a large packet; beyond this many times the usual limit it was not.
const PATIENCE: u32 = 6;

/// What is known about the broker's being there. Times are arguments.
#[derive(Debug)]
pub(crate) struct Vigil {
    keep_alive: Option<Duration>,
    /// How long an answer may take.
    answer: Duration,
    sent: Instant,
    received: Instant,
    /// Since when an answer has been due, or something has come while one was.
    expecting: Option<Instant>,
    /// When we asked, or when what stands before the question in the output last moved.
    asked: Option<Instant>,
    /// Where the first question that is not answered ends in the output.
    question: Option<u64>,
    /// We do not read: silence says nothing.
    deaf: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    Nothing,
    Ask,
    Gone,
}

impl Vigil {
    pub(crate) fn new(keep_alive: Option<Duration>, answer: Duration, now: Instant) -> Self {
        Vigil {
            keep_alive,
            answer,
            sent: now,
            received: now,
            expecting: None,
            asked: None,
            question: None,
            deaf: false,
        }
    }

    /// The output has moved; so much of it has left in all. A broker that takes it lives, and cannot answer a question
    /// that has not left.
    pub(crate) fn sent(&mut self, written: u64, now: Instant) {
        self.sent = now;
        if self.question.is_some_and(|end| written < end) {
            self.asked = self.asked.map(|_| now);
        }
    }

    /// The question that was to be asked ends there in the output.
    pub(crate) fn asks(&mut self, end: u64) {
        self.question = self.question.or(Some(end));
    }

    pub(crate) fn received(&mut self, now: Instant) {
        self.received = now;
        if self.expecting.is_some() {
            self.expecting = Some(now);
        }
    }

    /// Whether an answer is due.
    pub(crate) fn expect(&mut self, is_due: bool, now: Instant) {
        match (is_due, self.expecting) {
            (true, None) => self.expecting = Some(now),
            (false, Some(_)) => self.expecting = None,
            _ => {}
        }
    }

    /// The answer to our question.
    pub(crate) fn answered(&mut self) {
        self.asked = None;
        self.question = None;
    }

    /// Whether we read.
    pub(crate) fn listen(&mut self, does: bool, now: Instant) {
        if does && self.deaf {
            self.received(now);
            self.asked = self.asked.map(|_| now);
        }
        self.deaf = !does;
    }

    /// What is to be done now; a question counts as asked.
    pub(crate) fn watch(&mut self, now: Instant) -> Watch {
        if self.gone_at().is_some_and(|at| now >= at) {
            return Watch::Gone;
        }
        if self.ask_at().is_some_and(|at| now >= at) {
            self.asked = self.asked.or(Some(now));
            self.sent = now;
            return Watch::Ask;
        }
        Watch::Nothing
    }

    /// When to look again.
    pub(crate) fn next(&self) -> Option<Instant> {
        let times = [self.gone_at(), self.ask_at()];
        times.into_iter().flatten().min()
    }

    fn gone_at(&self) -> Option<Instant> {
        let asked = self.asked.filter(|_| !self.deaf)?;
        let silent = asked.max(self.received) + self.answer;
        Some(silent.min(asked + self.answer * PATIENCE))
    }

    fn ask_at(&self) -> Option<Instant> {
        // Half of what the broker bears: our question may be late by the time of a large packet.
        let quiet = self.keep_alive.map(|limit| self.sent + limit / 2);
        let silent = self.keep_alive.map(|limit| self.received + limit);
        let due = self.expecting.map(|since| since + self.answer / 2);
        let wants = match (self.asked, self.deaf) {
            (None, false) => [quiet, silent, due],
            _ => [quiet, None, None],
        };
        wants.into_iter().flatten().min()
    }
}
