//! The journal as its callers see it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use mainstay_engine::BoxFuture;
use mainstay_message::store::Found;
use mainstay_message::{Change, JobStore, StoreError};
use tokio::sync::{oneshot, watch};

use crate::counts::{Counters, Counts};
use crate::error::{JournalError, failed};
use crate::queue::{Queue, Shut};
use crate::settings::JournalSettings;
use crate::writer::{self, Job, Reply, Write};

/// Calls that may wait for the journal's thread: far more than a proxy has requests open. One more is refused.
pub const WAITING_MAX: usize = 16_384;

/// Requests and jobs in one SQLite file, which this process alone has open.
///
/// Dropping it closes it as [`close`](Journal::close) does, without waiting for the end.
pub struct Journal {
    path: PathBuf,
    jobs: Arc<Queue<Job>>,
    counters: Arc<Counters>,
    /// Its other end is dropped after the file was closed.
    ended: watch::Receiver<()>,
}

impl Journal {
    /// Opens the file, makes it if there is none, and reads all of it to see that it holds together.
    ///
    /// # Errors
    /// If another process has it open (after waiting for 1 s), if it is damaged, newer than this version or none of
    /// ours, and if the system refuses. The file is then as it was.
    ///
    /// # Cancel safety
    /// Dropped, it closes the file again.
    pub async fn open(settings: JournalSettings) -> Result<Self, JournalError> {
        let path = settings.path.clone();
        let jobs = Arc::new(Queue::new(WAITING_MAX));
        let counters = Arc::new(Counters::default());
        let (running, ended) = watch::channel(());
        let (reply, opened) = oneshot::channel();
        let journal = Journal {
            path: path.clone(),
            jobs: Arc::clone(&jobs),
            counters: Arc::clone(&counters),
            ended,
        };
        let work = move || writer::serve(&settings, &jobs, &counters, reply, running);
        let thread = std::thread::Builder::new().name("mainstay-journal".into());
        let started = thread.spawn(work);
        started.map_err(|source| JournalError::System {
            path: path.clone(),
            source,
        })?;
        match opened.await {
            Ok(result) => result.map(|()| journal),
            Err(_) => Err(JournalError::Unopened {
                path,
                reason: "its thread has ended".to_owned(),
            }),
        }
    }

    /// Writes down what waits, closes the file and waits until that is done. Later calls fail.
    ///
    /// # Cancel safety
    /// It is closed all the same.
    pub async fn close(&self) {
        self.jobs.close();
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// What was done since it was opened.
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }

    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(Reply<T>) -> Job,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let (reply, answer) = oneshot::channel();
        let put = self.jobs.put(job(reply)).map_err(|(_, shut)| shut);
        Box::pin(async move {
            put.map_err(refusal)?;
            answer
                .await
                .unwrap_or_else(|_| Err(failed("its thread has ended")))
        })
    }
}

fn refusal(shut: Shut) -> StoreError {
    match shut {
        Shut::Full => failed("too many writes wait for the disk"),
        Shut::Closed => failed("it is closed"),
    }
}

impl JobStore for Journal {
    fn write(
        &self,
        service: &str,
        changes: Vec<Change>,
        durable: bool,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let service = service.into();
        self.ask(|reply| {
            Job::Write(Write {
                service,
                changes,
                durable,
                reply,
            })
        })
    }

    fn found(&self, service: &str) -> BoxFuture<'_, Result<Found, StoreError>> {
        let service = service.into();
        self.ask(|reply| Job::Find(service, reply))
    }

    fn is_lasting(&self) -> bool {
        true
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
