//! Stopping what a session does, without ever hitting what it does next.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mainstay_sql::{BoxFuture, Cancel};
use tokio::io::AsyncReadExt;
use tokio_postgres::CancelToken;

use crate::link::Link;
use crate::settings::PostgresSettings;
use crate::socket;
use crate::tls::Tls;

/// Limit of one cancel request, beyond which it counts as not delivered.
const LIMIT: Duration = Duration::from_secs(5);

/// Cancels on the same server that the session is connected to.
pub(crate) struct PostgresCancel {
    pub(crate) link: Arc<Link>,
    pub(crate) token: CancelToken,
    pub(crate) tls: Tls,
    pub(crate) address: SocketAddr,
    pub(crate) settings: Arc<PostgresSettings>,
}

impl Cancel for PostgresCancel {
    fn cancel(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Holding the permit keeps the session from starting anything until the request was processed;
            // an idle session has nothing to cancel.
            let Ok(_permit) = self.link.gate.acquire().await else {
                return;
            };
            if self.link.is_busy() {
                self.link.note_cancel();
                self.deliver().await;
            }
        })
    }
}

impl PostgresCancel {
    /// Sends the request and waits until the server has closed the connection, which it does after it
    /// signalled the session.
    pub(crate) async fn deliver(&self) {
        let request = async {
            let Ok(mut stream) = socket::open(self.address, &self.settings).await else {
                return;
            };
            if self
                .token
                .cancel_query_raw(&mut stream, self.tls.clone())
                .await
                .is_err()
            {
                return;
            }
            let mut rest = [0; 256];
            while matches!(stream.read(&mut rest).await, Ok(n) if n > 0) {}
        };
        if tokio::time::timeout(LIMIT, request).await.is_err() {
            // It may still arrive at any time.
            self.link.retire("a cancel request was not answered");
        }
    }
}
