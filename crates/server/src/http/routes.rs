//! Every route.

mod admin;
mod call;
mod data;
mod endpoints;
mod entities;
mod events;
mod explain;
mod health;
mod keys;
mod observe;
mod place;
mod services;
mod sources;
mod transactions;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing;

use super::app::App;
use super::keys::Demand::{self, Open, Role};
use super::openapi;
use super::route::{Param, Route, delete, get, patch, post, put};
use crate::problem::Problem;
use mainstay_config::KeyRole;

const READ: Demand = Role(KeyRole::Read);
const WRITE: Demand = Role(KeyRole::Write);
const ADMIN: Demand = Role(KeyRole::Admin);

const fn param(name: &'static str, kind: &'static str, about: &'static str) -> Param {
    Param { name, kind, about }
}

const SOURCE: Param = param("source", "string", "the source");
const DRY_RUN: Param = param("dry_run", "boolean", "only tells what would change");
const OF_POLICY: &[Param] = &[
    param(
        "source",
        "string",
        "the source; without it the layer of all",
    ),
    param("endpoint", "string", "one of its endpoints"),
    DRY_RUN,
];
const OF_AUDIT: &[Param] = &[
    param("limit", "integer", "entries at most, from 1 to 1000"),
    param("correlation_id", "string", "only of this call"),
    param("failed", "boolean", "only those that failed, or did not"),
    param("operation", "string", "only of this operation"),
];
const OF_EVENTS: &[Param] = &[
    SOURCE,
    param("calls", "boolean", "also an event for each call that ends"),
];
const OF_JOBS: &[Param] = &[param("limit", "integer", "jobs at most, from 1 to 1000")];
const REFRESH: &[Param] = &[param("refresh", "boolean", "ask the database anew")];

/// Every route; there is no other place where one could be added. Those that are called most come first.
/// What changes something by a reader's `query` is refused where the statement is known.
#[rustfmt::skip]
pub(super) const ROUTES: &[Route] = &[
    post("/v1/sources/{source}/query", READ, || routing::post(data::query))
        .does("runs a statement and gives its rows").takes("Statement").gives_lines("Rows"),
    post("/v1/sources/{source}/scalar", READ, || routing::post(data::scalar))
        .does("runs a statement and gives its one value").takes("Statement").gives("Scalar"),
    post("/v1/sources/{source}/find", READ, || routing::post(data::find))
        .does("gives rows of a table or view").takes("Find").gives_lines("Rows"),
    post("/v1/sources/{source}/execute", WRITE, || routing::post(data::execute))
        .does("runs a statement and tells what it changed").takes("Statement").gives("Changed"),
    post("/v1/sources/{source}/insert", WRITE, || routing::post(data::insert))
        .does("inserts a row").takes("Insert").gives("Changed"),
    post("/v1/sources/{source}/insert_many", WRITE, || routing::post(data::insert_many))
        .does("inserts rows, all or none").takes("InsertMany").gives("Changed"),
    post("/v1/sources/{source}/update", WRITE, || routing::post(data::update))
        .does("changes the rows that filters choose").takes("Update").gives("Changed"),
    post("/v1/sources/{source}/update_many", WRITE, || routing::post(data::update_many))
        .does("makes several changes, all or none").takes("UpdateMany").gives("Changed"),
    post("/v1/sources/{source}/delete", WRITE, || routing::post(data::delete))
        .does("deletes the rows that filters choose").takes("Delete").gives("Changed"),
    post("/v1/sources/{source}/script", WRITE, || routing::post(data::script))
        .does("runs several statements, stops at the first failure").takes("Script").gives("Results"),
    post("/v1/sources/{source}/transactions", READ, || routing::post(transactions::begin))
        .does("begins a transaction").takes("Begin").makes("Begun"),
    post("/v1/sources/{source}/transactions/{id}/query", READ, || routing::post(transactions::query))
        .does("runs a statement in a transaction and gives its rows").takes("Statement").gives_lines("Rows"),
    post("/v1/sources/{source}/transactions/{id}/execute", WRITE, || routing::post(transactions::execute))
        .does("runs a statement in a transaction and tells what it changed").takes("Statement").gives("Changed"),
    post("/v1/sources/{source}/transactions/{id}/savepoint", READ, || routing::post(transactions::savepoint))
        .does("sets a savepoint, goes back to it or releases it").takes("Savepoint").gives("SavepointDone"),
    post("/v1/sources/{source}/transactions/{id}/commit", READ, || routing::post(transactions::commit))
        .does("commits a transaction").gives("Changed"),
    post("/v1/sources/{source}/transactions/{id}/rollback", READ, || routing::post(transactions::rollback))
        .does("rolls a transaction back").gives("RolledBack"),

    get("/v1/sources/{source}/entities", READ, || routing::get(entities::list))
        .does("names the tables and views").gives("Entities"),
    get("/v1/sources/{source}/entities/{entity}", READ, || routing::get(entities::one))
        .does("describes a table or view").with(REFRESH).gives("Entity"),
    get("/v1/sources/{source}/entities/{entity}/children", READ, || routing::get(entities::children))
        .does("tells what refers to a table").gives("Relations"),
    get("/v1/sources/{source}/entities/{entity}/foreign_keys", READ, || routing::get(entities::foreign_keys))
        .does("tells what a table refers to").gives("Relations"),
    get("/v1/sources/{source}/entities/{entity}/ddl", READ, || routing::get(entities::ddl))
        .does("gives the text that makes a table or view").gives("Ddl"),
    post("/v1/sources/{source}/create_entity", WRITE, || routing::post(entities::create))
        .does("makes a table").takes("CreateEntity").gives("Results"),
    post("/v1/sources/{source}/drop_entity", WRITE, || routing::post(entities::drop_entity))
        .does("drops a table or view").takes("DropEntity").gives("Results"),

    get("/v1/sources", READ, || routing::get(sources::list))
        .does("names the sources").gives("Sources"),
    get("/v1/sources/{source}", READ, || routing::get(sources::one))
        .does("tells how a source and its endpoints stand").gives("WholeSource"),
    get("/v1/sources/{source}/slo", READ, || routing::get(observe::slo))
        .does("gives service levels").gives("Levels"),
    get("/v1/sources/{source}/metrics", READ, || routing::get(observe::metrics))
        .does("gives the numbers of a source and its pools").gives("SourceMetrics"),
    get("/v1/sources/{source}/audit", READ, || routing::get(observe::audit))
        .does("gives the last audit entries").with(OF_AUDIT).gives("Audit"),
    get("/v1/sources/{source}/watchdog", READ, || routing::get(observe::watchdog))
        .does("tells who is primary and what checks found").gives("Watchdog"),
    get("/v1/sources/{source}/endpoints", READ, || routing::get(endpoints::list))
        .does("tells how all endpoints stand").gives("Endpoints"),
    post("/v1/sources/{source}/endpoints", ADMIN, || routing::post(endpoints::add))
        .does("adds an endpoint").takes("NewEndpoint").makes("EndpointStatus"),
    get("/v1/sources/{source}/endpoints/{endpoint}", READ, || routing::get(endpoints::one))
        .does("tells how an endpoint stands").gives("EndpointStatus"),
    patch("/v1/sources/{source}/endpoints/{endpoint}", ADMIN, || routing::patch(endpoints::patch))
        .does("changes an endpoint's role or weight").takes("ChangeEndpoint").gives("EndpointStatus"),
    delete("/v1/sources/{source}/endpoints/{endpoint}", ADMIN, || routing::delete(endpoints::remove))
        .does("takes an endpoint out").gives("Removed"),
    post("/v1/sources/{source}/endpoints/{endpoint}/drain", ADMIN, || routing::post(endpoints::drain))
        .does("gives an endpoint no new work").gives("EndpointStatus"),
    post("/v1/sources/{source}/endpoints/{endpoint}/undrain", ADMIN, || routing::post(endpoints::undrain))
        .does("gives an endpoint work again").gives("EndpointStatus"),
    post("/v1/sources/{source}/endpoints/{endpoint}/isolate", ADMIN, || routing::post(endpoints::isolate))
        .does("holds an endpoint's circuit open").gives("EndpointStatus"),
    post("/v1/sources/{source}/endpoints/{endpoint}/release", ADMIN, || routing::post(endpoints::release))
        .does("lets an isolated endpoint be tried").gives("EndpointStatus"),
    delete("/v1/sources/{source}/overrides", ADMIN, || routing::delete(admin::drop_source_overrides))
        .does("takes back what was changed of a source at run time").gives("Applied"),

    get("/v1/services", READ, || routing::get(services::list))
        .does("names the message services").gives("Services"),
    get("/v1/services/{service}", READ, || routing::get(services::one))
        .does("tells how a message service stands").gives("ServiceStatus"),
    get("/v1/services/{service}/targets", READ, || routing::get(services::targets))
        .does("tells how its targets stand").gives("Targets"),
    post("/v1/services/{service}/targets", ADMIN, || routing::post(services::add))
        .does("adds a target").takes("NewTarget").makes("TargetStatus"),
    get("/v1/services/{service}/targets/{target}", READ, || routing::get(services::target))
        .does("tells how a target stands").gives("TargetStatus"),
    patch("/v1/services/{service}/targets/{target}", ADMIN, || routing::patch(services::patch))
        .does("changes a target's weight").takes("ChangeTarget").gives("TargetStatus"),
    delete("/v1/services/{service}/targets/{target}", ADMIN, || routing::delete(services::remove))
        .does("takes a target out; its jobs go to others").gives("Removed"),
    post("/v1/services/{service}/targets/{target}/drain", ADMIN, || routing::post(services::drain))
        .does("gives a target no new requests; its jobs go on").gives("TargetStatus"),
    post("/v1/services/{service}/targets/{target}/undrain", ADMIN, || routing::post(services::undrain))
        .does("gives a target requests again").gives("TargetStatus"),
    get("/v1/services/{service}/jobs", READ, || routing::get(services::jobs))
        .does("names open jobs, the oldest first").with(OF_JOBS).gives("Jobs"),
    get("/v1/services/{service}/jobs/{job}", READ, || routing::get(services::job))
        .does("tells how an open job stands, by its id or key").gives("JobStatus"),
    get("/v1/services/{service}/audit", READ, || routing::get(services::audit))
        .does("gives the last audit entries of a message service").with(OF_AUDIT).gives("Audit"),

    get("/v1/admin/policy", ADMIN, || routing::get(admin::policy))
        .does("gives each effective setting with its layer").with(OF_POLICY).gives("Policy"),
    put("/v1/admin/policy", ADMIN, || routing::put(admin::put_policy))
        .does("puts a policy in the place of the former change").with(OF_POLICY).takes("NewPolicy").gives("Applied"),
    patch("/v1/admin/policy", ADMIN, || routing::patch(admin::patch_policy))
        .does("merges a policy into the former change").with(OF_POLICY).takes("NewPolicy").gives("Applied"),
    get("/v1/admin/keys", ADMIN, || routing::get(keys::list))
        .does("names the keys of callers").gives("Keys"),
    post("/v1/admin/keys", ADMIN, || routing::post(keys::make))
        .does("makes a key, which is shown this once").takes("NewKey").makes("MadeKey"),
    delete("/v1/admin/keys/{key}", ADMIN, || routing::delete(keys::revoke))
        .does("revokes a key that was made here").gives("Revoked"),
    get("/v1/admin/overrides", ADMIN, || routing::get(admin::overrides))
        .does("gives all that was changed at run time").gives("Overrides"),
    delete("/v1/admin/overrides", ADMIN, || routing::delete(admin::drop_overrides))
        .does("takes back all that was changed at run time").gives("Applied"),
    post("/v1/admin/reload", ADMIN, || routing::post(admin::reload))
        .does("reads the configuration again").with(&[DRY_RUN]).gives("Applied"),
    post("/v1/admin/pause", ADMIN, || routing::post(admin::pause))
        .does("refuses calls, of all sources unless one is named").with(&[SOURCE]).gives("Paused"),
    post("/v1/admin/resume", ADMIN, || routing::post(admin::resume))
        .does("admits calls again").with(&[SOURCE]).gives("Resumed"),

    post("/v1/explain", READ, || routing::post(explain::explain_statement))
        .does("tells what would happen to a statement, and runs nothing").takes("Explain").gives("Explanation"),
    get("/v1/events", READ, || routing::get(events::events))
        .does("tells what happens, as it happens").with(OF_EVENTS).gives_text("text/event-stream"),
    get("/metrics", READ, || routing::get(observe::prometheus))
        .does("gives all numbers for Prometheus").gives_text("text/plain"),
    get("/healthz", Open, || routing::get(health::alive))
        .does("says that the process answers").gives("Status"),
    get("/readyz", Open, || routing::get(health::ready))
        .does("says whether calls are worth sending; 503 if not").gives("Status"),
    get("/openapi.json", Open, || routing::get(openapi::serve))
        .does("gives this document").gives("Document"),
];

/// The routes over one application.
pub(super) fn router(app: Arc<App>) -> Router {
    let add = |router: Router<Arc<App>>, route: &Route| router.route(route.path, (route.work)());
    ROUTES
        .iter()
        .fold(Router::new(), add)
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

async fn unknown_route(uri: Uri) -> Problem {
    Problem::new(
        "unknown_route",
        format!("there is nothing at {}", uri.path()),
        "/openapi.json describes every route; most begin with /v1/sources",
    )
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        "method_not_allowed",
        format!("{} does not take {method}", uri.path()),
        "the header Allow names what it takes",
    )
}
