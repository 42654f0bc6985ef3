//! Changes of a running program, made on its parts.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures_util::FutureExt;
use mainstay_config::{Input, LoadOptions};
use mainstay_engine::Chance;
use mainstay_engine::tasks::Tasks;

use super::super::app::App;
use crate::assembly::{Assembly, Services};
use crate::layers::Layers;

/// A source `s`, which stays, and perhaps a source `t`, each with a file of its own.
fn write_configuration(folder: &Path, with_other: bool) {
    let source = |name: &str| {
        format!(
            "[sources.{name}]\ndriver = 'sqlite'\npath = '{}/{name}.db'\noptions = {{ create = 'true' }}\n\
             [sources.{name}.endpoints.a]\n",
            folder.display()
        )
    };
    let other = if with_other {
        source("t")
    } else {
        String::new()
    };
    let head = format!("[server]\ndata_dir = '{}'\n", folder.display());
    std::fs::write(configuration(folder), head + &source("s") + &other).unwrap();
}

fn configuration(folder: &Path) -> std::path::PathBuf {
    folder.join("mainstay.toml")
}

async fn app(folder: &Path) -> Arc<App> {
    write_configuration(folder, false);
    let options = LoadOptions {
        files: vec![Input::File(configuration(folder))],
        ..LoadOptions::default()
    };
    let (layers, _) = Layers::load(options).await.unwrap();
    let (tasks, chance) = (Tasks::new(), Chance::seeded(1));
    let sources = Assembly::build(&layers.configuration(), &tasks, &chance).unwrap();
    let keyring = crate::keyring::Keyring::read(folder).unwrap();
    Arc::new(App::new(
        layers,
        keyring,
        (sources, Services::default()),
        chance,
        tasks,
    ))
}

impl App {
    async fn reload(&self) {
        let candidate = self.layers().reread().await.unwrap();
        self.put_in_force(candidate, false, true).await.unwrap();
    }

    /// Ends everything and checks that nothing is left.
    async fn end(&self) {
        self.sources().close(Duration::ZERO).await;
        assert_eq!(self.tasks().shutdown(Duration::from_secs(5)).await, 0);
    }
}

/// How often this process holds a file open.
fn times_open(file: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.flatten()
        .filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == file))
        .count()
}

/// Looks again until it holds, at most 20 s.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let looking = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, looking)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn twenty_reloads_that_add_and_remove_a_source_leave_tasks_and_connections_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    let app = app(&path).await;
    let before = app.tasks().running();
    let file = path.join("t.db");
    for _ in 0..20 {
        write_configuration(&path, true);
        app.reload().await;
        eventually("its health was checked", || times_open(&file) > 0).await;
        write_configuration(&path, false);
        app.reload().await;
        eventually("its tasks ended", || app.tasks().running() == before).await;
        eventually("its connections closed", || times_open(&file) == 0).await;
    }
    app.end().await;
}

#[tokio::test]
async fn a_change_whose_caller_leaves_while_it_is_written_down_is_made_whole() {
    let folder = tempfile::tempdir().unwrap();
    let app = app(folder.path()).await;
    let router = super::super::routes::router(Arc::clone(&app));
    let body = Body::from(r#"{"retry": {"attempts_max": 7}}"#);
    let request = Request::patch("/v1/admin/policy").body(body).unwrap();
    let mut answer = Box::pin(app.answer(router, request));
    // Goes on only until its change is on disk, which its caller does not learn any more.
    while !folder.path().join("runtime.toml").exists() {
        assert!((&mut answer).now_or_never().is_none());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(answer);
    let attempts = || {
        let source = app.sources().get("s").unwrap().settings();
        source.policy.retry.attempts_max
    };
    eventually("the change is in force", || attempts() == 7).await;
    assert!(!app.layers().overrides().is_empty());
    // The right to make changes was given back.
    app.change(async |_| Ok(())).await.unwrap();
    app.end().await;
}
