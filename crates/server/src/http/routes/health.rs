//! `/healthz` and `/readyz`, for whatever watches the process.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mainstay_sql::{Database, State as DatabaseState};
use serde_json::json;

use crate::http::app::App;

/// The process answers.
pub(super) async fn alive() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

/// Whether calls are worth sending here: not while it ends, and not while no source has any usable
/// endpoint. One broken source of several makes the others no worse.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    let sources = app.sources();
    let states: Vec<_> = sources
        .iter()
        .map(|served| (Arc::clone(served.name()), served.proxy().state()))
        .collect();
    let usable =
        |state: DatabaseState| matches!(state, DatabaseState::Open | DatabaseState::Connecting);
    let ending = app.stopping().is_cancelled();
    let is_ready = !ending && (states.is_empty() || states.iter().any(|(_, state)| usable(*state)));
    let named: serde_json::Map<_, _> = states
        .iter()
        .map(|(name, state)| (name.to_string(), json!(state_name(*state))))
        .collect();
    let status = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let word = match (is_ready, ending) {
        (true, _) => "ready",
        (false, true) => "ending",
        (false, false) => "no source has a usable endpoint",
    };
    let mut told = json!({"status": word});
    // Where callers have keys, those without one learn no names.
    if !app.asks_for_keys() {
        told["sources"] = named.into();
    }
    (status, Json(told)).into_response()
}

/// The stable lower-case name.
pub(super) fn state_name(state: DatabaseState) -> &'static str {
    match state {
        DatabaseState::Closed => "closed",
        DatabaseState::Connecting => "connecting",
        DatabaseState::Open => "open",
        DatabaseState::Broken => "broken",
    }
}
