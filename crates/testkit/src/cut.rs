//! Drops a future at a chosen await point.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

/// Polls a future until it has been pending `pendings` times, then drops it. `None`: it was dropped;
/// otherwise it ended before.
///
/// A test calls it with 1, 2, 3 … until the future ends, and so drops it at every await point it has.
pub async fn cut_at<F: Future>(pendings: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = pendings;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            left = left.saturating_sub(1);
            if left == 0 {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::cut_at;

    #[tokio::test]
    async fn a_future_is_dropped_at_the_chosen_await_point() {
        let three = || async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        };
        assert!(cut_at(3, three()).await.is_none());
        assert!(cut_at(4, three()).await.is_some());
    }
}
