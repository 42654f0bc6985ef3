//! What a session shares with the task that moves its bytes and with its cancel handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use mainstay_engine::tasks::Tasks;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;
use tokio_postgres::error::DbError;

use crate::watched::ServerStatus;

/// Set by one side and read by the other.
pub(crate) struct Link {
    /// One permit: taken to start a statement, and by a cancel request while it is on its way.
    pub(crate) gate: Arc<Semaphore>,
    busy: AtomicBool,
    cancel_asked: AtomicBool,
    replication_wait_cancelled: AtomicBool,
    retired: AtomicBool,
    /// Why the connection ended or is not to be used any more.
    cause: Mutex<Option<String>>,
    status: Arc<ServerStatus>,
}

impl Link {
    pub(crate) fn new(status: Arc<ServerStatus>) -> Self {
        Link {
            gate: Arc::new(Semaphore::new(1)),
            busy: AtomicBool::new(false),
            cancel_asked: AtomicBool::new(false),
            replication_wait_cancelled: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            cause: Mutex::new(None),
            status,
        }
    }

    /// A statement is about to be sent, or has ended.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Release);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Forgets what was noted about the statement before.
    pub(crate) fn forget(&self) {
        self.cancel_asked.store(false, Ordering::Relaxed);
        self.replication_wait_cancelled
            .store(false, Ordering::Relaxed);
    }

    pub(crate) fn note_cancel(&self) {
        self.cancel_asked.store(true, Ordering::Release);
    }

    pub(crate) fn cancel_was_asked(&self) -> bool {
        self.cancel_asked.load(Ordering::Acquire)
    }

    /// Whether the server warned that the last commit may be on no standby.
    pub(crate) fn replication_wait_was_cancelled(&self) -> bool {
        self.replication_wait_cancelled.load(Ordering::Acquire)
    }

    /// Says that the session is not to be used any more.
    pub(crate) fn retire(&self, cause: impl Into<String>) {
        self.cause.lock().get_or_insert_with(|| cause.into());
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    pub(crate) fn cause(&self) -> Option<String> {
        self.cause.lock().clone()
    }

    /// Whether the server has a transaction open, as it said at the end of its last answer.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.status.is_in_transaction()
    }

    /// A notice belongs to the statement in flight: the server writes it before the statement's end.
    fn note(&self, notice: &DbError) {
        // The routine's name is not translated, unlike the message.
        if notice.routine() == Some("SyncRepWaitForLSN") {
            self.replication_wait_cancelled
                .store(true, Ordering::Release);
        }
        tracing::debug!(
            code = notice.code().code(),
            message = notice.message(),
            "notice from the server"
        );
    }
}

/// Moves the bytes of a connection until it ends.
pub(crate) fn drive<S, T>(
    tasks: &Tasks,
    link: Arc<Link>,
    mut connection: tokio_postgres::Connection<S, T>,
    is_read_only: bool,
) -> JoinHandle<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tasks.spawn(async move {
        loop {
            let polled = std::future::poll_fn(|cx| {
                let polled = connection.poll_message(cx);
                // The server reports this setting whenever it changes (from PostgreSQL 14 on): a function
                // that a read called has opened the session for writes.
                if is_read_only
                    && connection.parameter("default_transaction_read_only") == Some("off")
                {
                    return Poll::Ready(Err(
                        "a statement made a read-only session writable".to_owned()
                    ));
                }
                polled.map(Ok)
            });
            match polled.await {
                Ok(Some(Ok(AsyncMessage::Notice(notice)))) => link.note(&notice),
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => return link.retire(with_causes(&error)),
                Ok(None) => return link.retire("closed"),
                Err(cause) => return link.retire(cause),
            }
        }
    })
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}
