//! The thread that owns the file.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mainstay_message::store::Found;
use mainstay_message::{Change, StoreError};
use rusqlite::Connection;
use smol_str::SmolStr;
use tokio::sync::{oneshot, watch};

use crate::counts::Counters;
use crate::error::{Fault, JournalError, failed};
use crate::file::{self, OpenFile};
use crate::ledger::{Ledger, now_ms};
use crate::queue::Queue;
use crate::reading;
use crate::settings::JournalSettings;
use crate::syncer::Syncer;

/// Bodies in one transaction, so that neither it nor the log becomes too long: one more begins after that.
const TRANSACTION_BYTES_MAX: usize = 32 << 20;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Job {
    Write(Write),
    Find(SmolStr, Reply<Found>),
}

/// Changes of one call.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) service: SmolStr,
    pub(crate) changes: Vec<Change>,
    pub(crate) durable: bool,
    pub(crate) reply: Reply<()>,
}

/// Opens the file, says so, and serves until the queue is closed. `_running` is dropped after all else.
pub(crate) fn serve(
    settings: &JournalSettings,
    jobs: &Queue<Job>,
    counters: &Arc<Counters>,
    opened: oneshot::Sender<Result<(), JournalError>>,
    _running: watch::Sender<()>,
) {
    let _closing = Closing(jobs);
    let writer = match Writer::open(settings, counters) {
        Ok(writer) => writer,
        Err(error) => {
            // A caller that left needs no answer.
            let _ = opened.send(Err(error));
            return;
        }
    };
    if opened.send(Ok(())).is_ok() {
        writer.serve(jobs);
    }
}

/// Nobody waits for a thread that has ended, on whatever way.
struct Closing<'q>(&'q Queue<Job>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
        // Their callers hear of it when the replies are dropped.
        self.0.take_all(&mut VecDeque::new());
    }
}

struct Writer {
    // Ends before the file is closed.
    syncer: Syncer,
    connection: Connection,
    /// None after a transaction that was not committed.
    ledger: Option<Ledger>,
    counters: Arc<Counters>,
}

impl Writer {
    fn open(settings: &JournalSettings, counters: &Arc<Counters>) -> Result<Self, JournalError> {
        let OpenFile { connection, log } = file::open(settings)?;
        let ledger = Ledger::load(&connection)
            .map_err(|error| file::damaged(&settings.path, &error.to_string()))?;
        let syncer = Syncer::start(log, Arc::clone(counters));
        let syncer = syncer.map_err(|source| JournalError::System {
            path: settings.path.clone(),
            source,
        })?;
        Ok(Writer {
            syncer,
            connection,
            ledger: Some(ledger),
            counters: Arc::clone(counters),
        })
    }

    fn serve(mut self, jobs: &Queue<Job>) {
        let mut taken = VecDeque::new();
        let mut writes = Vec::new();
        while jobs.take_all(&mut taken) {
            let mut bytes = 0;
            for job in taken.drain(..) {
                match job {
                    Job::Write(write) => {
                        bytes += write.bytes();
                        writes.push(write);
                    }
                    Job::Find(service, reply) => {
                        self.commit(&mut writes);
                        // A caller that left needs no answer.
                        let _ = reply.send(self.find(&service).map_err(StoreError::from));
                    }
                }
                if bytes >= TRANSACTION_BYTES_MAX {
                    self.commit(&mut writes);
                    bytes = 0;
                }
            }
            self.commit(&mut writes);
        }
    }

    /// Makes one transaction of all, or one of each if that does not work: a body that no longer fits must not keep
    /// out what does.
    fn commit(&mut self, writes: &mut Vec<Write>) {
        if let Some(reason) = self.syncer.broken() {
            let error = failed(reason);
            for write in writes.drain(..) {
                let _ = write.reply.send(Err(error.clone()));
            }
        }
        if writes.is_empty() {
            return;
        }
        let result = self.transact(writes);
        if result.is_err() && writes.len() > 1 {
            for write in writes.drain(..) {
                let result = self.transact(std::slice::from_ref(&write));
                self.settle(std::iter::once(write), &result);
            }
        }
        self.settle(writes.drain(..), &result);
    }

    /// Answers writes that have one result.
    fn settle(&self, writes: impl Iterator<Item = Write>, result: &Result<(), StoreError>) {
        let mut durable = Vec::new();
        for write in writes {
            match result {
                Ok(()) if write.durable => durable.push(write.reply),
                // A caller that left needs no answer.
                result => drop(write.reply.send(result.clone())),
            }
        }
        if !durable.is_empty() {
            self.syncer.sync(durable);
        }
    }

    /// All of them or nothing.
    fn transact(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let mut ledger = match self.ledger.take() {
            Some(ledger) => ledger,
            None => Ledger::load(&self.connection).map_err(Fault::from)?,
        };
        match self.make(&mut ledger, writes) {
            Ok(()) => {
                self.ledger = Some(ledger);
                Ok(())
            }
            Err(fault) => {
                if !self.connection.is_autocommit() {
                    // SQLite has rolled back by itself where this does not work.
                    let _ = self.connection.execute_batch("ROLLBACK");
                }
                Err(fault.into())
            }
        }
    }

    fn make(&self, ledger: &mut Ledger, writes: &[Write]) -> Result<(), Fault> {
        let connection = &self.connection;
        let mut changes = 0;
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for write in writes {
            for change in &write.changes {
                ledger.make(connection, &write.service, change)?;
            }
            changes += write.changes.len() as u64;
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        self.counters.transactions.fetch_add(1, Ordering::Relaxed);
        self.counters.changes.fetch_add(changes, Ordering::Relaxed);
        Ok(())
    }

    fn find(&mut self, service: &str) -> Result<Found, Fault> {
        let ledger = match self.ledger.take() {
            Some(ledger) => ledger,
            None => Ledger::load(&self.connection)?,
        };
        let number = self.ledger.insert(ledger).number(service);
        match number {
            Some(number) => reading::find(&self.connection, number, now_ms()),
            None => Ok(Found::default()),
        }
    }
}

impl Write {
    /// Of bodies: the rest is small.
    fn bytes(&self) -> usize {
        let body = |change: &Change| match change {
            Change::Accept { request, .. } => request.body.len(),
            Change::Reply { reply, .. } => reply.body.len(),
            Change::Update { .. } | Change::Finish { .. } => 0,
        };
        self.changes.iter().map(body).sum()
    }
}
