//! Entries in files: one JSON object a line, a file for each UTC day.

mod writer;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{AuditEntry, Sink};
use crate::tasks::Tasks;
use writer::Files;

/// Entries that may wait to be written; the ones after that are dropped and counted. At a kilobyte
/// each that is 10 MB and a second of a busy server.
pub const QUEUE_MAX: usize = 10_000;
/// Written in one go: few system calls, and little to write again when that fails.
const BATCH_MAX: usize = 512;
/// Between two tries to write to a disk that refuses.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// How long closing waits for the disk.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// The trail cannot be written. Calls go on; entries wait, and are dropped once too many wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot write {}: {reason}; entries wait, at most 10,000, and it is tried again every second", path.display())]
pub struct FileProblem {
    /// The file or folder.
    pub path: PathBuf,
    /// What the operating system says.
    pub reason: String,
}

/// Writes entries to `audit-YYYY-MM-DD.jsonl` in a folder. Copies write to the same files.
#[derive(Clone)]
pub struct FileSink {
    queue: mpsc::Sender<Arc<AuditEntry>>,
    shared: Arc<Shared>,
    done: watch::Receiver<bool>,
}

type Report = dyn Fn(&FileProblem) + Send + Sync;

struct Shared {
    dropped: AtomicU64,
    written: AtomicU64,
    closing: CancellationToken,
    problem: Mutex<Option<FileProblem>>,
    report: Box<Report>,
}

impl FileSink {
    /// Writes to this folder, which is made if it is missing. A disk that refuses is not an error
    /// here: it is reported by [`FileSink::last_problem`] and tried again.
    ///
    /// Must be called inside a runtime. The task ends, flushed, with [`FileSink::close`], with the end
    /// of `tasks`, or when the last copy of the sink is dropped.
    pub fn open(dir: impl Into<PathBuf>, tasks: &Tasks) -> Self {
        Self::open_reporting(dir, tasks, |_| {})
    }

    /// The same, and `report` is called with every new problem, outside all locks.
    pub fn open_reporting(
        dir: impl Into<PathBuf>,
        tasks: &Tasks,
        report: impl Fn(&FileProblem) + Send + Sync + 'static,
    ) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        let (told, done) = watch::channel(false);
        let shared = Arc::new(Shared {
            dropped: AtomicU64::new(0),
            written: AtomicU64::new(0),
            closing: tasks.stopping().child_token(),
            problem: Mutex::new(None),
            report: Box::new(report),
        });
        let writing = Writing {
            entries,
            files: Files::new(dir.into()),
            batch: Vec::new(),
            shared: shared.clone(),
        };
        // Not dropped by the group's end, which cancels `closing`, so that it can flush.
        tasks.spawn_bounded(Duration::MAX, writing.run(told));
        FileSink {
            queue,
            shared,
            done,
        }
    }

    /// Entries that were not written and never will be.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Entries that are in a file.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Why nothing can be written now; `None`: all is well.
    pub fn last_problem(&self) -> Option<FileProblem> {
        self.shared.problem.lock().clone()
    }

    /// Writes what waits and ends, within 5 s. What could not be written until then is counted as
    /// dropped, and so is what is offered from now on. Returns whether everything was written.
    /// Cancel safe: closing goes on.
    pub async fn close(&self) -> bool {
        self.shared.closing.cancel();
        let mut done = self.done.clone();
        let ended = done.wait_for(|done| *done);
        let ended = tokio::time::timeout(FLUSH_MAX + RETRY_EVERY, ended).await;
        matches!(ended, Ok(Ok(_))) && self.last_problem().is_none()
    }
}

impl Sink for FileSink {
    fn offer(&self, entry: Arc<AuditEntry>) {
        if self.queue.try_send(entry).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The task that takes entries from the queue to the disk.
struct Writing {
    entries: mpsc::Receiver<Arc<AuditEntry>>,
    files: Files,
    batch: Vec<Arc<AuditEntry>>,
    shared: Arc<Shared>,
}

impl Writing {
    async fn run(mut self, told: watch::Sender<bool>) {
        let closing = self.shared.closing.clone();
        let over = async {
            closing.cancelled().await;
            tokio::time::sleep(FLUSH_MAX).await;
        };
        tokio::select! {
            biased;
            () = self.work() => {}
            () = over => {}
        }
        self.entries.close();
        let mut lost = self.batch.len();
        while self.entries.try_recv().is_ok() {
            lost += 1;
        }
        let dropped = &self.shared.dropped;
        dropped.fetch_add(lost as u64, Ordering::Relaxed);
        told.send_replace(true);
    }

    /// Writes until the queue has ended: because nobody can offer any more, or because closing ended
    /// it, after which what waits is still written.
    async fn work(&mut self) {
        let closing = self.shared.closing.clone();
        loop {
            tokio::select! {
                biased;
                () = closing.cancelled(), if !self.entries.is_closed() => {
                    self.entries.close();
                    continue;
                }
                count = self.entries.recv_many(&mut self.batch, BATCH_MAX) => {
                    if count == 0 {
                        break;
                    }
                }
            }
            while !self.write().await {
                let pause = tokio::time::sleep(RETRY_EVERY);
                tokio::select! {
                    () = pause => {}
                    () = closing.cancelled(), if !self.entries.is_closed() => self.entries.close(),
                }
            }
        }
        self.on_disk(|files| (0, files.sync().err())).await;
    }

    /// Writes the batch; says whether all of it is in the files. What is not stays in the batch.
    async fn write(&mut self) -> bool {
        let batch = self.batch.clone();
        let written = self.on_disk(move |files| files.append(&batch)).await;
        self.batch.drain(..written.min(self.batch.len()));
        let count = &self.shared.written;
        count.fetch_add(written as u64, Ordering::Relaxed);
        self.batch.is_empty()
    }

    /// Works on the files on a thread that may block. Returns how many entries were written.
    async fn on_disk(
        &mut self,
        work: impl FnOnce(&mut Files) -> (usize, Option<FileProblem>) + Send + 'static,
    ) -> usize {
        let fresh = Files::new(self.files.dir().to_path_buf());
        let mut files = std::mem::replace(&mut self.files, fresh);
        let done = tokio::task::spawn_blocking(move || {
            let result = work(&mut files);
            (files, result)
        });
        let (written, problem) = match done.await {
            Ok((files, result)) => {
                self.files = files;
                result
            }
            Err(error) => (0, Some(self.files.problem(self.files.dir(), &error))),
        };
        self.shared.note(problem);
        written
    }
}

impl Shared {
    /// Keeps how it stands and reports a problem that is not the one before.
    fn note(&self, problem: Option<FileProblem>) {
        let former = std::mem::replace(&mut *self.problem.lock(), problem.clone());
        if let Some(problem) = problem
            && former.as_ref() != Some(&problem)
        {
            // A report that panics must not end the writing.
            let _ = catch_unwind(AssertUnwindSafe(|| (self.report)(&problem)));
        }
    }
}

#[cfg(test)]
mod tests;
