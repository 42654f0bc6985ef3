//! Opens connections to one file.

use std::sync::Arc;

use mainstay_sql::{Access, BoxFuture, Connection, Dialect, Driver, SqlError};

use crate::connection::SqliteConnection;
use crate::left::Left;
use crate::settings::{SettingsError, SqliteSettings};

/// A SQLite endpoint.
#[derive(Debug, Clone)]
pub struct SqliteDriver {
    settings: Arc<SqliteSettings>,
    /// Threads whose connections are gone.
    left: Arc<Left>,
}

impl SqliteDriver {
    /// An endpoint with these settings. The file is not touched before the first connection.
    ///
    /// # Errors
    /// Settings that cannot work.
    pub fn new(settings: SqliteSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(SqliteDriver {
            settings: Arc::new(settings),
            left: Arc::default(),
        })
    }

    /// Its settings.
    pub fn settings(&self) -> &SqliteSettings {
        &self.settings
    }
}

impl Driver for SqliteDriver {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn connect(&self, access: Access) -> BoxFuture<'_, Result<Box<dyn Connection>, SqlError>> {
        Box::pin(async move {
            self.left.wait().await?;
            let (settings, left) = (Arc::clone(&self.settings), Arc::clone(&self.left));
            let connection = SqliteConnection::open(settings, access, left).await?;
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }

    fn address(&self) -> String {
        self.settings.path.display().to_string()
    }

    fn has_one_store(&self) -> bool {
        !self.settings.own_file
    }
}
