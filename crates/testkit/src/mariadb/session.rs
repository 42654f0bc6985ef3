//! A client of a private server for a test's own questions.

use anyhow::{Context, Result};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row, Value};
use tokio::sync::Mutex;

/// The rows of a statement as text; `None` is NULL.
pub type TextRows = Vec<Vec<Option<String>>>;

/// A connected client. It ends when dropped.
#[derive(Debug)]
pub struct MariadbSession {
    conn: Mutex<Conn>,
}

impl MariadbSession {
    /// Connects to a database over loopback as `root`, without TLS.
    ///
    /// # Errors
    /// What the server or the network said.
    pub async fn connect(port: u16, database: &str) -> Result<Self> {
        Self::connect_as(port, database, "root", None).await
    }

    /// Connects as a user with a password.
    ///
    /// # Errors
    /// What the server or the network said.
    pub async fn connect_as(
        port: u16,
        database: &str,
        user: &str,
        password: Option<&str>,
    ) -> Result<Self> {
        let options = OptsBuilder::default()
            .ip_or_hostname("127.0.0.1")
            .tcp_port(port)
            .user(Some(user))
            .pass(password)
            .db_name(Some(database))
            .prefer_socket(false)
            // Known here, so that it need not ask.
            .max_allowed_packet(Some(16 << 20))
            .wait_timeout(Some(28_800));
        let conn = Mutex::new(Conn::new(options).await?);
        Ok(Self { conn })
    }

    /// The server's number of this connection.
    pub async fn id(&self) -> u32 {
        self.conn.lock().await.id()
    }

    /// Runs statements and gives the rows of all of them as text.
    ///
    /// # Errors
    /// What the server or the network said.
    pub async fn sql(&self, text: &str) -> Result<TextRows> {
        let mut conn = self.conn.lock().await;
        let mut rows = Vec::new();
        let mut result = conn
            .query_iter(text)
            .await
            .with_context(|| text.to_owned())?;
        loop {
            let part: Vec<Row> = result.collect().await.with_context(|| text.to_owned())?;
            rows.extend(part.into_iter().map(texts));
            if result.is_empty() {
                // An error of a later statement shows here.
                result
                    .drop_result()
                    .await
                    .with_context(|| text.to_owned())?;
                return Ok(rows);
            }
        }
    }

    /// Runs a statement and gives its first value as text.
    ///
    /// # Errors
    /// As [`MariadbSession::sql`]; no row or NULL.
    pub async fn value(&self, text: &str) -> Result<String> {
        let rows = self.sql(text).await?;
        let first = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next().flatten());
        first.with_context(|| format!("no value: {text}"))
    }

    /// The value of a named column in the first row, as `SHOW … STATUS` gives it.
    ///
    /// # Errors
    /// As [`MariadbSession::sql`]; no row, no such column or NULL.
    pub async fn field(&self, text: &str, column: &str) -> Result<String> {
        let mut conn = self.conn.lock().await;
        let row: Option<Row> = conn
            .query_first(text)
            .await
            .with_context(|| text.to_owned())?;
        let value = row.and_then(|row| row.get_opt::<String, _>(column)?.ok());
        value.with_context(|| format!("no {column}: {text}"))
    }
}

fn texts(row: Row) -> Vec<Option<String>> {
    let text = |value| match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true)),
    };
    row.unwrap().into_iter().map(text).collect()
}
