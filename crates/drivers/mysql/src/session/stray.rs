//! Where the server's transaction is not the one that the driver knows of.

use mainstay_engine::Sent;
use mainstay_sql::{SqlError, stray};

use super::Session;
use crate::errors::Phase;
use crate::verb::Verb;
use crate::wire::Finished;

impl Session {
    /// Whether the server has a transaction open where the driver has, and only there; without one each
    /// statement must be committed by itself.
    pub(super) fn agrees(&self, finished: Finished) -> bool {
        match self.in_transaction {
            true => finished.is_in_transaction(),
            false => !finished.is_in_transaction() && finished.commits_each(),
        }
    }

    /// A statement that worked has left the session in another transaction than it found it in.
    pub(super) async fn correct(&mut self, finished: Finished, verb: Verb) -> Result<(), SqlError> {
        if self.in_transaction {
            return match self.goes_on(verb).await {
                true => Ok(()),
                false => Err(stray::ended(None)),
            };
        }
        tracing::warn!(
            "a statement left a transaction open that nobody would commit; it is rolled back"
        );
        match self.undo(finished.commits_each()).await {
            // Procedures and blocks may have committed before.
            Ok(true) if verb.is_atomic => Err(stray::opened(Sent::YesUnprocessed)),
            Ok(_) => Err(stray::opened(Sent::Maybe)),
            Err(problem) => Err(stray::not_undone(&problem)),
        }
    }

    /// The server has ended the transaction. After a statement that commits, what follows is another one;
    /// else nobody knows how it ended.
    async fn goes_on(&mut self, verb: Verb) -> bool {
        if verb.commits {
            // A DDL that fails commits too, but there may be nothing to commit.
            self.committed_early |= self.has_done;
            let began = self.command("START TRANSACTION", Phase::Control).await;
            return began.is_ok();
        }
        tracing::warn!("a statement ended the transaction that it ran in");
        self.end_of_transaction();
        false
    }

    /// Rolls back what is open, and has each statement committed by itself again. Whether all of it is
    /// undone: tables without transactions keep what was changed, and the server warns of it.
    async fn undo(&mut self, commits_each: bool) -> Result<bool, SqlError> {
        let undone = self.undo_at_the_server(commits_each).await;
        match undone {
            Ok(finished) if self.agrees(finished) => Ok(finished.warnings == 0),
            Ok(_) => {
                self.link.retire("a transaction could not be rolled back");
                Err(self.gone())
            }
            Err(problem) => {
                self.link.retire("a transaction could not be rolled back");
                Err(problem)
            }
        }
    }

    async fn undo_at_the_server(&mut self, commits_each: bool) -> Result<Finished, SqlError> {
        let mut undone = self.command("ROLLBACK", Phase::Control).await?;
        if !commits_each {
            let warnings = undone.warnings;
            undone = self.command("SET autocommit = 1", Phase::Control).await?;
            undone.warnings = warnings;
        }
        Ok(undone)
    }

    /// An error says nothing about the transaction. After a statement that may have begun or ended one the
    /// server is asked.
    pub(super) async fn look_after(&mut self, error: SqlError, verb: Verb) -> SqlError {
        self.channel.ping();
        let finished = match self.finish(Phase::Control).await {
            Ok(finished) => finished,
            // It is given up; what the statement itself came to is known.
            Err(_) => {
                self.link
                    .retire("the session did not answer after an error");
                return error;
            }
        };
        if self.agrees(finished) {
            return error;
        }
        if self.in_transaction {
            return match self.goes_on(verb).await {
                true => error,
                false => stray::ended(Some(error)),
            };
        }
        tracing::warn!("a statement failed and left a transaction open; it is rolled back");
        // Where that fails the session is given up, which undoes it as well.
        let _ = self.undo(finished.commits_each()).await;
        error
    }
}
