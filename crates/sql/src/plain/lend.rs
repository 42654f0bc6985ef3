//! A pooled connection lent to a closure.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Attempt, Category, Failure, Safety, Sent};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Plain;
use super::limit::{HandOver, timeout, unknown};
use super::sessions::Held;
use super::statement::{One, refuse_transaction_control};
use crate::database::{Answer, BoxFuture, Meta, Scope};
use crate::error::{Code, SqlError, Verdict};
use crate::lent::{Borrower, Lent, LentSession, Loan};
use crate::schema::Schema;
use crate::value::Value;

/// How long a closure may go on after its limit, so that its statement can be cancelled and prove that it
/// did nothing.
const CLOSURE_GRACE: Duration = Duration::from_millis(400);

impl Plain {
    pub(super) async fn lend_once(
        &self,
        loan: &Loan,
        work: &dyn Borrower,
        scope: Scope,
    ) -> Result<Meta, SqlError> {
        let started = Instant::now();
        let attempt = scope.attempt.as_ref();
        let ends_at = self.ends_at(&loan.options, attempt, started)?;
        let lease = self.lease(loan.access(), ends_at, attempt).await?;
        let number = attempt.map_or(1, |attempt| attempt.number);
        let effect = Arc::new(Effect::default());
        let session = Borrowed {
            plain: self.clone(),
            lease: Some(lease),
            loan: loan.clone(),
            attempt: scope.attempt.clone(),
            schema: scope.schema.clone(),
            ends_at,
            effect: Arc::clone(&effect),
        };
        let running = work.take(Lent::new(Box::new(session), number));
        let ended = match ends_at {
            // Inside of a proxy the attempt is cut there.
            Some(end) if scope.attempt.is_none() => {
                let ended = tokio::time::timeout_at(end + CLOSURE_GRACE, running).await;
                ended.unwrap_or_else(|_| Err(timeout(Sent::No)))
            }
            _ => running.await,
        };
        ended.map_err(|error| effect.judge(error, loan.safety))?;
        Ok(Meta {
            attempts: 1,
            cache: "off",
            elapsed: started.elapsed(),
            correlation_id: loan.options.correlation_id,
            ..Meta::default()
        })
    }
}

/// What the statements of a closure prove together; `No`: nothing was handed over.
#[derive(Default)]
struct Effect(Mutex<Option<Sent>>);

impl Effect {
    /// Until its end is known, a statement may have had an effect.
    fn begin(&self) -> Option<Sent> {
        self.0.lock().replace(Sent::Maybe)
    }

    fn end(&self, before: Option<Sent>, this: Sent) {
        let together = before.map_or(this, |before| before.and(this));
        *self.0.lock() = Some(together);
    }

    /// What an error of the closure means for all that it did.
    fn judge(&self, mut error: SqlError, safety: Safety) -> SqlError {
        let effect = self.0.lock().unwrap_or(Sent::No);
        let sent = error.sent().and(effect);
        error.detail_mut().failure.sent = sent;
        if safety.is_read() || sent == Sent::No {
            return error;
        }
        if error.code() == Code::DeadlineExceeded && sent == Sent::Maybe {
            error = unknown(error);
        }
        let says_enough = match error.detail().verdict {
            Verdict::Neutral => true,
            Verdict::ReadOnly => sent != Sent::Maybe,
            _ => false,
        };
        if safety == Safety::Write && !says_enough {
            // Nobody knows what else the closure does: it is not begun again.
            error = error.verdict(Verdict::Once);
        }
        error
    }
}

/// The connection of a closure.
struct Borrowed {
    plain: Plain,
    /// `None`: a statement was abandoned or lost it.
    lease: Option<Held>,
    loan: Loan,
    attempt: Option<Attempt>,
    schema: Option<Arc<Schema>>,
    ends_at: Option<Instant>,
    effect: Arc<Effect>,
}

impl Borrowed {
    async fn statement(&mut self, text: &str, params: &[Value]) -> Result<Answer, SqlError> {
        let started = Instant::now();
        let class = self.plain.schema_of(self.schema.as_ref()).classify(text);
        refuse_transaction_control(&class, "use transaction(closure), or begin()")?;
        let mut lease = self.lease.take().ok_or_else(gone)?;
        self.loan.note(class.kind);
        if !class.leaves_nothing() {
            lease.mark_dirty();
        }
        let safety = match self.loan.safety {
            Safety::Read => Safety::Read,
            _ => class.safety_with(params, None),
        };
        let one = One {
            // A closure may poll it in its own way.
            announced_by: None,
            text,
            params,
            answer_max: self.loan.options.answer_max,
            class: &class,
            ends_at: self.ends_at,
        };
        let handed = HandOver::new(self.attempt.clone());
        let before = self.effect.begin();
        let result = self.plain.run_on(&mut lease, &one, safety, &handed).await;
        let sent = match &result {
            Ok(_) => Sent::Maybe,
            Err(_) if !handed.has_happened() => Sent::No,
            Err(error) => error.sent(),
        };
        self.effect.end(before, sent);
        if !lease.is_active() && !lease.is_closed() {
            self.lease = Some(lease);
        }
        let mut answer = result?;
        answer.meta.attempts = 1;
        answer.meta.cache = "off";
        answer.meta.elapsed = started.elapsed();
        Ok(answer)
    }
}

impl LentSession for Borrowed {
    fn run(
        &mut self,
        text: Arc<str>,
        params: Vec<Value>,
    ) -> BoxFuture<'_, Result<Answer, SqlError>> {
        Box::pin(async move { self.statement(&text, &params).await })
    }
}

fn gone() -> SqlError {
    let failure = Failure::new(
        Category::Transient,
        "the lent connection is gone: it was lost, or a statement on it was abandoned",
    );
    SqlError::new(Code::Conflict, failure.sent(Sent::No))
        .hint("return the error, so that the closure can be given another connection")
}
