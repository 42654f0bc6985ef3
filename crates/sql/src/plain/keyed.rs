//! A write under an idempotency key: the key is claimed before it and the answer kept after it, in its own
//! transaction.

use super::limit::timeout;
use super::proving::{ask, not_written};
use crate::connection::Connection;
use crate::database::Answer;
use crate::error::{Code, SqlError};
use crate::proof::{Keyed, recall, write_down};
use crate::value::Value;
use mainstay_engine::{Category, Failure, Sent};

/// A key is claimed again after it turned out to be too old, or after its first owner rolled back.
const CLAIMS_MAX: u32 = 3;

/// What became of a claim.
pub(super) enum Claim {
    /// The key is new: the work may begin.
    New,
    /// The same request was carried out before, with this answer.
    Known(Answer),
}

impl Keyed {
    fn params(&self) -> [Value; 2] {
        [
            Value::Text(self.owner.clone()),
            Value::Text(self.key.to_string()),
        ]
    }

    /// Claims the key in the open transaction. Waits for another transaction that has it in hand.
    pub(super) async fn claim(&self, connection: &mut dyn Connection) -> Result<Claim, SqlError> {
        let [owner, key] = self.params();
        let with_request = [
            owner.clone(),
            key.clone(),
            Value::Bytes(self.request.clone()),
        ];
        for _ in 0..CLAIMS_MAX {
            let claim = &self.table.claim;
            let claimed = ask(connection, claim, &with_request).await?;
            if claimed.affected == Some(1) {
                return Ok(Claim::New);
            }
            let its = [owner.clone(), key.clone()];
            let found = ask(connection, &self.table.look, &its).await?;
            match found.rows.into_iter().next() {
                Some(row) if !is_too_old(&row) => return self.known(&row).map(Claim::Known),
                Some(_) => drop(ask(connection, &self.table.expire, &its).await?),
                None => {}
            }
        }
        // Somebody else holds it again each time: their answer will be there soon.
        Err(in_the_way())
    }

    fn known(&self, row: &[Value]) -> Result<Answer, SqlError> {
        let [request, answer, ..] = row else {
            return Err(SqlError::internal("a kept answer has no columns"));
        };
        if *request != Value::Bytes(self.request.clone()) {
            return Err(SqlError::caller(
                Code::IdempotencyMismatch,
                "the idempotency key was sent before with another request",
                "use a new key for each request, and the same key only to send the same request again",
            ));
        }
        let answer = match answer {
            Value::Text(text) => recall(text),
            _ => None,
        };
        let mut answer = answer.ok_or_else(|| {
            let failure = Failure::new(
                Category::Persistent,
                "the request was carried out before, but what is kept of its answer cannot be read",
            );
            SqlError::new(Code::OutcomeUnknown, failure.sent(Sent::Maybe)).hint(
                "look what is there; the table of idempotency keys was changed by somebody else",
            )
        })?;
        answer.meta.replayed = true;
        Ok(answer)
    }

    /// Waits, outside of a transaction, until a stored answer is as safe as the commits of this server are: the write
    /// may be on this server alone, where the wait of its commit was cut short, and be lost with it.
    pub(super) async fn confirm(&self, connection: &mut dyn Connection) -> Result<(), SqlError> {
        let Some(confirm) = &self.table.confirm else {
            return Ok(());
        };
        let its = self.params();
        let params = if confirm.names_row { &its[..] } else { &[] };
        let confirmed = ask(connection, &confirm.text, params).await;
        let affected = confirmed.map_err(|mut error| {
            // Whatever it says is said of this statement, not of the write.
            error.detail_mut().failure.sent = Sent::Maybe;
            error
        })?;
        match affected.affected {
            Some(0) if confirm.names_row => Err(timeout(Sent::Maybe)
                .hint("the row of the idempotency key vanished while its answer was given out")),
            _ => Ok(()),
        }
    }

    /// Keeps the answer in the open transaction.
    pub(super) async fn keep(
        &self,
        connection: &mut dyn Connection,
        answer: &Answer,
    ) -> Result<(), SqlError> {
        let text = write_down(answer, self.answer_max)?;
        let [owner, key] = self.params();
        let kept = [Value::Text(text), owner, key];
        let stored = ask(connection, &self.table.store, &kept).await;
        let rights = "SELECT, INSERT, UPDATE and DELETE on it";
        let stored = stored.map_err(|error| not_written(error, &self.table.texts, rights))?;
        match stored.affected {
            Some(1) => Ok(()),
            _ => Err(timeout(Sent::YesUnprocessed).hint(
                "the row of the idempotency key vanished while its request ran; send it again",
            )),
        }
    }
}

/// Whoever is in the way says nothing about the endpoint.
pub(super) fn in_the_way() -> SqlError {
    let failure = Failure::new(
        Category::Contention,
        "another request with the same idempotency key is still under way",
    );
    SqlError::new(Code::Contention, failure.sent(Sent::No))
        .hint("send it again with the same key, which gives the answer of the other one once it has ended")
}

fn is_too_old(row: &[Value]) -> bool {
    row.get(2) == Some(&Value::I64(1))
}
