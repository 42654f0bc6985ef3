//! The tables of proof, and every statement on them, in each database's words.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;
use std::time::Duration;

use crate::dialect::Dialect;
use crate::value::Value;

/// Names of tables are no longer than this, so that the name of the index fits too.
pub const TABLE_NAME_MAX: usize = 58;

/// Rows that one deletion takes at most.
const SWEEP_ROWS: u32 = 1000;

/// A token is needed for as long as it takes to find out what became of its commit, which is minutes; the rest
/// is for clocks that differ.
const TOKEN_KEPT: Duration = Duration::from_secs(24 * 3600);

/// PostgreSQL: writes something that changes nothing, so that its commit waits for the standbys.
pub(crate) const EMPTY_RECORD: &str =
    "SELECT pg_logical_emit_message(true, 'mainstay', 'commit proof')";

/// PostgreSQL, of the quoted name of a table.
const SCHEMA_OF: &str = "SELECT coalesce((SELECT n.nspname FROM pg_catalog.pg_class c \
     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1::text)), \
     current_schema())::text";

/// Whether this transaction's commit waits for no other server: as it was told, or as the server is set by now.
const WAITS_FOR_NOBODY: &str = " RETURNING current_setting('synchronous_commit') IN ('off', 'local') \
     OR current_setting('synchronous_standby_names') = ''";

/// The name of a table, with its schema where one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    schema: Option<String>,
    name: String,
}

impl TableName {
    /// `name` or `schema.name`; `None`: a part is empty, longer than [`TABLE_NAME_MAX`], or has something else in it
    /// than letters, digits and underscores.
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = |part: &str| {
            let fits = |c: char| c.is_alphanumeric() || c == '_';
            !part.is_empty() && part.len() <= TABLE_NAME_MAX && part.chars().all(fits)
        };
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, text),
        };
        let is_whole = is_name(name) && schema.is_none_or(is_name);
        is_whole.then(|| TableName {
            schema: schema.map(str::to_owned),
            name: name.to_owned(),
        })
    }

    /// The table of tokens where none is named: `mainstay_commits`.
    pub fn commits() -> Self {
        TableName {
            schema: None,
            name: "mainstay_commits".to_owned(),
        }
    }

    fn quoted(&self, dialect: Dialect) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", dialect.quote(schema), dialect.quote(&self.name)),
            None => dialect.quote(&self.name),
        }
    }

    /// The name of the index over the age of its rows, as it is written where the index is made.
    fn index(&self, dialect: Dialect) -> String {
        let name = dialect.quote(&format!("{}_at", self.name));
        match (&self.schema, dialect) {
            // The index of SQLite names the schema, the table does not.
            (Some(schema), Dialect::Sqlite) => format!("{}.{name}", dialect.quote(schema)),
            _ => name,
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// What both tables have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Texts {
    /// For readers.
    pub(crate) name: String,
    /// Gives no row, or an error where the table is missing.
    pub(crate) exists: String,
    /// Makes it.
    pub(crate) create: Vec<String>,
    /// Deletes some rows that are too old.
    pub(crate) sweep: String,
}

/// The statements on a table whose schema is looked up once: what a transaction does to its own session
/// (`SET LOCAL search_path`, `USE`) must not lead it to another table of the same name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InSchema<T> {
    dialect: Dialect,
    name: TableName,
    keep: Duration,
    /// By the name as it was given.
    given: T,
    found: OnceLock<T>,
}

/// Statements that can be written for a table of any name.
pub(crate) trait Statements {
    fn write(dialect: Dialect, name: &TableName, keep: Duration) -> Self;
    fn texts(&self) -> &Texts;
}

impl<T> Deref for InSchema<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.found.get().unwrap_or(&self.given)
    }
}

impl<T: Statements> InSchema<T> {
    fn of(dialect: Dialect, name: &TableName, keep: Duration) -> Self {
        InSchema {
            dialect,
            name: name.clone(),
            keep,
            given: T::write(dialect, name, keep),
            found: OnceLock::new(),
        }
    }

    /// Asks a fresh session for the schema: that of the table where it is there, else where it will be made. `None`:
    /// it is known.
    pub(crate) fn question(&self) -> Option<(&'static str, Vec<Value>)> {
        if self.name.schema.is_some() || self.found.get().is_some() {
            return None;
        }
        match self.dialect {
            Dialect::Postgres => {
                Some((SCHEMA_OF, vec![Value::Text(self.name.quoted(self.dialect))]))
            }
            Dialect::MySql => Some(("SELECT DATABASE()", Vec::new())),
            // Nothing changes where its names lead.
            Dialect::Sqlite => None,
        }
    }

    /// From now on it is the table in this schema, whoever asks.
    pub(crate) fn found_in(&self, schema: String) {
        self.found.get_or_init(|| {
            let name = TableName {
                schema: Some(schema),
                name: self.name.name.clone(),
            };
            T::write(self.dialect, &name, self.keep)
        });
    }
}

/// The table of idempotency keys.
pub(crate) type KeyTable = InSchema<KeyStatements>;

/// The table of tokens.
pub(crate) type CommitTable = InSchema<CommitStatements>;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyStatements {
    pub(crate) texts: Texts,
    /// Owner, key, request: changes a row if the key is new. Waits for a transaction that has it in hand.
    pub(crate) claim: String,
    /// Owner, key: request, answer, whether it is too old.
    pub(crate) look: String,
    /// Owner, key: deletes it if it is too old.
    pub(crate) expire: String,
    /// Answer, owner, key. The age of the key counts from here: the write may have taken longer than it is kept.
    pub(crate) store: String,
    /// A transaction that a standby must have like any other, after which it has the row of a key too. `None`:
    /// there are no standbys.
    pub(crate) confirm: Option<Confirm>,
}

/// A statement that is a transaction of its own, and whose commit waits like that of any write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confirm {
    pub(crate) text: String,
    /// It changes the row of a key: owner, key. Else it has no parameters.
    pub(crate) names_row: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommitStatements {
    pub(crate) texts: Texts,
    /// Token: changes a row if it is new. Waits for a transaction that has it in hand. On PostgreSQL its row says
    /// whether this very transaction was told to commit without waiting for another server.
    pub(crate) insert: String,
}

/// Whether a row is older than so much, by the clock of the server.
fn is_older(dialect: Dialect, age: Duration) -> String {
    let (at, age) = (dialect.quote("at"), age.as_secs());
    match dialect {
        Dialect::Postgres => format!("{at} < now() - interval '{age} seconds'"),
        Dialect::MySql => format!("{at} < NOW(6) - INTERVAL {age} SECOND"),
        Dialect::Sqlite => format!("{at} < unixepoch() - {age}"),
    }
}

/// When a statement began, not its transaction.
fn now(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "statement_timestamp()",
        Dialect::MySql => "CURRENT_TIMESTAMP(6)",
        Dialect::Sqlite => "unixepoch()",
    }
}

/// The column of the age.
fn at(dialect: Dialect) -> String {
    let at = dialect.quote("at");
    match dialect {
        Dialect::Postgres => format!("{at} timestamptz NOT NULL DEFAULT now()"),
        Dialect::MySql => format!("{at} TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"),
        Dialect::Sqlite => format!("{at} INTEGER NOT NULL DEFAULT (unixepoch())"),
    }
}

impl Texts {
    fn new(
        dialect: Dialect,
        name: &TableName,
        (columns, key): (&str, &str),
        keep: Duration,
    ) -> Self {
        let table = name.quoted(dialect);
        let (at_column, at_name) = (at(dialect), dialect.quote("at"));
        let index = name.index(dialect);
        let head = format!(
            "CREATE TABLE IF NOT EXISTS {table} ({columns}, {at_column}, PRIMARY KEY ({key})"
        );
        let create = match dialect {
            Dialect::MySql => vec![format!("{head}, KEY {index} ({at_name})) ENGINE = InnoDB")],
            _ => {
                let of = match dialect {
                    Dialect::Sqlite => dialect.quote(&name.name),
                    _ => table.clone(),
                };
                let index = format!("CREATE INDEX IF NOT EXISTS {index} ON {of} ({at_name})");
                vec![format!("{head})"), index]
            }
        };
        let old = is_older(dialect, keep);
        let sweep = match dialect {
            Dialect::Postgres => format!(
                "DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE {old} ORDER BY {at_name} LIMIT {SWEEP_ROWS}))"
            ),
            Dialect::MySql => {
                format!("DELETE FROM {table} WHERE {old} ORDER BY {at_name} LIMIT {SWEEP_ROWS}")
            }
            Dialect::Sqlite => format!(
                "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {old} LIMIT {SWEEP_ROWS})"
            ),
        };
        Texts {
            name: name.to_string(),
            exists: format!("SELECT 1 FROM {table} WHERE 1 = 0"),
            create,
            sweep,
        }
    }

    /// The statements that make it, to be run by hand.
    pub(crate) fn script(&self) -> String {
        let mut script = self.create.join("; ");
        script.push(';');
        script
    }

    /// Rows that one sweep deletes at most.
    pub(crate) fn sweep_rows() -> u64 {
        u64::from(SWEEP_ROWS)
    }
}

/// INSERT that changes nothing where the key is there.
fn insert_new(dialect: Dialect, table: &str, columns: &[&str], key: &str) -> String {
    let names = columns.join(", ");
    let values: Vec<String> = (1..=columns.len())
        .map(|number| dialect.placeholder(number))
        .collect();
    let values = values.join(", ");
    match dialect {
        Dialect::MySql => format!("INSERT IGNORE INTO {table} ({names}) VALUES ({values})"),
        _ => format!(
            "INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT ({key}) DO NOTHING"
        ),
    }
}

fn confirm(dialect: Dialect, table: &str, is_it: &str) -> Option<Confirm> {
    match dialect {
        Dialect::Postgres => Some(Confirm {
            text: EMPTY_RECORD.to_owned(),
            names_row: false,
        }),
        // What changes nothing is not logged, and nothing waits for it.
        Dialect::MySql => Some(Confirm {
            text: format!(
                "UPDATE {table} SET {at} = {at} + INTERVAL 1 MICROSECOND WHERE {is_it}",
                at = dialect.quote("at")
            ),
            names_row: true,
        }),
        Dialect::Sqlite => None,
    }
}

impl KeyTable {
    pub(crate) fn new(dialect: Dialect, name: &TableName, keep: Duration) -> Self {
        Self::of(dialect, name, keep)
    }
}

impl Statements for KeyStatements {
    fn texts(&self) -> &Texts {
        &self.texts
    }

    fn write(dialect: Dialect, name: &TableName, keep: Duration) -> Self {
        let table = name.quoted(dialect);
        let key = "owner, idempotency_key";
        let columns = match dialect {
            Dialect::Postgres => {
                "owner text NOT NULL, idempotency_key text NOT NULL, request bytea NOT NULL, answer text"
            }
            // Binary: keys that differ in case are different keys.
            Dialect::MySql => {
                "owner VARBINARY(256) NOT NULL, idempotency_key VARBINARY(256) NOT NULL, request VARBINARY(32) NOT NULL, answer LONGTEXT CHARACTER SET utf8mb4"
            }
            Dialect::Sqlite => {
                "owner TEXT NOT NULL, idempotency_key TEXT NOT NULL, request BLOB NOT NULL, answer TEXT"
            }
        };
        let one = |number| dialect.placeholder(number);
        let is_it = |first| {
            let (owner, key) = (one(first), one(first + 1));
            format!("owner = {owner} AND idempotency_key = {key}")
        };
        let old = is_older(dialect, keep);
        KeyStatements {
            texts: Texts::new(dialect, name, (columns, key), keep),
            claim: insert_new(
                dialect,
                &table,
                &["owner", "idempotency_key", "request"],
                key,
            ),
            look: format!(
                "SELECT request, answer, CASE WHEN {old} THEN 1 ELSE 0 END FROM {table} WHERE {}",
                is_it(1)
            ),
            expire: format!("DELETE FROM {table} WHERE {} AND {old}", is_it(1)),
            store: format!(
                "UPDATE {table} SET answer = {}, {} = {} WHERE {}",
                one(1),
                dialect.quote("at"),
                now(dialect),
                is_it(2)
            ),
            confirm: confirm(dialect, &table, &is_it(1)),
        }
    }
}

impl CommitTable {
    pub(crate) fn new(dialect: Dialect, name: &TableName) -> Self {
        Self::of(dialect, name, TOKEN_KEPT)
    }
}

impl Statements for CommitStatements {
    fn texts(&self) -> &Texts {
        &self.texts
    }

    fn write(dialect: Dialect, name: &TableName, keep: Duration) -> Self {
        let columns = match dialect {
            Dialect::Postgres => "token bytea NOT NULL",
            Dialect::MySql => "token BINARY(16) NOT NULL",
            Dialect::Sqlite => "token BLOB NOT NULL",
        };
        let mut insert = insert_new(dialect, &name.quoted(dialect), &["token"], "token");
        if dialect == Dialect::Postgres {
            insert.push_str(WAITS_FOR_NOBODY);
        }
        CommitStatements {
            texts: Texts::new(dialect, name, (columns, "token"), keep),
            insert,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_have_one_or_two_plain_parts() {
        for (text, shown) in [
            ("keys", "\"keys\""),
            ("app.keys", "\"app\".\"keys\""),
            ("Schlüssel_2", "\"Schlüssel_2\""),
        ] {
            let name = TableName::parse(text).unwrap();
            assert_eq!(name.quoted(Dialect::Postgres), shown);
            assert_eq!(name.to_string(), text);
        }
        let long = "x".repeat(TABLE_NAME_MAX + 1);
        for text in [
            "", ".", "a.", ".a", "a.b.c", "a b", "a\"b", "a;b", "a\0", &long,
        ] {
            assert_eq!(TableName::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn each_database_gets_its_own_words() {
        let name = TableName::parse("app.k").unwrap();
        let keep = Duration::from_secs(60);
        let sqlite = KeyTable::new(Dialect::Sqlite, &name, keep);
        assert_eq!(
            sqlite.texts.create[1],
            "CREATE INDEX IF NOT EXISTS \"app\".\"k_at\" ON \"k\" (\"at\")"
        );
        let mysql = KeyTable::new(Dialect::MySql, &name, keep);
        assert_eq!(
            mysql.store,
            "UPDATE `app`.`k` SET answer = ?, `at` = CURRENT_TIMESTAMP(6) WHERE owner = ? AND idempotency_key = ?"
        );
        let postgres = CommitTable::new(Dialect::Postgres, &name);
        assert_eq!(
            postgres.insert,
            "INSERT INTO \"app\".\"k\" (token) VALUES ($1) ON CONFLICT (token) DO NOTHING \
             RETURNING current_setting('synchronous_commit') IN ('off', 'local') \
             OR current_setting('synchronous_standby_names') = ''"
        );
        assert!(postgres.texts.script().ends_with("(\"at\");"));
        assert_eq!(postgres.question(), None);
    }

    #[test]
    fn the_schema_of_a_table_is_looked_up_once() {
        let table = CommitTable::new(Dialect::MySql, &TableName::commits());
        assert!(table.question().is_some());
        table.found_in("we`ird".to_owned());
        table.found_in("other".to_owned());
        assert_eq!(table.question(), None);
        assert_eq!(
            table.insert,
            "INSERT IGNORE INTO `we``ird`.`mainstay_commits` (token) VALUES (?)"
        );
    }
}
