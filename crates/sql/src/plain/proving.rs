//! Commits that can be found again: the mark before COMMIT, the look afterwards, and the tables of both proofs.

mod tables;

use std::time::Duration;

use mainstay_engine::{Attempt, Category, Failure, Sent};
use tokio::time::Instant;
use uuid::Uuid;

pub(super) use self::tables::ProofTables;
use self::tables::may_be_missing;
use super::Plain;
use super::limit::{HandOver, Judge, until};
use super::statement::settle;
use crate::connection::Connection;
use crate::database::{Access, Answer, AnswerMax};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError, Verdict};
use crate::proof::{
    CommitTable, CommitWatch, EMPTY_RECORD, Fate, InSchema, Lineage, Mark, ProofForm, Proving,
    Sign, Statements, Texts,
};
use crate::transaction::Begin;
use crate::value::Value;

/// Deletions of one sweep, at most: more than the uses between two.
const SWEEP_ROUNDS: u32 = 20;

const SWEEP_MAX: Duration = Duration::from_secs(5);

/// Between two questions for a transaction that is still under way.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// Gives it a number if it has none: what only notifies gets its own in COMMIT, when nobody can ask any more.
const XID: &str = "SELECT pg_current_xact_id()::text";
const XID_STATUS: &str = "SELECT pg_xact_status($1::text::xid8)";

/// Tables whose rows a rollback leaves, as far as this user sees them.
const NOT_TRANSACTIONAL: &str = "SELECT 1 FROM information_schema.TABLES \
     WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE NOT IN ('InnoDB', 'ROCKSDB', 'ndbcluster') \
     AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') \
     LIMIT 1";

/// Finding such a table may take at least this long, however long the look before it took. Where there are many
/// tables it may take far longer.
const SEARCH_LEAST: Duration = Duration::from_millis(200);

/// Asks something of the driver's own: nothing of the caller's work leaves by it.
pub(super) async fn ask(
    connection: &mut dyn Connection,
    text: &str,
    params: &[Value],
) -> Result<Answer, SqlError> {
    let ran = connection.run(text, params, AnswerMax::default(), &|| ());
    ran.await
}

fn first_of(answer: &Answer) -> Option<&Value> {
    answer.rows.first().and_then(|row| row.first())
}

fn first(answer: Answer) -> Value {
    let row = answer.rows.into_iter().next();
    row.and_then(|row| row.into_iter().next())
        .unwrap_or(Value::Null)
}

/// Writes down, as the last thing before COMMIT, by what it can be found again.
pub(super) async fn mark(
    connection: &mut dyn Connection,
    watch: &CommitWatch,
    mut lineage: Lineage,
) -> Result<(), SqlError> {
    let sign = match watch.form {
        ProofForm::Table => {
            let token = Uuid::new_v4();
            let inserted = insert(connection, &watch.table, token).await;
            let inserted = inserted.map_err(|error| {
                not_written(error, &watch.table.texts, "SELECT and INSERT on it")
            })?;
            let waits_for_nobody = first_of(&inserted) == Some(&Value::Bool(true));
            lineage.is_synchronous &= !waits_for_nobody;
            if !is_new(&inserted) {
                return Err(SqlError::internal("a random token was there already"));
            }
            Sign::Token(token, watch.table.clone())
        }
        ProofForm::Xid => match first(ask(connection, XID, &[]).await?) {
            Value::Text(xid) => Sign::Xid(xid),
            _ => return Err(SqlError::internal("a transaction was given no number")),
        },
    };
    watch.note(Mark { sign, lineage });
    Ok(())
}

/// Whether a token was new.
fn is_new(inserted: &Answer) -> bool {
    inserted.affected == Some(1)
}

async fn insert(
    connection: &mut dyn Connection,
    table: &CommitTable,
    token: Uuid,
) -> Result<Answer, SqlError> {
    let token = Value::Bytes(bytes::Bytes::copy_from_slice(token.as_bytes()));
    ask(connection, &table.insert, &[token]).await
}

/// What became of the commit with this mark, as one server tells it.
struct Look<'a> {
    mark: &'a Mark,
}

impl Look<'_> {
    async fn on(&self, connection: &mut dyn Connection) -> Result<Fate, SqlError> {
        let here = connection.lineage().await?;
        match &self.mark.sign {
            Sign::Token(token, table) => self.by_token(connection, *token, table, &here).await,
            Sign::Xid(xid) => self.by_xid(connection, xid, &here).await,
        }
    }

    /// Tries to write the same token: waits for the old transaction, and finds it there or not.
    async fn by_token(
        &self,
        connection: &mut dyn Connection,
        token: Uuid,
        table: &CommitTable,
        here: &Lineage,
    ) -> Result<Fate, SqlError> {
        let is_same_history = here.is_same_history(&self.mark.lineage);
        let can_abort = is_same_history || self.mark.lineage.is_synchronous;
        // Asked before: what is applied in between is found.
        let has_applied_all = match is_same_history || !can_abort {
            true => Ok(true),
            false => connection.has_applied_all().await,
        };
        connection.begin(&Begin::default()).await?;
        let is_new = is_new(&insert(connection, table, token).await?);
        if !is_new && here.is_synchronous {
            // What is there may be there alone: a later commit that another server has proves that it has the
            // earlier one too.
            insert(connection, table, Uuid::new_v4()).await?;
            connection.commit(&|| ()).await?;
        } else {
            connection.rollback().await?;
        }
        match (is_new, has_applied_all) {
            (false, _) => Ok(Fate::Committed),
            // Another server has it only if the commit was acknowledged to nobody before another server had it.
            (true, _) if !can_abort => Ok(Fate::Unknown),
            (true, Ok(true)) => Ok(Fate::Aborted { is_whole: true }),
            (true, Ok(false)) => Err(not_applied()),
            (true, Err(error)) if is_ours_to_mend(&error) => Ok(Fate::Unknown),
            (true, Err(error)) => Err(error),
        }
    }

    /// Asks the server about the number of the transaction, which means something in one run of one server.
    async fn by_xid(
        &self,
        connection: &mut dyn Connection,
        xid: &str,
        here: &Lineage,
    ) -> Result<Fate, SqlError> {
        let there = &self.mark.lineage;
        if !here.is_same_history(there) || here.run != there.run {
            return Ok(Fate::Unknown);
        }
        loop {
            let params = [Value::Text(xid.to_owned())];
            let status = first(ask(connection, XID_STATUS, &params).await?);
            let Value::Text(status) = status else {
                return Ok(Fate::Unknown);
            };
            match status.as_str() {
                "in progress" => tokio::time::sleep(ASK_AGAIN).await,
                "aborted" => return Ok(Fate::Aborted { is_whole: true }),
                "committed" => break,
                _ => return Ok(Fate::Unknown),
            }
        }
        if here.is_synchronous {
            ask(connection, EMPTY_RECORD, &[]).await?;
        }
        Ok(Fate::Committed)
    }
}

impl Plain {
    /// One look at this endpoint.
    pub(super) async fn look(&self, mark: &Mark, limit: Duration) -> Result<Fate, SqlError> {
        let ends_at = Instant::now().checked_add(limit);
        let fate = self.look_once(mark, ends_at).await?;
        let is_mysql = self.shared.dialect == Dialect::MySql;
        match fate {
            Fate::Aborted { .. } if is_mysql => Ok(Fate::Aborted {
                is_whole: self.has_only_transactional(ends_at).await,
            }),
            fate => Ok(fate),
        }
    }

    async fn look_once(&self, mark: &Mark, ends_at: Option<Instant>) -> Result<Fate, SqlError> {
        let look = Look { mark };
        let mut lease = self.lease(Access::ReadWrite, ends_at, None).await?;
        let handed = HandOver::new(None);
        handed.tell();
        let cancel = lease.canceller();
        lease.set_active(true);
        let ended = until(ends_at, Some(cancel), || true, look.on(lease.as_mut())).await;
        let has_failed = !matches!(&ended, super::limit::Ended::InTime(Ok(_)));
        let result = settle(&mut lease, ended, &Judge::read(), &handed);
        if has_failed {
            // A transaction may be open: the clean-up rolls it back.
            lease.set_active(true);
        }
        result
    }

    /// Whether a rollback leaves nothing anywhere. What is not found out in time is taken for a no.
    async fn has_only_transactional(&self, ends_at: Option<Instant>) -> bool {
        let least = Instant::now() + SEARCH_LEAST;
        let ends_at = ends_at.map(|end| end.max(least));
        let Ok(mut lease) = self.lease(Access::ReadWrite, ends_at, None).await else {
            return false;
        };
        let handed = HandOver::new(None);
        handed.tell();
        let cancel = lease.canceller();
        lease.set_active(true);
        let search = ask(lease.as_mut(), NOT_TRANSACTIONAL, &[]);
        let ended = until(ends_at, Some(cancel), || true, search).await;
        let found = settle(&mut lease, ended, &Judge::read(), &handed);
        found.is_ok_and(|found| found.rows.is_empty())
    }

    /// What a proof needs before its transaction begins.
    pub(super) async fn prepare_proof(
        &self,
        proving: &Proving,
        ends_at: Option<Instant>,
        attempt: Option<&Attempt>,
    ) -> Result<(), SqlError> {
        if let Some(key) = &proving.key {
            let made = self.ensure(&key.table, ends_at, attempt).await;
            made.map_err(|mut error| {
                if is_ours_to_mend(&error) {
                    error.detail_mut().code = Code::IdempotencyUnavailable;
                }
                error
            })?;
        }
        match &proving.commit {
            Some(watch) if watch.form == ProofForm::Table => {
                self.ensure(&watch.table, ends_at, attempt).await
            }
            _ => Ok(()),
        }
    }

    /// What the end of a transaction with a proof means.
    pub(super) fn proved<T>(
        &self,
        proving: &Proving,
        result: Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let is_marked = proving
            .commit
            .as_ref()
            .is_some_and(|watch| watch.mark().is_some());
        match result {
            Ok(value) => {
                if let Some(key) = &proving.key {
                    self.used(&key.table.texts);
                }
                if let Some(watch) = &proving.commit
                    && watch.form == ProofForm::Table
                {
                    self.used(&watch.table.texts);
                }
                Ok(value)
            }
            Err(error) if is_marked && error.sent() == Sent::Maybe => {
                Err(error.verdict(Verdict::CommitLost))
            }
            Err(error) => {
                if let Some(watch) = &proving.commit {
                    watch.forget();
                }
                self.shared.proof_tables.doubt(self.shared.dialect, &error);
                Err(error)
            }
        }
    }

    /// Sees to it that a table of proof is there. Errors have `sent: no`: nothing of the caller's work has left.
    pub(super) async fn ensure<T: Statements + Send + Sync>(
        &self,
        table: &InSchema<T>,
        ends_at: Option<Instant>,
        attempt: Option<&Attempt>,
    ) -> Result<(), SqlError> {
        if self.shared.proof_tables.is_ready(&table.texts().name) {
            return Ok(());
        }
        let made = Box::pin(self.make(table, ends_at, attempt)).await;
        made.map_err(|mut error| {
            error.detail_mut().failure.sent = Sent::No;
            error
        })?;
        self.shared.proof_tables.note(&table.texts().name);
        Ok(())
    }

    async fn make<T: Statements + Send + Sync>(
        &self,
        table: &InSchema<T>,
        ends_at: Option<Instant>,
        attempt: Option<&Attempt>,
    ) -> Result<(), SqlError> {
        let mut lease = self.lease(Access::ReadWrite, ends_at, attempt).await?;
        let handed = HandOver::new(None);
        handed.tell();
        lease.set_active(true);
        let work = async {
            if let Some((text, params)) = table.question()
                && let Value::Text(schema) = first(ask(lease.as_mut(), text, &params).await?)
            {
                table.found_in(schema);
            }
            make_table(lease.as_mut(), table.texts()).await
        };
        let ended = until(ends_at, None, || false, work).await;
        settle(&mut lease, ended, &Judge::read(), &handed)
    }

    /// A row was written: now and then what is too old is deleted, beside the calls.
    pub(super) fn used(&self, texts: &Texts) {
        if !self.shared.proof_tables.is_to_be_swept(&texts.name) {
            return;
        }
        let (plain, text) = (self.clone(), texts.sweep.clone());
        let sweeping = async move {
            if let Err(problem) = plain.sweep(&text).await {
                tracing::debug!(%problem, "old rows of a table of proof were not deleted");
            }
        };
        self.shared.tasks.spawn_bounded(SWEEP_MAX, sweeping);
    }

    async fn sweep(&self, text: &str) -> Result<(), SqlError> {
        let ends_at = Instant::now().checked_add(SWEEP_MAX);
        for _ in 0..SWEEP_ROUNDS {
            let mut lease = self.lease(Access::ReadWrite, ends_at, None).await?;
            let handed = HandOver::new(None);
            handed.tell();
            let cancel = lease.canceller();
            lease.set_active(true);
            let ended = until(
                ends_at,
                Some(cancel),
                || true,
                ask(lease.as_mut(), text, &[]),
            )
            .await;
            let swept = settle(&mut lease, ended, &Judge::read(), &handed)?;
            if swept.affected.unwrap_or(0) < Texts::sweep_rows() {
                break;
            }
        }
        Ok(())
    }
}

async fn make_table(connection: &mut dyn Connection, texts: &Texts) -> Result<(), SqlError> {
    match ask(connection, &texts.exists, &[]).await {
        Ok(_) => return Ok(()),
        Err(error) if may_be_missing(&error) => {}
        Err(error) => return Err(error),
    }
    let Err(error) = create(connection, texts).await else {
        return Ok(());
    };
    if connection.is_closed() {
        return Err(error);
    }
    // Somebody else may have made it at the same time.
    match ask(connection, &texts.exists, &[]).await {
        Ok(_) => Ok(()),
        Err(_) => Err(not_made(texts, error)),
    }
}

/// All of it or nothing, so that a table that is there has its index too.
async fn create(connection: &mut dyn Connection, texts: &Texts) -> Result<(), SqlError> {
    if let [text] = texts.create.as_slice() {
        return ask(connection, text, &[]).await.map(drop);
    }
    connection.begin(&Begin::default()).await?;
    let whole = async {
        for text in &texts.create {
            ask(connection, text, &[]).await?;
        }
        connection.commit(&|| ()).await
    };
    let created = whole.await;
    if created.is_err() && !connection.is_closed() {
        connection.rollback().await?;
    }
    created
}

/// Says what to do where the table can only be made by somebody else.
fn not_made(texts: &Texts, mut error: SqlError) -> SqlError {
    if !is_ours_to_mend(&error) {
        return error;
    }
    let failure = &mut error.detail_mut().failure;
    failure.message = format!(
        "the table {} is missing and could not be made: {}",
        texts.name, failure.message
    )
    .into();
    error.place("table", texts.name.clone()).hint(format!(
        "have it made by somebody who may, with the rights to read and change it: {}",
        texts.script()
    ))
}

/// The commit may be among what a former replica has received.
fn not_applied() -> SqlError {
    let failure = Failure::new(
        Category::Transient,
        "the new primary has not applied yet what it has received, or still follows another server",
    );
    SqlError::new(Code::AttemptsFailed, failure.sent(Sent::YesUnprocessed))
        .hint("stop its replication once it has applied all of it")
}

/// Says of which table it is, as it is none of the caller's own statements that failed.
pub(super) fn not_written(mut error: SqlError, texts: &Texts, rights: &str) -> SqlError {
    if !is_ours_to_mend(&error) {
        return error;
    }
    let failure = &mut error.detail_mut().failure;
    failure.message = format!(
        "what proves the write could not be written to the table {}: {}",
        texts.name, failure.message
    )
    .into();
    error.place("table", texts.name.clone()).hint(format!(
        "whoever writes, after SET ROLE too, needs the rights to {rights} and to use its schema"
    ))
}

/// Not for a while, but until somebody changes something.
fn is_ours_to_mend(error: &SqlError) -> bool {
    matches!(
        error.failure().category,
        Category::Auth | Category::Persistent
    )
}
