//! What the proxy really did: the ground truth that a test compares its answers with.

use super::plan::{Action, Fault, Moment, Point};

/// Records kept; later ones are only counted.
const RECORDS_MAX: usize = 200_000;

/// A statement that was struck, by plan or because it shared the connection of one that was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Struck {
    /// The statement.
    pub moment: Moment,
    /// What happened.
    pub fault: Fault,
    /// Whether the plan meant this statement, rather than another on the same connection.
    pub planned: bool,
    /// Whether its bytes were handed to the server.
    pub forwarded: bool,
    /// What the server answered, if it was seen to answer. The proxy goes on listening to the server
    /// for up to 5 s after the client was cut.
    pub answer: Option<Answer>,
}

/// How a statement ended at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It ran; its command tag (`INSERT 0 1`), the last one if it was several. A COMMIT that rolled
    /// back says `ROLLBACK`. Empty where nothing was run.
    Completed(String),
    /// It failed, with this SQLSTATE.
    Failed(String),
}

/// What a proxy has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Connections ended at once because too many were open.
    pub turned_away: u64,
    /// Statements seen, struck or not.
    pub statements: u64,
    /// Planned faults before the statement left.
    pub before_send: u64,
    /// Planned faults after it left.
    pub after_send: u64,
    /// Planned faults before its answer.
    pub before_answer: u64,
    /// Planned cuts.
    pub cuts: u64,
    /// Planned hangs.
    pub hangs: u64,
    /// Planned delays.
    pub delays: u64,
    /// Struck statements that were not recorded because the ledger was full.
    pub unrecorded: u64,
}

/// The place of a record in the ledger; `None` if it was full.
pub(super) type Place = Option<usize>;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) counts: Counts,
    entries: Vec<Entry>,
    open: usize,
}

#[derive(Debug)]
struct Entry {
    struck: Struck,
    /// Something may still become known about it.
    open: bool,
}

impl Ledger {
    /// Enters a statement that the plan strikes.
    pub(super) fn plan(&mut self, moment: Moment, fault: Fault) -> Place {
        *match fault.point {
            Point::BeforeSend => &mut self.counts.before_send,
            Point::AfterSend => &mut self.counts.after_send,
            Point::BeforeAnswer => &mut self.counts.before_answer,
        } += 1;
        *match fault.action {
            Action::Cut(_) => &mut self.counts.cuts,
            Action::Hang => &mut self.counts.hangs,
            Action::Delay(_) => &mut self.counts.delays,
        } += 1;
        self.enter(Struck {
            moment,
            fault,
            planned: true,
            forwarded: false,
            answer: None,
        })
    }

    /// Enters a statement that is struck with another.
    pub(super) fn sweep(&mut self, moment: Moment, fault: Fault, forwarded: bool) -> Place {
        self.enter(Struck {
            moment,
            fault,
            planned: false,
            forwarded,
            answer: None,
        })
    }

    fn enter(&mut self, struck: Struck) -> Place {
        if self.entries.len() == RECORDS_MAX {
            self.counts.unrecorded += 1;
            return None;
        }
        self.entries.push(Entry { struck, open: true });
        self.open += 1;
        Some(self.entries.len() - 1)
    }

    pub(super) fn forwarded(&mut self, place: Place) {
        if let Some(entry) = place.and_then(|at| self.entries.get_mut(at)) {
            entry.struck.forwarded = true;
        }
    }

    pub(super) fn answered(&mut self, place: Place, answer: &Answer) {
        if let Some(entry) = place.and_then(|at| self.entries.get_mut(at)) {
            entry.struck.answer = Some(answer.clone());
        }
        self.close(place);
    }

    /// Nothing more will be known about it.
    pub(super) fn close(&mut self, place: Place) {
        if let Some(entry) = place.and_then(|at| self.entries.get_mut(at)) {
            self.open -= usize::from(std::mem::replace(&mut entry.open, false));
        }
    }

    /// How many struck statements are not over yet.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    pub(super) fn struck(&self) -> Vec<Struck> {
        self.entries
            .iter()
            .map(|entry| entry.struck.clone())
            .collect()
    }
}
