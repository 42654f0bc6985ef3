//! A connection of some endpoint, lent to a closure.

use mainstay_engine::Attempt;

use super::route::{operation, path, route};
use super::{DataProxy, Member, errors, refuse_key};
use crate::database::{Meta, Scope};
use crate::error::SqlError;
use crate::lent::{Borrower, Loan};

impl DataProxy {
    pub(super) async fn lend_once(
        &self,
        loan: &Loan,
        work: &dyn Borrower,
        scope: Scope,
    ) -> Result<Meta, SqlError> {
        self.refuse_unavailable(&loan.options)?;
        refuse_key(&loan.options)?;
        let operation = operation(loan.name.clone(), loan.safety, &loan.options, &scope);
        let wanted = self.wanted(&loan.options, loan.safety, &scope).await;
        let filter = |placed: &mainstay_engine::endpoint::Placed<Member>| wanted.admits(placed);
        let route = route(wanted, &filter, &loan.options, loan.access(), &scope);
        let scope = &scope;
        let attempt = |attempt: Attempt<Member>| {
            let (member, attempt) = attempt.split();
            async move {
                let endpoint = attempt.endpoint.clone();
                let scope = self.within(attempt, wanted, scope);
                let lent = member.lend(loan, work, scope).await;
                lent.map_err(|error| errors::at(&endpoint, error))
            }
        };
        let writing = self.begin_write(&loan.options, loan.safety);
        let source = self.source();
        let ended = source.call_on(&operation, route, &errors::classify, attempt);
        let ended = self.end_write(writing, ended.await).await;
        let done = match ended.map_err(mainstay_engine::CallError::into_parts) {
            Ok(done) => done,
            Err(parts) => return Err(self.failed(parts, &operation, loan.access(), loan.safety)),
        };
        Ok(Meta {
            endpoint: Some(path(&done.endpoint, done.value.endpoint.as_deref())),
            attempts: done.attempts,
            cache: "off",
            elapsed: done.elapsed,
            correlation_id: Some(done.correlation_id),
            policy_version: done.policy_version,
            last_resort: done.last_resort | done.value.last_resort,
            replayed: false,
        })
    }
}
