//! One open file on its worker thread: how it is opened, its transaction, and what proves it healthy.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Category, Failure, Sent};
use mainstay_sql::{Access, Code, Position, Probe, SqlError, stray};
use rusqlite::limits::Limit;
use rusqlite::{Connection, FileControl, MAIN_DB, OpenFlags};

use crate::error::{self, Fault, Stage, fault};
use crate::guard::Guard;
use crate::identity::Identity;
use crate::interrupt::Gate;
use crate::plan::Plans;
use crate::settings::SqliteSettings;

/// After this many steps of SQLite's machine a cancellation is looked for: some ten microseconds, and no
/// point read ever gets there.
const PROGRESS_STEPS: i32 = 1000;

/// The waits for a lock, in milliseconds; the last one is repeated. Short first, because a commit is short.
const BUSY_WAITS_MS: [u64; 6] = [1, 1, 2, 4, 8, 15];

/// The transaction as the caller of the port knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tx {
    /// None was begun.
    None,
    /// Begun.
    Open,
    /// SQLite rolled it back with an error; the next statement would run outside of it.
    Lost,
}

/// One open file.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) plans: RefCell<Plans>,
    pub(crate) tx: Cell<Tx>,
    settings: Arc<SqliteSettings>,
    is_read_only: bool,
    pub(crate) gate: Arc<Gate>,
    pub(crate) guard: Arc<Guard>,
}

impl Session {
    /// Opens the file.
    pub(crate) fn open(
        settings: Arc<SqliteSettings>,
        access: Access,
        gate: Arc<Gate>,
    ) -> Result<Self, Fault> {
        let is_read_only = settings.read_only_endpoint || access == Access::ReadOnly;
        let guard = Arc::default();
        let connection = connect(&settings, is_read_only, &gate, &guard)?;
        Ok(Session {
            plans: RefCell::new(Plans::new(settings.statements_max)),
            connection,
            tx: Cell::new(Tx::None),
            settings,
            is_read_only,
            gate,
            guard,
        })
    }

    /// Opens the file anew: temporary tables, settings and locks are gone for certain. The
    /// new connection is there before the old one goes, so the log is not written back in between.
    pub(crate) fn reset(&mut self) -> Result<(), Fault> {
        // Its locks could keep the new connection out.
        self.rollback()?;
        let connection = connect(&self.settings, self.is_read_only, &self.gate, &self.guard)?;
        self.plans.borrow_mut().clear();
        self.connection = connection;
        Ok(())
    }

    /// Reads from the file, and checks that it is still the one at its path.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.check_file(Stage::Statement)?;
        self.connection
            .prepare_cached("PRAGMA schema_version")
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)))
            .map(drop)
            .map_err(|error| fault(Stage::Statement, &error))
    }

    /// A health check.
    pub(crate) fn probe(&self) -> Result<Probe, Fault> {
        self.check()?;
        Ok(Probe {
            position: Some(Position::Shared),
            ..Probe::default()
        })
    }

    /// Whether the open file is still the one at its path. SQLite writes into a deleted file without an
    /// error, and what it acknowledges there is lost.
    pub(crate) fn check_file(&self, stage: Stage) -> Result<(), Fault> {
        let mut has_moved = 0;
        self.connection
            .file_control(Some(MAIN_DB), FileControl::HasMoved(&mut has_moved))
            .map_err(|error| fault(stage, &error))?;
        let is_gone = self.gate.is_file_gone();
        match has_moved == 0 && !is_gone {
            true => Ok(()),
            false => Err(error::moved(stage)),
        }
    }

    /// Begins a transaction. One that will write takes the write lock at once: later it could not wait for
    /// the lock, since its snapshot would be too old.
    pub(crate) fn begin(&self, access: Access) -> Result<(), Fault> {
        if self.tx.get() != Tx::None || !self.connection.is_autocommit() {
            let error = error::conflict("a transaction is open already", "end it first");
            return Err(error.into());
        }
        let text = match access {
            Access::ReadOnly => "BEGIN DEFERRED",
            Access::ReadWrite => {
                self.check_file(Stage::Statement)?;
                "BEGIN IMMEDIATE"
            }
        };
        self.plain(Stage::Statement, text)?;
        self.tx.set(Tx::Open);
        Ok(())
    }

    /// Commits. After a lock in the way, and after a constraint that is checked only now, the transaction
    /// stays open.
    pub(crate) fn commit(&self) -> Result<(), Fault> {
        match self.tx.get() {
            Tx::Open => {}
            Tx::Lost => return Err(error::transaction_lost().into()),
            Tx::None => {
                let error = error::conflict("no transaction is open", "begin one first");
                return Err(error.into());
            }
        }
        self.check_file(Stage::Commit)?;
        let result = self.plain(Stage::Commit, "COMMIT");
        if self.connection.is_autocommit() {
            self.tx.set(Tx::None);
        }
        result
    }

    /// Rolls back whatever is open.
    pub(crate) fn rollback(&self) -> Result<(), Fault> {
        if !self.connection.is_autocommit() {
            self.plain(Stage::Statement, "ROLLBACK")?;
        }
        self.tx.set(Tx::None);
        Ok(())
    }

    /// The end of a job, seen by whether SQLite has a transaction open: an error, or a statement of the caller,
    /// may have ended ours, or opened one that nobody would commit.
    pub(crate) fn confirm<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        match (self.tx.get(), self.connection.is_autocommit()) {
            (Tx::Open, true) if result.is_err() => {
                self.tx.set(Tx::Lost);
                result
            }
            (Tx::Open, true) => {
                tracing::warn!("a statement ended the transaction that it ran in");
                self.tx.set(Tx::None);
                Err(stray::ended(None).into())
            }
            (Tx::None, false) => self.undo(result),
            _ => result,
        }
    }

    fn undo<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        tracing::warn!(
            "a statement left a transaction open that nobody would commit; it is rolled back"
        );
        let undone = self.rollback();
        let error = match (result, undone) {
            (Err(fault), Ok(())) => return Err(fault),
            (Ok(_), Ok(())) => return Err(stray::opened(Sent::YesUnprocessed).into()),
            (_, Err(problem)) => stray::not_undone(&problem.error),
        };
        Err(Fault {
            is_fatal: true,
            ..error.into()
        })
    }

    fn plain(&self, stage: Stage, text: &str) -> Result<(), Fault> {
        self.connection
            .prepare_cached(text)
            .and_then(|mut statement| statement.raw_execute())
            .map(drop)
            .map_err(|error| fault(stage, &error))
    }
}

fn connect(
    settings: &SqliteSettings,
    is_read_only: bool,
    gate: &Arc<Gate>,
    guard: &Arc<Guard>,
) -> Result<Connection, Fault> {
    if is_read_only && settings.create {
        make_missing(&settings.path);
    }
    let opened = Connection::open_with_flags(&settings.path, flags(settings, is_read_only));
    let mut connection = opened.map_err(connect_fault)?;
    let file = Identity::of(&settings.path);
    connection.set_prepared_statement_cache_capacity(settings.statements_max);
    install(&mut connection, settings.busy_timeout, gate).map_err(connect_fault)?;
    bound(&connection, settings.value_max_bytes).map_err(connect_fault)?;
    set_pragmas(&connection, settings, is_read_only)?;
    guard.watch(&mut connection).map_err(connect_fault)?;
    gate.attach(connection.get_interrupt_handle(), file);
    Ok(connection)
}

/// Bounds what one statement may take: a function on a value is not interrupted before it is done. Those of
/// SQLite itself hold for the rest (depth, parameters, parts of a compound SELECT).
fn bound(connection: &Connection, value_max_bytes: u32) -> rusqlite::Result<()> {
    let bytes = i32::try_from(value_max_bytes).unwrap_or(i32::MAX);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, bytes)?;
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, bytes)?;
    Ok(())
}

/// A session that only reads cannot make the file; an empty one is an empty database. Where it cannot be
/// made, opening it tells why.
fn make_missing(path: &std::path::Path) {
    let mut options = std::fs::OpenOptions::new();
    let _ = options.write(true).create_new(true).open(path);
}

fn connect_fault(error: rusqlite::Error) -> Fault {
    fault(Stage::Connect, &error)
}

fn flags(settings: &SqliteSettings, is_read_only: bool) -> OpenFlags {
    let access = match (is_read_only, settings.create) {
        (true, _) => OpenFlags::SQLITE_OPEN_READ_ONLY,
        (false, true) => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        (false, false) => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    // Only the worker thread touches the session, so SQLite needs no lock of its own.
    access | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn install(
    connection: &mut Connection,
    busy_timeout: Duration,
    gate: &Arc<Gate>,
) -> rusqlite::Result<()> {
    let watched = Arc::clone(gate);
    connection.progress_handler(PROGRESS_STEPS, Some(move || watched.is_cancelled()))?;
    let watched = Arc::clone(gate);
    let mut waited = Duration::ZERO;
    connection.busy_handler(Some(move |calls: i32| {
        let call = usize::try_from(calls).unwrap_or(0);
        if call == 0 {
            waited = Duration::ZERO;
        }
        let left = busy_timeout.saturating_sub(waited);
        if left.is_zero() || watched.is_cancelled() {
            return false;
        }
        let step = BUSY_WAITS_MS[call.min(BUSY_WAITS_MS.len() - 1)];
        let wait = Duration::from_millis(step).min(left);
        waited += wait;
        // A cancellation wakes it.
        std::thread::park_timeout(wait);
        !watched.is_cancelled()
    }))
}

fn set_pragmas(
    connection: &Connection,
    settings: &SqliteSettings,
    is_read_only: bool,
) -> Result<(), Fault> {
    let given = &settings.pragmas;
    for name in given.keys() {
        check_known(connection, name)?;
    }
    // Decided by the file: a session that cannot write cannot change it.
    if !is_read_only {
        let wanted = given.get("journal_mode").map_or("wal", String::as_str);
        set_journal_mode(connection, wanted)?;
    }
    let defaults = [("synchronous", "normal"), ("foreign_keys", "on")];
    let defaults = defaults
        .iter()
        .copied()
        .filter(|(name, _)| !given.contains_key(*name));
    let given = given
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in defaults.chain(given.filter(|(name, _)| *name != "journal_mode")) {
        pragma(connection, name, value)?;
    }
    if is_read_only {
        pragma(connection, "query_only", "on")?;
    }
    // The first real read: finds a damaged file now and not in the first statement.
    pragma_value(connection, "PRAGMA schema_version").map(drop)
}

fn set_journal_mode(connection: &Connection, wanted: &str) -> Result<(), Fault> {
    let got = pragma(connection, "journal_mode", wanted)?.unwrap_or_default();
    if got.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    let message = format!("the database file cannot have journal_mode {wanted}, it has {got}");
    Err(unusable(
        message,
        "set the option `journal_mode` to what its file system can do",
    ))
}

/// SQLite ignores a pragma that it does not know; a misspelt option must not pass like that.
fn check_known(connection: &Connection, name: &str) -> Result<(), Fault> {
    let text = "SELECT count(*) FROM pragma_pragma_list WHERE name = ?1";
    let count: i64 = connection
        .query_row(text, [name], |row| row.get(0))
        .map_err(connect_fault)?;
    if count > 0 {
        return Ok(());
    }
    let message = format!("SQLite has no pragma `{name}`");
    Err(unusable(
        message,
        "correct the name in the endpoint's options",
    ))
}

fn unusable(message: String, hint: &'static str) -> Fault {
    let failure = Failure::new(Category::Endpoint, message).sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
        .hint(hint)
        .into()
}

fn pragma(connection: &Connection, name: &str, value: &str) -> Result<Option<String>, Fault> {
    let value = value.replace('\'', "''");
    pragma_value(connection, &format!("PRAGMA {name} = '{value}'"))
}

fn pragma_value(connection: &Connection, text: &str) -> Result<Option<String>, Fault> {
    let first = || {
        let mut statement = connection.prepare(text)?;
        let mut rows = statement.raw_query();
        let mut first = None;
        while let Some(row) = rows.next()? {
            first = first.or(Some(row.get::<_, rusqlite::types::Value>(0)?));
        }
        Ok(first)
    };
    let value = first().map_err(connect_fault)?;
    Ok(value.map(|value| match value {
        rusqlite::types::Value::Text(text) => text,
        other => format!("{other:?}"),
    }))
}
