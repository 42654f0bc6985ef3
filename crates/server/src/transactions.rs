//! Open transactions by id. An id is its holder's only key to a connection that is pinned for it, so it
//! cannot be guessed, belongs to one source, is used by one request at a time and ends when nobody
//! continues it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay_sql::Transaction;
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::problem::Problem;

/// The transactions of all sources. How many there may be is each source's own limit.
#[derive(Default)]
pub(crate) struct Transactions {
    open: Mutex<HashMap<Uuid, Entry>>,
}

/// Where a transaction belongs: to a source, and to the key that began it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) source: Arc<str>,
    /// `None`: there are no keys.
    pub(crate) key: Option<Arc<str>>,
}

struct Entry {
    owner: Owner,
    /// An idle one ends after this.
    idle_max: Duration,
    slot: Slot,
}

enum Slot {
    /// Used last at that time.
    Idle(Box<dyn Transaction>, Instant),
    /// A request uses it.
    Lent,
}

/// A transaction in use. Dropped before it is given back, as when its caller goes away, it ends: nobody
/// knows what its statement has done.
pub(crate) struct Lent<'a> {
    of: &'a Transactions,
    id: Uuid,
    transaction: Option<Box<dyn Transaction>>,
    goes_on: bool,
}

fn unknown() -> Problem {
    Problem::new(
        "unknown_transaction",
        "there is no such transaction: it has ended, was idle for too long, or never was",
        "begin a new one and do all of it again",
    )
}

impl Transactions {
    /// Keeps a transaction and gives the id under which it goes on: 122 random bits of the operating
    /// system.
    pub(crate) fn keep(
        &self,
        owner: &Owner,
        idle_max: Duration,
        transaction: Box<dyn Transaction>,
    ) -> Uuid {
        let id = Uuid::new_v4();
        let entry = Entry {
            owner: owner.clone(),
            idle_max,
            slot: Slot::Idle(transaction, Instant::now()),
        };
        self.open.lock().insert(id, entry);
        id
    }

    /// Lends a transaction to one request.
    ///
    /// # Errors
    /// `unknown_transaction`, also for one of another source or key; `conflict` while another request uses it.
    pub(crate) fn lend(&self, owner: &Owner, id: &str) -> Result<Lent<'_>, Problem> {
        let id = Uuid::try_parse(id).map_err(|_| unknown())?;
        let mut open = self.open.lock();
        let entry = open.get_mut(&id).filter(|entry| entry.owner == *owner);
        let entry = entry.ok_or_else(unknown)?;
        let transaction = match std::mem::replace(&mut entry.slot, Slot::Lent) {
            Slot::Idle(transaction, last_used) if last_used.elapsed() <= entry.idle_max => {
                transaction
            }
            Slot::Idle(transaction, _) => {
                open.remove(&id);
                drop(open);
                drop(transaction);
                return Err(unknown());
            }
            Slot::Lent => {
                return Err(Problem::new(
                    "conflict",
                    "another request is using this transaction",
                    "send the statements of a transaction one after the other",
                ));
            }
        };
        Ok(Lent {
            of: self,
            id,
            transaction: Some(transaction),
            goes_on: false,
        })
    }

    /// Ends those that were idle for too long. Rolling back is the transaction's own matter when it is
    /// dropped, outside the lock.
    pub(crate) fn sweep(&self, now: Instant) {
        let is_over = |entry: &Entry| match &entry.slot {
            Slot::Idle(_, last_used) => now.saturating_duration_since(*last_used) > entry.idle_max,
            Slot::Lent => false,
        };
        let mut open = self.open.lock();
        let gone: Vec<_> = open.extract_if(|_, entry| is_over(entry)).collect();
        drop(open);
        drop(gone);
    }

    /// Ends those of a key that is gone. One that a request uses ends with it.
    pub(crate) fn end_of(&self, key: &str) {
        let mut open = self.open.lock();
        let is_of = |entry: &Entry| entry.owner.key.as_deref() == Some(key);
        let gone: Vec<_> = open.extract_if(|_, entry| is_of(entry)).collect();
        drop(open);
        drop(gone);
    }

    /// Ends all of them. Returns how many there were.
    pub(crate) fn end_all(&self) -> usize {
        let gone = std::mem::take(&mut *self.open.lock());
        gone.len()
    }

    /// How many of a source are open.
    pub(crate) fn count(&self, source: &str) -> usize {
        let open = self.open.lock();
        open.values()
            .filter(|entry| &*entry.owner.source == source)
            .count()
    }
}

impl Lent<'_> {
    /// The transaction.
    pub(crate) fn get(&mut self) -> Result<&mut dyn Transaction, Problem> {
        match &mut self.transaction {
            Some(transaction) => Ok(&mut **transaction),
            None => Err(unknown()),
        }
    }

    /// Takes it out for good, to commit or roll back.
    pub(crate) fn take(mut self) -> Result<Box<dyn Transaction>, Problem> {
        self.transaction.take().ok_or_else(unknown)
    }

    /// Gives it back for the next request.
    pub(crate) fn give_back(mut self) {
        let mut open = self.of.open.lock();
        // One whose key is gone ends with this request, outside of the lock.
        if let Some(entry) = open.get_mut(&self.id)
            && let Some(transaction) = self.transaction.take()
        {
            entry.slot = Slot::Idle(transaction, Instant::now());
            self.goes_on = true;
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if !self.goes_on {
            let gone = self.of.open.lock().remove(&self.id);
            drop(gone);
        }
    }
}
