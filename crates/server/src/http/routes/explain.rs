//! `POST /v1/explain`: what would happen to a statement, and why. Nothing is run.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use mainstay_config::explain;
use mainstay_engine::endpoint::{Fitness, Placed};
use mainstay_engine::event::Role;
use mainstay_engine::policy::ReadFrom;
use mainstay_engine::source::Snapshot;
use mainstay_engine::{CircuitState, Safety};
use mainstay_sql::proof::key_refusal;
use mainstay_sql::{Class, Code, DataProxy, Database, Options, SqlError};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::call::{CallOptions, checked_text, params};
use crate::http::app::App;
use crate::http::body::Json as Body;
use crate::http::caller::Caller;
use crate::http::object::object;
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainBody {
    source: String,
    sql: String,
    #[serde(default)]
    params: Vec<Value>,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn explain_statement(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(body): Body<ExplainBody>,
) -> Result<Json<Value>, Problem> {
    caller.holder.check_source(&body.source)?;
    let served = app.source(&body.source)?;
    let sql = checked_text(&body.sql)?;
    let params = params(&body.params)?;
    let options = body.options.complete(&caller, &app)?;
    let schema = served.proxy().schema();
    let class = schema.classify(sql);
    let entity = class
        .delete_by
        .as_ref()
        .and_then(|delete| schema.entity(&delete.entity));
    let found = class.safety_with(&params, entity.as_deref());
    let safety = options.safety.unwrap_or(found);
    let snapshot = served.proxy().source().snapshot();
    let layers = explain(&app.layers().configuration(), &body.source).unwrap_or_default();
    Ok(Json(json!({
        "source": body.source,
        "statement": statement(&class, found, &options),
        "refused": refusal(&class, safety, &options, served.proxy()).map(|error| json!({
            "code": error.code().as_str(),
            "detail": error.failure().message,
            "hint": error.detail().hint,
        })),
        "needs": if safety.is_read() { "read" } else { "primary" },
        "strategy": snapshot.policy.route.strategy.as_str(),
        "candidates": candidates(&snapshot, safety, &options),
        "retry": retry(&snapshot.policy, safety, &options),
        "cache": {"used": false, "reason": "the cache is not available in this version"},
        "policy": {"name": snapshot.policy.name, "version": snapshot.policy.version, "settings": layers},
    })))
}

fn statement(class: &Class, found: Safety, options: &Options) -> Value {
    json!({
        "kind": format!("{:?}", class.kind).to_lowercase(),
        "safety": found.as_str(),
        "declared": options.safety.map(Safety::as_str),
        "is_parsed": class.is_parsed,
        "statements": class.statements,
        "reads": class.reads,
        "writes": class.writes,
        "unknown_functions": class.unknown_functions,
        "fingerprint": format!("{:016x}", class.fingerprint),
    })
}

/// Why it would be refused before any endpoint is asked.
fn refusal(
    class: &Class,
    safety: Safety,
    options: &Options,
    proxy: &DataProxy,
) -> Option<SqlError> {
    if class.is_control() {
        return Some(SqlError::caller(
            Code::BadStatement,
            "it begins or ends a transaction, or changes its session",
            "use the transactions routes",
        ));
    }
    options.idempotency_key.as_ref()?;
    let commits_by_itself = class.commits_by_itself(proxy.dialect());
    key_refusal(proxy.takes_keys(), safety.is_read(), commits_by_itself)
}

/// Every endpoint, those that would be tried first, with what keeps the others out.
fn candidates(
    snapshot: &Snapshot<Arc<dyn Database>>,
    safety: Safety,
    options: &Options,
) -> Vec<Value> {
    let read_from = options.read_from.unwrap_or(snapshot.policy.route.read_from);
    let now = Instant::now();
    let mut judged: Vec<_> = snapshot
        .endpoints
        .iter()
        .map(|placed| {
            let tier = tier(placed.role, safety, read_from);
            let obstacle = obstacle(snapshot, placed, now);
            match tier {
                Some(tier) => (tier, placed, obstacle),
                None => (
                    usize::MAX,
                    placed,
                    Some(format!("its role is {}", placed.role)),
                ),
            }
        })
        .collect();
    judged.sort_by_key(|(tier, _, obstacle)| (obstacle.is_some(), *tier));
    judged
        .into_iter()
        .map(|(_, placed, obstacle)| {
            json!({
                "endpoint": placed.endpoint.id,
                "role": placed.role,
                "weight": placed.endpoint.weight(),
                "in_flight": placed.endpoint.in_flight(),
                "fits": obstacle.is_none(),
                "reason": obstacle,
            })
        })
        .collect()
}

/// In which order roles are considered; `None`: never.
fn tier(role: Role, safety: Safety, read_from: ReadFrom) -> Option<usize> {
    match (safety.is_read(), role, read_from) {
        (_, Role::Member, _) => Some(0),
        (_, Role::Primary, ReadFrom::Replica) if safety.is_read() => Some(1),
        (_, Role::Primary, _) => Some(0),
        (false, _, _) | (true, _, ReadFrom::Primary) => None,
        (true, Role::Replica, _) => Some(0),
        (true, Role::Standby, _) => Some(2),
    }
}

fn obstacle(
    snapshot: &Snapshot<Arc<dyn Database>>,
    placed: &Placed<Arc<dyn Database>>,
    now: Instant,
) -> Option<String> {
    let endpoint = &placed.endpoint;
    if endpoint.is_draining() {
        return Some("it is being drained".to_owned());
    }
    if endpoint.fitness() == Fitness::Down {
        return Some("its health checks fail".to_owned());
    }
    match endpoint.circuit_state(now) {
        CircuitState::Closed | CircuitState::Disabled => {}
        state => return Some(format!("its circuit is {}", state.as_str())),
    }
    let max = snapshot.policy.route.lag_max?;
    let follows = matches!(placed.role, Role::Replica | Role::Standby);
    let compares = follows && snapshot.primary().is_some();
    match endpoint.lag() {
        _ if !compares => None,
        Some(lag) if lag <= max => None,
        Some(lag) => Some(format!(
            "it is {lag:?} behind, more than route.lag_max ({max:?})"
        )),
        None => Some("how far it is behind is not known".to_owned()),
    }
}

fn retry(policy: &mainstay_engine::Policy, safety: Safety, options: &Options) -> Value {
    let rule = match safety {
        Safety::Read => "tried again after every failure that another try may mend",
        Safety::IdempotentWrite => "tried again: its repetition has no further effect",
        Safety::Write => "tried again only if it is proven that nothing took effect",
    };
    let deadline = options.deadline.or(policy.retry.deadline);
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "rule": rule,
        "attempts_max": policy.retry.attempts_max,
        "order": policy.retry.order.as_str(),
        "deadline_ms": deadline.map(millis),
        "attempt_timeout_ms": policy.attempt_limit(deadline).map(millis),
    })
}

#[cfg(test)]
mod tests {
    use mainstay_engine::{Chance, EndpointSpec, Policy, Preset};
    use mainstay_sql::{DataProxy, Plain};
    use mainstay_sqlite::{SqliteDriver, SqliteSettings};

    use super::*;

    #[tokio::test]
    async fn a_standby_of_unknown_lag_fits_no_more_than_such_a_replica() {
        let folder = tempfile::tempdir().unwrap();
        let policy = Policy::preset(Preset::Balanced);
        let mut builder = DataProxy::builder("s", Arc::clone(&policy));
        for (name, role) in [
            ("a", Role::Primary),
            ("b", Role::Replica),
            ("c", Role::Standby),
        ] {
            let settings = SqliteSettings::new(folder.path().join("s.db"));
            let driver = Arc::new(SqliteDriver::new(settings).unwrap());
            let plain = Plain::new(driver, &policy, Default::default(), Chance::seeded(1));
            let member: Arc<dyn Database> = Arc::new(plain);
            builder = builder.endpoint(EndpointSpec::new(name, member).role(role));
        }
        let proxy = builder.build().unwrap();
        // Nothing has been checked yet.
        let snapshot = proxy.source().snapshot();
        let judged = candidates(&snapshot, Safety::Read, &Options::default());
        let fits: Vec<_> = judged
            .iter()
            .map(|candidate| (candidate["endpoint"].as_str().unwrap(), &candidate["fits"]))
            .collect();
        let (yes, no) = (&json!(true), &json!(false));
        assert_eq!(fits, [("a", yes), ("b", no), ("c", no)], "{judged:?}");
    }
}
