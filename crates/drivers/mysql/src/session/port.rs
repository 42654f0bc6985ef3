//! The driver port over a session: each method takes it into use and gives it back in a known state.

use std::sync::Arc;

use mainstay_engine::Sent;
use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{
    Access, Answer, AnswerMax, Batch, BatchMax, Begin, BoxFuture, Cancel, Column, Connection,
    HandedOver, Isolation, Lineage, Position, Probe, SqlError, Value,
};

use super::Session;
use crate::errors::{self, Phase};
use crate::{catalog, probe, relayed};

/// Runs a body between `enter` and `leave`; a dropped future leaves the session in doubt.
macro_rules! within {
    ($self:ident, $body:expr) => {
        Box::pin(async move {
            $self.enter().await?;
            let result = $body.await;
            $self.leave();
            result
        })
    };
}

/// Cancels nothing: a session that is not attached to its server yet belongs to nobody.
struct Nothing;

impl Cancel for Nothing {
    fn cancel(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl Session {
    /// An error of a statement in a transaction of which something is committed already.
    fn with_what_came_before(&self, mut error: SqlError) -> SqlError {
        if self.committed_early {
            error.detail_mut().failure.sent = Sent::Maybe;
        }
        error
    }

    async fn begin_now(&mut self, begin: &Begin) -> Result<(), SqlError> {
        let isolation = match begin.isolation {
            Isolation::Default => None,
            Isolation::ReadCommitted => Some("READ COMMITTED"),
            Isolation::RepeatableRead => Some("REPEATABLE READ"),
            Isolation::Serializable => Some("SERIALIZABLE"),
        };
        if let Some(isolation) = isolation {
            // For the next transaction only.
            let text = format!("SET TRANSACTION ISOLATION LEVEL {isolation}");
            self.command(&text, Phase::Control).await?;
        }
        let text = match begin.access {
            Access::ReadOnly => "START TRANSACTION READ ONLY",
            Access::ReadWrite => "START TRANSACTION READ WRITE",
        };
        self.command(text, Phase::Control).await?;
        self.in_transaction = true;
        self.committed_early = false;
        self.has_done = false;
        self.has_left = false;
        Ok(())
    }
}

impl Connection for Session {
    fn is_closed(&self) -> bool {
        let is_resting = !self.in_doubt && self.channel.is_idle();
        self.is_gone() || (is_resting && !self.channel.is_quiet())
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        within!(self, async {
            self.channel.ping();
            self.finish(Phase::Control).await.map(drop)
        })
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        within!(self, self.restore())
    }

    fn clean_up(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        Box::pin(self.clean())
    }

    fn canceller(&self) -> Arc<dyn Cancel> {
        match &self.canceller {
            Some(canceller) => canceller.clone(),
            None => Arc::new(Nothing),
        }
    }

    fn run<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        max: AnswerMax,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Answer, SqlError>> {
        within!(self, async {
            let result = self.collect(text, params, max, handed_over).await;
            result.map_err(|error| self.with_what_came_before(error))
        })
    }

    fn open<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Arc<[Column]>, SqlError>> {
        Box::pin(async move {
            self.enter().await?;
            let started = self.start(text, params, handed_over).await;
            let started = started.map_err(|error| self.with_what_came_before(error));
            match &started {
                // Still busy, but in a known state.
                Ok(_) if !self.channel.is_idle() => self.in_doubt = false,
                _ => self.leave(),
            }
            started
        })
    }

    fn next_batch(&mut self, max: BatchMax) -> BoxFuture<'_, Result<Option<Batch>, SqlError>> {
        Box::pin(async move {
            self.in_doubt = true;
            let result = self.fetch(max).await;
            let result = result.map_err(|error| self.with_what_came_before(error));
            if self.channel.is_idle() {
                self.leave();
            }
            self.in_doubt = false;
            result
        })
    }

    fn begin<'a>(&'a mut self, begin: &'a Begin) -> BoxFuture<'a, Result<(), SqlError>> {
        if self.access == Access::ReadOnly && begin.access == Access::ReadWrite {
            // `READ WRITE` would override what keeps the session read-only.
            let problem =
                SqlError::internal("a writing transaction was begun on a read-only session");
            return Box::pin(std::future::ready(Err(problem)));
        }
        within!(self, self.begin_now(begin))
    }

    fn commit<'a>(
        &'a mut self,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        within!(self, self.end_transaction(handed_over))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        within!(self, async {
            let has_left = self.has_left;
            let ended = self.command("ROLLBACK", Phase::Control).await;
            self.end_of_transaction();
            match ended {
                // The error that rolled back earlier, as a deadlock does, had the warning.
                _ if has_left => Err(errors::partly_undone()),
                Ok(ended) if ended.warnings > 0 => Err(errors::partly_undone()),
                ended => ended.map(drop),
            }
        })
    }

    fn describe<'a>(
        &'a mut self,
        what: &'a Describe,
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        within!(self, catalog::describe(self, what))
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, SqlError>> {
        within!(self, probe::probe(self))
    }

    fn lineage(&mut self) -> BoxFuture<'_, Result<Lineage, SqlError>> {
        within!(self, probe::lineage(self))
    }

    fn has_applied_all(&mut self) -> BoxFuture<'_, Result<bool, SqlError>> {
        within!(self, relayed::has_applied_all(self))
    }

    fn position(&mut self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        within!(self, probe::position(self))
    }
}
