//! Stopping what a session does, without ever hitting what it does next.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_sql::{BoxFuture, Cancel};
use tokio::io::AsyncReadExt;
use tokio_postgres::CancelToken;

use crate::link::Link;
use crate::settings::PostgresSettings;
use crate::tls::Tls;

/// Limit of one cancel request, beyond which it counts as not delivered.
const LIMIT: Duration = Duration::from_secs(5);

/// Cancels on the same server that the session is connected to.
pub(crate) struct PostgresCancel {
    tasks: Tasks,
    request: Arc<Request>,
}

/// A request on its way.
pub(crate) struct Request {
    pub(crate) link: Arc<Link>,
    pub(crate) token: CancelToken,
    pub(crate) tls: Tls,
    pub(crate) address: SocketAddr,
    pub(crate) settings: Arc<PostgresSettings>,
}

impl Cancel for PostgresCancel {
    fn cancel(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop())
    }
}

impl PostgresCancel {
    pub(crate) fn new(tasks: Tasks, request: Request) -> Self {
        let request = Arc::new(request);
        PostgresCancel { tasks, request }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.request.link
    }

    /// Stops what the session does; an idle one has nothing to stop.
    ///
    /// The request is delivered by a task of its own, which holds the session's gate until the server has
    /// processed it: a caller who goes away half way does not leave a request behind that hits the next
    /// statement.
    pub(crate) async fn stop(&self) {
        let link = &self.request.link;
        let Ok(permit) = link.gate.clone().acquire_owned().await else {
            return;
        };
        if !link.is_busy() {
            return;
        }
        link.note_cancel();
        let request = self.request.clone();
        let delivered = self.tasks.spawn_bounded(LIMIT * 2, async move {
            request.deliver().await;
            drop(permit);
        });
        // It ends without a result; a panic in it would be ours and has been reported.
        let _ = delivered.await;
    }
}

impl Request {
    /// Sends the request and waits until the server has closed the connection, which it does after it
    /// signalled the session.
    async fn deliver(&self) {
        let request = async {
            let Ok(mut stream) =
                mainstay_transport::open(self.address, &self.settings.socket).await
            else {
                // Nothing has left.
                return true;
            };
            let asked = self
                .token
                .cancel_query_raw(&mut stream, self.tls.clone())
                .await;
            if asked.is_err() {
                // Perhaps it left before it failed.
                return false;
            }
            let mut rest = [0; 256];
            while matches!(stream.read(&mut rest).await, Ok(n) if n > 0) {}
            true
        };
        let is_over = tokio::time::timeout(LIMIT, request).await;
        if !is_over.unwrap_or(false) {
            // It may still arrive at any time.
            self.link.retire("a cancel request was not answered");
        }
    }
}
