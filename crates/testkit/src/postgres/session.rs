//! A client of a private server for a test's own questions.

use std::ops::{Deref, DerefMut};

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// The rows of a statement as text; `None` is NULL.
pub type TextRows = Vec<Vec<Option<String>>>;

/// A connected client. It ends when dropped.
#[derive(Debug)]
pub struct Session {
    client: Client,
    _driver: JoinSet<()>,
}

impl Session {
    /// Connects to `url` (`postgres://…`, without TLS).
    ///
    /// # Errors
    /// What the server or the network said.
    pub async fn connect(url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // What ends a connection reaches the client through its calls.
            let _ = connection.await;
        });
        Ok(Self {
            client,
            _driver: driver,
        })
    }

    /// Runs statements and gives the rows of all of them as text.
    ///
    /// # Errors
    /// What the server or the network said.
    pub async fn sql(&self, text: &str) -> Result<TextRows> {
        let messages = self
            .client
            .simple_query(text)
            .await
            .with_context(|| text.to_owned())?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|at| row.get(at).map(str::to_owned))
                    .collect(),
            ),
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Runs a statement and gives its first value as text.
    ///
    /// # Errors
    /// As [`Session::sql`]; no row or NULL.
    pub async fn value(&self, text: &str) -> Result<String> {
        let rows = self.sql(text).await?;
        let first = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next().flatten());
        first.with_context(|| format!("no value: {text}"))
    }
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}
