//! What callers' statements may not do: change what other connections, other sources or the whole process
//! share, or open a file that is not the source's.
//!
//! SQLite asks while it prepares a statement, and again wherever one prepares another: views, table-valued
//! pragmas, VACUUM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_sql::{Code, SqlError};
use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::ffi;
use rusqlite::hooks::{AuthAction, Authorization};

/// Pragmas that only look, whatever argument they get.
const LOOK: &[&str] = &[
    "collation_list",
    "compile_options",
    "database_list",
    "foreign_key_check",
    "foreign_key_list",
    "function_list",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "module_list",
    "pragma_list",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// Pragmas that look without a value and change something with one.
const READ: &[&str] = &[
    "auto_vacuum",
    "automatic_index",
    "busy_timeout",
    "cache_size",
    "data_version",
    "encoding",
    "freelist_count",
    "journal_mode",
    "journal_size_limit",
    "locking_mode",
    "max_page_count",
    "mmap_size",
    "page_count",
    "page_size",
    "query_only",
    "schema_version",
    "secure_delete",
    "synchronous",
    "temp_store",
    "wal_autocheckpoint",
];

/// Pragmas that may be set too: of the session, which is reset afterwards, or a number in the file that is the
/// caller's own.
const SET: &[&str] = &[
    "application_id",
    "case_sensitive_like",
    "defer_foreign_keys",
    "foreign_keys",
    "legacy_alter_table",
    "recursive_triggers",
    "user_version",
];

/// Pragmas that look after the source's own file, as VACUUM does.
const UPKEEP: &[&str] = &["incremental_vacuum", "optimize", "wal_checkpoint"];

/// Functions that load foreign code.
const FUNCTIONS: &[&str] = &["fts3_tokenizer", "load_extension"];

/// Watches one connection.
#[derive(Default)]
pub(crate) struct Guard {
    /// The last refusal, until it is told: SQLite itself says only "not authorized".
    refused: Mutex<Option<SqlError>>,
    /// A statement of the caller is being prepared; otherwise one runs.
    is_preparing: AtomicBool,
}

impl Guard {
    /// Watches a connection from now on. What the driver sets at connect comes before.
    pub(crate) fn watch(self: &Arc<Self>, connection: &mut Connection) -> rusqlite::Result<()> {
        let guard = Arc::clone(self);
        connection.authorizer(Some(move |asked: rusqlite::hooks::AuthContext<'_>| {
            guard.judge(&asked.action)
        }))
    }

    /// Prepares a text of the caller.
    pub(crate) fn preparing<T>(&self, prepare: impl FnOnce() -> T) -> T {
        self.is_preparing.store(true, Ordering::Relaxed);
        let prepared = prepare();
        self.is_preparing.store(false, Ordering::Relaxed);
        prepared
    }

    /// What was refused since the last question.
    pub(crate) fn take(&self) -> Option<SqlError> {
        self.refused.lock().take()
    }

    fn judge(&self, action: &AuthAction<'_>) -> Authorization {
        let refusal = match *action {
            AuthAction::Pragma {
                pragma_name,
                pragma_value,
            } => pragma(pragma_name, pragma_value.is_some()),
            // VACUUM attaches a nameless file of its own while it runs.
            AuthAction::Attach { filename: "" } if !self.is_preparing.load(Ordering::Relaxed) => {
                None
            }
            AuthAction::Attach { .. } | AuthAction::Detach { .. } => Some(other_file()),
            // A name that is known only when it runs.
            AuthAction::Unknown {
                code: ffi::SQLITE_ATTACH | ffi::SQLITE_DETACH,
                ..
            } => Some(other_file()),
            AuthAction::Function { function_name } => function(function_name),
            _ => None,
        };
        let Some(error) = refusal else {
            return Authorization::Allow;
        };
        *self.refused.lock() = Some(error);
        Authorization::Deny
    }
}

fn is_one(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn pragma(name: &str, has_value: bool) -> Option<SqlError> {
    let may_look = is_one(LOOK, name) || is_one(SET, name) || is_one(UPKEEP, name);
    if may_look || (is_one(READ, name) && !has_value) {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let verb = if has_value { "set" } else { "used" };
    let message = format!("PRAGMA {name} may not be {verb} by a statement");
    Some(SqlError::caller(
        Code::BadStatement,
        message,
        instead(&name),
    ))
}

/// What does it instead.
fn instead(pragma: &str) -> String {
    let fixed = match pragma {
        "hard_heap_limit" | "soft_heap_limit" => {
            "it holds for the whole process: limit the memory where the process is started"
        }
        "temp_store_directory" | "data_store_directory" => {
            "it holds for the whole process: set SQLITE_TMPDIR in the environment of the process"
        }
        "query_only" => "set the endpoint's option `read_only`, or send the call as a read",
        "busy_timeout" => "set the endpoint's option `busy_timeout_ms`",
        "writable_schema" | "schema_version" => "change the schema with CREATE, ALTER and DROP",
        _ => {
            return format!(
                "set the endpoint's option `pragma.{pragma}`, which holds for each of its connections"
            );
        }
    };
    fixed.to_owned()
}

fn other_file() -> SqlError {
    SqlError::caller(
        Code::BadStatement,
        "ATTACH, DETACH and VACUUM INTO may not be used: a source has one file",
        "make the other file a source of its own; copy a file with a backup tool",
    )
}

fn function(name: &str) -> Option<SqlError> {
    is_one(FUNCTIONS, name).then(|| {
        SqlError::caller(
            Code::BadStatement,
            format!("the function {name} loads foreign code and may not be used"),
            "use what SQLite brings along",
        )
    })
}
