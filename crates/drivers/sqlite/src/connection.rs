//! The caller's side of a connection.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use mainstay_engine::Sent;
use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{
    Access, Answer, AnswerMax, Batch, BatchMax, Begin, BoxFuture, Cancel, Code, Column, Connection,
    HandedOver, Lineage, Position, Probe, SqlError, Value,
};
use tokio::sync::oneshot;

use crate::error;
use crate::interrupt::{Canceller, Gate};
use crate::left::{Left, Stay};
use crate::settings::SqliteSettings;
use crate::value;
use crate::worker::{self, Ending, Job, Reply, Step, Task, Text};

/// A connection: a handle on its worker.
pub(crate) struct SqliteConnection {
    jobs: SyncSender<Job>,
    gate: Arc<Gate>,
    stay: Arc<Stay>,
    /// A method's future was dropped before its answer came.
    is_left: bool,
}

impl SqliteConnection {
    /// Opens the file on a new worker.
    pub(crate) async fn open(
        settings: Arc<SqliteSettings>,
        access: Access,
        left: Arc<Left>,
    ) -> Result<Self, SqlError> {
        let gate = Arc::new(Gate::default());
        let stay = Arc::new(Stay::new(left));
        let (opened, answer) = oneshot::channel();
        let ending = Ending::new(Arc::clone(&gate), Arc::clone(&stay));
        // The first job is to open the file: dropped meanwhile, it is cancelled as any other.
        let number = gate.submit();
        let jobs = worker::start(settings, access, ending, number, opened)?;
        let connection = SqliteConnection {
            jobs,
            gate,
            stay,
            is_left: false,
        };
        let lost = |_| {
            let mut error = error::worker_lost();
            error.detail_mut().failure.sent = Sent::No;
            error
        };
        answer.await.map_err(lost)??;
        Ok(connection)
    }

    /// Hands a task over and waits for its answer.
    async fn ask<T>(
        &mut self,
        handed_over: HandedOver<'_>,
        task: impl FnOnce(Reply<T>) -> Task,
    ) -> Result<T, SqlError> {
        if self.is_left {
            return Err(SqlError::internal(
                "the connection was used again without a clean-up",
            ));
        }
        self.ask_always(handed_over, task).await
    }

    async fn ask_always<T>(
        &mut self,
        handed_over: HandedOver<'_>,
        task: impl FnOnce(Reply<T>) -> Task,
    ) -> Result<T, SqlError> {
        if self.gate.is_broken() {
            return Err(error::closed());
        }
        let (reply, answer) = oneshot::channel();
        let task = task(reply);
        self.is_left = true;
        handed_over();
        let number = self.gate.submit();
        if let Err(refused) = self.jobs.try_send(Job { number, task }) {
            return Err(match refused {
                TrySendError::Disconnected(_) => error::closed(),
                TrySendError::Full(_) => {
                    SqlError::internal("the connection was cleaned up twice without an end")
                }
            });
        }
        let result = answer.await;
        self.is_left = false;
        result.unwrap_or_else(|_| Err(error::worker_lost()))
    }

    fn step(&mut self, step: Step) -> BoxFuture<'_, Result<(), SqlError>> {
        Box::pin(self.ask(&|| (), move |reply| Task::Step(step, reply)))
    }
}

/// A text and its parameters, ready to cross.
fn ready(text: &str, params: &[Value]) -> Result<Text, SqlError> {
    if text.contains('\0') {
        return Err(SqlError::caller(
            Code::BadStatement,
            "the statement has a NUL byte",
            "send text with a NUL as a parameter",
        ));
    }
    Ok(Text {
        text: text.into(),
        params: value::params(params)?,
    })
}

impl Connection for SqliteConnection {
    /// Also once a job has found that the file was deleted or replaced. Nothing is looked at here: a look
    /// may block, and whoever asks is on the runtime.
    fn is_closed(&self) -> bool {
        self.gate.is_broken() || self.gate.was_file_gone()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.step(Step::Check)
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.step(Step::Reset)
    }

    fn clean_up(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        Box::pin(async move {
            self.gate.cancel();
            let rollback = |reply| Task::Step(Step::Rollback, reply);
            self.ask_always(&|| (), rollback).await
        })
    }

    fn canceller(&self) -> Arc<dyn Cancel> {
        Arc::new(Canceller(Arc::clone(&self.gate)))
    }

    fn run<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        max: AnswerMax,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Answer, SqlError>> {
        Box::pin(async move {
            let text = ready(text, params)?;
            let task = |reply| Task::Run(text, max, reply);
            self.ask(handed_over, task).await
        })
    }

    fn open<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Arc<[Column]>, SqlError>> {
        Box::pin(async move {
            let text = ready(text, params)?;
            let task = |reply| Task::Open(text, reply);
            self.ask(handed_over, task).await
        })
    }

    fn next_batch(&mut self, max: BatchMax) -> BoxFuture<'_, Result<Option<Batch>, SqlError>> {
        Box::pin(self.ask(&|| (), move |reply| Task::Next(max, reply)))
    }

    fn begin<'a>(&'a mut self, begin: &'a Begin) -> BoxFuture<'a, Result<(), SqlError>> {
        // Every transaction of SQLite is serializable, which is at least what was asked for.
        self.step(Step::Begin(begin.access))
    }

    fn commit<'a>(
        &'a mut self,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        let commit = |reply| Task::Step(Step::Commit, reply);
        Box::pin(self.ask(handed_over, commit))
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.step(Step::Rollback)
    }

    fn describe<'a>(
        &'a mut self,
        what: &'a Describe,
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        let what = what.clone();
        Box::pin(self.ask(&|| (), move |reply| Task::Describe(what, reply)))
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, SqlError>> {
        Box::pin(self.ask(&|| (), Task::Probe))
    }

    fn lineage(&mut self) -> BoxFuture<'_, Result<Lineage, SqlError>> {
        let lineage = Lineage {
            history: self.gate.history(),
            ..Lineage::default()
        };
        Box::pin(std::future::ready(Ok(lineage)))
    }

    fn position(&mut self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        // One file for all endpoints: nothing to ask.
        Box::pin(std::future::ready(Ok(Some(Position::Shared))))
    }
}

impl Drop for SqliteConnection {
    /// Stops what the worker does; it ends when it finds that nobody can send it a job any more.
    fn drop(&mut self) {
        self.gate.cancel();
        if self.gate.is_running() {
            self.stay.leave();
        }
    }
}
