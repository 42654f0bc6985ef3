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

impl Dialect {
    /// A name in the dialect's quotes, which takes every character as it is.
    pub fn quote(self, name: &str) -> String {
        let quote = match self {
            Dialect::Sqlite | Dialect::Postgres => '"',
            Dialect::MySql => '`',
        };
        let mut quoted = String::with_capacity(name.len() + 2);
        quoted.push(quote);
        for character in name.chars() {
            if character == quote {
                quoted.push(quote);
            }
            quoted.push(character);
        }
        quoted.push(quote);
        quoted
    }

    /// The placeholder of the parameter with this number, from 1.
    pub fn placeholder(self, number: usize) -> String {
        match self {
            Dialect::Sqlite => format!("?{number}"),
            Dialect::Postgres => format!("${number}"),
            Dialect::MySql => "?".to_owned(),
        }
    }
}
