//! Answers of statements: collected, or in batches.

use std::sync::Arc;

use mainstay_engine::Sent;
use mainstay_sql::{
    Access, Answer, AnswerMax, Batch, BatchMax, Collected, Column, HandedOver, Row, SqlError,
    Value, Verdict,
};

use super::{Open, Session, Started};
use crate::errors::Phase;
use crate::probe;
use crate::value::Shape;
use crate::verb::Verb;
use crate::wire::{Finished, Said, ServerError};

/// "The server is running with the %s option so it cannot execute this statement".
const REFUSED_BY_OPTION: u16 = 1290;

/// The beginning of a result.
enum Began {
    Rows(Arc<Shape>),
    Ended(Finished),
}

impl Session {
    pub(super) async fn collect(
        &mut self,
        text: &str,
        params: &[Value],
        max: AnswerMax,
        handed_over: HandedOver<'_>,
    ) -> Result<Answer, SqlError> {
        let started = self.hand_over(text, params, handed_over).await?;
        let mut answer = Answer::default();
        let mut finished = self.one_result(text, started, &mut answer, max).await?;
        if finished.has_more() {
            finished = Box::pin(self.further(text, started, &mut answer, max)).await?;
        }
        self.note_end(finished, started.verb).await?;
        if started.verb.counts {
            let gives_rows = !answer.columns.is_empty();
            answer.affected = Some(match gives_rows {
                true => answer.rows.len() as u64,
                false => finished.affected,
            });
            if finished.affected == 1 && finished.last_key != 0 && !gives_rows {
                answer.keys = vec![key(finished.last_key)];
            }
        }
        Ok(answer)
    }

    /// Reads one result; its rows are the answer's unless it has some already.
    async fn one_result(
        &mut self,
        text: &str,
        started: Started,
        answer: &mut Answer,
        max: AnswerMax,
    ) -> Result<Finished, SqlError> {
        let shape = match self.began(text, started).await? {
            Began::Ended(finished) => return Ok(finished),
            Began::Rows(shape) => shape,
        };
        let is_wanted = answer.columns.is_empty();
        if is_wanted {
            answer.columns = shape.columns.clone();
        }
        let mut collected = Collected::default();
        loop {
            let packet = match self.channel.next().await {
                Ok(Said::Row(packet)) => packet,
                Ok(Said::Finished(finished)) => return Ok(finished),
                Ok(Said::Failed(error)) => {
                    return Err(Box::pin(self.stopped(&error, text, started)).await);
                }
                Ok(_) => continue,
                Err(broken) => return Err(self.broke(&broken, run_phase(started))),
            };
            if !is_wanted {
                continue;
            }
            let added = row(&shape, &packet, started).and_then(|row| {
                max.add(&mut collected, &row)?;
                answer.rows.push(row);
                Ok(())
            });
            if let Err(problem) = added {
                return Err(Box::pin(self.give_up(problem)).await);
            }
        }
    }

    /// Reads the results behind the first, as a procedure gives them: the first that has rows is the
    /// answer.
    async fn further(
        &mut self,
        text: &str,
        started: Started,
        answer: &mut Answer,
        max: AnswerMax,
    ) -> Result<Finished, SqlError> {
        loop {
            let finished = self.one_result(text, started, answer, max).await?;
            if !finished.has_more() {
                return Ok(finished);
            }
        }
    }

    /// Reads up to the first row of a result.
    async fn began(&mut self, text: &str, started: Started) -> Result<Began, SqlError> {
        loop {
            match self.channel.next().await {
                Ok(Said::Finished(finished)) => return Ok(Began::Ended(finished)),
                Ok(Said::Columns { count, follow }) => {
                    let known = self.statements.get(text).and_then(|it| it.shape.clone());
                    return match known.filter(|_| !follow) {
                        Some(shape) => Ok(Began::Rows(shape)),
                        None => self.described_anew(text, started, count).await,
                    };
                }
                Ok(Said::Failed(error)) => {
                    return Err(Box::pin(self.stopped(&error, text, started)).await);
                }
                Ok(_) => {}
                Err(broken) => return Err(self.broke(&broken, run_phase(started))),
            }
        }
    }

    async fn described_anew(
        &mut self,
        text: &str,
        started: Started,
        count: usize,
    ) -> Result<Began, SqlError> {
        let shape = self.described(count, run_phase(started)).await?;
        if let Some(prepared) = self.statements.get(text)
            && started.is_binary
        {
            prepared.shape = Some(shape.clone());
        }
        Ok(Began::Rows(shape))
    }

    /// What the server says about the session at the end of a statement that worked.
    async fn note_end(&mut self, finished: Finished, verb: Verb) -> Result<(), SqlError> {
        if self.access == Access::ReadOnly && finished.has_changed_state() {
            // A function that a read called may have opened the session for writes.
            self.link
                .retire("a statement changed the access of a read-only session");
        }
        self.has_done |= self.in_transaction;
        // A procedure may commit and begin another one.
        self.committed_early |= self.in_transaction && !verb.is_atomic;
        match self.agrees(finished) {
            true => Ok(()),
            false => Box::pin(self.correct(finished, verb)).await,
        }
    }

    /// An error of a statement that was handed over. A stale one is forgotten, so that it is prepared
    /// again next time.
    async fn stopped(&mut self, error: &ServerError, text: &str, started: Started) -> SqlError {
        let mut named = self.failed(error, run_phase(started));
        if named.detail().verdict == Verdict::PrepareAgain
            && let Some(id) = self.statements.remove(text)
        {
            self.channel.close_statement(id);
        }
        if self.is_gone() {
            return named;
        }
        if self.link.cancel_was_asked() && self.absorb_cancel().await.is_err() {
            return named;
        }
        // Before anything else is asked, which would take the warnings away.
        let may_leave = started.verb.counts || self.in_transaction;
        let leaves =
            may_leave && named.sent() == Sent::YesUnprocessed && self.warns_of_rows().await;
        if error.number == REFUSED_BY_OPTION && !matches!(probe::is_read_only(self).await, Ok(true))
        {
            // Another option refused it.
            named.detail_mut().verdict = Verdict::None;
        }
        if !started.verb.is_atomic || started.verb.commits {
            named = self.look_after(named, started.verb).await;
        }
        if leaves {
            self.has_left |= self.in_transaction;
            self.committed_early |= self.in_transaction;
            named.detail_mut().failure.sent = Sent::Maybe;
        }
        let is_proof =
            named.sent() == Sent::YesUnprocessed && named.detail().verdict != Verdict::ReadOnly;
        if started.verb.counts && is_proof && !self.is_undone(text).await {
            named.detail_mut().failure.sent = Sent::Maybe;
        }
        named
    }

    /// The driver does not want the rest: stops the server, waits for its end, and says by it whether the
    /// statement took effect.
    async fn give_up(&mut self, mut problem: SqlError) -> SqlError {
        if let Some(canceller) = self.canceller.clone() {
            canceller.stop().await;
        }
        let ended = self.finish(Phase::Run { is_atomic: true }).await;
        problem.detail_mut().failure.sent = match ended {
            Err(error) => error.sent(),
            Ok(_) => Sent::Maybe,
        };
        problem
    }

    /// Rows of a query of the driver's own, which changes nothing. Only between `enter` and `leave`.
    pub(crate) async fn ask(&mut self, text: &str, params: &[Value]) -> Result<Vec<Row>, SqlError> {
        let asked = Box::pin(self.collect(text, params, AnswerMax::default(), &|| {})).await;
        asked.map(|answer| answer.rows).map_err(harmless)
    }

    /// The same with the names of the columns.
    pub(crate) async fn ask_named(&mut self, text: &str) -> Result<Answer, SqlError> {
        let asked = Box::pin(self.collect(text, &[], AnswerMax::default(), &|| {})).await;
        asked.map_err(harmless)
    }

    /// Starts a statement whose rows are fetched in batches.
    pub(super) async fn start(
        &mut self,
        text: &str,
        params: &[Value],
        handed_over: HandedOver<'_>,
    ) -> Result<Arc<[Column]>, SqlError> {
        let started = self.hand_over(text, params, handed_over).await?;
        let (shape, has_ended) = match self.began(text, started).await? {
            Began::Rows(shape) => (shape, false),
            Began::Ended(finished) => {
                self.end_of_stream(text, started, Answer::default(), finished)
                    .await?;
                (Arc::new(Shape::of(&[], true)), true)
            }
        };
        let columns = shape.columns.clone();
        self.open = Some(Open {
            shape,
            started,
            text: text.into(),
            has_ended,
        });
        Ok(columns)
    }

    /// What follows the rows of a stream is read and left out.
    async fn end_of_stream(
        &mut self,
        text: &str,
        started: Started,
        mut rest: Answer,
        finished: Finished,
    ) -> Result<(), SqlError> {
        let mut finished = finished;
        if finished.has_more() {
            finished = self
                .further(text, started, &mut rest, AnswerMax::default())
                .await?;
        }
        self.note_end(finished, started.verb).await
    }

    pub(super) async fn fetch(&mut self, max: BatchMax) -> Result<Option<Batch>, SqlError> {
        let Some(open) = &self.open else {
            return Err(SqlError::internal(
                "there is no started statement to fetch from",
            ));
        };
        if open.has_ended {
            self.open = None;
            return Ok(None);
        }
        let (shape, started) = (open.shape.clone(), open.started);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while rows.len() < max.rows.max(1) && bytes < max.bytes.max(1) {
            let finished = match self.channel.next().await {
                Ok(Said::Row(packet)) => {
                    bytes += packet.len();
                    match row(&shape, &packet, started) {
                        Ok(row) => rows.push(row),
                        Err(problem) => {
                            self.open = None;
                            return Err(Box::pin(self.give_up(problem)).await);
                        }
                    }
                    continue;
                }
                Ok(Said::Finished(finished)) => finished,
                Ok(Said::Failed(error)) => {
                    let text = self.open.take().map_or_else(Box::default, |open| open.text);
                    return Err(Box::pin(self.stopped(&error, &text, started)).await);
                }
                Ok(_) => continue,
                Err(broken) => {
                    self.open = None;
                    return Err(self.broke(&broken, run_phase(started)));
                }
            };
            let rest = Answer {
                columns: shape.columns.clone(),
                ..Answer::default()
            };
            let text = self
                .open
                .as_ref()
                .map_or_else(Box::default, |open| open.text.clone());
            Box::pin(self.end_of_stream(&text, started, rest, finished)).await?;
            if let Some(open) = &mut self.open {
                open.has_ended = true;
            }
            break;
        }
        if rows.is_empty() {
            self.open = None;
            return Ok(None);
        }
        Ok(Some(Batch { rows }))
    }
}

fn row(shape: &Shape, packet: &[u8], started: Started) -> Result<Row, SqlError> {
    match started.is_binary {
        true => shape.binary(packet),
        false => shape.textual(packet),
    }
}

fn run_phase(started: Started) -> Phase {
    Phase::Run {
        is_atomic: started.verb.is_atomic,
    }
}

fn key(number: u64) -> Value {
    i64::try_from(number).map_or(Value::U64(number), Value::I64)
}

fn harmless(mut error: SqlError) -> SqlError {
    if error.sent() == Sent::Maybe {
        error.detail_mut().failure.sent = Sent::YesUnprocessed;
    }
    error
}
