//! A folder for a journal, and short words for what tests put into it.

use std::path::PathBuf;

use bytes::Bytes;
use mainstay_journal::{FILE_NAME, Journal, JournalError, JournalSettings};
use mainstay_message::store::{Record, Stage, StoredMessage};
use mainstay_message::{Change, Headers};
use rusqlite::Connection;
use tempfile::TempDir;

/// The service of tests with one.
pub(crate) const SERVICE: &str = "compute";

/// A folder of its own.
pub(crate) struct Shelf {
    pub(crate) folder: TempDir,
}

impl Shelf {
    pub(crate) fn new() -> Self {
        Shelf {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(FILE_NAME)
    }

    pub(crate) fn settings(&self) -> JournalSettings {
        JournalSettings::within(self.folder.path())
    }

    pub(crate) async fn try_open(&self) -> Result<Journal, JournalError> {
        Journal::open(self.settings()).await
    }

    pub(crate) async fn open(&self) -> Journal {
        self.try_open().await.unwrap()
    }

    /// The closed file, past the journal.
    pub(crate) fn raw(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    pub(crate) fn length(&self) -> u64 {
        std::fs::metadata(self.path()).unwrap().len()
    }
}

pub(crate) fn record(stage: Stage) -> Record {
    Record {
        stage,
        function: "Compute.run".into(),
        tried: Vec::new(),
        target: Some("a".into()),
        forwarded_as: vec!["c6e0d1f8-6d5a-4f5e-9a3f-0f8f3f1f2a10".into()],
        job_key: None,
        replied: false,
        fetched: false,
        front: "main".into(),
        received_at_ms: 1_700_000_000_000,
    }
}

/// A message with the headers that the SDK writes.
pub(crate) fn message(body: Bytes) -> StoredMessage {
    let headers: Headers = [
        ("source", "org.fac.sys.sub.client"),
        ("destination", "org.fac.sys.sub.compute"),
        ("campaign_id", "7b2f7a52-2a24-4b52-a5c4-6a0d64c0a001"),
        ("request_id", "d2f7b1b0-62c5-4fbb-8d57-1a52a7c0b002"),
        ("message_id", "1f0d6c1e-9b56-4f0c-8f1d-3c52a7c0c003"),
        ("created_at", "2026-11-30T12:00:00.000000+00:00"),
        ("sdk_version", "0.9.3"),
        ("operation_id", "Compute.run"),
    ]
    .into_iter()
    .collect();
    StoredMessage {
        topic: "org/fac/sys/sub/compute/request".into(),
        content_type: Some("application/json".into()),
        headers,
        body,
    }
}

pub(crate) fn accept(id: &str, body: usize) -> Change {
    Change::Accept {
        id: id.into(),
        record: record(Stage::Received),
        request: message(vec![7; body].into()),
    }
}

pub(crate) fn update(id: &str, stage: Stage) -> Change {
    Change::Update {
        id: id.into(),
        record: record(stage),
    }
}

pub(crate) fn reply(id: &str, body: usize) -> Change {
    Change::Reply {
        id: id.into(),
        reply: message(vec![8; body].into()),
    }
}

pub(crate) fn finish(id: &str) -> Change {
    Change::Finish { id: id.into() }
}
