//! A transaction on a pooled connection, which it owns until its end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use mainstay_engine::{Category, EndpointId, Failure, Safety, Sent};
use tokio::time::Instant;

use super::Plain;
use super::batch::{Steps, run_steps};
use super::limit::{Ended, HandOver, Judge, timeout, unknown, until};
use super::proving::mark;
use super::sessions::{Held, Limits};
use super::statement::{of_generation, refuse_transaction_control, settle};
use crate::connection::Connection;
use crate::database::{Answer, AnswerMax, BoxFuture, Request, Scope};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError, Verdict};
use crate::proof::{Lineage, Proving};
use crate::schema::Schema;
use crate::stray;
use crate::transaction::{AFTER_LOSS_OF_KEPT, Begin, Transaction};

/// A COMMIT that finds the database busy is repeated this often, with [`COMMIT_PAUSE`] between.
const COMMITS_MAX: u32 = 50;

const COMMIT_PAUSE: Duration = Duration::from_millis(10);

/// A longer name of a savepoint is refused (PostgreSQL would cut it silently).
const SAVEPOINT_NAME_MAX: usize = 63;

/// Where a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Statements may run.
    Open,
    /// A statement failed; the server takes nothing but the way back.
    Aborted,
    /// The connection is gone or in doubt, and the transaction with it.
    Lost,
    /// A statement ended it, nobody knows how.
    Ended,
}

pub(super) struct PlainTransaction {
    /// Active for as long as the transaction is open, so that whatever drops it rolls it back. `None`: it
    /// was given up.
    lease: Option<Held>,
    standing: Standing,
    /// A statement ran that commits by itself, or may have: not all of it can be rolled back.
    is_kept: bool,
    plain: Plain,
    schema: Option<Arc<Schema>>,
    /// What is to be written down before COMMIT, and where that is.
    proving: Option<(Arc<Proving>, Lineage)>,
}

impl Plain {
    pub(super) async fn begin_transaction(
        &self,
        begin: &Begin,
        scope: Scope,
    ) -> Result<Box<dyn Transaction>, SqlError> {
        let attempt = scope.attempt.as_ref();
        let ends_at = self.ends_at(&begin.options, attempt, Instant::now())?;
        if let Some(proving) = &scope.proving {
            self.prepare_proof(proving, ends_at, attempt).await?;
        }
        let mut lease = self.lease(begin.access, ends_at, attempt).await?;
        // From here on a drop, a timeout or an error sends the connection through clean-up, which rolls
        // back whatever the server has begun.
        lease.set_active(true);
        let proving = scope.proving;
        let work = async {
            let proving = match proving {
                Some(proving) => Some((proving, lease.lineage().await?)),
                None => None,
            };
            lease.begin(begin).await?;
            Ok(proving)
        };
        let ended = until(ends_at, None, || false, work).await;
        let result = match ended {
            Ended::InTime(result) => result,
            Ended::Late { .. } => Err(timeout(Sent::YesUnprocessed)),
        };
        let proving = result.map_err(|mut error| {
            // An empty transaction that is rolled back has no effect.
            error.detail_mut().failure.sent = match error.sent() {
                Sent::Maybe => Sent::YesUnprocessed,
                sent => sent,
            };
            self.judge_slowness(of_generation(&mut lease, error))
        })?;
        Ok(Box::new(PlainTransaction {
            lease: Some(lease),
            standing: Standing::Open,
            is_kept: false,
            plain: self.clone(),
            schema: scope.schema,
            proving,
        }))
    }
}

/// Commits, again where the database was only busy. Errors before the hand-over prove that nothing
/// happened.
pub(super) async fn commit_again(
    connection: &mut dyn Connection,
    committing: &HandOver,
    ends_at: Option<Instant>,
) -> Result<(), SqlError> {
    let tell = || committing.tell();
    for _ in 1..COMMITS_MAX {
        match connection.commit(&tell).await {
            Err(error) if error.detail().verdict == Verdict::CommitAgain => {}
            ended => return ended,
        }
        let is_late = ends_at.is_some_and(|end| Instant::now() + COMMIT_PAUSE >= end);
        if is_late {
            break;
        }
        tokio::time::sleep(COMMIT_PAUSE).await;
    }
    connection.commit(&tell).await
}

impl PlainTransaction {
    /// The connection, if the transaction still stands.
    fn lease(&mut self) -> Result<&mut Held, SqlError> {
        match (self.standing, &mut self.lease) {
            (Standing::Open, Some(lease)) => Ok(lease),
            (Standing::Aborted, Some(_)) => Err(aborted()),
            (standing, _) => Err(gone(standing, self.is_kept)),
        }
    }

    fn limits(&self) -> Arc<Limits> {
        self.plain.shared.limits.load_full()
    }

    fn schema(&self) -> &Schema {
        self.plain.schema_of(self.schema.as_ref())
    }

    fn control_ends_at(&self) -> Option<Instant> {
        let limit = self.limits().of_control();
        limit.and_then(|limit| Instant::now().checked_add(limit))
    }

    /// Notes what an error did to the transaction.
    fn note(&mut self, error: &SqlError) {
        let Some(lease) = &mut self.lease else {
            return;
        };
        let verdict = error.detail().verdict;
        if verdict == Verdict::TransactionEnded {
            // The connection itself is well: the clean-up sees to it.
            self.give_up(Standing::Ended);
        } else if verdict == Verdict::LeaseLost || lease.is_closed() {
            lease.mark_broken();
            self.give_up(Standing::Lost);
        } else if error.sent() == Sent::No {
            // Never reached the server: the transaction does not know of it.
            self.standing = Standing::Open;
        } else {
            let goes_on = self.plain.shared.dialect != Dialect::Postgres
                && error.failure().category == Category::Persistent;
            self.standing = if goes_on {
                Standing::Open
            } else {
                Standing::Aborted
            };
        }
    }

    /// Leaves the connection to the clean-up.
    fn give_up(&mut self, standing: Standing) {
        self.standing = standing;
        self.lease = None;
    }

    async fn run_inside(&mut self, request: &Request) -> Result<Answer, SqlError> {
        let started = Instant::now();
        let steps = Steps::of(&request.work);
        let dialect = self.plain.shared.dialect;
        let (mut leaves_nothing, mut commits_by_itself) = (true, false);
        for text in steps.texts() {
            let class = request.class_of(text, self.schema());
            let instead = "use commit(), rollback() and savepoint() of the transaction";
            refuse_transaction_control(&class, instead)?;
            leaves_nothing &= class.leaves_nothing();
            commits_by_itself |= class.commits_by_itself(dialect);
        }
        let limit = request.options.deadline;
        let limit = limit.or_else(|| self.limits().of_control());
        let ends_at = limit.and_then(|limit| started.checked_add(limit));
        let lease = self.lease()?;
        if !leaves_nothing {
            lease.mark_dirty();
        }
        let cancel = ends_at.map(|_| lease.canceller());
        let handed = HandOver::new(None);
        let stop = AtomicBool::new(false);
        let mut lease = self.begin_step()?;
        self.is_kept |= commits_by_itself;
        let work = run_steps(lease.as_mut(), &steps, request.answer_max, &handed, &stop);
        let may_cancel = || {
            stop.store(true, std::sync::atomic::Ordering::Release);
            handed.has_happened()
        };
        let ended = until(ends_at, cancel, may_cancel, work).await;
        // Nothing inside a transaction has an effect of its own: reads and writes are judged alike.
        let judge = Judge {
            safety: Safety::Read,
            proves_on_error: true,
        };
        let result = settle(&mut lease, ended, &judge, &handed);
        let is_known = !lease.is_active();
        self.end_step(lease, is_known);
        match result {
            Ok(mut answer) => {
                answer.meta.attempts = 1;
                answer.meta.cache = "off";
                answer.meta.elapsed = started.elapsed();
                Ok(answer)
            }
            Err(error) => {
                self.note(&error);
                Err(self.inside(error))
            }
        }
    }

    /// Takes the connection out for one step. A step that is dropped takes the transaction with it.
    fn begin_step(&mut self) -> Result<Held, SqlError> {
        let standing = std::mem::replace(&mut self.standing, Standing::Lost);
        let taken = self.lease.take();
        taken.ok_or_else(|| gone(standing, self.is_kept))
    }

    fn end_step(&mut self, mut lease: Held, is_known: bool) {
        if is_known {
            // The transaction is still open at the server.
            lease.set_active(true);
            self.lease = Some(lease);
            self.standing = Standing::Open;
        }
    }

    /// An error of a statement, as the transaction's caller must read it: nothing has taken effect, for
    /// no COMMIT was sent.
    fn inside(&self, error: SqlError) -> SqlError {
        let mut error = self.plain.judge_slowness(error);
        if self.standing == Standing::Ended {
            return error;
        }
        let is_lost = self.standing == Standing::Lost;
        let detail = error.detail_mut();
        // What ran and whose answer alone was refused is committed with the rest.
        let has_run = detail.code == Code::AnswerTooLarge;
        let is_proven = !has_run && self.plain.shared.dialect != Dialect::MySql;
        if detail.failure.sent == Sent::Maybe && is_proven {
            detail.failure.sent = Sent::YesUnprocessed;
        }
        if is_lost && detail.code != Code::OutcomeUnknown {
            detail.code = Code::TransactionLost;
            detail.verdict = Verdict::LeaseLost;
            // What had run before this statement went with the transaction.
            detail.failure.sent = detail.failure.sent.and(left(self.is_kept));
            return error.hint(after_loss(self.is_kept));
        }
        error
    }

    /// Runs a savepoint command.
    async fn savepoint_command(&mut self, text: &str) -> Result<(), SqlError> {
        let was_aborted = self.standing == Standing::Aborted;
        let ends_at = self.control_ends_at();
        let mut lease = self.begin_step()?;
        let handed = HandOver::new(None);
        let tell = || handed.tell();
        let work = lease.run(text, &[], AnswerMax::default(), &tell);
        let ended = until(ends_at, None, || false, work).await;
        let result = settle(&mut lease, ended, &Judge::read(), &handed);
        let is_known = !lease.is_active();
        self.end_step(lease, is_known);
        match result {
            Ok(_) => Ok(()),
            Err(error) => {
                self.note(&error);
                if was_aborted && self.standing == Standing::Open {
                    self.standing = Standing::Aborted;
                }
                Err(self.inside(error))
            }
        }
    }

    fn quoted(&self, name: &str) -> Result<String, SqlError> {
        let fits = !name.is_empty() && name.len() <= SAVEPOINT_NAME_MAX && !name.contains('\0');
        if !fits {
            return Err(SqlError::caller(
                Code::BadRequest,
                format!("{name:?} is no name for a savepoint"),
                format!("use 1 to {SAVEPOINT_NAME_MAX} bytes without NUL"),
            ));
        }
        Ok(self.plain.shared.dialect.quote(name))
    }

    async fn commit_now(mut self) -> Result<Answer, SqlError> {
        let started = Instant::now();
        if self.standing == Standing::Aborted {
            let undone = self.roll_back_now().await;
            return Err(undone
                .err()
                .unwrap_or_else(|| aborted_and_undone(self.is_kept)));
        }
        self.lease()?;
        let ends_at = self.control_ends_at();
        let mut lease = self.begin_step()?;
        let committing = HandOver::new(None);
        let proving = self.proving.take();
        let work = async {
            if let Some((proving, lineage)) = &proving
                && let Some(watch) = &proving.commit
            {
                mark(lease.as_mut(), watch, lineage.clone()).await?;
            }
            commit_again(lease.as_mut(), &committing, ends_at).await
        };
        // Never cancelled: a cancelled COMMIT may have committed all the same.
        let ended = until(ends_at, None, || false, work).await;
        let result = match ended {
            Ended::InTime(result) => result,
            Ended::Late { .. } => Err(timeout(Sent::Maybe)),
        };
        if result.is_ok() {
            lease.set_active(false);
        }
        // With an error the lease goes to the clean-up, which ends whatever is still open.
        let result = result.map_err(|error| {
            let error = judge_commit(error, committing.has_happened());
            of_generation(&mut lease, error)
        });
        let result = match &proving {
            Some((proving, _)) => self.plain.proved(proving, result),
            None => result,
        };
        result.map_err(|error| self.plain.judge_slowness(error))?;
        let mut answer = Answer::default();
        answer.meta.attempts = 1;
        answer.meta.cache = "off";
        answer.meta.elapsed = started.elapsed();
        Ok(answer)
    }

    async fn roll_back_now(&mut self) -> Result<(), SqlError> {
        match self.standing {
            Standing::Open | Standing::Aborted => {}
            // Its connection is being cleaned up, which rolls back.
            Standing::Lost => return Ok(()),
            Standing::Ended => return Err(stray::ended(None)),
        }
        let ends_at = self.control_ends_at();
        let mut lease = self.begin_step()?;
        let ended = until(ends_at, None, || false, lease.rollback()).await;
        match ended {
            Ended::InTime(Ok(())) => {
                lease.set_active(false);
                Ok(())
            }
            // It was rolled back, and the server says that something is there to stay.
            Ended::InTime(Err(error)) if error.sent() == Sent::Maybe => Err(error),
            // The clean-up rolls back, or closes the connection, which rolls back too.
            _ => Ok(()),
        }
    }
}

fn judge_commit(mut error: SqlError, was_handed_over: bool) -> SqlError {
    if !was_handed_over {
        error.detail_mut().failure.sent = Sent::YesUnprocessed;
        return error;
    }
    if error.detail().verdict == Verdict::CommitAgain {
        // Said to be busy to the last: nothing was committed, and the clean-up rolls back.
        error.detail_mut().failure.sent = Sent::YesUnprocessed;
    }
    match error.sent() {
        Sent::Maybe => unknown(error),
        Sent::No | Sent::YesUnprocessed => error,
    }
}

fn aborted() -> SqlError {
    let failure = Failure::new(
        Category::Persistent,
        "the transaction was aborted by the failure of an earlier statement",
    );
    SqlError::new(Code::Conflict, failure.sent(Sent::YesUnprocessed))
        .hint("roll it back, or go back to a savepoint")
}

fn aborted_and_undone(is_kept: bool) -> SqlError {
    let message = match is_kept {
        false => {
            "nothing was committed: a statement of the transaction had failed, so it was rolled back"
        }
        true => {
            "a statement of the transaction had failed, so what was not committed by itself was rolled back"
        }
    };
    let failure = Failure::new(Category::Persistent, message).sent(left(is_kept));
    SqlError::new(Code::Conflict, failure)
        .hint("begin again; use a savepoint around a statement that may fail")
}

/// The transaction cannot be used any more.
fn gone(standing: Standing, is_kept: bool) -> SqlError {
    if standing == Standing::Ended {
        return stray::ended(None);
    }
    let failure = Failure::new(
        Category::Transient,
        "the transaction is gone: its connection was lost or a step of it was abandoned",
    );
    SqlError::new(Code::TransactionLost, failure.sent(left(is_kept)))
        .verdict(Verdict::LeaseLost)
        .hint(after_loss(is_kept))
}

/// What a rollback proves.
fn left(is_kept: bool) -> Sent {
    match is_kept {
        true => Sent::Maybe,
        false => Sent::YesUnprocessed,
    }
}

fn after_loss(is_kept: bool) -> &'static str {
    match is_kept {
        false => "it was rolled back; begin a new one",
        true => AFTER_LOSS_OF_KEPT,
    }
}

impl Transaction for PlainTransaction {
    fn run<'a>(&'a mut self, request: &'a Request) -> BoxFuture<'a, Result<Answer, SqlError>> {
        Box::pin(self.run_inside(request))
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(async move {
            let name = self.quoted(name)?;
            self.lease()?;
            self.savepoint_command(&format!("SAVEPOINT {name}")).await
        })
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(async move {
            let name = self.quoted(name)?;
            if matches!(self.standing, Standing::Lost | Standing::Ended) {
                return Err(gone(self.standing, self.is_kept));
            }
            let text = format!("ROLLBACK TO SAVEPOINT {name}");
            self.savepoint_command(&text).await
        })
    }

    fn release<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(async move {
            let name = self.quoted(name)?;
            self.lease()?;
            self.savepoint_command(&format!("RELEASE SAVEPOINT {name}"))
                .await
        })
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<Answer, SqlError>> {
        Box::pin(self.commit_now())
    }

    fn rollback(mut self: Box<Self>) -> BoxFuture<'static, Result<(), SqlError>> {
        Box::pin(async move { self.roll_back_now().await })
    }

    fn endpoint(&self) -> Option<EndpointId> {
        // A proxy knows its endpoints' names.
        None
    }
}
