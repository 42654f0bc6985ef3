//! What calls of a session must have seen, and what they have written.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{CallError, Done, EndpointId, Safety};

use super::sessions::{Wanted, Writing};
use super::{DataProxy, Member};
use crate::database::{Options, Scope};
use crate::error::SqlError;

impl DataProxy {
    /// What a session's reads must have seen.
    pub(super) async fn wanted(&self, options: &Options, safety: Safety, scope: &Scope) -> Wanted {
        let snapshot = self.source().snapshot();
        let policy = &snapshot.policy.route;
        let (Some(session), true, true) =
            (&options.session, policy.read_your_writes, safety.is_read())
        else {
            return Wanted::Anything;
        };
        // Sources whose members share one store never lag.
        if !snapshot.has_roles() || snapshot.endpoints.len() < 2 {
            return Wanted::Anything;
        }
        let fresh_for = policy.lag_max.unwrap_or(Duration::from_secs(10));
        let wait = policy.read_your_writes_wait;
        let sessions = &self.shared.sessions;
        Box::pin(sessions.wanted(session, scope.seen, fresh_for, wait, &snapshot)).await
    }

    /// Keeps count of a call that may write in a session, from before it is sent.
    pub(super) fn begin_write(&self, options: &Options, safety: Safety) -> Writing {
        match &options.session {
            Some(session) if !safety.is_read() && self.reads_its_writes() => {
                self.shared.sessions.begin_write(session)
            }
            _ => Writing::uncounted(),
        }
    }

    pub(super) async fn end_write<T>(
        &self,
        writing: Writing,
        ended: Result<Done<T>, CallError<SqlError>>,
    ) -> Result<Done<T>, CallError<SqlError>> {
        match &ended {
            Ok(done) => self.acknowledged(writing, &done.endpoint).await,
            Err(error) => writing.failed(error.sent()),
        }
        ended
    }

    pub(super) async fn acknowledged(&self, writing: Writing, endpoint: &EndpointId) {
        if writing.is_counted() {
            let member = self.knows_position(endpoint.as_str());
            let snapshot = self.source().snapshot();
            let wait = snapshot.policy.route.read_your_writes_wait;
            Box::pin(writing.acknowledged(member.as_ref(), wait)).await;
        }
    }

    fn reads_its_writes(&self) -> bool {
        self.source().snapshot().policy.route.read_your_writes
    }

    /// What can say how far an endpoint has come. A lone one is not asked: nobody would have to catch up
    /// with it.
    fn knows_position(&self, endpoint: &str) -> Option<Member> {
        let snapshot = self.source().snapshot();
        let placed = snapshot.endpoint(endpoint)?;
        (snapshot.endpoints.len() > 1).then(|| Arc::clone(&placed.member))
    }
}
