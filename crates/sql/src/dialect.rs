//! How a database's SQL is written.

/// A family of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// SQLite
    Sqlite,
    /// PostgreSQL
    Postgres,
    /// MySQL and MariaDB
    MySql,
}
