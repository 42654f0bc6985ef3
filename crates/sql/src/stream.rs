//! Rows in batches, with bounded memory.

use std::sync::Arc;

use crate::database::{BoxFuture, Meta};
use crate::error::SqlError;
use crate::value::{Column, Row};

/// Bounds of one batch; whichever is reached first ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMax {
    /// Rows.
    pub rows: usize,
    /// Bytes of values.
    pub bytes: usize,
}

impl Default for BatchMax {
    fn default() -> Self {
        BatchMax {
            rows: 1024,
            bytes: 256 * 1024,
        }
    }
}

/// Some rows of an answer, never none.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The rows.
    pub rows: Vec<Row>,
}

/// Where batches come from.
pub trait Batches: Send {
    /// The next batch; `None`: the answer ended well. After an error or the end nothing more comes.
    /// Cancel safe in that a dropped future ends the whole stream and cleans up behind it.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>, SqlError>>;
}

/// An answer whose rows come in batches. It owns the lease; dropping it cancels at the server.
pub struct RowStream {
    /// The columns.
    pub columns: Arc<[Column]>,
    /// Where it comes from.
    pub meta: Meta,
    batches: Box<dyn Batches>,
}

impl RowStream {
    /// A stream over batches.
    pub fn new(columns: Arc<[Column]>, meta: Meta, batches: Box<dyn Batches>) -> Self {
        RowStream {
            columns,
            meta,
            batches,
        }
    }

    /// The next batch; `None`: the answer ended well.
    pub async fn next(&mut self) -> Result<Option<Batch>, SqlError> {
        self.batches.next().await
    }

    /// Puts something around the batches, such as accounting.
    #[must_use]
    pub fn map(self, wrap: impl FnOnce(Box<dyn Batches>) -> Box<dyn Batches>) -> Self {
        RowStream {
            batches: wrap(self.batches),
            ..self
        }
    }
}

impl std::fmt::Debug for RowStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowStream")
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}
