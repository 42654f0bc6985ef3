//! Policies, changes at run time, reload, pause.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use mainstay_config::explain;
use mainstay_engine::event::EventKind;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::place::Place;
use crate::assembly::Served;
use crate::http::app::App;
use crate::http::body::{Json as Body, Params};
use crate::http::caller::Caller;
use crate::http::change::{self, Changed, refused};
use crate::layers::LayersError;
use crate::problem::Problem;

/// What a policy route is about: a source, one of its endpoints, or all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Target {
    source: Option<String>,
    endpoint: Option<String>,
    dry_run: bool,
}

impl Target {
    /// Where its policy stands in a configuration.
    fn path(&self, app: &App) -> Result<Vec<&str>, Problem> {
        match (&self.source, &self.endpoint) {
            (None, None) => Ok(vec!["policy"]),
            (None, Some(_)) => Err(Problem::bad_request(
                "an endpoint without its source",
                "add source=…",
            )),
            (Some(source), None) => {
                app.source(source)?;
                Ok(vec!["sources", source, "policy"])
            }
            (Some(source), Some(endpoint)) => {
                let served = app.source(source)?;
                check_endpoint(&served, endpoint)?;
                Ok(vec!["sources", source, "endpoints", endpoint, "policy"])
            }
        }
    }

    fn refuse_dry_run(&self) -> Result<(), Problem> {
        match self.dry_run {
            true => Err(Problem::bad_request(
                "dry_run is for changes",
                "leave it out",
            )),
            false => Ok(()),
        }
    }
}

fn check_endpoint(served: &Served, endpoint: &str) -> Result<(), Problem> {
    let settings = served.settings();
    if settings.endpoints.contains_key(endpoint) {
        return Ok(());
    }
    let known: Vec<&str> = settings.endpoints.keys().map(String::as_str).collect();
    Err(Problem::new(
        "unknown_endpoint",
        format!("source {} has no endpoint {endpoint:?}", served.name()),
        format!("endpoints: {}", known.join(", ")),
    ))
}

pub(super) async fn policy(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(target): Params<Target>,
) -> Result<Json<Value>, Problem> {
    caller.holder.check_scope(target.source.as_deref())?;
    target.refuse_dry_run()?;
    let path = target.path(&app)?;
    let overrides = app.layers().overrides();
    let own = overrides.get(&path);
    let Some(source) = &target.source else {
        let sources = app.sources();
        let labels: Map<String, Value> = sources
            .iter()
            .map(|served| {
                let policy = &served.proxy().source().snapshot().policy;
                let label = json!({"name": policy.name, "version": policy.version});
                (served.name().to_string(), label)
            })
            .collect();
        return Ok(Json(json!({"sources": labels, "overrides": own})));
    };
    let name = match &target.endpoint {
        Some(endpoint) => format!("{source}.{endpoint}"),
        None => source.clone(),
    };
    let settings = explain(&app.layers().configuration(), &name).map_err(|unknown| {
        Problem::new("unknown_endpoint", unknown.to_string(), "use a known one")
    })?;
    let policy = Arc::clone(&app.source(source)?.proxy().source().snapshot().policy);
    Ok(Json(json!({
        "target": name,
        "policy": {"name": policy.name, "version": policy.version},
        "settings": settings,
        "overrides": own,
    })))
}

pub(super) async fn put_policy(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(target): Params<Target>,
    Body(policy): Body<Map<String, Value>>,
) -> Result<Json<Changed>, Problem> {
    caller.holder.check_scope(target.source.as_deref())?;
    let changed = app.change(|app| change_policy(app, target, policy, true));
    changed.await.map(Json)
}

pub(super) async fn patch_policy(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(target): Params<Target>,
    Body(policy): Body<Map<String, Value>>,
) -> Result<Json<Changed>, Problem> {
    caller.holder.check_scope(target.source.as_deref())?;
    let changed = app.change(|app| change_policy(app, target, policy, false));
    changed.await.map(Json)
}

/// Puts a policy in the place of the former change at run time, or merges it into that.
async fn change_policy(
    app: Arc<App>,
    target: Target,
    policy: Map<String, Value>,
    replaces: bool,
) -> Result<Changed, Problem> {
    let path = target.path(&app)?;
    let mut overrides = app.layers().overrides();
    if replaces {
        overrides.remove(&path);
    }
    overrides.merge(&path, policy);
    let candidate = match app.layers().with_overrides(overrides).await {
        Ok(candidate) => candidate,
        Err(error) => {
            tell_refusal(&app, &target, &error);
            return Err(refused(error));
        }
    };
    app.put_in_force(candidate, target.dry_run, false).await
}

fn tell_refusal(app: &App, target: &Target, error: &LayersError) {
    let (LayersError::Problems(problems), Some(source), false) =
        (error, &target.source, target.dry_run)
    else {
        return;
    };
    if let Ok(served) = app.source(source) {
        let problems = problems.iter().map(ToString::to_string).collect();
        served
            .proxy()
            .source()
            .publish(EventKind::PolicyRefused { problems });
    }
}

pub(super) async fn overrides(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<Value>, Problem> {
    caller.holder.check_scope(None)?;
    Ok(Json(
        json!({"overrides": app.layers().overrides().as_json()}),
    ))
}

pub(super) async fn drop_overrides(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Json<Changed>, Problem> {
    caller.holder.check_scope(None)?;
    let changed = app.change(|app| async move { without_overrides(&app, &[]).await });
    changed.await.map(Json)
}

pub(super) async fn drop_source_overrides(
    State(app): State<Arc<App>>,
    place: Place,
) -> Result<Json<Changed>, Problem> {
    let changed = app.change(|app| async move {
        let path = ["sources", place.served.name()];
        without_overrides(&app, &path).await
    });
    changed.await.map(Json)
}

async fn without_overrides(app: &App, path: &[&str]) -> Result<Changed, Problem> {
    let mut overrides = app.layers().overrides();
    overrides.remove(path);
    let candidate = app
        .layers()
        .with_overrides(overrides)
        .await
        .map_err(refused)?;
    app.put_in_force(candidate, false, false).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReloadParams {
    dry_run: bool,
}

/// Reads the files again: the old stays if anything of the new is wrong.
pub(super) async fn reload(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<ReloadParams>,
) -> Result<Json<Changed>, Problem> {
    caller.holder.check_scope(None)?;
    change::reload(&app, params.dry_run).await.map(Json)
}

/// Which sources to pause; none named: all.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PauseParams {
    source: Option<String>,
}

pub(super) async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<PauseParams>,
) -> Result<Json<Value>, Problem> {
    caller.holder.check_scope(params.source.as_deref())?;
    let named = each(&app, &params, |served| served.proxy().source().pause())?;
    Ok(Json(json!({"paused": named})))
}

pub(super) async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<PauseParams>,
) -> Result<Json<Value>, Problem> {
    caller.holder.check_scope(params.source.as_deref())?;
    let named = each(&app, &params, |served| served.proxy().source().resume())?;
    Ok(Json(json!({"resumed": named})))
}

fn each(app: &App, params: &PauseParams, act: impl Fn(&Served)) -> Result<Vec<Arc<str>>, Problem> {
    let served: Vec<Arc<Served>> = match &params.source {
        Some(name) => vec![app.source(name)?],
        None => app.sources().iter().cloned().collect(),
    };
    served.iter().for_each(|served| act(served));
    Ok(served
        .iter()
        .map(|served| Arc::clone(served.name()))
        .collect())
}
