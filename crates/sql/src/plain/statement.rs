//! One statement on a pooled connection.

use mainstay_engine::{Attempt, Safety};
use tokio::time::Instant;

use super::Plain;
use super::limit::{Ended, HandOver, Judge, until, until_told};
use super::sessions::Held;
use crate::database::{Access, Answer, AnswerMax, Request, Scope, Work};
use crate::error::{Code, SqlError, Verdict};
use crate::statement::Class;
use crate::value::Value;

/// Refuses what would change a pooled session behind the pool's back.
pub(crate) fn refuse_control(class: &Class) -> Result<(), SqlError> {
    let instead = "use begin(), commit(), rollback() and savepoint() of a transaction";
    refuse_transaction_control(class, instead)?;
    if class.asks_for_warnings {
        return Err(SqlError::caller(
            Code::BadStatement,
            "SHOW WARNINGS outside a transaction would tell of somebody else's statement",
            "put it into a transaction behind the statement that it asks about",
        ));
    }
    if class.sets_session {
        return Err(SqlError::caller(
            Code::BadStatement,
            "SET outside a transaction would change a connection that others use too",
            "put it into a transaction (SET LOCAL), or set it in the endpoint's connection options",
        ));
    }
    Ok(())
}

/// Refuses what would begin or end a transaction behind the back of whoever keeps count of it.
pub(super) fn refuse_transaction_control(
    class: &Class,
    instead: &'static str,
) -> Result<(), SqlError> {
    if class.is_transaction_control {
        return Err(SqlError::caller(
            Code::BadStatement,
            "BEGIN, COMMIT, ROLLBACK and SAVEPOINT are not run as statements",
            instead,
        ));
    }
    Ok(())
}

/// Ends the part of a lease that ran something: knows whether the connection is in a known state, and
/// gives the result.
pub(super) fn settle<T>(
    lease: &mut Held,
    ended: Ended<T>,
    judge: &Judge,
    handed: &HandOver,
) -> Result<T, SqlError> {
    let (result, is_known) = match ended {
        Ended::InTime(result) => {
            // A text that was only prepared has done nothing, whatever kind of statement it is.
            let is_proven =
                |error: &SqlError| !handed.has_happened() && error.sent().is_proven_harmless();
            let judged = |error| match is_proven(&error) {
                true => error,
                false => judge.error(error),
            };
            (result.map_err(judged), true)
        }
        Ended::Late { result, is_quiet } => {
            let is_known = result.is_some();
            if !is_quiet {
                lease.mark_broken();
            }
            (Err(judge.late(result, handed.has_happened())), is_known)
        }
    };
    // Still active: the pool cancels and cleans up behind it.
    lease.set_active(!is_known);
    match result {
        // Whether the session is still there is looked at before its next use.
        Ok(_) => result,
        Err(error) if is_known => Err(of_generation(lease, error)),
        Err(error) => Err(error),
    }
}

/// A session that went with its work is used by nobody else.
pub(super) fn give_back(lease: &mut Held) {
    if lease.is_closed() {
        lease.mark_broken();
    }
}

/// The same with an error that it gave. One event at the server breaks all connections of a generation: to
/// the circuit that is one failure, however many callers met it.
pub(super) fn of_generation(lease: &mut Held, mut error: SqlError) -> SqlError {
    if lease.is_closed() {
        lease.mark_broken();
        error.detail_mut().failure.generation = Some(lease.generation());
    }
    error
}

impl Plain {
    pub(super) async fn run_statement(
        &self,
        request: &Request,
        scope: Scope,
    ) -> Result<Answer, SqlError> {
        let Work::Statement { text, params } = &request.work else {
            return Err(SqlError::internal("this work is not one statement"));
        };
        let started = Instant::now();
        let is_alone = scope.attempt.is_none();
        let ends_at = self.ends_at(&request.options, scope.attempt.as_ref(), started)?;
        let looked_up;
        let class = match &request.class {
            Some(class) => class,
            None => {
                looked_up = self.schema_of(scope.schema.as_ref()).classify(text);
                &looked_up
            }
        };
        refuse_control(class)?;
        let one = One {
            text,
            params,
            answer_max: request.answer_max,
            class,
            ends_at,
            announced_by: scope.attempt.as_ref().filter(|it| it.announces_end()),
        };
        let first = self.attempt(&one, request.access, request.safety, &scope);
        let result = match first.await {
            Err(error) if is_alone && is_hidden_write(request, &error) => None,
            result => Some(result),
        };
        let result = match result {
            Some(result) => result,
            None => {
                self.schema_of(scope.schema.as_ref()).remember_write(text);
                let again = self.attempt(&one, Access::ReadWrite, Safety::Write, &scope);
                Box::pin(again).await
            }
        };
        let mut answer = result.map_err(|error| self.judge_slowness(error))?;
        answer.meta.attempts = 1;
        answer.meta.cache = "off";
        answer.meta.elapsed = started.elapsed();
        answer.meta.correlation_id = request.options.correlation_id;
        Ok(answer)
    }

    async fn attempt(
        &self,
        one: &One<'_>,
        access: Access,
        safety: Safety,
        scope: &Scope,
    ) -> Result<Answer, SqlError> {
        let attempt = scope.attempt.as_ref();
        let mut lease = self.lease(access, one.ends_at, attempt).await?;
        if !one.class.leaves_nothing() {
            lease.mark_dirty();
        }
        let handed = HandOver::new(scope.attempt.clone());
        self.run_on(&mut lease, one, safety, &handed).await
    }

    /// Runs a statement on a leased connection, prepared once more if it was stale.
    pub(super) async fn run_on(
        &self,
        lease: &mut Held,
        one: &One<'_>,
        safety: Safety,
        handed: &HandOver,
    ) -> Result<Answer, SqlError> {
        let judge = Judge {
            safety,
            proves_on_error: one.class.proves_on_error || self.errors_tell_themselves(),
        };
        match one.on(lease, &judge, handed).await {
            Err(error) if is_stale(&error) && !lease.is_closed() => {}
            result => return result,
        }
        Box::pin(one.on(lease, &judge, handed)).await
    }
}

/// One statement, ready to run.
pub(super) struct One<'a> {
    pub(super) text: &'a str,
    pub(super) params: &'a [Value],
    pub(super) answer_max: AnswerMax,
    pub(super) class: &'a Class,
    pub(super) ends_at: Option<Instant>,
    /// What says when that is, where it polls this work by itself then.
    pub(super) announced_by: Option<&'a Attempt>,
}

impl One<'_> {
    async fn on(
        &self,
        lease: &mut Held,
        judge: &Judge,
        handed: &HandOver,
    ) -> Result<Answer, SqlError> {
        let waits = !judge.safety.is_read() && self.ends_at.is_some();
        let cancel = waits.then(|| lease.canceller());
        lease.set_active(true);
        let tell = || handed.tell();
        let work = lease.run(self.text, self.params, self.answer_max, &tell);
        let may_cancel = || handed.has_happened();
        let ended = match self.announced_by {
            Some(attempt) => until_told(attempt, cancel, may_cancel, work).await,
            None => Box::pin(until(self.ends_at, cancel, may_cancel, work)).await,
        };
        settle(lease, ended, judge, handed)
    }
}

/// The prepared statement was stale, which proves that it did not run.
fn is_stale(error: &SqlError) -> bool {
    error.detail().verdict == Verdict::PrepareAgain && error.sent().is_proven_harmless()
}

/// A statement that was taken for a read and was refused by a read-only session. What the caller declared
/// a read stays one.
fn is_hidden_write(request: &Request, error: &SqlError) -> bool {
    let is_guess = request.access == Access::ReadOnly && request.options.safety.is_none();
    let is_refused = error.detail().verdict == Verdict::ReadOnly;
    is_guess && is_refused && error.sent().is_proven_harmless()
}
