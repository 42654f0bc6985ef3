//! Notices deliveries that were dropped.

use std::future::{Future, pending};
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use mainstay_message::Delivery;
use tokio::sync::mpsc;

/// Subscriptions whose receivers are watched, by number.
#[derive(Default)]
pub(crate) struct Closed(FuturesUnordered<Pin<Box<dyn Future<Output = u64> + Send>>>);

impl Closed {
    pub(crate) fn watch(&mut self, number: u64, deliveries: mpsc::Sender<Delivery>) {
        self.0.push(Box::pin(async move {
            deliveries.closed().await;
            number
        }));
    }

    /// The next that was dropped. Cancel safe.
    pub(crate) async fn next(&mut self) -> u64 {
        match self.0.next().await {
            Some(number) => number,
            // There is none to wait for.
            None => pending().await,
        }
    }
}

impl std::fmt::Debug for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Closed").field(&self.0.len()).finish()
    }
}
