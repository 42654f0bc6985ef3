//! A closure on a lent connection.

use std::future::Future;
use std::marker::PhantomData;

use mainstay_engine::Safety;
use parking_lot::Mutex;

use crate::database::{BoxFuture, Database, Options, Scope};
use crate::error::SqlError;
use crate::lent::{Borrower, Lent, Loan};

/// A closure with the result of its last run.
struct Work<F, Fut, T> {
    closure: F,
    result: Mutex<Option<T>>,
    future: PhantomData<fn() -> Fut>,
}

impl<F, Fut, T> Borrower for Work<F, Fut, T>
where
    T: Send,
    F: Fn(Lent) -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, SqlError>> + Send,
{
    fn take(&self, lent: Lent) -> BoxFuture<'_, Result<(), SqlError>> {
        let running = (self.closure)(lent);
        Box::pin(async move {
            let result = running.await?;
            *self.result.lock() = Some(result);
            Ok(())
        })
    }
}

pub(super) async fn run<D, T, F, Fut>(
    database: &D,
    safety: Safety,
    options: Options,
    closure: F,
) -> Result<T, SqlError>
where
    D: Database + ?Sized,
    T: Send,
    F: Fn(Lent) -> Fut + Send + Sync,
    Fut: Future<Output = Result<T, SqlError>> + Send,
{
    super::statement::check(&options)?;
    let loan = Loan::new(safety, options);
    let work = Work {
        closure,
        result: Mutex::new(None),
        future: PhantomData,
    };
    let lent = database.lend(&loan, &work, Scope::default()).await;
    if loan.changed_schema() {
        database.schema().forget(None);
    }
    lent?;
    let result = work.result.into_inner();
    result.ok_or_else(|| SqlError::internal("a closure ended well without a result"))
}
