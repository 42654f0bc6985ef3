//! The file: made whole, opened by one process, looked through before anything is believed.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::JournalError;
use crate::settings::JournalSettings;

/// Tells our files from other SQLite databases: "Mjrn".
const APPLICATION: i64 = 0x4d6a_726e;
/// The format that is written here.
const FORMAT: i64 = 1;

/// A process that ends gives the file up within this time; longer is no hand-over.
const IN_USE_WAIT: Duration = Duration::from_secs(1);
const PAGE_BYTES: i64 = 4096;
/// After so many pages in the log, 16 MiB, they go to the file: that takes two fsyncs, during which writes wait.
const LOG_PAGES: u32 = 4096;
/// A log that was longer is cut back to this.
const LOG_BYTES_KEPT: i64 = 32 << 20;
/// From so many free pages on, 64 MiB, and if they are half of the file, it is packed when it is opened.
const PACK_PAGES: i64 = 16_384;

/// A message's place is twice that of its request, one more for its reply. A service's ended requests have places
/// without gaps.
const SCHEMA: &str = "
    CREATE TABLE service (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE
    ) STRICT;
    CREATE TABLE unfinished (
        place INTEGER PRIMARY KEY,
        service INTEGER NOT NULL,
        id TEXT NOT NULL,
        record TEXT NOT NULL
    ) STRICT;
    CREATE TABLE message (
        place INTEGER PRIMARY KEY,
        topic TEXT NOT NULL,
        content_type TEXT,
        headers TEXT NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE TABLE finished (
        service INTEGER NOT NULL,
        place INTEGER NOT NULL,
        id TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        PRIMARY KEY (service, place)
    ) STRICT, WITHOUT ROWID;
";

/// An open journal.
pub(crate) struct OpenFile {
    pub(crate) connection: Connection,
    /// Its log, for bringing it to the disk. SQLite keeps the one file as long as it is open, and locks only the
    /// journal itself, so that a second descriptor of the log takes no lock away.
    pub(crate) log: File,
}

pub(crate) fn open(settings: &JournalSettings) -> Result<OpenFile, JournalError> {
    let path = &settings.path;
    match std::fs::metadata(path) {
        Ok(found) => {
            measure(settings, found.len())?;
            keep_private(path, &found)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(settings)?,
        Err(error) => return Err(system(path, error)),
    }
    let connection = connect(settings).map_err(|error| explain(path, error))??;
    pack(&connection);
    let opened = OpenOptions::new().write(true).open(settings.log_path());
    let log = opened.map_err(|error| system(path, error))?;
    sync_folder(path)?;
    Ok(OpenFile { connection, log })
}

/// SQLite takes an empty file for a new one, and what is cut from the last page for zeros.
fn measure(settings: &JournalSettings, length: u64) -> Result<(), JournalError> {
    let page = PAGE_BYTES as u64;
    if length < page {
        let reason = format!("of its first {page} bytes {length} are left");
        return Err(damaged(&settings.path, &reason));
    }
    // With a log it may have been cut by a crash, and the log has the page whole.
    let log = std::fs::metadata(settings.log_path()).map_or(0, |log| log.len());
    if !length.is_multiple_of(page) && log == 0 {
        return Err(damaged(&settings.path, "its last page is not whole"));
    }
    Ok(())
}

/// Makes the file under another name, so that an empty or a half one in its place is always damage.
fn make(settings: &JournalSettings) -> Result<(), JournalError> {
    let (path, log) = (settings.path.clone(), settings.log_path());
    if log.exists() {
        return Err(JournalError::Torn { path, log });
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    let draft = tempfile::Builder::new()
        .prefix(".jobs.")
        .tempfile_in(folder)
        .map_err(|error| system(folder, error))?;
    draw(draft.path()).map_err(|error| explain(&path, error))?;
    match draft.persist_noclobber(&path) {
        Ok(_) => sync_folder(&path),
        // Another process was quicker; the file is its.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(system(&path, error.error)),
    }
}

fn draw(path: &Path) -> rusqlite::Result<()> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "journal_mode", "MEMORY")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(&format!(
        "BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}; COMMIT;"
    ))?;
    connection.close().map_err(|(_, error)| error)
}

fn connect(settings: &JournalSettings) -> rusqlite::Result<Result<Connection, JournalError>> {
    let path = &settings.path;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(IN_USE_WAIT)?;
    // Before the first reading: the index of the log is then in memory, and no other process comes in.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    if number(&connection, "application_id")? != APPLICATION {
        let path = path.clone();
        return Ok(Err(JournalError::Foreign { path }));
    }
    let found = number(&connection, "user_version")?;
    if found > FORMAT {
        return Ok(Err(JournalError::Newer {
            path: path.clone(),
            found,
            known: FORMAT,
        }));
    }
    if let Some(reason) = look_through(&connection)? {
        return Ok(Err(damaged(path, &reason)));
    }
    let mode = connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    if mode != "wal" {
        return Ok(Err(unopened(path, "its folder allows no write-ahead log")));
    }
    // A commit is written and no more; what is copied from the log to the file is brought to the disk in the order
    // that a crash of the machine asks for.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    let length_max = i64::try_from(settings.length_max).unwrap_or(i64::MAX);
    connection.pragma_update(None, "max_page_count", length_max / PAGE_BYTES)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(Ok(connection))
}

/// What does not hold together, in SQLite's words.
fn look_through(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok((found != "ok").then_some(found))
}

/// Gives the space of a burst back. Where it does not work the file stays as it is.
fn pack(connection: &Connection) {
    if let Err(error) = try_to_pack(connection) {
        tracing::warn!(%error, "the store of jobs could not be packed");
    }
}

fn try_to_pack(connection: &Connection) -> rusqlite::Result<()> {
    let free = number(connection, "freelist_count")?;
    if free >= PACK_PAGES && free * 2 >= number(connection, "page_count")? {
        connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")?;
    }
    Ok(())
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}

/// Requests are nobody's business but ours.
fn keep_private(path: &Path, found: &std::fs::Metadata) -> Result<(), JournalError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mut rights = found.permissions();
        if rights.mode() & 0o077 != 0 {
            rights.set_mode(0o600);
            std::fs::set_permissions(path, rights).map_err(|error| system(path, error))?;
        }
    }
    Ok(())
}

/// A name survives a crash of the machine once its folder was brought to the disk.
fn sync_folder(path: &Path) -> Result<(), JournalError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| system(folder, error))
}

fn explain(path: &Path, error: rusqlite::Error) -> JournalError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => JournalError::InUse {
            path: path.to_owned(),
        },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            damaged(path, &error.to_string())
        }
        _ => unopened(path, &error.to_string()),
    }
}

pub(crate) fn damaged(path: &Path, reason: &str) -> JournalError {
    JournalError::Damaged {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

fn unopened(path: &Path, reason: &str) -> JournalError {
    JournalError::Unopened {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

fn system(path: &Path, source: io::Error) -> JournalError {
    JournalError::System {
        path: path.to_owned(),
        source,
    }
}
