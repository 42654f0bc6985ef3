//! Transactions over HTTP: begun under an id, continued by it, one request at a time.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use mainstay_sql::{Access, Answer, Begin, Database, Isolation, Request, SqlError};
use serde::Deserialize;
use serde_json::json;

use super::call::{CallOptions, StatementBody, params, refuse_control, refuse_write};
use super::place::Place;
use crate::http::answer::{Shape, respond};
use crate::http::app::App;
use crate::http::body::Json as Body;
use crate::http::caller::Caller;
use crate::http::lines;
use crate::http::object::object;
use crate::problem::Problem;
use crate::transactions::Owner;

type Answered = Result<Response, Problem>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BeginBody {
    read_only: bool,
    isolation: Option<String>,
    #[serde(deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn begin(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<BeginBody>,
) -> Answered {
    let isolation = isolation(body.isolation.as_deref())?;
    if caller.holder.only_reads() && !body.read_only {
        return Err(caller.holder.refuse_write());
    }
    let options = body.options.complete(&caller, &app)?;
    let begin = Begin {
        access: match body.read_only {
            true => Access::ReadOnly,
            false => Access::ReadWrite,
        },
        isolation,
        options,
    };
    let proxy = place.served.proxy();
    let transaction = proxy.begin(&begin, Default::default()).await?;
    let endpoint = transaction.endpoint();
    let idle_max = proxy.transaction_limits().idle;
    let id = app
        .transactions()
        .keep(&owner(&place, &caller), idle_max, transaction);
    let begun = json!({
        "transaction": id.to_string(),
        "endpoint": endpoint.as_deref(),
        "idle_max_ms": u64::try_from(idle_max.as_millis()).unwrap_or(u64::MAX),
        "meta": {"correlation_id": caller.correlation_id.to_string()},
    });
    Ok((StatusCode::CREATED, Json(begun)).into_response())
}

/// Whose transactions a request may continue.
fn owner(place: &Place, caller: &Caller) -> Owner {
    Owner {
        source: Arc::clone(place.served.name()),
        key: caller.holder.id.clone(),
    }
}

fn isolation(word: Option<&str>) -> Result<Isolation, Problem> {
    match word {
        None | Some("default") => Ok(Isolation::Default),
        Some("read_committed") => Ok(Isolation::ReadCommitted),
        Some("repeatable_read") => Ok(Isolation::RepeatableRead),
        Some("serializable") => Ok(Isolation::Serializable),
        Some(word) => Err(Problem::bad_request(
            format!(
                "unknown isolation {:?}",
                word.chars().take(40).collect::<String>()
            ),
            "use default, read_committed, repeatable_read or serializable",
        )),
    }
}

pub(super) async fn query(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    headers: HeaderMap,
    Body(body): Body<StatementBody>,
) -> Answered {
    let answer = run(&app, &place, &caller, "query", body).await?;
    if lines::wanted(&headers) {
        // In whole: a transaction is used by one statement at a time, and is there for the next one.
        return Ok(lines::whole(&answer));
    }
    // What looks like a read may write here, where nothing stands behind it.
    respond(&answer, Shape::Rows(None), app.settings().answer_max).map_err(Problem::carried_out)
}

pub(super) async fn execute(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<StatementBody>,
) -> Answered {
    let answer = run(&app, &place, &caller, "execute", body).await?;
    respond(&answer, Shape::Change, app.settings().answer_max)
}

async fn run(
    app: &App,
    place: &Place,
    caller: &Caller,
    name: &'static str,
    body: StatementBody,
) -> Result<Answer, Problem> {
    refuse_control(place, body.text()?)?;
    refuse_write(place, caller, &body.sql)?;
    let params = params(&body.params)?;
    let options = body.options.complete(caller, app)?;
    refuse_retries(&options)?;
    let schema = place.served.proxy().schema();
    let request = Request::within(schema, name, &body.sql, params, options);
    let mut lent = app
        .transactions()
        .lend(&owner(place, caller), place.name("id")?)?;
    let result = lent.get()?.run(&request).await;
    request
        .class
        .iter()
        .for_each(|class| schema.note_run(class));
    // After an error too: the transaction itself knows whether it goes on.
    lent.give_back();
    Ok(result?)
}

/// A key in the header of a request that ends a transaction, or goes back in it.
fn refuse_key(caller: &Caller) -> Result<(), Problem> {
    match caller.options().idempotency_key {
        Some(_) => Err(no_use_of_key()),
        None => Ok(()),
    }
}

fn no_use_of_key() -> Problem {
    Problem::new(
        "idempotency_unavailable",
        "nothing in a transaction is repeated, so an idempotency key has no use there",
        "leave the key out",
    )
}

/// Keys and caches have no meaning inside a transaction.
fn refuse_retries(options: &mainstay_sql::Options) -> Result<(), Problem> {
    if options.idempotency_key.is_some() {
        return Err(no_use_of_key());
    }
    if options.cache != mainstay_sql::CacheUse::Off || options.ttl.is_some() {
        return Err(Problem::new(
            "not_available",
            "the cache is not available in this version, and never in a transaction",
            "leave the options cache and ttl out",
        ));
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavepointBody {
    name: String,
    #[serde(default)]
    operation: Savepoint,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Savepoint {
    #[default]
    Set,
    Rollback,
    Release,
}

pub(super) async fn savepoint(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<SavepointBody>,
) -> Answered {
    refuse_key(&caller)?;
    let mut lent = app
        .transactions()
        .lend(&owner(&place, &caller), place.name("id")?)?;
    let transaction = lent.get()?;
    let result: Result<(), SqlError> = match body.operation {
        Savepoint::Set => transaction.savepoint(&body.name).await,
        Savepoint::Rollback => transaction.rollback_to(&body.name).await,
        Savepoint::Release => transaction.release(&body.name).await,
    };
    lent.give_back();
    result?;
    Ok(Json(json!({"savepoint": body.name})).into_response())
}

pub(super) async fn commit(State(app): State<Arc<App>>, place: Place, caller: Caller) -> Answered {
    refuse_key(&caller)?;
    let lent = app
        .transactions()
        .lend(&owner(&place, &caller), place.name("id")?)?;
    let answer = lent.take()?.commit().await?;
    respond(&answer, Shape::Change, app.settings().answer_max)
}

pub(super) async fn rollback(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
) -> Answered {
    refuse_key(&caller)?;
    let lent = app
        .transactions()
        .lend(&owner(&place, &caller), place.name("id")?)?;
    lent.take()?.rollback().await?;
    Ok(Json(json!({"rolled_back": true})).into_response())
}
