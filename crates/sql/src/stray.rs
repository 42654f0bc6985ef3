//! Transactions that the server has and nobody here began, and those that ended behind the back of whoever
//! holds them: what a driver says when the server's own word shows one.
//!
//! Texts that begin or end transactions are refused before they run, but that is a guess from the text. What
//! the server reports with every answer is not.

use mainstay_engine::{Category, Failure, Sent};

use crate::error::{Code, SqlError, Verdict};

const USE_BEGIN: &str = "use begin() or transaction(closure) for statements that belong together";

/// A statement opened a transaction, or left one open, that nobody would have committed; the rollback is
/// proven. `effect`: what else of the statement may be there to stay, as far as its kind tells.
pub fn opened(effect: Sent) -> SqlError {
    if effect == Sent::Maybe {
        return in_doubt("was rolled back, but a part may have been committed before it");
    }
    let failure = Failure::new(
        Category::Persistent,
        "the statement opened a transaction that nobody would commit: it was rolled back, and nothing is left of it",
    );
    SqlError::new(Code::BadStatement, failure.sent(Sent::YesUnprocessed))
        .verdict(Verdict::Undone)
        .hint(USE_BEGIN)
}

/// As [`opened`], but its rollback failed, so that the connection is closed.
pub fn not_undone(problem: &SqlError) -> SqlError {
    let cause = &problem.failure().message;
    in_doubt(&format!(
        "could not be rolled back ({cause}), so that its connection was closed"
    ))
}

fn in_doubt(end: &str) -> SqlError {
    let message = format!("the statement opened a transaction that nobody would commit; it {end}");
    let failure = Failure::new(Category::Persistent, message).sent(Sent::Maybe);
    SqlError::new(Code::OutcomeUnknown, failure).hint(format!(
        "look what is there before you send it again, and {USE_BEGIN}"
    ))
}

/// A statement ended the transaction that it ran in: what the transaction did may have been committed.
/// `error`: what the statement itself came to, if it failed.
pub fn ended(error: Option<SqlError>) -> SqlError {
    let cause = error.map_or_else(String::new, |error| {
        format!(": {}", error.failure().message)
    });
    let message = format!("a statement ended the transaction, by a commit or by a rollback{cause}");
    let failure = Failure::new(Category::Persistent, message).sent(Sent::Maybe);
    SqlError::new(Code::TransactionLost, failure)
        .verdict(Verdict::TransactionEnded)
        .hint("look what is there before you begin again, and end transactions by commit() and rollback()")
}
