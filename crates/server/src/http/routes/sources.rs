//! `GET /v1/sources` and `/v1/sources/{source}`: what is served and how it stands.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use mainstay_engine::source::EndpointStatus;
use mainstay_sql::Database;
use serde::Serialize;

use super::health::state_name;
use super::place::Place;
use crate::assembly::Served;
use crate::http::app::App;
use crate::http::caller::Caller;

/// A source in a few words.
#[derive(Serialize)]
pub(super) struct Brief {
    name: Arc<str>,
    driver: &'static str,
    state: &'static str,
    primary: Option<String>,
    epoch: u64,
    endpoints: usize,
    promotion: &'static str,
    policy: PolicyLabel,
}

#[derive(Serialize)]
struct PolicyLabel {
    name: String,
    version: u64,
}

#[derive(Serialize)]
pub(super) struct List {
    sources: Vec<Brief>,
}

/// A source with its endpoints.
#[derive(Serialize)]
pub(super) struct Whole {
    #[serde(flatten)]
    brief: Brief,
    members: Vec<EndpointStatus>,
    transactions: Transactions,
}

#[derive(Serialize)]
struct Transactions {
    open: usize,
    max: u32,
    idle_max_ms: u64,
}

fn brief(served: &Served) -> Brief {
    let snapshot = served.proxy().source().snapshot();
    let settings = served.settings();
    Brief {
        name: Arc::clone(served.name()),
        driver: settings.driver.as_str(),
        state: state_name(served.proxy().state()),
        primary: snapshot
            .primary()
            .map(|placed| placed.endpoint.id.to_string()),
        epoch: snapshot.epoch,
        endpoints: snapshot.endpoints.len(),
        promotion: settings.promotion.as_str(),
        policy: PolicyLabel {
            name: snapshot.policy.name.to_string(),
            version: snapshot.policy.version,
        },
    }
}

pub(super) async fn list(State(app): State<Arc<App>>, caller: Caller) -> Json<List> {
    let sources = app.sources();
    let own = sources
        .iter()
        .filter(|served| caller.holder.knows(served.name()));
    Json(List {
        sources: own.map(|served| brief(served)).collect(),
    })
}

pub(super) async fn one(State(app): State<Arc<App>>, place: Place) -> Json<Whole> {
    let served = &place.served;
    let limits = served.proxy().transaction_limits();
    Json(Whole {
        brief: brief(served),
        members: served.proxy().source().status(),
        transactions: Transactions {
            open: app.transactions().count(served.name()),
            max: limits.count,
            idle_max_ms: u64::try_from(limits.idle.as_millis()).unwrap_or(u64::MAX),
        },
    })
}
