//! Rows in batches from a pooled connection, which the stream owns until its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_engine::{Category, Failure, Sent};
use tokio::time::Instant;

use super::Plain;
use super::limit::{HandOver, Judge, until};
use super::sessions::Held;
use super::statement::{give_back, of_generation, refuse_control, settle};
use crate::database::{BoxFuture, Meta, Request, Scope, Work};
use crate::error::{Code, SqlError, Verdict};
use crate::stream::{Batch, BatchMax, Batches, RowStream};
use crate::value::{Column, Value};

/// How long a stream waits for its next batch where its options do not say.
const STREAM_IDLE: Duration = Duration::from_secs(30);

struct PlainBatches {
    plain: Plain,
    /// `None`: the stream has ended.
    lease: Option<Held>,
    /// The first batch, fetched while the stream was opened.
    first: Option<Batch>,
    /// How long the next one may take.
    idle: Duration,
}

impl Batches for PlainBatches {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>, SqlError>> {
        Box::pin(async move {
            if let Some(first) = self.first.take() {
                return Ok(Some(first));
            }
            // Not put back unless the next batch came: a dropped future ends the stream.
            let Some(mut lease) = self.lease.take() else {
                return Ok(None);
            };
            let fetched = tokio::time::timeout(self.idle, lease.next_batch(BatchMax::default()));
            match fetched.await {
                Ok(Ok(Some(batch))) => {
                    self.lease = Some(lease);
                    Ok(Some(batch))
                }
                Ok(Ok(None)) => {
                    lease.set_active(false);
                    give_back(&mut lease);
                    Ok(None)
                }
                // Still active: whatever the server has not said yet, the clean-up reads.
                Ok(Err(error)) => Err(of_generation(&mut lease, error)),
                Err(_) => Err(self.plain.judge_slowness(stalled(self.idle))),
            }
        })
    }
}

fn stalled(idle: Duration) -> SqlError {
    let message = format!("the stream gave no rows for {idle:?}");
    let failure = Failure::new(Category::Timeout, message).sent(Sent::Maybe);
    SqlError::new(Code::DeadlineExceeded, failure)
        .hint("the rows so far are not the whole answer; ask again, for less at once")
}

/// A started statement with its first rows.
type Started = (Arc<[Column]>, Option<Batch>);

async fn start(
    lease: &mut Held,
    text: &str,
    params: &[Value],
    handed: &HandOver,
    opened: &AtomicBool,
) -> Result<Started, SqlError> {
    let tell = || handed.tell();
    let columns = match lease.open(text, params, &tell).await {
        Err(error) if error.detail().verdict == Verdict::PrepareAgain => {
            lease.open(text, params, &tell).await?
        }
        opened => opened?,
    };
    opened.store(true, Ordering::Release);
    let first = lease.next_batch(BatchMax::default()).await?;
    Ok((columns, first))
}

impl Plain {
    /// Opens a stream and waits for its first rows, within the attempt's limit.
    pub(super) async fn open_stream(
        &self,
        request: &Request,
        scope: Scope,
    ) -> Result<RowStream, SqlError> {
        let started = Instant::now();
        let Work::Statement { text, params } = &request.work else {
            return Err(SqlError::caller(
                Code::BadRequest,
                "only a single statement can be streamed",
                "run scripts and batches without a stream",
            ));
        };
        let ends_at = self.ends_at(&request.options, scope.attempt.as_ref(), started)?;
        let class = self.schema_of(scope.schema.as_ref()).classify(text);
        refuse_control(&class)?;
        let attempt = scope.attempt.as_ref();
        let mut lease = self.lease(request.access, ends_at, attempt).await?;
        if !class.leaves_nothing() {
            lease.mark_dirty();
        }
        let handed = HandOver::new(scope.attempt.clone());
        let judge = Judge {
            safety: request.safety,
            proves_on_error: class.proves_on_error || self.errors_tell_themselves(),
        };
        let waits = !request.safety.is_read() && ends_at.is_some();
        let cancel = waits.then(|| lease.canceller());
        lease.set_active(true);
        let opened = AtomicBool::new(false);
        let work = start(&mut lease, text, params, &handed, &opened);
        let ended = until(ends_at, cancel, || handed.has_happened(), work).await;
        let settled = settle(&mut lease, ended, &judge, &handed);
        if settled.is_err() && opened.load(Ordering::Acquire) {
            // It began and did not end well: a clean-up goes before the next use.
            lease.set_active(true);
        }
        let (columns, first) = settled?;
        let lease = first.is_some().then(|| {
            lease.set_active(true);
            lease
        });
        let meta = Meta {
            attempts: 1,
            cache: "off",
            elapsed: started.elapsed(),
            correlation_id: request.options.correlation_id,
            ..Meta::default()
        };
        let batches = PlainBatches {
            plain: self.clone(),
            lease,
            first,
            idle: request.options.stream_idle.unwrap_or(STREAM_IDLE),
        };
        Ok(RowStream::new(columns, meta, Box::new(batches)))
    }
}
