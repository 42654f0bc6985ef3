//! Statements as the caller wrote them.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Name, Safety, Sent};

use crate::catalog::{Describe, Description};
use crate::database::{Access, Answer, CacheUse, Database, Options, Request, Scope, Work};
use crate::error::{Code, SqlError};
use crate::proof::key_refusal;
use crate::statement::{Class, Kind, split_script};
use crate::stream::RowStream;
use crate::transaction::Transaction;
use crate::value::Value;

pub(super) fn not_available_yet(what: &str) -> SqlError {
    SqlError::caller(
        Code::NotAvailable,
        format!("{what} is not available yet"),
        "leave it out",
    )
}

/// As [`check`], for verbs that may write under an idempotency key.
pub(super) fn check_keyed<D: Database + ?Sized>(
    database: &D,
    options: &Options,
) -> Result<(), SqlError> {
    check_others(options)?;
    // The rest is found out by whoever runs it.
    let refused = options
        .idempotency_key
        .as_ref()
        .and_then(|_| key_refusal(database.takes_keys(), false, false));
    refused.map_or(Ok(()), Err)
}

/// Refuses options that this version cannot honour: ignoring them would be worse.
pub(super) fn check(options: &Options) -> Result<(), SqlError> {
    check_others(options)?;
    crate::proxy::refuse_key(options)
}

fn check_others(options: &Options) -> Result<(), SqlError> {
    if options.cache != CacheUse::Off {
        return Err(not_available_yet("the cache"));
    }
    if options.ttl.is_some() {
        return Err(not_available_yet("the option ttl of the cache"));
    }
    if options.deadline == Some(Duration::ZERO) {
        return Err(SqlError::caller(
            Code::BadRequest,
            "the deadline has passed before the call began",
            "give a deadline above 0",
        ));
    }
    Ok(())
}

/// A request for work whose class is known. What the caller declares goes before what the text tells.
pub(super) fn request(
    name: impl Into<Name>,
    work: Work,
    safety: Safety,
    options: Options,
) -> Request {
    let safety = options.safety.unwrap_or(safety);
    Request {
        name: name.into(),
        work,
        class: None,
        safety,
        access: if safety.is_read() {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
        answer_max: options.answer_max,
        options,
    }
}

/// What a text may do. Where functions decide it and the database's own are not known yet, they are asked
/// for; if that fails it stays a write.
pub(super) async fn classify<D: Database + ?Sized>(database: &D, sql: &str) -> Arc<Class> {
    let schema = database.schema();
    let class = schema.classify(sql);
    if class.unknown_functions.is_empty() || schema.knows_functions() {
        return class;
    }
    let asked = database
        .describe(&Describe::Functions, Scope::default())
        .await;
    if let Ok(Description::Functions(functions)) = asked {
        schema.remember_functions(functions);
        return schema.classify(sql);
    }
    class
}

async fn prepare<D: Database + ?Sized>(
    database: &D,
    name: &'static str,
    sql: &str,
    params: Vec<Value>,
    options: Options,
) -> Result<(Request, Arc<Class>), SqlError> {
    let class = classify(database, sql).await;
    crate::plain::refuse_control(&class)?;
    let entity = match &class.delete_by {
        Some(delete) => super::catalog::remembered(database, &delete.entity).await,
        None => None,
    };
    let safety = class.safety_with(&params, entity.as_deref());
    let work = Work::Statement {
        text: class.text(sql),
        params,
    };
    let mut request = request(name, work, safety, options);
    request.class = Some(Arc::clone(&class));
    Ok((request, class))
}

/// One statement within a transaction. What it may do is told by its text alone: the rest was decided by
/// how the transaction began.
pub(super) async fn within<D: Database + ?Sized>(
    database: &D,
    transaction: &mut dyn Transaction,
    sql: &str,
    params: Vec<Value>,
) -> Result<Answer, SqlError> {
    let schema = database.schema();
    let request = Request::within(schema, "statement", sql, params, Options::default());
    let result = transaction.run(&request).await;
    request
        .class
        .iter()
        .for_each(|class| schema.note_run(class));
    result
}

/// A change of the schema makes remembered descriptions untrue, also one whose end is unknown.
pub(super) fn note_ddl<D: Database + ?Sized, T>(
    database: &D,
    kind: Kind,
    result: Result<T, SqlError>,
) -> Result<T, SqlError> {
    if kind >= Kind::Other {
        database.schema().forget(None);
    }
    result
}

pub(super) async fn run<D: Database + ?Sized>(
    database: &D,
    name: &'static str,
    sql: &str,
    params: Vec<Value>,
    options: Options,
) -> Result<Answer, SqlError> {
    check_keyed(database, &options)?;
    let (request, class) = prepare(database, name, sql, params, options).await?;
    let result = database.collect(&request, Scope::default()).await;
    note_ddl(database, class.kind, result)
}

pub(super) async fn scalar<D: Database + ?Sized>(
    database: &D,
    sql: &str,
    params: Vec<Value>,
    options: Options,
) -> Result<Answer, SqlError> {
    let declared = options.safety;
    let answer = run(database, "scalar", sql, params, options).await?;
    let Err(mut error) = answer.check_scalar() else {
        return Ok(answer);
    };
    let safety = declared.unwrap_or_else(|| database.schema().classify(sql).safety);
    if safety.is_read() {
        error.detail_mut().failure.sent = Sent::YesUnprocessed;
    }
    Err(error)
}

pub(super) async fn stream<D: Database + ?Sized>(
    database: &D,
    sql: &str,
    params: Vec<Value>,
    options: Options,
) -> Result<RowStream, SqlError> {
    check(&options)?;
    let (request, class) = prepare(database, "stream", sql, params, options).await?;
    if !request.safety.is_read() && request.options.safety.is_none() {
        return Err(SqlError::caller(
            Code::BadRequest,
            "only reads are streamed, and this statement may change something",
            "use query or execute, or declare the safety of the statement",
        ));
    }
    let result = database.stream(&request, Scope::default()).await;
    note_ddl(database, class.kind, result)
}

pub(super) async fn script<D: Database + ?Sized>(
    database: &D,
    text: &str,
    options: Options,
) -> Result<Answer, SqlError> {
    check_keyed(database, &options)?;
    let statements = split_script(database.dialect(), text);
    run_script(database, "script", statements, options).await
}

pub(super) async fn run_script<D: Database + ?Sized>(
    database: &D,
    name: &'static str,
    statements: Vec<Arc<str>>,
    options: Options,
) -> Result<Answer, SqlError> {
    if statements.is_empty() {
        return Err(SqlError::caller(
            Code::BadRequest,
            "the script has no statements",
            "give at least one",
        ));
    }
    let (mut safety, mut kind) = (Safety::Read, Kind::Select);
    for statement in &statements {
        let class = classify(database, statement).await;
        crate::plain::refuse_control(&class)?;
        kind = kind.max(class.kind);
        // Upserts one after the other may undo each other when they are repeated.
        safety = safety.strictest(match class.safety {
            Safety::Read => Safety::Read,
            _ => Safety::Write,
        });
    }
    let request = request(name, Work::Script { statements }, safety, options);
    let result = database.collect(&request, Scope::default()).await;
    note_ddl(database, kind, result)
}
