//! Stopping what a session does, without ever hitting what it does next.
//!
//! The protocol has no cancel: `KILL QUERY` is said on a second connection. The server then marks the
//! session, and whatever statement it runs next takes the mark away, so that a mark that came too late is
//! taken away by a ping before the next statement.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_sql::{BoxFuture, Cancel};

use crate::driver::Dialler;
use crate::link::Link;
use crate::wire::{Broken, Channel, Said};

/// Limit of one cancel request, beyond which it counts as not delivered.
const LIMIT: Duration = Duration::from_secs(5);

/// Cancels on the same server that the session is connected to.
pub(crate) struct MysqlCancel {
    tasks: Tasks,
    request: Arc<Request>,
}

/// A request on its way.
pub(crate) struct Request {
    pub(crate) link: Arc<Link>,
    pub(crate) dialler: Dialler,
    /// The server's number of the session.
    pub(crate) connection: u32,
    /// Which run of the server the session belongs to. After a restart the server counts its sessions
    /// from the beginning again, and the number may be another caller's.
    pub(crate) server_run: Option<u64>,
}

impl Cancel for MysqlCancel {
    fn cancel(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stop())
    }
}

impl MysqlCancel {
    pub(crate) fn new(tasks: Tasks, request: Request) -> Self {
        let request = Arc::new(request);
        MysqlCancel { tasks, request }
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
    async fn deliver(&self) {
        let delivered = tokio::time::timeout(LIMIT, self.ask()).await;
        if !delivered.unwrap_or(false) {
            // It may still arrive at any time.
            self.link.retire("a cancel request was not answered");
        }
    }

    /// Whether it is certain what became of the request.
    async fn ask(&self) -> bool {
        let Ok((mut channel, _)) = self.dialler.dial().await else {
            // Nothing has left.
            return true;
        };
        if self.is_there(&mut channel).await != Some(true) {
            channel.quit().await;
            return true;
        }
        channel.query(&format!("KILL QUERY {}", self.connection));
        let killed = finish(&mut channel).await.is_ok();
        channel.quit().await;
        killed
    }

    /// Whether the number is still the session's; `None`: the server does not answer.
    async fn is_there(&self, channel: &mut Channel) -> Option<bool> {
        let Some(run) = self.server_run else {
            return Some(true);
        };
        channel.query(&format!(
            "SELECT 1 FROM DUAL WHERE UUID_SHORT() >> 24 = {run}"
        ));
        Some(finish(channel).await.ok()? > 0)
    }
}

/// Reads an answer to its end; how many rows it had. An error of the server is an end as well: there is
/// no such session any more, or it may not be killed.
async fn finish(channel: &mut Channel) -> Result<u64, Broken> {
    let mut rows = 0;
    while !channel.is_idle() {
        rows += u64::from(matches!(channel.next().await?, Said::Row(_)));
    }
    Ok(rows)
}
