//! The driver port over a session: each method takes it into use and gives it back in a known state.

use std::sync::Arc;

use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{
    Access, Answer, AnswerMax, Batch, BatchMax, Begin, BoxFuture, Cancel, Column, Connection,
    HandedOver, Isolation, Lineage, Position, Probe, SqlError, Value,
};

use super::{Open, Session};
use crate::errors::Phase;
use crate::{catalog, probe};

fn begin_text(begin: &Begin) -> String {
    let isolation = match begin.isolation {
        Isolation::Default => "",
        Isolation::ReadCommitted => " ISOLATION LEVEL READ COMMITTED",
        Isolation::RepeatableRead => " ISOLATION LEVEL REPEATABLE READ",
        Isolation::Serializable => " ISOLATION LEVEL SERIALIZABLE",
    };
    let access = match begin.access {
        Access::ReadOnly => " READ ONLY",
        Access::ReadWrite => " READ WRITE",
    };
    format!("BEGIN{isolation}{access}")
}

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

impl Connection for Session {
    fn is_closed(&self) -> bool {
        let is_resting = !self.in_doubt && !self.link.is_busy();
        self.is_gone() || (is_resting && !self.agrees())
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        within!(self, async {
            let answered = self.client.check_connection().await;
            answered.map_err(|e| self.failed(&e, Phase::Control))
        })
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        within!(self, self.restore())
    }

    fn clean_up(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        Box::pin(self.clean())
    }

    fn canceller(&self) -> Arc<dyn Cancel> {
        self.canceller.clone()
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
            self.confirm(result).await
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
            match self.start(text, params, handed_over).await {
                Ok((prepared, stream)) => {
                    let columns = prepared.columns.clone();
                    self.open = Some(Open {
                        prepared,
                        stream: Some(Box::pin(stream)),
                        text: text.into(),
                    });
                    // Still busy, but in a known state.
                    self.in_doubt = false;
                    Ok(columns)
                }
                Err(error) => {
                    let result = self.confirm(Err(error)).await;
                    self.leave();
                    result
                }
            }
        })
    }

    fn next_batch(&mut self, max: BatchMax) -> BoxFuture<'_, Result<Option<Batch>, SqlError>> {
        Box::pin(async move {
            self.in_doubt = true;
            let mut result = self.fetch(max).await;
            if self.open.as_ref().is_none_or(|o| o.stream.is_none()) {
                result = self.confirm(result).await;
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
        within!(self, async {
            let writes = begin.access == Access::ReadWrite;
            self.command(&begin_text(begin), Phase::Begin { writes })
                .await?;
            self.in_transaction = true;
            Ok(())
        })
    }

    fn commit<'a>(
        &'a mut self,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        within!(self, self.end_transaction(handed_over))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        within!(self, async {
            let ended = self.command("ROLLBACK", Phase::Control).await;
            self.in_transaction = false;
            ended
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

    fn position(&mut self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        within!(self, probe::position(self))
    }
}
