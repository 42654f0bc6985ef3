//! A whole transaction, run again where it provably did nothing.

use std::time::Duration;

use mainstay_engine::{Category, Sent};

use crate::database::{BoxFuture, Database, Scope};
use crate::error::{SqlError, Verdict};
use crate::transaction::{Begin, Transaction};

/// The first pause before a rerun; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(5);

const PAUSE_MAX: Duration = Duration::from_millis(500);

pub(super) async fn transaction<D, T, F>(
    database: &D,
    begin: Begin,
    reruns: u32,
    work: F,
) -> Result<T, SqlError>
where
    D: Database + ?Sized,
    T: Send,
    F: for<'t> Fn(&'t mut dyn Transaction) -> BoxFuture<'t, Result<T, SqlError>> + Send + Sync,
{
    super::statement::check(&begin.options)?;
    let mut pause = PAUSE;
    let mut earlier = Sent::No;
    for _ in 0..reruns {
        match once(database, &begin, &work).await {
            Err(error) if may_rerun(&error) => {
                earlier = earlier.and(error.sent());
                // Between half and the whole of it, so that two that met do not meet again.
                let share = 0.5 + database.schema().draw_share() / 2.0;
                tokio::time::sleep(pause.mul_f64(share)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            ended => return ended.map_err(|error| together(earlier, error)),
        }
    }
    let ended = once(database, &begin, &work).await;
    ended.map_err(|error| together(earlier, error))
}

/// The last error, which says what all runs together prove.
fn together(earlier: Sent, mut error: SqlError) -> SqlError {
    error.detail_mut().failure.sent = error.sent().and(earlier);
    error
}

async fn once<D, T, F>(database: &D, begin: &Begin, work: &F) -> Result<T, SqlError>
where
    D: Database + ?Sized,
    T: Send,
    F: for<'t> Fn(&'t mut dyn Transaction) -> BoxFuture<'t, Result<T, SqlError>> + Send + Sync,
{
    let mut transaction = database.begin(begin, Scope::default()).await?;
    match work(transaction.as_mut()).await {
        Ok(value) => {
            transaction.commit().await?;
            Ok(value)
        }
        Err(error) => {
            // Whatever comes of it: a transaction that is not committed is rolled back.
            let _ = transaction.rollback().await;
            Err(error)
        }
    }
}

/// Contention, or a transaction that was lost, with the proof that nothing happened.
fn may_rerun(error: &SqlError) -> bool {
    let is_conflict = error.failure().category == Category::Contention;
    let is_lost = error.detail().verdict == Verdict::LeaseLost;
    (is_conflict || is_lost) && error.sent().is_proven_harmless()
}
