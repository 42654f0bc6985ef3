//! Messages to callers: published in their order, and again after each lost connection until the broker
//! has confirmed them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use mainstay_engine::BoxFuture;
use mainstay_engine::tasks::Tasks;
use tokio::sync::{mpsc, watch};

use crate::broker::{Broker, Link, Publication, PublishError, PublishErrorKind};

/// Messages that wait for their turn; whoever adds one more waits.
const BACKLOG_MAX: usize = 1024;
/// Messages that wait for their confirmation at once.
const WINDOW: usize = 256;
/// Before the next try where the connection stands but takes nothing.
const PAUSE: Duration = Duration::from_millis(100);

/// What is to be done once it is known what became of a message: it was confirmed, or the broker will
/// never take it.
pub(crate) type Done = Box<dyn FnOnce(Result<(), PublishError>) + Send>;

/// The messages to callers at one broker. Copies share it.
#[derive(Clone)]
pub(crate) struct Outbox {
    to: mpsc::Sender<Entry>,
    unconfirmed: Arc<AtomicUsize>,
}

struct Entry {
    message: Publication,
    done: Done,
    _counted: Counted,
}

struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Outbox {
    /// Starts publishing.
    pub(crate) fn start(broker: Arc<dyn Broker>, tasks: &Tasks) -> Self {
        let (to, from) = mpsc::channel(BACKLOG_MAX);
        tasks.spawn(Sending::new(broker, from).run());
        Outbox {
            to,
            unconfirmed: Arc::default(),
        }
    }

    /// Adds a message behind those that were added before. Waits only while too many wait already; it counts as
    /// unconfirmed from the call on. It is dropped without a word when the service stops before its turn.
    pub(crate) fn send(
        &self,
        message: Publication,
        done: Done,
    ) -> impl Future<Output = ()> + Send + 'static {
        let entry = Entry {
            message,
            done,
            _counted: Counted::new(&self.unconfirmed),
        };
        let to = self.to.clone();
        async move {
            // Closed: the service stops.
            let _ = to.send(entry).await;
        }
    }

    /// Messages that are not confirmed yet.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.unconfirmed.load(Ordering::Acquire)
    }
}

struct Sending {
    broker: Arc<dyn Broker>,
    link: watch::Receiver<Link>,
    from: mpsc::Receiver<Entry>,
    under_way: FuturesOrdered<BoxFuture<'static, (Entry, Result<(), PublishError>)>>,
    /// What must go once more, in its order; nothing new goes before it.
    again: VecDeque<Entry>,
    /// A message failed: what was sent behind it is waited for, so that the order is kept.
    broken: bool,
}

impl Sending {
    fn new(broker: Arc<dyn Broker>, from: mpsc::Receiver<Entry>) -> Self {
        Sending {
            link: broker.link(),
            broker,
            from,
            under_way: FuturesOrdered::new(),
            again: VecDeque::new(),
            broken: false,
        }
    }

    async fn run(mut self) {
        loop {
            if self.broken && self.under_way.is_empty() {
                self.recover().await;
            }
            while !self.broken && self.under_way.len() < WINDOW {
                let Some(entry) = self.again.pop_front() else {
                    break;
                };
                self.publish(entry);
            }
            let has_room = !self.broken && self.again.is_empty() && self.under_way.len() < WINDOW;
            tokio::select! {
                biased;
                Some((entry, result)) = self.under_way.next() => self.ended(entry, result),
                entry = self.from.recv(), if has_room => match entry {
                    Some(entry) => self.publish(entry),
                    None if self.under_way.is_empty() => return,
                    None => {
                        // Nothing more comes; what is under way goes on.
                        if let Some((entry, result)) = self.under_way.next().await {
                            self.ended(entry, result);
                        }
                    }
                },
            }
        }
    }

    fn publish(&mut self, entry: Entry) {
        let broker = Arc::clone(&self.broker);
        self.under_way.push_back(Box::pin(async move {
            let result = broker.publish(entry.message.clone()).await;
            (entry, result)
        }));
    }

    fn ended(&mut self, entry: Entry, result: Result<(), PublishError>) {
        match result {
            Err(error) if is_worth_another_try(&error.kind) => {
                tracing::debug!(topic = %entry.message.topic, %error, "published again later");
                self.broken = true;
                self.again.push_back(entry);
            }
            result => {
                if let Err(error) = &result {
                    tracing::warn!(topic = %entry.message.topic, %error, "could not be published");
                }
                (entry.done)(result);
            }
        }
    }

    /// Waits until it is worth another try.
    async fn recover(&mut self) {
        if self.link.borrow().is_up() {
            tokio::time::sleep(PAUSE).await;
        }
        // An error: the broker's driver is gone, and publishing says so.
        let _ = self
            .link
            .wait_for(|link| link.is_up() || *link == Link::Closed)
            .await;
        self.broken = false;
    }
}

/// Whether the same message may be taken later.
fn is_worth_another_try(kind: &PublishErrorKind) -> bool {
    match kind {
        PublishErrorKind::NotConnected { .. }
        | PublishErrorKind::Lost { .. }
        | PublishErrorKind::Blocked { .. } => true,
        PublishErrorKind::Refused { .. }
        | PublishErrorKind::Unroutable { .. }
        | PublishErrorKind::TooLarge { .. }
        | PublishErrorKind::Closed => false,
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox")
            .field("unconfirmed", &self.unconfirmed())
            .finish()
    }
}
