//! The thread that brings the log to the disk: once for all who wait at that time.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crate::counts::Counters;
use crate::error::failed;
use crate::queue::Queue;
use crate::writer::Reply;

/// Transactions that may wait for the disk; behind one more all writes wait.
const WAITING_MAX: usize = 64;

/// Answers durable writes, which are in the log, once they are on the disk.
pub(crate) struct Syncer {
    waiting: Arc<Queue<Vec<Reply<()>>>>,
    disk: Arc<Disk>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(crate) fn start(log: File, counters: Arc<Counters>) -> io::Result<Self> {
        let waiting = Arc::new(Queue::new(WAITING_MAX));
        let disk = Arc::new(Disk {
            log,
            counters,
            broken: OnceLock::new(),
        });
        let work = {
            let (waiting, disk) = (Arc::clone(&waiting), Arc::clone(&disk));
            move || {
                let mut batches = VecDeque::new();
                while waiting.take_all(&mut batches) {
                    disk.sync(batches.drain(..).flatten());
                }
            }
        };
        let thread = std::thread::Builder::new().name("mainstay-sync".into());
        let thread = Some(thread.spawn(work)?);
        Ok(Syncer {
            waiting,
            disk,
            thread,
        })
    }

    /// Answers when all that is in the log now is on the disk: the durable writes of one transaction.
    pub(crate) fn sync(&self, replies: Vec<Reply<()>>) {
        if let Err((replies, _)) = self.waiting.put(replies) {
            self.disk.sync(replies.into_iter());
        }
    }

    /// Why nothing is believed any more.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.disk.broken.get().map(|reason| &**reason)
    }
}

impl Drop for Syncer {
    /// Waits for those who wait.
    fn drop(&mut self) {
        self.waiting.close();
        if let Some(thread) = self.thread.take() {
            // It does not panic; if it did, its callers have heard.
            let _ = thread.join();
        }
    }
}

struct Disk {
    log: File,
    counters: Arc<Counters>,
    /// Set once the disk has refused: what the system says after that is no longer true of what it was given before, so
    /// nothing is believed until the next start.
    broken: OnceLock<Arc<str>>,
}

impl Disk {
    fn sync(&self, replies: impl Iterator<Item = Reply<()>>) {
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.log.sync_data() {
            let reason = format!(
                "the disk did not take it ({error}), and the program must be started again"
            );
            self.broken.get_or_init(|| reason.into());
        }
        let result = match self.broken.get() {
            Some(reason) => Err(failed(reason)),
            None => Ok(()),
        };
        for reply in replies {
            // The caller may have left.
            let _ = reply.send(result.clone());
        }
    }
}
