//! Every route.

mod health;
mod place;
mod sources;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::get;

use super::app::App;
use crate::problem::Problem;

/// The routes over one application.
pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/v1/sources", get(sources::list))
        .route("/v1/sources/{source}", get(sources::one))
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

async fn unknown_route(uri: Uri) -> Problem {
    Problem::new(
        "unknown_route",
        format!("there is nothing at {}", uri.path()),
        "routes begin with /v1/sources; /healthz, /readyz and /metrics stand alone",
    )
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        "method_not_allowed",
        format!("{} does not take {method}", uri.path()),
        "the header Allow names what it takes",
    )
}
