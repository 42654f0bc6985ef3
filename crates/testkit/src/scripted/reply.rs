//! What a scripted call does.

use std::time::Duration;

use mainstay_engine::{Category, Failure, Sent};
use mainstay_sql::{Answer, Code, Row, SqlError, Verdict};

/// How a call ends.
#[derive(Debug, Clone)]
pub enum End {
    /// With this answer; points without an answer take it for "well".
    Answers(Answer),
    /// With this error; the session stays usable.
    Fails(SqlError),
    /// With this error; the session is gone.
    Breaks(SqlError),
    /// Not at all, unless a cancel ends it.
    Hangs,
}

/// What a cancel request does to a call that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCancel {
    /// It ends with the proof that nothing happened (57014).
    #[default]
    Interrupts,
    /// It ends as scripted, at once: the request came too late. Where it hangs: with an empty answer.
    Finishes,
    /// Nothing.
    Ignores,
}

/// What a call does: wait, hand over, wait, end.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(crate) before: Duration,
    pub(crate) hands_over: bool,
    pub(crate) after: Duration,
    pub(crate) end: End,
    pub(crate) on_cancel: OnCancel,
}

impl Default for Reply {
    fn default() -> Self {
        Reply::answer(Answer::default())
    }
}

impl Reply {
    fn ending(end: End) -> Self {
        Reply {
            before: Duration::ZERO,
            hands_over: true,
            after: Duration::ZERO,
            end,
            on_cancel: OnCancel::default(),
        }
    }

    /// Ends with this answer.
    pub fn answer(answer: Answer) -> Self {
        Self::ending(End::Answers(answer))
    }

    /// Ends with these rows.
    pub fn rows(rows: Vec<Row>) -> Self {
        Self::answer(Answer {
            rows,
            ..Answer::default()
        })
    }

    /// Ends with so many rows changed.
    pub fn affected(rows: u64) -> Self {
        Self::answer(Answer {
            affected: Some(rows),
            ..Answer::default()
        })
    }

    /// Ends with this error.
    pub fn fails(error: SqlError) -> Self {
        Self::ending(End::Fails(error))
    }

    /// Ends with this error and a lost session.
    pub fn breaks(error: SqlError) -> Self {
        Self::ending(End::Breaks(error))
    }

    /// Does not end, unless a cancel ends it.
    pub fn hangs() -> Self {
        Self::ending(End::Hangs)
    }

    /// Waits before anything is handed over.
    #[must_use]
    pub fn wait_before(mut self, wait: Duration) -> Self {
        self.before = wait;
        self
    }

    /// Waits between the hand-over and the end.
    #[must_use]
    pub fn wait_after(mut self, wait: Duration) -> Self {
        self.after = wait;
        self
    }

    /// Nothing is handed over.
    #[must_use]
    pub fn hands_nothing_over(mut self) -> Self {
        self.hands_over = false;
        self
    }

    /// What a cancel request does.
    #[must_use]
    pub fn on_cancel(mut self, on_cancel: OnCancel) -> Self {
        self.on_cancel = on_cancel;
        self
    }

    pub(crate) async fn before(&self, yields: usize) {
        give_way(yields).await;
        if !self.before.is_zero() {
            tokio::time::sleep(self.before).await;
        }
    }
}

pub(crate) async fn give_way(yields: usize) {
    for _ in 0..yields {
        tokio::task::yield_now().await;
    }
}

/// The error of a statement that a cancel request ended.
pub fn interrupted() -> SqlError {
    let failure = Failure::new(Category::Unknown, "canceling statement due to user request")
        .code("57014")
        .sent(Sent::YesUnprocessed);
    SqlError::new(Code::Cancelled, failure).verdict(Verdict::Neutral)
}

/// The error of a connection that broke while a statement was under way.
pub fn connection_lost() -> SqlError {
    let failure = Failure::new(Category::Transient, "connection reset by peer").sent(Sent::Maybe);
    SqlError::new(Code::AttemptsFailed, failure).verdict(Verdict::LeaseLost)
}

/// The error of a statement that broke a constraint.
pub fn constraint_broken() -> SqlError {
    let failure = Failure::new(
        Category::Persistent,
        "duplicate key value violates unique constraint",
    )
    .code("23505")
    .sent(Sent::YesUnprocessed);
    SqlError::new(Code::Constraint, failure)
}

/// The error of a deadlock or serialization conflict.
pub fn contended() -> SqlError {
    let failure = Failure::new(Category::Contention, "could not serialize access")
        .code("40001")
        .sent(Sent::YesUnprocessed);
    SqlError::new(Code::Contention, failure)
}

/// The error of a connect that was refused.
pub fn refused() -> SqlError {
    let failure = Failure::new(Category::Transient, "connection refused").sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
}
