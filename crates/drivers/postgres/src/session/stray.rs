//! Where the server's transaction is not the one that the driver knows of.

use mainstay_engine::Sent;
use mainstay_sql::{SqlError, Verdict, stray};

use super::Session;
use crate::errors::Phase;

impl Session {
    /// Whether the server has a transaction open where the driver has, and only there.
    pub(super) fn agrees(&self) -> bool {
        self.link.is_in_transaction() == self.in_transaction
    }

    /// The end of a caller's statement, seen by what the server says about the transaction. Costs nothing
    /// where both agree.
    pub(super) async fn confirm<T>(&mut self, result: Result<T, SqlError>) -> Result<T, SqlError> {
        if self.agrees() || self.is_gone() {
            return result;
        }
        Box::pin(self.correct(result)).await
    }

    async fn correct<T>(&mut self, result: Result<T, SqlError>) -> Result<T, SqlError> {
        if self.in_transaction {
            tracing::warn!("a statement ended the transaction that it ran in");
            self.in_transaction = false;
            return Err(match result {
                // A COMMIT that the server refused has rolled back.
                Err(error) if error.sent().is_proven_harmless() => {
                    error.verdict(Verdict::TransactionEnded)
                }
                result => stray::ended(result.err()),
            });
        }
        tracing::warn!(
            "a statement left a transaction open that nobody would commit; it is rolled back"
        );
        let undone = self.command("ROLLBACK", Phase::Control).await;
        let is_undone = undone.is_ok() && self.agrees();
        if !is_undone {
            self.link.retire("a transaction could not be rolled back");
        }
        match (result, undone) {
            (Err(error), _) => Err(error),
            // Nothing but BEGIN leaves one open: procedures end theirs.
            (Ok(_), Ok(())) if is_undone => Err(stray::opened(Sent::YesUnprocessed)),
            (Ok(_), Ok(())) => Err(stray::not_undone(&self.gone())),
            (Ok(_), Err(problem)) => Err(stray::not_undone(&problem)),
        }
    }
}
