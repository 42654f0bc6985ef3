//! Calls on a source: rows, statements, scripts.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use mainstay_engine::Safety;
use mainstay_sql::verbs::{Change, Verbs};
use mainstay_sql::{Answer, DataProxy, Database, Find, Options, Schema, split_script};
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::call::{
    CallOptions, FilterBody, OrderBody, StatementBody, check_count, checked_text, filters, params,
    record, refuse_control, refuse_write,
};
use super::place::Place;
use crate::http::answer::{Shape, respond};
use crate::http::app::App;
use crate::http::body::Json as Body;
use crate::http::caller::Caller;
use crate::http::lines;
use crate::http::object::{object, objects, some_object};
use crate::problem::Problem;

type Answered = Result<Response, Problem>;

/// Rows in a page where the request does not say.
const PAGE_SIZE: u64 = 100;

pub(super) async fn query(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    headers: HeaderMap,
    Body(body): Body<StatementBody>,
) -> Answered {
    let (sql, params, options) = statement(body, &place, &caller, &app)?;
    let proxy = place.served.proxy();
    if lines::wanted(&headers) {
        return query_lines(proxy, &sql, params, options, &caller).await;
    }
    let declared = options.safety;
    let answer = proxy.query(&sql, params, options).await?;
    respond(&answer, Shape::Rows(None), app.settings().answer_max)
        .map_err(|problem| unless_read(problem, declared, &sql, proxy.schema()))
}

/// Lines of a read as they come. What may change something is not streamed: it runs to its end, whatever
/// becomes of its reader, and is answered in whole.
async fn query_lines(
    proxy: &DataProxy,
    sql: &str,
    params: Vec<mainstay_sql::Value>,
    options: Options,
    caller: &Caller,
) -> Answered {
    let declared = options.safety;
    if declared.is_some_and(|safety| !safety.is_read()) {
        return Ok(lines::whole(&proxy.query(sql, params, options).await?));
    }
    let streamed = proxy.stream_query(sql, params.clone(), options.clone());
    match streamed.await {
        Ok(stream) => Ok(lines::streamed(stream, caller.correlation_id)),
        // It was refused before anything was sent.
        Err(_) if declared.is_none() && !proxy.schema().classify(sql).safety.is_read() => {
            Ok(lines::whole(&proxy.query(sql, params, options).await?))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn scalar(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<StatementBody>,
) -> Answered {
    let (sql, params, options) = statement(body, &place, &caller, &app)?;
    let proxy = place.served.proxy();
    let declared = options.safety;
    let answer = proxy.scalar_answer(&sql, params, options).await?;
    respond(&answer, Shape::Scalar, app.settings().answer_max)
        .map_err(|problem| unless_read(problem, declared, &sql, proxy.schema()))
}

/// A problem with the answer of a statement that ran.
pub(super) fn unless_read(
    problem: Problem,
    declared: Option<Safety>,
    sql: &str,
    schema: &Schema,
) -> Problem {
    let safety = declared.unwrap_or_else(|| schema.classify(sql).safety);
    match safety.is_read() {
        true => problem,
        false => problem.carried_out(),
    }
}

pub(super) async fn execute(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<StatementBody>,
) -> Answered {
    let (sql, params, options) = statement(body, &place, &caller, &app)?;
    let answer = place.served.proxy().execute(&sql, params, options).await?;
    changed(&app, &answer)
}

fn statement(
    body: StatementBody,
    place: &Place,
    caller: &Caller,
    app: &App,
) -> Result<(String, Vec<mainstay_sql::Value>, Options), Problem> {
    refuse_control(place, body.text()?)?;
    refuse_write(place, caller, &body.sql)?;
    let params = params(&body.params)?;
    let mut options = body.options.complete(caller, app)?;
    if options.safety.is_none() && place.writes_may_repeat() {
        let class = place.served.proxy().schema().classify(&body.sql);
        options.safety = (class.safety == Safety::Write).then_some(Safety::IdempotentWrite);
    }
    Ok((body.sql, params, options))
}

/// Options of a verb that writes.
fn of_write(
    options: CallOptions,
    place: &Place,
    caller: &Caller,
    app: &App,
) -> Result<Options, Problem> {
    let mut options = options.complete(caller, app)?;
    if options.safety.is_none() && place.writes_may_repeat() {
        options.safety = Some(Safety::IdempotentWrite);
    }
    Ok(options)
}

fn changed(app: &App, answer: &Answer) -> Answered {
    respond(answer, Shape::Change, app.settings().answer_max)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FindBody {
    entity: String,
    #[serde(default, deserialize_with = "objects")]
    filters: Vec<FilterBody>,
    #[serde(default, deserialize_with = "objects")]
    order: Vec<OrderBody>,
    #[serde(default, deserialize_with = "some_object")]
    page: Option<PageBody>,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageBody {
    #[serde(default = "first")]
    number: u64,
    #[serde(default = "usual")]
    size: u64,
}

fn first() -> u64 {
    1
}

fn usual() -> u64 {
    PAGE_SIZE
}

pub(super) async fn find(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    headers: HeaderMap,
    Body(body): Body<FindBody>,
) -> Answered {
    let mut find = Find::all(body.entity);
    find.filters = filters(body.filters)?;
    find.order = body.order.into_iter().map(Into::into).collect();
    if let Some(page) = body.page {
        let size = usize::try_from(page.size).unwrap_or(usize::MAX);
        check_count("rows of a page", size, app.settings().rows_max)?;
        find = find.page(page.number, page.size);
    }
    let options = body.options.complete(&caller, &app)?;
    if lines::wanted(&headers) {
        let stream = place.served.proxy().stream_entity(&find, options).await?;
        return Ok(lines::streamed(stream, caller.correlation_id));
    }
    let found = place.served.proxy().find(&find, options).await?;
    let shape = Shape::Rows(found.page.as_ref());
    respond(&found.answer, shape, app.settings().answer_max)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InsertBody {
    entity: String,
    values: Map<String, Json>,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn insert(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<InsertBody>,
) -> Answered {
    let values = record(&body.values)?;
    let options = of_write(body.options, &place, &caller, &app)?;
    let proxy = place.served.proxy();
    let answer = proxy.insert(&body.entity, &values, options).await?;
    changed(&app, &answer)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InsertManyBody {
    entity: String,
    rows: Vec<Map<String, Json>>,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn insert_many(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<InsertManyBody>,
) -> Answered {
    check_count("rows", body.rows.len(), app.settings().rows_max)?;
    let rows: Result<Vec<_>, _> = body.rows.iter().map(record).collect();
    let options = of_write(body.options, &place, &caller, &app)?;
    let proxy = place.served.proxy();
    let answer = proxy
        .insert_many(&body.entity, &rows?, options, None)
        .await?;
    changed(&app, &answer)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeBody {
    #[serde(default, deserialize_with = "objects")]
    filters: Vec<FilterBody>,
    set: Map<String, Json>,
}

impl ChangeBody {
    fn change(self) -> Result<Change, Problem> {
        Ok(Change {
            filters: filters(self.filters)?,
            set: record(&self.set)?,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpdateBody {
    entity: String,
    #[serde(default, deserialize_with = "objects")]
    filters: Vec<FilterBody>,
    set: Map<String, Json>,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn update(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<UpdateBody>,
) -> Answered {
    let change = ChangeBody {
        filters: body.filters,
        set: body.set,
    };
    let options = of_write(body.options, &place, &caller, &app)?;
    let proxy = place.served.proxy();
    let answer = proxy
        .update(&body.entity, &change.change()?, options)
        .await?;
    changed(&app, &answer)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpdateManyBody {
    entity: String,
    #[serde(deserialize_with = "objects")]
    changes: Vec<ChangeBody>,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn update_many(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<UpdateManyBody>,
) -> Answered {
    check_count("changes", body.changes.len(), app.settings().rows_max)?;
    let changes: Result<Vec<_>, _> = body.changes.into_iter().map(ChangeBody::change).collect();
    let options = of_write(body.options, &place, &caller, &app)?;
    let proxy = place.served.proxy();
    let answer = proxy
        .update_many(&body.entity, &changes?, options, None)
        .await?;
    changed(&app, &answer)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteBody {
    entity: String,
    #[serde(default, deserialize_with = "objects")]
    filters: Vec<FilterBody>,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<DeleteBody>,
) -> Answered {
    let filters = filters(body.filters)?;
    let options = of_write(body.options, &place, &caller, &app)?;
    let proxy = place.served.proxy();
    let answer = proxy.delete(&body.entity, &filters, options).await?;
    changed(&app, &answer)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptBody {
    sql: String,
    #[serde(default, deserialize_with = "object")]
    options: CallOptions,
}

pub(super) async fn script(
    State(app): State<Arc<App>>,
    place: Place,
    caller: Caller,
    Body(body): Body<ScriptBody>,
) -> Answered {
    let proxy = place.served.proxy();
    let statements = split_script(proxy.dialect(), checked_text(&body.sql)?);
    let count = statements.len();
    check_count("statements", count, app.settings().statements_max)?;
    for statement in &statements {
        refuse_control(&place, statement)?;
    }
    let options = body.options.complete(&caller, &app)?;
    let answer = proxy.script(&body.sql, options).await?;
    respond(&answer, Shape::Script, app.settings().answer_max)
}
