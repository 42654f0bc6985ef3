//! Several statements in one transaction on a pooled connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_engine::Sent;
use tokio::time::Instant;

use super::Plain;
use super::keyed::{Claim, in_the_way};
use super::limit::{Ended, HandOver, timeout, unknown, until};
use super::proving::mark;
use super::sessions::Held;
use super::statement::{give_back, of_generation, refuse_control};
use super::transaction::commit_again;
use crate::connection::Connection;
use crate::database::{Access, Answer, AnswerMax, Request, Scope, StatementResult, Work};
use crate::dialect::Dialect;
use crate::error::{SqlError, Verdict};
use crate::proof::{Keyed, Lineage, Proving};
use crate::transaction::Begin;
use crate::value::Value;

/// The statements of a batch with their parameters.
pub(super) struct Steps<'a> {
    work: &'a Work,
}

impl<'a> Steps<'a> {
    pub(super) fn of(work: &'a Work) -> Self {
        Steps { work }
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &'a Arc<str>> {
        self.work.texts()
    }

    pub(super) fn len(&self) -> usize {
        match self.work {
            Work::Statement { .. } => 1,
            Work::Many { params, .. } => params.len(),
            Work::Batch { steps } => steps.len(),
            Work::Script { statements } => statements.len(),
        }
    }

    pub(super) fn at(&self, index: usize) -> (&'a str, &'a [Value]) {
        match self.work {
            Work::Statement { text, params } => (text, params),
            Work::Many { text, params } => (text, &params[index]),
            Work::Batch { steps } => (&steps[index].0, &steps[index].1),
            Work::Script { statements } => (&statements[index], &[]),
        }
    }

    /// Adds the answer of one step to that of the whole.
    pub(super) fn gather(&self, whole: &mut Answer, step: Answer) {
        match self.work {
            Work::Statement { .. } => *whole = step,
            Work::Many { .. } | Work::Batch { .. } => {
                whole.affected = match (whole.affected, step.affected) {
                    (Some(a), Some(b)) => Some(a.saturating_add(b)),
                    (one, other) => one.or(other),
                };
                whole.keys.extend(step.keys);
                whole.columns = step.columns;
                whole.rows.extend(step.rows);
            }
            Work::Script { .. } => whole.results.push(StatementResult {
                affected: step.affected,
                rows: step.rows.len() as u64,
            }),
        }
    }
}

/// Runs the steps one after the other, unless told to stop. The place of an error names the step.
pub(super) async fn run_steps(
    connection: &mut dyn Connection,
    steps: &Steps<'_>,
    max: AnswerMax,
    handed: &HandOver,
    stop: &AtomicBool,
) -> Result<Answer, SqlError> {
    let mut whole = Answer::default();
    let tell = || handed.tell();
    for index in 0..steps.len() {
        let (text, params) = steps.at(index);
        let step = connection.run(text, params, max, &tell).await;
        let step = step.map_err(|error| match steps.work {
            Work::Statement { .. } => error,
            _ => error.place("statement", (index + 1).to_string()),
        })?;
        steps.gather(&mut whole, step);
        max.check(&whole)?;
        if stop.load(Ordering::Acquire) {
            return Err(timeout(Sent::YesUnprocessed));
        }
    }
    Ok(whole)
}

/// How the work of a batch came to its end.
struct Done {
    result: Result<Answer, SqlError>,
    /// No transaction is open any more.
    is_over: bool,
}

struct BatchRun<'a> {
    /// What only reads begins as such, and so runs on a session that only reads.
    access: Access,
    steps: &'a Steps<'a>,
    max: AnswerMax,
    handed: &'a HandOver,
    committing: &'a HandOver,
    /// Set while another transaction may be waited for that has the same key in hand.
    claiming: &'a AtomicBool,
    stop: &'a AtomicBool,
    ends_at: Option<Instant>,
    /// What is to be written down with it.
    proving: Option<&'a Proving>,
}

impl BatchRun<'_> {
    async fn on(&self, connection: &mut dyn Connection) -> Done {
        let done = self.once(connection).await;
        let is_stale = |error: &SqlError| error.detail().verdict == Verdict::PrepareAgain;
        match &done.result {
            // One statement alone is prepared again where it is stale; so it is here.
            Err(error) if self.proving.is_some() && done.is_over && is_stale(error) => {
                self.once(connection).await
            }
            _ => done,
        }
    }

    async fn once(&self, connection: &mut dyn Connection) -> Done {
        let begin = Begin {
            access: self.access,
            ..Begin::default()
        };
        let lineage = match self.begin(connection, &begin).await {
            Ok(lineage) => lineage,
            Err(error) => {
                return Done {
                    result: Err(error),
                    is_over: false,
                };
            }
        };
        let answer = match self.work(connection, lineage).await {
            Ok((answer, Then::Commit)) => answer,
            Ok((answer, Then::Replay(key))) => return self.replay(connection, key, answer).await,
            Err(error) => {
                return Done {
                    result: Err(error),
                    is_over: connection.rollback().await.is_ok(),
                };
            }
        };
        let committed = commit_again(connection, self.committing, self.ends_at).await;
        Done {
            is_over: committed.is_ok(),
            result: committed.map(|()| answer),
        }
    }

    /// Gives out the answer of an earlier request, as safely as its commit would have.
    async fn replay(&self, connection: &mut dyn Connection, key: &Keyed, answer: Answer) -> Done {
        let confirmed = async {
            connection.rollback().await?;
            // Like a COMMIT: a cancel could not be told from its success.
            self.committing.tell();
            key.confirm(connection).await
        };
        let result = confirmed.await.map(|()| answer);
        Done {
            is_over: result.is_ok(),
            result,
        }
    }

    async fn begin(
        &self,
        connection: &mut dyn Connection,
        begin: &Begin,
    ) -> Result<Lineage, SqlError> {
        let watch = self.proving.and_then(|proving| proving.commit.as_ref());
        let lineage = match watch {
            Some(watch) => {
                watch.begin();
                connection.lineage().await?
            }
            None => Lineage::default(),
        };
        connection.begin(begin).await?;
        Ok(lineage)
    }

    /// The steps, with what is written down before and after them.
    async fn work(
        &self,
        connection: &mut dyn Connection,
        lineage: Lineage,
    ) -> Result<(Answer, Then<'_>), SqlError> {
        let key = self.proving.and_then(|proving| proving.key.as_ref());
        if let Some(key) = key {
            self.claiming.store(true, Ordering::Release);
            let claim = key.claim(connection).await;
            self.claiming.store(false, Ordering::Release);
            if let Claim::Known(answer) = claim? {
                return Ok((answer, Then::Replay(key)));
            }
        }
        let ran = run_steps(connection, self.steps, self.max, self.handed, self.stop);
        let answer = ran.await?;
        if let Some(key) = key {
            key.keep(connection, &answer).await?;
        }
        if let Some(watch) = self.proving.and_then(|proving| proving.commit.as_ref()) {
            mark(connection, watch, lineage).await?;
            watch.keep(&answer);
        }
        Ok((answer, Then::Commit))
    }
}

/// What follows the work of a batch.
enum Then<'a> {
    Commit,
    /// The key was there already, with an answer.
    Replay(&'a Keyed),
}

impl Plain {
    /// What it may leave behind; refuses what is not for a batch.
    fn traces(
        &self,
        request: &Request,
        steps: &Steps<'_>,
        scope: &Scope,
    ) -> Result<Traces, SqlError> {
        let schema = self.schema_of(scope.schema.as_ref());
        let mut traces = Traces::default();
        for text in steps.texts() {
            let class = request.class_of(text, schema);
            refuse_control(&class)?;
            traces.in_session |= !class.leaves_nothing();
            traces.commits_by_itself |= class.commits_by_itself(self.shared.dialect);
        }
        Ok(traces)
    }

    pub(super) async fn run_batch(
        &self,
        request: &Request,
        scope: Scope,
    ) -> Result<Answer, SqlError> {
        let started = Instant::now();
        let ends_at = self.ends_at(&request.options, scope.attempt.as_ref(), started)?;
        let steps = Steps::of(&request.work);
        let traces = self.traces(request, &steps, &scope)?;
        let attempt = scope.attempt.as_ref();
        let proving = scope.proving.as_deref();
        if let Some(proving) = proving {
            self.prepare_proof(proving, ends_at, attempt).await?;
        }
        let mut lease = self.lease(request.access, ends_at, attempt).await?;
        if traces.in_session {
            lease.mark_dirty();
        }
        let handed = HandOver::new(scope.attempt.clone());
        let committing = HandOver::new(None);
        let (stop, claiming) = (AtomicBool::new(false), AtomicBool::new(false));
        let run = BatchRun {
            access: request.access,
            steps: &steps,
            max: request.answer_max,
            handed: &handed,
            committing: &committing,
            claiming: &claiming,
            stop: &stop,
            ends_at,
            proving,
        };
        let cancel = ends_at.map(|_| lease.canceller());
        lease.set_active(true);
        // A COMMIT is never cancelled: a cancel could not be told from its success.
        let may_cancel = || {
            stop.store(true, Ordering::Release);
            handed.has_happened() && !committing.has_happened()
        };
        let work = async { Ok(run.on(lease.as_mut()).await) };
        let ended = until(ends_at, cancel, may_cancel, work).await;
        let is_mysql = self.shared.dialect == Dialect::MySql;
        let proof = Proof {
            only_reads: request.safety.is_read(),
            undoes_all: !is_mysql,
            is_undone: false,
            keeps: traces.commits_by_itself,
            is_late: false,
            was_handed_over: handed.has_happened(),
            was_committing: committing.has_happened(),
            was_claiming: claiming.load(Ordering::Acquire),
        };
        let result = settle_batch(&mut lease, ended, proof);
        drop(lease);
        let mut answer = match proving {
            Some(proving) => self.proved(proving, result)?,
            None => result?,
        };
        answer.meta.attempts = 1;
        answer.meta.cache = "off";
        answer.meta.elapsed = started.elapsed();
        answer.meta.correlation_id = request.options.correlation_id;
        Ok(answer)
    }
}

/// What the texts of a batch may leave behind.
#[derive(Default)]
struct Traces {
    in_session: bool,
    /// A part may be there to stay whatever becomes of the rest.
    commits_by_itself: bool,
}

/// Ends the part of a lease that ran a batch, and says what its end proves.
fn settle_batch(
    lease: &mut Held,
    ended: Ended<Done>,
    mut proof: Proof,
) -> Result<Answer, SqlError> {
    let (done, is_quiet, is_late) = match ended {
        Ended::InTime(done) => (done.ok(), true, false),
        Ended::Late { result, is_quiet } => (result.and_then(Result::ok), is_quiet, true),
    };
    let is_over = done.as_ref().is_some_and(|done| done.is_over);
    lease.set_active(!is_over);
    if is_quiet {
        give_back(lease);
    } else {
        lease.mark_broken();
    }
    // What failed and left no transaction open was rolled back.
    proof.is_undone = is_over && done.as_ref().is_some_and(|done| done.result.is_err());
    proof.is_late = is_late;
    let gave_nothing = || match proof.was_claiming {
        true => in_the_way(),
        false => timeout(Sent::Maybe),
    };
    let result = done.map_or_else(|| Err(gave_nothing()), |done| done.result);
    result.map_err(|error| match error.detail().verdict {
        // It was us who cancelled.
        Verdict::Neutral if is_late => proof.judge(timeout(Sent::Maybe)),
        _ => of_generation(lease, proof.judge(error)),
    })
}

/// What is known about a transaction that failed.
struct Proof {
    /// Whatever became of it, nothing has taken effect.
    only_reads: bool,
    /// Nothing commits by itself, and every table can be rolled back: what was not committed has gone.
    undoes_all: bool,
    /// The server has said that it rolled all of it back.
    is_undone: bool,
    /// One of the steps may commit by itself.
    keeps: bool,
    /// The time limit has passed: perhaps between two steps, whose effects the error does not know.
    is_late: bool,
    was_handed_over: bool,
    was_committing: bool,
    /// Its time was over while it waited for another request with its key, which is no fault of the endpoint.
    was_claiming: bool,
}

impl Proof {
    /// Without a COMMIT everything was or will be rolled back by the server, whatever the error says; on
    /// MySQL once it has said so, where neither DDL nor a procedure may have committed anything. Where they
    /// may, the driver's error knows whether they did.
    fn judge(&self, mut error: SqlError) -> SqlError {
        if self.only_reads {
            return error;
        }
        let has_ended = error.detail().verdict == Verdict::TransactionEnded;
        let sent = match (self.was_committing, self.was_handed_over) {
            (true, _) => error.sent(),
            (false, false) => Sent::No,
            _ if has_ended => Sent::Maybe,
            (false, true) if self.undoes_all => Sent::YesUnprocessed,
            (false, true) if self.is_undone && !self.keeps => Sent::YesUnprocessed,
            (false, true) if self.is_undone && !self.is_late => {
                error.sent().and(Sent::YesUnprocessed)
            }
            (false, true) => Sent::Maybe,
        };
        error.detail_mut().failure.sent = sent;
        if sent == Sent::Maybe {
            return unknown(error);
        }
        error
    }
}
