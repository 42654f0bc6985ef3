//! What a source tells about itself: service levels, numbers, audit, roles.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use mainstay_engine::audit::{AuditEntry, Recent};
use mainstay_engine::source::EndpointStatus;
use mainstay_engine::{CorrelationId, PoolStats};
use mainstay_message::{Service, TargetStatus};
use mainstay_telemetry::{Process, ServiceReading, SourceReading, exposition};
use serde::Deserialize;
use serde_json::{Value, json};

use super::place::Place;
use crate::assembly::Served;
use crate::http::app::App;
use crate::http::body::Params;
use crate::http::caller::Caller;
use crate::problem::Problem;

/// Audit entries in one answer where the request does not say.
const ENTRIES: usize = 100;
/// Audit entries in one answer at most.
const ENTRIES_MAX: usize = 1000;

pub(super) async fn slo(place: Place) -> Json<Value> {
    let source = place.served.proxy().source();
    let endpoints: Vec<Value> = source.status().iter().map(levels).collect();
    let counts = source.counts().read();
    Json(json!({
        "source": source.name(),
        "window_s": 60,
        "calls": counts,
        "availability_percent": availability(counts.succeeded, counts.failed),
        "endpoints": endpoints,
    }))
}

/// The share of calls that succeeded among those that a back end decided; refusals and calls that their
/// caller left are neither.
fn availability(succeeded: u64, failed: u64) -> Option<f64> {
    let all = succeeded + failed;
    (all > 0).then(|| 100.0 * succeeded as f64 / all as f64)
}

fn levels(status: &EndpointStatus) -> Value {
    let stats = &status.stats;
    json!({
        "endpoint": status.endpoint,
        "p50_us": stats.p50_us,
        "p95_us": stats.p95_us,
        "p99_us": stats.p99_us,
        "average_us": stats.average_us,
        "window_calls": stats.window_calls,
        "window_errors_percent": stats.window_errors_percent,
        "life_calls": stats.calls,
        "life_errors_percent": stats.life_errors_percent,
        "cache_hit_ratio": null,
    })
}

pub(super) async fn metrics(State(app): State<Arc<App>>, place: Place) -> Json<Value> {
    let served = &place.served;
    let source = served.proxy().source();
    let endpoints: Vec<Value> = source
        .status()
        .iter()
        .map(|status| {
            let pool = served.pool_stats(status.endpoint.as_str());
            json!({
                "endpoint": status.endpoint,
                "in_flight": status.in_flight,
                "stats": status.stats,
                "pool": pool.map(pool_shown),
            })
        })
        .collect();
    Json(json!({
        "source": served.name(),
        "calls": source.counts().read(),
        "transactions_open": app.transactions().count(served.name()),
        "uptime_s": app.uptime().as_secs(),
        "endpoints": endpoints,
    }))
}

/// A pool's counts for a reader.
pub(super) fn pool_shown(pool: PoolStats) -> Value {
    json!({
        "hits": pool.hits,
        "misses": pool.misses,
        "waits": pool.waits,
        "timeouts": pool.timeouts,
        "evictions": pool.evictions,
        "cleanups": pool.cleanups,
        "active": pool.active,
        "idle": pool.idle,
        "waiting": pool.waiting,
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AuditParams {
    limit: Option<usize>,
    correlation_id: Option<String>,
    failed: Option<bool>,
    operation: Option<String>,
}

pub(super) async fn audit(
    State(app): State<Arc<App>>,
    place: Place,
    Params(params): Params<AuditParams>,
) -> Result<Json<Value>, Problem> {
    entries(&app, place.served.proxy().source().recent_audit(), &params)
}

/// The last entries of a source, or of the source behind a message service.
pub(super) fn entries(
    app: &App,
    recent: &Recent,
    params: &AuditParams,
) -> Result<Json<Value>, Problem> {
    let limit = params.limit.unwrap_or(ENTRIES);
    if limit == 0 || limit > ENTRIES_MAX {
        return Err(Problem::bad_request(
            format!("limit {limit} is not between 1 and {ENTRIES_MAX}"),
            "ask for fewer entries",
        ));
    }
    let id = params.correlation_id.as_deref().map(|text| {
        CorrelationId::parse(text).ok_or_else(|| {
            Problem::bad_request("correlation_id is not an id", "32 hexadecimal digits")
        })
    });
    let id = id.transpose()?;
    let wanted = |entry: &AuditEntry| {
        id.is_none_or(|id| entry.correlation_id == id)
            && params.failed.is_none_or(|failed| entry.succeeded != failed)
            && params
                .operation
                .as_deref()
                .is_none_or(|name| entry.operation.as_str() == name)
    };
    let entries = recent.last(limit, wanted);
    let entries: Vec<&AuditEntry> = entries.iter().map(|entry| &**entry).collect();
    let files = app.sources().audit_files().map(|files| {
        json!({
            "written": files.written(),
            "dropped": files.dropped(),
            "problem": files.last_problem().map(|problem| problem.to_string()),
        })
    });
    Ok(Json(json!({"entries": entries, "files": files})))
}

pub(super) async fn watchdog(place: Place) -> Json<Value> {
    let source = place.served.proxy().source();
    let snapshot = source.snapshot();
    let endpoints: Vec<Value> = source
        .status()
        .iter()
        .map(|status| {
            json!({
                "endpoint": status.endpoint,
                "role": status.role,
                "health": status.health,
                "circuit": status.circuit,
                "checks_good": status.checks_good,
                "checks_failed": status.checks_failed,
                "checked_ago_ms": status.checked_ago_ms,
                "check_error": status.check_error,
                "lag_ms": status.lag_ms,
            })
        })
        .collect();
    Json(json!({
        "source": source.name(),
        "promotion": place.served.settings().promotion.as_str(),
        "epoch": snapshot.epoch,
        "primary": snapshot.primary().map(|placed| placed.endpoint.id.clone()),
        "endpoints": endpoints,
    }))
}

/// `/metrics` for Prometheus: all sources.
pub(super) async fn prometheus(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<Response, Problem> {
    caller.holder.check_scope(None)?;
    let sources = app.sources();
    let readings: Vec<SourceReading> = sources.iter().map(|served| reading(&app, served)).collect();
    let services: Vec<ServiceReading> = app
        .services()
        .iter()
        .map(|(_, served)| service_reading(served.service()))
        .collect();
    let process = Process {
        uptime: app.uptime(),
        answers: app.counts().answers(),
        panics: app.counts().panics(),
        refused_connections: app.counts().refused_connections(),
        evicted_connections: app.counts().evicted_connections(),
        audit_dropped: sources.audit_files().map_or(0, |files| files.dropped()),
    };
    let mut response = exposition(&process, &readings, &services).into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

fn service_reading(service: &Service) -> ServiceReading {
    let status = service.status();
    let usable =
        |target: &TargetStatus| (Arc::clone(&target.name), !target.aside && !target.draining);
    ServiceReading {
        name: Arc::clone(service.name()),
        calls: service.source().counts().read(),
        targets: service.source().status(),
        usable: status.targets.iter().map(usable).collect(),
        brokers: status
            .brokers
            .iter()
            .map(|it| (Arc::clone(&it.name), it.state == "up"))
            .collect(),
        requests_open: status.requests_open,
        jobs_open: status.jobs_open,
        counts: service.counts(),
    }
}

fn reading(app: &App, served: &Served) -> SourceReading {
    let source = served.proxy().source();
    let endpoints = source.status().into_iter().map(|status| {
        let pool = served
            .pool_stats(status.endpoint.as_str())
            .unwrap_or_default();
        (status, pool)
    });
    SourceReading {
        name: Arc::clone(served.name()),
        has_primary: source.snapshot().primary().is_some(),
        epoch: source.snapshot().epoch,
        calls: source.counts().read(),
        transactions_open: app.transactions().count(served.name()) as u64,
        endpoints: endpoints.collect(),
    }
}
