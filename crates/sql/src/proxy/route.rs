//! From a request's options to an operation of the engine and its way.

use std::sync::Arc;

use mainstay_engine::policy::ReadFrom;
use mainstay_engine::source::Filter;
use mainstay_engine::{Attempt, EndpointId, Name, Need, Operation, Route, Safety};

use super::sessions::Wanted;
use super::{DataProxy, Member, READ_GRACE, WRITE_GRACE};
use crate::database::{Access, Options, Scope};

/// The way of work of an access, for a session that wants something.
pub(super) fn route<'a>(
    wanted: Wanted,
    filter: Filter<'a, Member>,
    options: &Options,
    access: Access,
    scope: &Scope,
) -> Route<'a, Member> {
    Route {
        need: wanted.need(options.read_from, access),
        filter: wanted.filters().then_some(filter),
        tracks: true,
        grace: match access {
            Access::ReadWrite => WRITE_GRACE,
            Access::ReadOnly => READ_GRACE,
        },
        reason: wanted.reason(),
        outer: scope.attempt.as_ref().and_then(Attempt::hold),
        carried: None,
        rank: None,
    }
}

pub(super) fn operation(name: Name, safety: Safety, options: &Options, scope: &Scope) -> Operation {
    let declared = options.safety == Some(safety);
    let mut operation = Operation::new(name, safety).declared(declared);
    operation.deadline = options.deadline;
    operation.session_key = options.session.clone();
    operation.idempotency_key = options.idempotency_key.clone();
    operation.correlation_id = options.correlation_id;
    if let Some(attempt) = &scope.attempt {
        operation.correlation_id = Some(attempt.correlation_id);
        let left = attempt.left(tokio::time::Instant::now());
        operation.deadline = match (operation.deadline, left) {
            (Some(own), Some(left)) => Some(own.min(left)),
            (own, left) => own.or(left),
        };
    }
    operation
}

/// Where something happened: a proxy behind an endpoint says which of its own it was, `outer/inner`.
pub(super) fn path(endpoint: &EndpointId, inner: Option<&str>) -> EndpointId {
    match inner {
        Some(inner) => EndpointId::from(format!("{endpoint}/{inner}")),
        None => endpoint.clone(),
    }
}

/// The role that an access needs, where the caller does not say.
pub(super) fn need(read_from: Option<ReadFrom>, access: Access) -> Option<Need> {
    match access {
        Access::ReadWrite => Some(Need::Primary),
        Access::ReadOnly => read_from.map(Need::Read),
    }
}

impl DataProxy {
    /// The attempt as the member sees it, with what is known about the session of a read and about the
    /// schema: the outermost proxy has classified the call.
    pub(super) fn within(&self, attempt: Attempt, wanted: Wanted, outer: &Scope) -> Scope {
        let schema = outer.schema.as_ref().unwrap_or(&self.shared.schema);
        Scope {
            attempt: Some(attempt),
            seen: wanted.seen().or(outer.seen),
            schema: Some(Arc::clone(schema)),
            proving: outer.proving.clone(),
        }
    }
}
