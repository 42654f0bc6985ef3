//! Writes under an idempotency key: carried out once, answered as often as they are asked for.

use std::sync::Arc;

use mainstay_engine::Safety;

use super::run::answer;
use super::{DataProxy, errors};
use crate::database::{Access, Answer, Request, Scope};
use crate::error::{Code, SqlError};
use crate::proof::{Keyed, Proving};
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
        let proofs = self.shared.proofs.as_ref();
        let Some((table, answer_max)) = proofs.and_then(|proofs| proofs.keys.as_ref()) else {
            return Err(SqlError::caller(
                Code::IdempotencyUnavailable,
                "this source keeps no table of idempotency keys",
                "name one for the source (idempotency_table), or leave the key out",
            ));
        };
        if request.access == Access::ReadOnly || request.safety.is_read() {
            return Err(SqlError::caller(
                Code::IdempotencyUnavailable,
                "a read changes nothing, so an idempotency key has no use",
                "leave the key out",
            ));
        }
        let shared = &self.shared;
        if commits_by_itself(shared.dialect, &shared.schema, request) {
            return Err(SqlError::caller(
                Code::IdempotencyUnavailable,
                "a statement of it commits by itself, or may, so that its key cannot be written with it",
                "leave the key out, or send INSERT, UPDATE and DELETE by themselves",
            ));
        }
        let keyed = Keyed::of(request, self.name(), table, *answer_max)?;
        keyed.ok_or_else(|| SqlError::internal("a request without its key"))
    }
}
