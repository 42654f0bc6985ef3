//! Signals that ask the program to end.

use std::time::Duration;

use tokio::time::Instant;

/// Whoever ends a program from outside may send two kinds of signal at once, or one to the process and
/// one to its group: that is one wish.
const TOGETHER: Duration = Duration::from_millis(200);

/// Ctrl-C, the signal by which services are ended and, where wanted, that of a terminal that is closed.
#[derive(Debug)]
pub(crate) struct Signals {
    last: Option<Instant>,
    #[cfg(unix)]
    kinds: Vec<tokio::signal::unix::Signal>,
}

impl Signals {
    /// Ctrl-C and SIGTERM.
    pub(crate) fn new() -> std::io::Result<Self> {
        Self::of(false)
    }

    /// These and SIGHUP, for what nobody needs once its terminal is gone.
    pub(crate) fn with_hangup() -> std::io::Result<Self> {
        Self::of(true)
    }

    /// Waits for the next one. Cancel safe: a signal that came is not lost.
    pub(crate) async fn next(&mut self) {
        loop {
            self.any().await;
            let now = Instant::now();
            if is_another(self.last, now) {
                self.last = Some(now);
                return;
            }
        }
    }

    #[cfg(unix)]
    fn of(hangup: bool) -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut kinds = vec![
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        ];
        if hangup {
            kinds.push(signal(SignalKind::hangup())?);
        }
        Ok(Signals { last: None, kinds })
    }

    #[cfg(unix)]
    async fn any(&mut self) {
        std::future::poll_fn(|context| {
            match self
                .kinds
                .iter_mut()
                .any(|kind| kind.poll_recv(context).is_ready())
            {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
    }

    #[cfg(not(unix))]
    fn of(_hangup: bool) -> std::io::Result<Self> {
        Ok(Signals { last: None })
    }

    #[cfg(not(unix))]
    async fn any(&mut self) {
        // Without signals the process ends as its system ends processes.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Whether a signal now is a wish of its own.
fn is_another(last: Option<Instant>, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= TOGETHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_signals_at_once_are_one_wish_and_a_later_one_is_another() {
        let first = Instant::now();
        assert!(is_another(None, first));
        assert!(!is_another(Some(first), first));
        assert!(!is_another(Some(first), first + Duration::from_millis(199)));
        assert!(is_another(Some(first), first + TOGETHER));
    }
}
