//! Proof of what became of a write: idempotency keys, and tokens of commits whose answer was lost.
//!
//! Both are rows that are written in the transaction of the write itself, so that they are there exactly when
//! it is. A proxy says what it wants to know ([`Proving`]); the endpoint that commits writes it down.

mod hash;
mod stored;
mod table;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::database::{Answer, Request};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError};

pub use table::{TABLE_NAME_MAX, TableName};

pub(crate) use hash::request_hash;
pub(crate) use stored::{recall, write_down};
pub(crate) use table::{CommitTable, EMPTY_RECORD, InSchema, KeyTable, Statements, Texts};

/// Keys and owners of keys are no longer than this, in bytes.
pub const KEY_BYTES_MAX: usize = 256;

/// How a source keeps idempotency keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyTable {
    /// The table, which is made when it is missing.
    pub table: TableName,
    /// A key is good for this long after its write; then it is deleted, and the same key is a new one. Must be
    /// clearly longer than a call may take with all of its attempts. Default 24 h.
    pub keep: Duration,
    /// A write whose answer takes more bytes than this is undone and refused. Default 64 KiB.
    pub answer_max: u64,
}

impl IdempotencyTable {
    /// Keys in this table, with the usual bounds.
    pub fn new(table: TableName) -> Self {
        IdempotencyTable {
            table,
            keep: Duration::from_secs(24 * 3600),
            answer_max: 64 << 10,
        }
    }
}

/// What tells whether a COMMIT took place whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProofForm {
    /// A row with a random token, written in the transaction. Every database.
    Table,
    /// The number of the transaction, of which the server tells what became. PostgreSQL from version 13.
    Xid,
}

/// How a source finds out what became of a COMMIT whose answer was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitProof {
    /// By what.
    pub form: ProofForm,
    /// The table of the form [`ProofForm::Table`], which is made when it is missing.
    pub table: TableName,
    /// How long it may take to find out; a call may take so much longer than its deadline. Default 5 s.
    pub wait: Duration,
}

impl CommitProof {
    /// The usual table and limit.
    pub fn new(form: ProofForm) -> Self {
        CommitProof {
            form,
            table: TableName::commits(),
            wait: Duration::from_secs(5),
        }
    }
}

/// Which server, and which run of it, a session is at. What a driver cannot tell stays `None`, and proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lineage {
    /// The same for as long as what was committed there stays: PostgreSQL's system identifier and timeline, the
    /// identity of a MySQL or MariaDB server, the file of an SQLite database.
    pub history: Option<String>,
    /// Another one after each start of the server, also after one that it made by itself.
    pub run: String,
    /// A commit is acknowledged only when another server has it.
    pub is_synchronous: bool,
}

impl Lineage {
    /// Whether what was committed at the other one is here too. Of unknown histories no two are the same.
    pub(crate) fn is_same_history(&self, other: &Lineage) -> bool {
        self.history.is_some() && self.history == other.history
    }
}

/// By what a commit can be found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub(crate) sign: Sign,
    /// Where it was made.
    pub(crate) lineage: Lineage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sign {
    /// In the table of commits.
    Token(Uuid, Arc<CommitTable>),
    /// PostgreSQL's number of the transaction.
    Xid(String),
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It took place, and will not be lost with the server where commits wait for another one.
    Committed,
    /// It did not take place and never will.
    Aborted {
        /// Nothing of the transaction is left; `false`: rows may be, in tables that know no transactions.
        is_whole: bool,
    },
    /// Nobody can tell.
    Unknown,
}

impl Fate {
    /// The stable lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Committed => "committed",
            Fate::Aborted { .. } => "aborted",
            Fate::Unknown => "unknown",
        }
    }
}

/// What a proxy wants written down in the transaction of a write. Made by a proxy, carried in the
/// [`Scope`](crate::Scope).
#[derive(Debug)]
pub struct Proving {
    pub(crate) key: Option<Keyed>,
    pub(crate) commit: Option<CommitWatch>,
}

/// An idempotency key with the request it was sent with.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub(crate) table: Arc<KeyTable>,
    pub(crate) owner: String,
    pub(crate) key: Arc<str>,
    pub(crate) request: Bytes,
    pub(crate) answer_max: u64,
}

/// Watches the COMMIT of one transaction.
#[derive(Debug)]
pub(crate) struct CommitWatch {
    pub(crate) form: ProofForm,
    pub(crate) table: Arc<CommitTable>,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    mark: Option<Mark>,
    answer: Option<Answer>,
    /// How many COMMITs were sent, or may have been, whose end is not known.
    commits: u32,
}

impl CommitWatch {
    pub(crate) fn new(form: ProofForm, table: Arc<CommitTable>) -> Self {
        CommitWatch {
            form,
            table,
            watched: Mutex::default(),
        }
    }

    /// A transaction begins, perhaps after another one.
    pub(crate) fn begin(&self) {
        let mut watched = self.watched.lock();
        watched.mark = None;
        watched.answer = None;
    }

    /// The last COMMIT is known not to have taken place, or was never sent.
    pub(crate) fn forget(&self) {
        let mut watched = self.watched.lock();
        if watched.mark.take().is_some() {
            watched.commits -= 1;
        }
        watched.answer = None;
    }

    /// COMMIT is about to be sent.
    pub(crate) fn note(&self, mark: Mark) {
        let mut watched = self.watched.lock();
        watched.mark = Some(mark);
        watched.commits += 1;
    }

    /// Whether a COMMIT was sent whose end is not known.
    pub(crate) fn was_sent(&self) -> bool {
        self.watched.lock().commits > 0
    }

    /// Whether there was one COMMIT only, so that its fate is that of the whole.
    pub(crate) fn is_only(&self) -> bool {
        self.watched.lock().commits <= 1
    }

    /// What the transaction has answered, should it be committed.
    pub(crate) fn keep(&self, answer: &Answer) {
        self.watched.lock().answer = Some(answer.clone());
    }

    /// `None`: no COMMIT was sent.
    pub(crate) fn mark(&self) -> Option<Mark> {
        self.watched.lock().mark.clone()
    }

    pub(crate) fn take_answer(&self) -> Option<Answer> {
        self.watched.lock().answer.take()
    }
}

impl Keyed {
    /// The key of a request that may have one.
    ///
    /// # Errors
    /// `bad_request` for a key or an owner that is too long.
    pub(crate) fn of(
        request: &Request,
        source: &str,
        table: &Arc<KeyTable>,
        answer_max: u64,
    ) -> Result<Option<Self>, SqlError> {
        let Some(key) = &request.options.idempotency_key else {
            return Ok(None);
        };
        // No name of a source has a slash.
        let owner = match &request.options.key_owner {
            Some(owner) => format!("{source}/{owner}"),
            None => source.to_owned(),
        };
        for (what, text) in [("key", &**key), ("owner of the key", owner.as_str())] {
            if text.is_empty() || text.len() > KEY_BYTES_MAX || text.contains('\0') {
                return Err(SqlError::caller(
                    Code::BadRequest,
                    format!("the {what} has {} bytes, or a NUL", text.len()),
                    format!("use 1 to {KEY_BYTES_MAX} bytes without NUL"),
                ));
            }
        }
        Ok(Some(Keyed {
            table: Arc::clone(table),
            owner,
            key: Arc::clone(key),
            request: request_hash(request),
            answer_max,
        }))
    }
}

/// Why a write could have no idempotency key; `None`: it can. `takes_keys`: of the source;
/// `commits_by_itself`: of a statement of the write.
pub fn key_refusal(takes_keys: bool, is_read: bool, commits_by_itself: bool) -> Option<SqlError> {
    let (message, hint) = match (takes_keys, is_read) {
        (false, _) => (
            "this source keeps no table of idempotency keys",
            "name one for the source (idempotency_table), leave the key out, or declare the safety of the statement",
        ),
        (true, true) => (
            "a read changes nothing, so an idempotency key has no use",
            "leave the key out",
        ),
        (true, false) if commits_by_itself => (
            "a statement of it commits by itself, or may, so that its key cannot be written with it",
            "leave the key out, or send INSERT, UPDATE and DELETE by themselves",
        ),
        (true, false) => return None,
    };
    let code = Code::IdempotencyUnavailable;
    Some(SqlError::caller(code, message, hint))
}

/// What a source is made to prove, with the texts for its database.
#[derive(Debug)]
pub(crate) struct Proofs {
    pub(crate) keys: Option<(Arc<KeyTable>, u64)>,
    pub(crate) commits: Option<Commits>,
}

#[derive(Debug)]
pub(crate) struct Commits {
    pub(crate) form: ProofForm,
    pub(crate) table: Arc<CommitTable>,
    pub(crate) wait: Duration,
}

impl Proofs {
    /// `None`: nothing.
    ///
    /// # Errors
    /// A form that the database does not have.
    pub(crate) fn of(
        dialect: Dialect,
        keys: Option<&IdempotencyTable>,
        commits: Option<&CommitProof>,
    ) -> Result<Option<Self>, SqlError> {
        if keys.is_none() && commits.is_none() {
            return Ok(None);
        }
        if commits.is_some_and(|proof| proof.form == ProofForm::Xid) && dialect != Dialect::Postgres
        {
            return Err(SqlError::caller(
                Code::BadRequest,
                "only PostgreSQL tells what became of a transaction by its number",
                "use the proof by table",
            ));
        }
        Ok(Some(Proofs {
            keys: keys.map(|keys| {
                let table = KeyTable::new(dialect, &keys.table, keys.keep);
                (Arc::new(table), keys.answer_max)
            }),
            commits: commits.map(|proof| Commits {
                form: proof.form,
                table: Arc::new(CommitTable::new(dialect, &proof.table)),
                wait: proof.wait,
            }),
        }))
    }
}
