//! Questions to the catalog through the source.

use std::time::Duration;

use mainstay_engine::{Attempt, Operation, Route};

use super::{DataProxy, Member, errors};
use crate::catalog::{Describe, Description};
use crate::database::{Access, Scope};
use crate::error::SqlError;

impl DataProxy {
    pub(super) async fn describe_once(
        &self,
        what: &Describe,
        scope: Scope,
    ) -> Result<Description, SqlError> {
        let mut operation = Operation::read("describe");
        if let Some(attempt) = &scope.attempt {
            operation.correlation_id = Some(attempt.correlation_id);
            operation.deadline = attempt.left(tokio::time::Instant::now());
        }
        let route = Route {
            tracks: true,
            grace: Duration::ZERO,
            outer: scope.attempt.as_ref().and_then(Attempt::hold),
            ..Route::default()
        };
        let work = |attempt: Attempt<Member>| {
            let (member, attempt) = attempt.split();
            async move {
                let endpoint = attempt.endpoint.clone();
                let scope = Scope {
                    attempt: Some(attempt),
                    ..Scope::default()
                };
                let described = member.describe(what, scope).await;
                described.map_err(|error| errors::at(&endpoint, error))
            }
        };
        let done = self
            .source()
            .call_on(&operation, route, &errors::classify, work)
            .await;
        match done {
            Ok(done) => Ok(done.value),
            Err(error) => {
                let parts = error.into_parts();
                Err(self.failed(parts, &operation, Access::ReadOnly, operation.safety))
            }
        }
    }
}
