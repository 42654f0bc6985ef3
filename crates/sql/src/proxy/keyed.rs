//! Writes under an idempotency key: carried out once, answered as often as they are asked for.

use std::sync::Arc;

use mainstay_engine::Safety;

use super::run::answer;
use super::{DataProxy, errors};
use crate::database::{Access, Answer, Request, Scope};
use crate::error::{Code, SqlError};
use crate::proof::{Keyed, Proving, key_refusal};
use crate::transaction::commits_by_itself;

/// For work that cannot be sent again as one request with one answer.
pub(super) fn no_use() -> SqlError {
    SqlError::caller(
        Code::IdempotencyUnavailable,
        "an idempotency key has no use here: it belongs to a write that is one request",
        "leave the key out; keys are for execute, query and scalar that write, insert, insert_many, update, update_many, delete and script",
    )
}

impl DataProxy {
    pub(super) async fn run_keyed(
        &self,
        request: &Request,
        scope: Scope,
    ) -> Result<Answer, SqlError> {
        let keyed = self.keyed(request)?;
        let mut request = request.clone();
        // Whatever it is by itself: with its key it has its effect once.
        request.safety = Safety::IdempotentWrite;
        let proving = Proving {
            key: Some(keyed),
            commit: None,
        };
        let scope = Scope {
            proving: Some(Arc::new(proving)),
            ..scope
        };
        let error = match self.run_once(&request, request.safety, &scope, None).await {
            Ok(done) => return Ok(answer(done)),
            Err(error) => error,
        };
        let operation = self.operation(&request, request.safety, &scope);
        let parts = error.into_parts();
        let error = self.failed(parts, &operation, request.access, request.safety);
        Err(errors::with_key(error))
    }

    fn keyed(&self, request: &Request) -> Result<Keyed, SqlError> {
        let shared = &self.shared;
        let keys = shared.proofs.as_ref().and_then(|it| it.keys.as_ref());
        let is_read = request.access == Access::ReadOnly || request.safety.is_read();
        let commits = commits_by_itself(shared.dialect, &shared.schema, request);
        if let Some(refused) = key_refusal(keys.is_some(), is_read, commits) {
            return Err(refused);
        }
        let Some((table, answer_max)) = keys else {
            return Err(SqlError::internal("a key without its table"));
        };
        let keyed = Keyed::of(request, self.name(), table, *answer_max)?;
        keyed.ok_or_else(|| SqlError::internal("a request without its key"))
    }
}
