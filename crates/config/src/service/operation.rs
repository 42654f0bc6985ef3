//! `[services.NAME.operations.NAME]`: what a request may do, what its reply means, how long it takes.

use std::time::Duration;

use mainstay_engine::Safety;
use mainstay_message::expression::{Expression, ExpressionError, Pointer};
use mainstay_message::settings::{OperationKind, OperationSettings};

use super::field::{Field, put, some};
use crate::problem::Wrong;
use crate::scalar::{self, within};
use crate::tree::Node;

pub(super) const ACKS: &str = "from 1ms to 24h";
pub(super) const RESULTS: &str = "from 1ms to 30d";

/// Every key of an operation.
pub(crate) const FIELDS: &[Field<OperationSettings>] = &[
    Field::<OperationSettings>::new(
        "safety",
        "\"idempotent_write\"",
        "read, idempotent_write (the default: it may be driven again) or write (never driven twice)",
        |draft, value| {
            draft.safety_declared = true;
            put(&mut draft.safety, safety(value.node))
        },
    ),
    Field::<OperationSettings>::new(
        "kind",
        "\"job\"",
        "plain (the default: the reply is the result) or job (the reply accepts it, results come later)",
        |draft, value| put(&mut draft.kind, kind(value.node)),
    ),
    Field::<OperationSettings>::new(
        "ack_timeout",
        "\"75s\"",
        "instead of the service's",
        |draft, value| some(&mut draft.ack_timeout, ack(value.node)),
    )
    .bounds(ACKS),
    Field::<OperationSettings>::new(
        "result_timeout",
        "\"120s\"",
        "instead of the service's",
        |draft, value| some(&mut draft.result_timeout, result(value.node)),
    )
    .bounds(RESULTS),
    Field::<OperationSettings>::new(
        "job_key",
        "\"/job_id\"",
        "JSON pointer to what request, reply and results of one job have in common",
        |draft, value| some(&mut draft.job_key, parsed(value.node, Pointer::parse)),
    )
    .with_place(),
    Field::<OperationSettings>::new(
        "last_result",
        "'/status == \"done\"'",
        "holds for the last result of a job; without it the first one is the last",
        |draft, value| {
            some(
                &mut draft.last_result,
                parsed(value.node, Expression::parse),
            )
        },
    )
    .with_place(),
    Field::<OperationSettings>::new(
        "acknowledged",
        "'/accepted == true'",
        "holds for a good reply; without it each reply that is no error is one",
        |draft, value| {
            some(
                &mut draft.acknowledged,
                parsed(value.node, Expression::parse),
            )
        },
    )
    .with_place(),
];

fn safety(node: &Node) -> Result<Safety, Wrong> {
    let all = [Safety::Read, Safety::IdempotentWrite, Safety::Write];
    let word = scalar::choice("safety", &all.map(Safety::as_str), node)?;
    let found = all.into_iter().find(|safety| safety.as_str() == word);
    found.ok_or_else(|| "read, idempotent_write or write".into())
}

fn kind(node: &Node) -> Result<OperationKind, Wrong> {
    let words: Vec<&str> = OperationKind::ALL
        .iter()
        .map(|kind| kind.as_str())
        .collect();
    let word = scalar::choice("kind", &words, node)?;
    OperationKind::parse(&word).ok_or_else(|| "plain or job".into())
}

pub(super) fn ack(node: &Node) -> Result<Duration, Wrong> {
    let bounds = Duration::from_millis(1)..=Duration::from_secs(24 * 3600);
    within(scalar::time(node)?, bounds, ACKS)
}

pub(super) fn result(node: &Node) -> Result<Duration, Wrong> {
    let bounds = Duration::from_millis(1)..=Duration::from_secs(30 * 24 * 3600);
    within(scalar::time(node)?, bounds, RESULTS)
}

fn parsed<T>(node: &Node, parse: impl Fn(&str) -> Result<T, ExpressionError>) -> Result<T, Wrong> {
    let text = scalar::text(node)?;
    parse(&text).map_err(|error| {
        let told = error.to_string();
        match told.split_once("; ") {
            Some((message, hint)) => Wrong::new(message).hint(hint),
            None => Wrong::new(told),
        }
    })
}
