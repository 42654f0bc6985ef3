//! `/v1/services`: proxied message services, their targets and their open jobs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use mainstay_engine::source::check_weight;
use mainstay_message::{Service, TargetError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::observe::{AuditParams, entries};
use crate::assembly::ServedService;
use crate::http::app::App;
use crate::http::body::{Json as Body, Params};
use crate::http::caller::Caller;
use crate::http::change::refused;
use crate::problem::Problem;

/// Jobs that are shown at once.
const JOBS_MAX: usize = 1000;

/// What the path of `/v1/services/{service}/…` names.
pub(super) struct ServicePlace {
    served: Arc<ServedService>,
    names: RawPathParams,
}

impl ServicePlace {
    fn service(&self) -> &Service {
        self.served.service()
    }

    fn name(&self, name: &str) -> Result<&str, Problem> {
        let found = self.names.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value).ok_or_else(Problem::internal)
    }

    /// The target that the path names, or the problem that there is none of that name.
    fn target(&self) -> Result<Value, Problem> {
        let name = self.name("target")?;
        let service = self.service();
        let Some(target) = service.target(name) else {
            let known: Vec<_> = service
                .status()
                .targets
                .iter()
                .map(|it| it.name.to_string())
                .collect();
            return Err(Problem::new(
                "unknown_target",
                format!("service {} has no target {name:?}", service.name()),
                format!("targets: {}", known.join(", ")),
            ));
        };
        serde_json::to_value(target).map_err(|_| Problem::internal())
    }
}

impl FromRequestParts<Arc<App>> for ServicePlace {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        let names = RawPathParams::from_request_parts(parts, app).await;
        let names = names.map_err(|error| {
            let hint = "percent-encode names as UTF-8";
            Problem::bad_request(format!("the path: {}", error.body_text()), hint)
        })?;
        let service = names.iter().find(|(name, _)| *name == "service");
        let (_, service) = service.ok_or_else(Problem::internal)?;
        let caller = parts.extensions.get::<Caller>();
        caller
            .ok_or_else(Problem::internal)?
            .holder
            .check_source(service)?;
        let served = app.service(service)?;
        Ok(ServicePlace { served, names })
    }
}

pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Json<Value> {
    let services: Vec<Value> = app
        .services()
        .iter()
        .filter(|(name, _)| caller.holder.knows(name))
        .map(|(_, served)| brief(served.service()))
        .collect();
    Json(json!({"services": services}))
}

fn brief(service: &Service) -> Value {
    let status = service.status();
    let usable = status
        .targets
        .iter()
        .filter(|target| !target.aside && !target.draining)
        .count();
    let connected = status.brokers.iter().all(|broker| broker.state == "up");
    json!({
        "name": status.name,
        "identity": status.identity,
        "capability_name": status.capability_name,
        "strategy": status.strategy,
        "connected": connected,
        "targets": status.targets.len(),
        "targets_usable": usable,
        "requests_open": status.requests_open,
        "jobs_open": status.jobs_open,
    })
}

pub(super) async fn one(place: ServicePlace) -> Result<Json<Value>, Problem> {
    let status = place.service().status();
    serde_json::to_value(status)
        .map(Json)
        .map_err(|_| Problem::internal())
}

pub(super) async fn targets(place: ServicePlace) -> Json<Value> {
    let status = place.service().status();
    Json(json!({"service": status.name, "targets": status.targets}))
}

pub(super) async fn target(place: ServicePlace) -> Result<Json<Value>, Problem> {
    place.target().map(Json)
}

#[derive(Debug, Deserialize)]
pub(super) struct AddTarget {
    name: String,
    /// The same keys as in a file.
    #[serde(flatten)]
    settings: Map<String, Value>,
}

pub(super) async fn add(
    State(app): State<Arc<App>>,
    place: ServicePlace,
    Body(body): Body<AddTarget>,
) -> Result<Response, Problem> {
    app.change(|app| add_to(app, place, body)).await
}

async fn add_to(app: Arc<App>, place: ServicePlace, body: AddTarget) -> Result<Response, Problem> {
    let service = place.service();
    if service.target(&body.name).is_some() {
        return Err(Problem::new(
            "conflict",
            format!(
                "service {} already has a target {:?}",
                service.name(),
                body.name
            ),
            "remove it first or choose another name",
        ));
    }
    let mut overrides = app.layers().overrides();
    overrides.merge(
        &["services", service.name(), "targets", &body.name],
        body.settings,
    );
    let candidate = app
        .layers()
        .with_overrides(overrides)
        .await
        .map_err(refused)?;
    app.put_in_force(candidate, false, false).await?;
    let added = service.target(&body.name).ok_or_else(|| {
        Problem::new(
            "conflict",
            format!("target {:?} was not taken; the log says why", body.name),
            "look at GET /v1/services/SERVICE/targets for one of the same destination",
        )
    })?;
    Ok((StatusCode::CREATED, Json(added)).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeTarget {
    weight: f64,
}

pub(super) async fn patch(
    State(app): State<Arc<App>>,
    place: ServicePlace,
    Body(body): Body<ChangeTarget>,
) -> Result<Json<Value>, Problem> {
    app.change(|app| patch_in(app, place, body)).await
}

async fn patch_in(
    app: Arc<App>,
    place: ServicePlace,
    body: ChangeTarget,
) -> Result<Json<Value>, Problem> {
    place.target()?;
    check_weight(body.weight).map_err(|problem| control(&problem.into()))?;
    let service = place.service();
    let name = place.name("target")?;
    if is_configured(&app, service, name) {
        let mut overrides = app.layers().overrides();
        let fields = Map::from_iter([("weight".to_owned(), json!(body.weight))]);
        overrides.merge(&["services", service.name(), "targets", name], fields);
        let candidate = app
            .layers()
            .with_overrides(overrides)
            .await
            .map_err(refused)?;
        app.put_in_force(candidate, false, false).await?;
    } else {
        // It announced itself: what is changed of it lasts as long as it.
        service
            .set_target_weight(name, body.weight)
            .map_err(|problem| control(&problem))?;
    }
    place.target().map(Json)
}

fn is_configured(app: &App, service: &Service, target: &str) -> bool {
    let configuration = app.layers().configuration();
    let settings = configuration.services().get(&**service.name());
    settings.is_some_and(|it| it.settings.targets.iter().any(|it| &*it.name == target))
}

pub(super) async fn remove(
    State(app): State<Arc<App>>,
    place: ServicePlace,
) -> Result<Json<Value>, Problem> {
    app.change(|app| remove_from(app, place)).await
}

async fn remove_from(app: Arc<App>, place: ServicePlace) -> Result<Json<Value>, Problem> {
    place.target()?;
    let (service, name) = (place.service(), place.name("target")?);
    let mut overrides = app.layers().overrides();
    if overrides.remove(&["services", service.name(), "targets", name]) {
        let candidate = app
            .layers()
            .with_overrides(overrides)
            .await
            .map_err(refused)?;
        app.put_in_force(candidate, false, false).await?;
    }
    let stays = is_configured(&app, service, name);
    if service.target(name).is_some() {
        service
            .remove_target(name)
            .map_err(|problem| control(&problem))?;
    }
    let note = "it stands in the configuration and comes back with the next start";
    Ok(Json(
        json!({"removed": name, "note": stays.then_some(note)}),
    ))
}

pub(super) async fn drain(place: ServicePlace) -> Result<Json<Value>, Problem> {
    act(&place, Service::drain_target)
}

pub(super) async fn undrain(place: ServicePlace) -> Result<Json<Value>, Problem> {
    act(&place, Service::undrain_target)
}

fn act(
    place: &ServicePlace,
    act: impl FnOnce(&Service, &str) -> Result<(), TargetError>,
) -> Result<Json<Value>, Problem> {
    place.target()?;
    act(place.service(), place.name("target")?).map_err(|problem| control(&problem))?;
    place.target().map(Json)
}

fn control(problem: &TargetError) -> Problem {
    let hint = "GET /v1/services/SERVICE/targets shows what there is";
    Problem::new("policy_refused", problem.to_string(), hint)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct JobParams {
    limit: Option<usize>,
}

pub(super) async fn jobs(
    place: ServicePlace,
    Params(params): Params<JobParams>,
) -> Result<Json<Value>, Problem> {
    let limit = params.limit.unwrap_or(100);
    if !(1..=JOBS_MAX).contains(&limit) {
        return Err(Problem::bad_request(
            format!("limit {limit} is not between 1 and {JOBS_MAX}"),
            "ask for fewer jobs",
        ));
    }
    let service = place.service();
    let open = service.status().jobs_open;
    Ok(Json(json!({
        "service": service.name(),
        "open": open,
        "jobs": service.jobs(limit),
        "failed": service.failed_jobs().into_iter().take(limit).collect::<Vec<_>>(),
    })))
}

pub(super) async fn audit(
    State(app): State<Arc<App>>,
    place: ServicePlace,
    Params(params): Params<AuditParams>,
) -> Result<Json<Value>, Problem> {
    entries(&app, place.service().source().recent_audit(), &params)
}

pub(super) async fn job(place: ServicePlace) -> Result<Json<Value>, Problem> {
    let (service, id) = (place.service(), place.name("job")?);
    let Some(job) = service.job(id) else {
        return Err(Problem::new(
            "unknown_job",
            format!("service {} has no open job {id:?}", service.name()),
            "GET /v1/services/SERVICE/jobs names the open ones, by the message id of their request",
        ));
    };
    serde_json::to_value(job)
        .map(Json)
        .map_err(|_| Problem::internal())
}
