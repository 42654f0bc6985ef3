//! Signals that ask the program to end.

use std::time::Duration;

use tokio::time::Instant;

/// Whoever ends a program from outside may send two kinds of signal at once, or one to the process and
/// one to its group: that is one wish.
const TOGETHER: Duration = Duration::from_millis(200);

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    End,
    /// Read the configuration again.
    Reload,
}

/// Asks a process to end. One that is gone already has nothing to be asked for.
#[cfg(unix)]
pub(crate) fn end(pid: u32) {
    use nix::sys::signal::{Signal, kill};
    if let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) {
        let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM);
    }
}

/// Ctrl-C, the signal by which services are ended and, where wanted, that of a terminal that is closed.
#[derive(Debug)]
pub(crate) struct Signals {
    last: Option<Instant>,
    #[cfg(unix)]
    kinds: Vec<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    reload: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    /// Ctrl-C, SIGTERM and SIGHUP, for what nobody needs once its terminal is gone.
    pub(crate) fn with_hangup() -> std::io::Result<Self> {
        Self::of(true)
    }

    /// Ctrl-C, SIGTERM, and SIGHUP to read the configuration again; on a terminal it says that the
    /// terminal is gone.
    pub(crate) fn of_a_service() -> std::io::Result<Self> {
        use std::io::IsTerminal;
        if std::io::stdin().is_terminal() {
            return Self::of(true);
        }
        let signals = Self::of(false)?;
        #[cfg(unix)]
        let signals = Signals {
            reload: Some(tokio::signal::unix::signal(
                tokio::signal::unix::SignalKind::hangup(),
            )?),
            ..signals
        };
        Ok(signals)
    }

    /// Waits for the next one that ends the program or asks to reload. Cancel safe: a signal that came is not
    /// lost.
    pub(crate) async fn next_or_reload(&mut self) -> Wish {
        self.wish(true).await
    }

    /// Waits for the next one that ends the program; one that asks to reload is kept. Cancel safe: a signal that
    /// came is not lost.
    pub(crate) async fn next(&mut self) {
        self.wish(false).await;
    }

    async fn wish(&mut self, reloads: bool) -> Wish {
        loop {
            if self.any(reloads).await == Wish::Reload {
                return Wish::Reload;
            }
            let now = Instant::now();
            if is_another(self.last, now) {
                self.last = Some(now);
                return Wish::End;
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
        Ok(Signals {
            last: None,
            kinds,
            reload: None,
        })
    }

    #[cfg(unix)]
    async fn any(&mut self, reloads: bool) -> Wish {
        use std::task::Poll;
        std::future::poll_fn(|context| {
            let mut kinds = self.kinds.iter_mut();
            if kinds.any(|kind| kind.poll_recv(context).is_ready()) {
                return Poll::Ready(Wish::End);
            }
            let mut reload = self.reload.iter_mut().filter(|_| reloads);
            match reload.any(|reload| reload.poll_recv(context).is_ready()) {
                true => Poll::Ready(Wish::Reload),
                false => Poll::Pending,
            }
        })
        .await
    }

    #[cfg(not(unix))]
    fn of(_hangup: bool) -> std::io::Result<Self> {
        Ok(Signals { last: None })
    }

    #[cfg(not(unix))]
    async fn any(&mut self, _: bool) -> Wish {
        // Without signals the process ends as its system ends processes.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Wish::End
    }
}

/// Whether a signal now is a wish of its own.
fn is_another(last: Option<Instant>, now: Instant) -> bool {
    last.is_none_or(|last| now.saturating_duration_since(last) >= TOGETHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn a_wait_that_is_given_up_loses_no_signal() {
        use nix::sys::signal::{Signal, raise};
        use tokio::signal::unix::{SignalKind, signal};
        const MOMENT: Duration = Duration::from_millis(20);
        let mut signals = Signals::of(false).unwrap();
        // Not one of the usual kinds: the process has other tests.
        signals.reload = Some(signal(SignalKind::user_defined1()).unwrap());
        for _ in 0..3 {
            let given_up = tokio::time::timeout(MOMENT, signals.next_or_reload()).await;
            assert!(given_up.is_err());
            raise(Signal::SIGUSR1).unwrap();
            // Whoever waits for the end alone leaves it for later.
            assert!(tokio::time::timeout(MOMENT, signals.next()).await.is_err());
            assert_eq!(signals.next_or_reload().await, Wish::Reload);
        }
    }

    #[tokio::test]
    async fn two_signals_at_once_are_one_wish_and_a_later_one_is_another() {
        let first = Instant::now();
        assert!(is_another(None, first));
        assert!(!is_another(Some(first), first));
        assert!(!is_another(Some(first), first + Duration::from_millis(199)));
        assert!(is_another(Some(first), first + TOGETHER));
    }
}
