//! The one task of a broker: connects, moves bytes between the socket and the session, connects again.

mod closed;
mod connect;
mod pump;
mod waits;

use std::sync::Arc;

use bytes::BytesMut;
use mainstay_message::{Link, Publication, PublishError, PublishErrorKind};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::closed::Closed;
use self::waits::Waits;
use crate::acknowledgement::{Return, Returns};
use crate::end::End;
use crate::session::{Reply, Session, Slot};
use crate::settings::MqttSettings;

/// A publication and who waits for it.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) message: Publication,
    pub(crate) reply: Reply,
    /// When it was called for.
    pub(crate) since: Instant,
}

impl Order {
    fn refuse(self, kind: PublishErrorKind) {
        // Nobody may wait any more.
        let _ = self.reply.send(Err(PublishError::unsent(kind)));
    }
}

/// All that the task works with.
#[derive(Debug)]
pub(crate) struct Driver {
    settings: Arc<MqttSettings>,
    session: Session,
    orders: mpsc::UnboundedReceiver<Order>,
    slots: mpsc::UnboundedReceiver<Slot>,
    link: watch::Sender<Link>,
    closing: CancellationToken,
    returns: Arc<Returns>,
    /// Emptied and handed back again, so that settling allocates nothing.
    returned: Vec<Return>,
    closed: Closed,
    input: BytesMut,
    /// Connections that stood.
    number: u64,
    /// Connections tried since the last that stood.
    attempts: u64,
}

/// How a wait without a connection ended.
enum Wait {
    Over,
    Closing,
}

impl Driver {
    pub(crate) fn new(
        settings: Arc<MqttSettings>,
        orders: mpsc::UnboundedReceiver<Order>,
        slots: mpsc::UnboundedReceiver<Slot>,
        link: watch::Sender<Link>,
        closing: CancellationToken,
    ) -> Self {
        let returns = Arc::new(Returns::default());
        Driver {
            session: Session::new(Arc::clone(&settings), Arc::clone(&returns)),
            settings,
            orders,
            slots,
            link,
            closing,
            returns,
            returned: Vec::new(),
            closed: Closed::default(),
            input: BytesMut::new(),
            number: 0,
            attempts: 0,
        }
    }

    /// Runs until the broker is closed.
    pub(crate) async fn run(mut self, chance: fastrand::Rng) {
        let mut waits = Waits::new(self.settings.reconnect_max, chance);
        while !self.closing.is_cancelled() {
            self.attempts += 1;
            let end = match self.connect().await {
                Ok(stream) => {
                    let begun = Instant::now();
                    let end = self.serve(stream).await;
                    waits.stood(begun.elapsed());
                    end
                }
                Err(end) => Some(end),
            };
            let Some(end) = end else { break };
            self.lose(&end);
            let until = Instant::now() + waits.next(end.taken_over);
            if let Wait::Closing = self.wait(until).await {
                break;
            }
        }
        self.finish();
    }

    /// Serves a connection that stands until it ends. `None`: by us.
    async fn serve(&mut self, stream: TcpStream) -> Option<End> {
        self.number += 1;
        self.attempts = 0;
        self.link.send_replace(Link::Up {
            number: self.number,
            blocked: None,
        });
        tracing::debug!(host = %self.settings.host, number = self.number, "connected");
        self.pump(stream).await
    }

    fn lose(&mut self, end: &End) {
        tracing::debug!(host = %self.settings.host, reason = %end.reason, "not connected");
        // First, so that nobody who hears of a loss finds the link still up.
        self.link.send_replace(Link::Down {
            attempts: self.attempts,
            reason: Some(Arc::clone(&end.reason)),
            refused: end.refused || end.taken_over,
        });
        self.session.lose(&end.reason);
        self.input.clear();
        self.refuse_orders(end);
    }

    fn refuse_orders(&mut self, end: &End) {
        while let Ok(order) = self.orders.try_recv() {
            order.refuse(PublishErrorKind::NotConnected {
                reason: Some(Arc::clone(&end.reason)),
            });
        }
    }

    /// Waits without a connection. Whoever wants to publish is told so.
    async fn wait(&mut self, until: Instant) -> Wait {
        loop {
            self.settle();
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Wait::Closing,
                Some(order) = self.orders.recv() => order.refuse(self.not_connected()),
                Some(slot) = self.slots.recv() => self.subscribe(slot),
                number = self.closed.next() => self.session.unsubscribe(number, Instant::now()),
                () = self.returns.come() => {}
                () = sleep_until(until) => return Wait::Over,
            }
        }
    }

    fn not_connected(&self) -> PublishErrorKind {
        let reason = match &*self.link.borrow() {
            Link::Down { reason, .. } => reason.clone(),
            Link::Up { .. } | Link::Closed => None,
        };
        PublishErrorKind::NotConnected { reason }
    }

    fn publish(&mut self, order: Order, now: Instant) {
        let Order {
            message,
            reply,
            since,
        } = order;
        self.session.publish(message, reply, since, now);
    }

    fn subscribe(&mut self, slot: Slot) {
        let deliveries = slot.deliveries().clone();
        let number = self.session.subscribe(slot, Instant::now());
        self.closed.watch(number, deliveries);
    }

    /// Takes what receivers did with their deliveries.
    fn settle(&mut self) {
        self.returns.take(&mut self.returned);
        for returned in self.returned.drain(..) {
            self.session.settle(returned);
        }
    }

    /// Nothing follows.
    fn finish(mut self) {
        let reason = "the connection to the broker was closed";
        self.session.lose(&reason.into());
        self.session.give_up(reason);
        self.orders.close();
        while let Ok(order) = self.orders.try_recv() {
            order.refuse(PublishErrorKind::Closed);
        }
        // Receivers see their end before the link says so.
        let link = self.link.clone();
        drop(self);
        link.send_replace(Link::Closed);
    }
}
