//! Endpoints of a source: how they stand, and adding, removing, weighing, draining, isolating them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mainstay_engine::event::Role;
use mainstay_engine::source::{ControlError, EndpointStatus, check_weight};
use mainstay_sql::proxy::control;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::observe::pool_shown;
use super::place::Place;
use crate::assembly::Served;
use crate::http::app::App;
use crate::http::body::Json as Body;
use crate::http::change::refused;
use crate::problem::Problem;

type Answered = Result<Response, Problem>;

fn shown(served: &Served, status: &EndpointStatus) -> Value {
    let id = status.endpoint.as_str();
    let mut shown = serde_json::to_value(status).unwrap_or_default();
    if let Value::Object(fields) = &mut shown {
        fields.insert("address".to_owned(), json!(served.address(id)));
        fields.insert(
            "pool".to_owned(),
            json!(served.pool_stats(id).map(pool_shown)),
        );
    }
    shown
}

fn control_problem(problem: &ControlError) -> Problem {
    control(problem).into()
}

/// One endpoint, or the problem that there is none of that name.
fn one_status(served: &Served, id: &str) -> Result<Value, Problem> {
    let source = served.proxy().source();
    let statuses = source.status();
    let found = statuses
        .iter()
        .find(|status| status.endpoint.as_str() == id);
    match found {
        Some(status) => Ok(shown(served, status)),
        None => {
            let known: Vec<&str> = statuses
                .iter()
                .map(|status| status.endpoint.as_str())
                .collect();
            Err(Problem::new(
                "unknown_endpoint",
                format!("source {} has no endpoint {id:?}", served.name()),
                format!("endpoints: {}", known.join(", ")),
            ))
        }
    }
}

pub(super) async fn list(place: Place) -> Json<Value> {
    let statuses = place.served.proxy().source().status();
    let endpoints: Vec<Value> = statuses
        .iter()
        .map(|status| shown(&place.served, status))
        .collect();
    Json(json!({"source": place.served.name(), "endpoints": endpoints}))
}

pub(super) async fn one(place: Place) -> Result<Json<Value>, Problem> {
    one_status(&place.served, place.name("endpoint")?).map(Json)
}

#[derive(Debug, Deserialize)]
pub(super) struct AddBody {
    id: String,
    /// The same keys as in a file.
    #[serde(flatten)]
    settings: Map<String, Value>,
}

pub(super) async fn add(
    State(app): State<Arc<App>>,
    place: Place,
    Body(body): Body<AddBody>,
) -> Answered {
    app.change(|app| add_to(app, place, body)).await
}

async fn add_to(app: Arc<App>, place: Place, body: AddBody) -> Answered {
    let source = place.served.name();
    if one_status(&place.served, &body.id).is_ok() {
        let problem = ControlError::Duplicate {
            source_name: Arc::clone(source),
            endpoint: body.id.into(),
        };
        return Err(control_problem(&problem));
    }
    let mut overrides = app.layers().overrides();
    overrides.merge(&["sources", source, "endpoints", &body.id], body.settings);
    let candidate = app
        .layers()
        .with_overrides(overrides)
        .await
        .map_err(refused)?;
    place.served.admit_again(&body.id);
    app.put_in_force(candidate, false, false).await?;
    let added = one_status(&place.served, &body.id)?;
    Ok((StatusCode::CREATED, Json(added)).into_response())
}

pub(super) async fn remove(
    State(app): State<Arc<App>>,
    place: Place,
) -> Result<Json<Value>, Problem> {
    app.change(|app| remove_from(app, place)).await
}

async fn remove_from(app: Arc<App>, place: Place) -> Result<Json<Value>, Problem> {
    let (served, id) = (&place.served, place.name("endpoint")?);
    one_status(served, id)?;
    if served.proxy().source().snapshot().endpoints.len() == 1 {
        return Err(Problem::new(
            "conflict",
            format!("{id} is the only endpoint of {}", served.name()),
            "add another one first, or pause the source",
        ));
    }
    let mut overrides = app.layers().overrides();
    let was_added = overrides.remove(&["sources", served.name(), "endpoints", id]);
    let mut is_configured = true;
    if was_added {
        let candidate = app
            .layers()
            .with_overrides(overrides)
            .await
            .map_err(refused)?;
        let source = candidate.configuration.sources.get(&**served.name());
        is_configured = source.is_some_and(|source| source.endpoints.contains_key(id));
        app.put_in_force(candidate, false, false).await?;
    }
    if is_configured {
        served.remove_endpoint(id)?;
    }
    let note = "it stands in the configuration and comes back with the next reload or start";
    Ok(Json(
        json!({"removed": id, "note": is_configured.then_some(note)}),
    ))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PatchBody {
    role: Option<String>,
    weight: Option<f64>,
}

pub(super) async fn patch(
    State(app): State<Arc<App>>,
    place: Place,
    Body(body): Body<PatchBody>,
) -> Result<Json<Value>, Problem> {
    app.change(|app| patch_in(app, place, body)).await
}

async fn patch_in(app: Arc<App>, place: Place, body: PatchBody) -> Result<Json<Value>, Problem> {
    let (served, id) = (&place.served, place.name("endpoint")?);
    one_status(served, id)?;
    let role = body.role.as_deref().map(role).transpose()?;
    if let Some(weight) = body.weight {
        // Checked here as well, so that a wrong weight leaves the role alone.
        check_weight(weight).map_err(|problem| control_problem(&problem))?;
        let mut overrides = app.layers().overrides();
        let mut fields = Map::new();
        fields.insert("weight".to_owned(), json!(weight));
        overrides.merge(&["sources", served.name(), "endpoints", id], fields);
        let candidate = app
            .layers()
            .with_overrides(overrides)
            .await
            .map_err(refused)?;
        app.put_in_force(candidate, false, false).await?;
    }
    if let Some(role) = role {
        // A role is state and no setting: it is not kept over a restart.
        let source = served.proxy().source();
        let set = source.set_role(id, role, "set by the admin API");
        set.map_err(|problem| control_problem(&problem))?;
    }
    one_status(served, id).map(Json)
}

fn role(word: &str) -> Result<Role, Problem> {
    match Role::parse(word) {
        Some(role) if role != Role::Member => Ok(role),
        _ => Err(Problem::bad_request(
            format!(
                "unknown role {:?}",
                word.chars().take(40).collect::<String>()
            ),
            "use primary, replica or standby",
        )),
    }
}

pub(super) async fn drain(place: Place) -> Result<Json<Value>, Problem> {
    act(&place, |served, id| {
        served.proxy().source().drain_endpoint(id).map(|_| ())
    })
}

pub(super) async fn undrain(place: Place) -> Result<Json<Value>, Problem> {
    act(&place, |served, id| {
        served.proxy().source().undrain_endpoint(id)
    })
}

pub(super) async fn isolate(place: Place) -> Result<Json<Value>, Problem> {
    act(&place, |served, id| served.proxy().source().isolate(id))
}

pub(super) async fn release(place: Place) -> Result<Json<Value>, Problem> {
    act(&place, |served, id| served.proxy().source().release(id))
}

fn act(
    place: &Place,
    act: impl FnOnce(&Served, &str) -> Result<(), ControlError>,
) -> Result<Json<Value>, Problem> {
    let id = place.name("endpoint")?;
    act(&place.served, id).map_err(|problem| control_problem(&problem))?;
    one_status(&place.served, id).map(Json)
}
