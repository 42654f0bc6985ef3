//! Every route.

mod admin;
mod call;
mod data;
mod endpoints;
mod entities;
mod events;
mod explain;
mod health;
mod observe;
mod place;
mod sources;
mod transactions;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::{delete, get, post};

use super::app::App;
use crate::problem::Problem;

/// The routes over one application.
pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(observe::prometheus))
        .route("/v1/events", get(events::events))
        .route("/v1/explain", post(explain::explain_statement))
        .nest("/v1/admin", of_admin())
        .route("/v1/sources", get(sources::list))
        .route("/v1/sources/{source}", get(sources::one))
        .nest("/v1/sources/{source}", of_source())
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

fn of_admin() -> Router<Arc<App>> {
    let policy = get(admin::policy)
        .put(admin::put_policy)
        .patch(admin::patch_policy);
    Router::new()
        .route("/policy", policy)
        .route(
            "/overrides",
            get(admin::overrides).delete(admin::drop_overrides),
        )
        .route("/reload", post(admin::reload))
        .route("/pause", post(admin::pause))
        .route("/resume", post(admin::resume))
}

fn of_source() -> Router<Arc<App>> {
    Router::new()
        .route("/query", post(data::query))
        .route("/scalar", post(data::scalar))
        .route("/execute", post(data::execute))
        .route("/find", post(data::find))
        .route("/insert", post(data::insert))
        .route("/insert_many", post(data::insert_many))
        .route("/update", post(data::update))
        .route("/update_many", post(data::update_many))
        .route("/delete", post(data::delete))
        .route("/script", post(data::script))
        .route("/create_entity", post(entities::create))
        .route("/drop_entity", post(entities::drop_entity))
        .route("/entities", get(entities::list))
        .route("/entities/{entity}", get(entities::one))
        .route("/entities/{entity}/children", get(entities::children))
        .route(
            "/entities/{entity}/foreign_keys",
            get(entities::foreign_keys),
        )
        .route("/entities/{entity}/ddl", get(entities::ddl))
        .route("/transactions", post(transactions::begin))
        .route("/transactions/{id}/query", post(transactions::query))
        .route("/transactions/{id}/execute", post(transactions::execute))
        .route(
            "/transactions/{id}/savepoint",
            post(transactions::savepoint),
        )
        .route("/transactions/{id}/commit", post(transactions::commit))
        .route("/transactions/{id}/rollback", post(transactions::rollback))
        .route("/slo", get(observe::slo))
        .route("/metrics", get(observe::metrics))
        .route("/audit", get(observe::audit))
        .route("/watchdog", get(observe::watchdog))
        .route("/overrides", delete(admin::drop_source_overrides))
        .merge(of_endpoints())
}

fn of_endpoints() -> Router<Arc<App>> {
    let one = get(endpoints::one)
        .patch(endpoints::patch)
        .delete(endpoints::remove);
    Router::new()
        .route("/endpoints", get(endpoints::list).post(endpoints::add))
        .route("/endpoints/{endpoint}", one)
        .route("/endpoints/{endpoint}/drain", post(endpoints::drain))
        .route("/endpoints/{endpoint}/undrain", post(endpoints::undrain))
        .route("/endpoints/{endpoint}/isolate", post(endpoints::isolate))
        .route("/endpoints/{endpoint}/release", post(endpoints::release))
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
