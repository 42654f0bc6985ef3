//! Requests to targets whose reply has not come yet, by their request id.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use smol_str::SmolStr;
use tokio::sync::oneshot;

use crate::broker::Delivery;
use crate::envelope::RequestHead;

/// A reply of a target.
#[derive(Debug)]
pub(crate) struct Reply {
    pub head: RequestHead,
    pub delivery: Delivery,
}

impl Reply {
    /// The text of an error, as far as it is one.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.delivery.body).into_owned()
    }

    /// The broker need not give it again: it has been used.
    pub(crate) fn acknowledge(&mut self) {
        self.delivery.acknowledge();
    }
}

struct Waiting {
    from: SmolStr,
    operation: SmolStr,
    to: oneshot::Sender<Reply>,
}

/// What became of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Somebody waited for it.
    Expected,
    /// Nobody waits for it any more.
    Late,
    /// Another sent it than was asked, or for another operation.
    Foreign,
}

/// All attempts that wait. Copies share them.
#[derive(Clone, Default)]
pub(crate) struct Pending {
    waiting: Arc<Mutex<HashMap<SmolStr, Waiting>>>,
}

/// One attempt that waits; it ends waiting when it is dropped, so that a later reply is late.
pub(crate) struct Awaited {
    pending: Pending,
    request_id: SmolStr,
    reply: oneshot::Receiver<Reply>,
}

impl Pending {
    /// Waits for the reply of `from` to a request.
    pub(crate) fn expect(&self, request_id: SmolStr, from: SmolStr, operation: SmolStr) -> Awaited {
        let (to, reply) = oneshot::channel();
        let waiting = Waiting {
            from,
            operation,
            to,
        };
        self.waiting.lock().insert(request_id.clone(), waiting);
        Awaited {
            pending: self.clone(),
            request_id,
            reply,
        }
    }

    /// Hands a reply to whoever waits. One that nobody takes is acknowledged: it must not come again.
    pub(crate) fn take_in(&self, mut reply: Reply) -> Taken {
        let taken = {
            let mut waiting = self.waiting.lock();
            match waiting.get(&reply.head.request_id) {
                None => Err(Taken::Late),
                Some(it)
                    if it.from != reply.head.source || it.operation != reply.head.operation_id =>
                {
                    Err(Taken::Foreign)
                }
                Some(_) => waiting.remove(&reply.head.request_id).ok_or(Taken::Late),
            }
        };
        match taken {
            Err(verdict) => {
                reply.acknowledge();
                verdict
            }
            Ok(waiting) => match waiting.to.send(reply) {
                Ok(()) => Taken::Expected,
                Err(mut unheard) => {
                    unheard.acknowledge();
                    Taken::Late
                }
            },
        }
    }
}

impl Awaited {
    /// The reply. Never ends without one: bound it.
    pub(crate) async fn reply(&mut self) -> Reply {
        match (&mut self.reply).await {
            Ok(reply) => reply,
            // Its sender lives in the table until a reply takes it out.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.pending.waiting.lock().remove(&self.request_id);
        // A reply that came at the last moment is late as well.
        if let Ok(mut reply) = self.reply.try_recv() {
            reply.acknowledge();
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending")
            .field("waiting", &self.waiting.lock().len())
            .finish()
    }
}
