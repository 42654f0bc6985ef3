//! A whole transaction, run again where it provably did nothing.

use std::time::Duration;

use mainstay_engine::{Category, Sent};
use tokio::time::Instant;

use crate::database::{Answer, BoxFuture, Database, Scope};
use crate::error::{SqlError, Verdict};
use crate::transaction::{Begin, Transaction};

/// The first pause before a rerun; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(5);

const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What is done inside a transaction, perhaps more than once.
pub(super) trait Inside<T>: Send + Sync {
    fn run<'t>(
        &'t self,
        transaction: &'t mut dyn Transaction,
    ) -> BoxFuture<'t, Result<T, SqlError>>;
}

/// A caller's closure.
pub(super) struct Closure<F>(pub(super) F);

impl<T, F> Inside<T> for Closure<F>
where
    F: for<'t> Fn(&'t mut dyn Transaction) -> BoxFuture<'t, Result<T, SqlError>> + Send + Sync,
{
    fn run<'t>(
        &'t self,
        transaction: &'t mut dyn Transaction,
    ) -> BoxFuture<'t, Result<T, SqlError>> {
        (self.0)(transaction)
    }
}

/// A transaction with the number of times that it may be run again.
pub(super) struct Rerun<'a, D: ?Sized> {
    pub(super) database: &'a D,
    pub(super) begin: Begin,
    pub(super) reruns: u32,
    /// None is begun after this.
    pub(super) ends_at: Option<Instant>,
}

impl<D: Database + ?Sized> Rerun<'_, D> {
    /// Runs and commits; gives what the work gave and the answer of COMMIT.
    pub(super) async fn run<T: Send>(
        &self,
        work: &impl Inside<T>,
    ) -> Result<(T, Answer), SqlError> {
        super::statement::check(&self.begin.options)?;
        let mut pause = PAUSE;
        let mut earlier = Sent::No;
        for _ in 0..self.reruns {
            match self.once(work).await {
                Err(error) if may_rerun(&error) => {
                    // Between half and the whole of it, so that two that met do not meet again.
                    let share = 0.5 + self.database.schema().draw_share() / 2.0;
                    let wait = pause.mul_f64(share);
                    if self.ends_at.is_some_and(|end| Instant::now() + wait >= end) {
                        return Err(together(earlier, error));
                    }
                    earlier = earlier.and(error.sent());
                    tokio::time::sleep(wait).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                ended => return ended.map_err(|error| together(earlier, error)),
            }
        }
        let ended = self.once(work).await;
        ended.map_err(|error| together(earlier, error))
    }

    async fn once<T: Send>(&self, work: &impl Inside<T>) -> Result<(T, Answer), SqlError> {
        let scope = Scope::default();
        let mut transaction = self.database.begin(&self.begin, scope).await?;
        match work.run(transaction.as_mut()).await {
            Ok(value) => Ok((value, transaction.commit().await?)),
            Err(error) => {
                // A transaction that is not committed is rolled back, but perhaps not all of it.
                match transaction.rollback().await {
                    Err(left) if left.sent() == Sent::Maybe => Err(with_what_is_left(error, left)),
                    _ => Err(error),
                }
            }
        }
    }
}

/// The last error, which says what all runs together prove.
fn together(earlier: Sent, mut error: SqlError) -> SqlError {
    error.detail_mut().failure.sent = error.sent().and(earlier);
    error
}

/// The error of the work, whose rollback left something.
fn with_what_is_left(mut error: SqlError, mut left: SqlError) -> SqlError {
    let detail = error.detail_mut();
    detail.failure.sent = detail.failure.sent.and(left.sent());
    detail.hint = left.detail_mut().hint.take().or(detail.hint.take());
    error
}

/// Contention, or a transaction that was lost, with the proof that nothing happened.
fn may_rerun(error: &SqlError) -> bool {
    let is_conflict = error.failure().category == Category::Contention;
    let is_lost = error.detail().verdict == Verdict::LeaseLost;
    (is_conflict || is_lost) && error.sent().is_proven_harmless()
}
