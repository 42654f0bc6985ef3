//! A running server with one SQLite source `s`, made from a text of configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mainstay_config::{FixedSecrets, Input, LoadOptions};
use mainstay_server::{Ended, Running, Server, StartError};
use serde_json::json;
use tempfile::TempDir;

use super::client::Client;

pub(super) struct Rig {
    pub(super) client: Client,
    pub(super) folder: Arc<TempDir>,
    running: Running,
}

/// The head of every configuration here: a free port, files in the folder of the test.
pub(super) fn head(folder: &Path) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {:?}\n",
        folder.join("data").display().to_string()
    )
}

/// One SQLite file behind a writing and a reading endpoint.
pub(super) fn source(folder: &Path) -> String {
    format!(
        "[sources.s]\ndriver = \"sqlite\"\npath = {:?}\noptions = {{ create = \"true\" }}\n\
         [sources.s.endpoints.writer]\nrole = \"primary\"\n[sources.s.endpoints.reader]\nrole = \"replica\"\n",
        file(folder).display().to_string()
    )
}

pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join("s.db")
}

pub(super) fn options(text: String) -> LoadOptions {
    LoadOptions {
        files: vec![Input::Text {
            name: "test.toml".to_owned(),
            text,
        }],
        secrets: Arc::new(FixedSecrets::default()),
        ..LoadOptions::default()
    }
}

impl Rig {
    /// With the usual source.
    pub(super) async fn start() -> Rig {
        Rig::with("", "").await
    }

    /// With further keys of `[server]` and further tables.
    pub(super) async fn with(server: &str, rest: &str) -> Rig {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let text = format!(
            "{}{server}\n{}{rest}",
            head(folder.path()),
            source(folder.path())
        );
        let rig = Rig::from(folder, text).await.unwrap();
        rig.make_table().await;
        rig
    }

    /// The table that every test uses.
    pub(super) async fn make_table(&self) {
        let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size REAL)";
        let made = self.client.verb("execute", json!({"sql": table})).await;
        made.good();
    }

    pub(super) async fn from(folder: Arc<TempDir>, text: String) -> Result<Rig, StartError> {
        Rig::from_options(folder, options(text)).await
    }

    pub(super) async fn from_options(
        folder: Arc<TempDir>,
        options: LoadOptions,
    ) -> Result<Rig, StartError> {
        let running = Server::start(options).await?;
        Ok(Rig {
            client: Client::new(running.address()),
            folder,
            running,
        })
    }

    /// A server for one program alone, and its key.
    pub(super) async fn private(
        folder: Arc<TempDir>,
        text: String,
    ) -> Result<(Rig, String), StartError> {
        let (running, key) = Server::start_private(options(text)).await?;
        let client = Client::new(running.address());
        let rig = Rig {
            client,
            folder,
            running,
        };
        Ok((rig, key))
    }

    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    /// Ends the server and checks that nothing of it is left.
    pub(super) async fn end(self) {
        let ended = self.running.shutdown(Duration::from_secs(20)).await;
        assert!(ended.drained && ended.left == 0, "{ended:?}");
    }

    /// Ends the server without looking.
    pub(super) async fn stop(self, limit: Duration) -> Ended {
        self.running.shutdown(limit).await
    }

    /// Inserts rows with these names.
    pub(super) async fn insert(&self, names: &[&str]) {
        let rows: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        self.client
            .verb("insert_many", json!({"entity": "t", "rows": rows}))
            .await
            .good();
    }

    /// How many rows there are.
    pub(super) async fn count(&self) -> i64 {
        let body = json!({"sql": "SELECT count(*) FROM t", "options": {"read_from": "primary"}});
        self.client.verb("scalar", body).await.good()["value"]
            .as_i64()
            .unwrap()
    }
}

/// Asks again until it holds, at most 20 s.
pub(super) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, asking)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}
