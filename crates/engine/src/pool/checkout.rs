//! A checkout: a place, then a connection, which is usually there.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lease::{Lease, Permit};
use super::state::{Begin, Found, Idle, Origin};
use super::{Connector, Mode, Pool, PoolError, Shared};
use crate::failure::Sent;

/// What a look for a connection came to.
pub enum Checkout<C: Connector, H: Send + 'static = ()> {
    /// One was idle and fit to be lent.
    Lent(Lease<C, H>),
    /// [`Pool::checkout_later`] goes on. Dropped, it gives its place back.
    Later(Later<C, H>),
}

/// A checkout that has to wait for something.
pub struct Later<C: Connector, H> {
    mode: Mode,
    hold: H,
    /// `None`: every place was taken.
    begun: Option<(Permit<C>, Found<C::Connection>)>,
}

impl<C: Connector> Pool<C> {
    /// Lends a connection of a mode, waiting at most `pool.wait_max` for a free place and then as long
    /// as the connector needs to open one. `hold` is any value; it is dropped only when the connection
    /// is back and clean, or closed.
    ///
    /// Cancel safe: a future that is dropped gives its place to the next at once.
    ///
    /// # Errors
    /// [`PoolError`]; nothing was handed to the back end then.
    pub async fn checkout<H: Send + 'static>(
        &self,
        mode: Mode,
        hold: H,
    ) -> Result<Lease<C, H>, PoolError> {
        self.checkout_at(mode, hold, Instant::now()).await
    }

    /// [`Pool::checkout`] for a caller that knows the time already.
    ///
    /// # Errors
    /// [`PoolError`]; nothing was handed to the back end then.
    pub async fn checkout_at<H: Send + 'static>(
        &self,
        mode: Mode,
        hold: H,
        now: Instant,
    ) -> Result<Lease<C, H>, PoolError> {
        match self.checkout_now(mode, hold, now)? {
            Checkout::Lent(lease) => Ok(lease),
            // What is rare is boxed, so that the usual way stays small.
            Checkout::Later(later) => Box::pin(self.checkout_later(later)).await,
        }
    }

    /// The part of a checkout that waits for nothing: usually all of it.
    ///
    /// # Errors
    /// [`PoolError`] of a pool that lends no more.
    pub fn checkout_now<H: Send + 'static>(
        &self,
        mode: Mode,
        hold: H,
        now: Instant,
    ) -> Result<Checkout<C, H>, PoolError> {
        let begin = self.shared.state.lock().begin(mode, now);
        let begun = match begin {
            Begin::Admitted(found) => Some((Permit::counted(&self.shared), found)),
            Begin::Full => None,
            Begin::Refused(error) => return Err(error),
        };
        let is_fit =
            |idle: &Idle<C::Connection>| !self.shared.connector.is_closed(&idle.connection);
        Ok(match begun {
            Some((
                permit,
                Found {
                    idle: Some(idle),
                    check: false,
                    ..
                },
            )) if is_fit(&idle) => {
                Checkout::Lent(Lease::new(idle.connection, idle.origin, permit, hold))
            }
            begun => Checkout::Later(Later { mode, hold, begun }),
        })
    }

    /// The rest of a checkout: waits for a place, asks an idle connection, or opens one. Cancel safe, as
    /// [`Pool::checkout`].
    ///
    /// # Errors
    /// As [`Pool::checkout`].
    pub async fn checkout_later<H: Send + 'static>(
        &self,
        later: Later<C, H>,
    ) -> Result<Lease<C, H>, PoolError> {
        let Later { mode, hold, begun } = later;
        let (permit, found) = match begun {
            Some(begun) => begun,
            None => {
                let permit = self.wait_for_place().await?;
                let found = self.shared.state.lock().next_idle(mode, Instant::now());
                (permit, found)
            }
        };
        let (connection, origin) = match self.first_usable(mode, found).await {
            Some(idle) => (idle.connection, idle.origin),
            None => self.open(mode).await?,
        };
        Ok(Lease::new(connection, origin, permit, hold))
    }

    async fn wait_for_place(&self) -> Result<Permit<C>, PoolError> {
        let since = Instant::now();
        let (mut waiting, wait_max) = {
            let mut state = self.shared.state.lock();
            if let Some(error) = state.refusal() {
                return Err(error);
            }
            if state.active < state.settings.active_max {
                state.active += 1;
                drop(state);
                return Ok(Permit::counted(&self.shared));
            }
            if let Some(error) = state.full_line() {
                return Err(error);
            }
            state.counts.waits += 1;
            let (number, granted) = state.line.join(since);
            let waiting = Waiting {
                shared: &self.shared,
                number,
                granted,
            };
            (waiting, state.settings.wait_max)
        };
        match tokio::time::timeout(wait_max, &mut waiting.granted).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(self.refusal()),
            Err(_) => waiting.give_up(since),
        }
    }

    /// Why a waiter was sent away.
    fn refusal(&self) -> PoolError {
        let state = self.shared.state.lock();
        state.refusal().unwrap_or(PoolError::Draining)
    }

    /// Tests idle connections until one is fit to be lent.
    async fn first_usable(
        &self,
        mode: Mode,
        mut found: Found<C::Connection>,
    ) -> Option<Idle<C::Connection>> {
        loop {
            drop(found.stale);
            let mut idle = found.idle?;
            let connector = &self.shared.connector;
            if !connector.is_closed(&idle.connection)
                && (!found.check || self.answers(&mut idle.connection).await)
            {
                return Some(idle);
            }
            drop(idle);
            let mut state = self.shared.state.lock();
            state.evicted_after_test();
            found = state.next_idle(mode, Instant::now());
        }
    }

    /// A check must not take longer than a clean-up may: both ask a server that may be a black hole.
    async fn answers(&self, connection: &mut C::Connection) -> bool {
        let limit = self.shared.state.lock().settings.cleanup_max;
        let check = self.shared.connector.check(connection);
        tokio::time::timeout(limit, check).await.unwrap_or(false)
    }

    async fn open(&self, mode: Mode) -> Result<(C::Connection, Origin), PoolError> {
        self.start_sweeper();
        self.shared.state.lock().counts.misses += 1;
        let opened = self.shared.open(mode).await;
        opened.map_err(|failure| PoolError::Connect(failure.sent(Sent::No)))
    }
}

/// A caller in the line. Dropping it leaves the line first, so that nobody hands it a place that it
/// would not see; a place that was on its way already is dropped with the channel and so goes on.
struct Waiting<'a, C: Connector> {
    shared: &'a Arc<Shared<C>>,
    number: u64,
    granted: oneshot::Receiver<Permit<C>>,
}

impl<C: Connector> Waiting<'_, C> {
    /// The wait is over; a place that arrived in the same moment is still taken.
    fn give_up(&mut self, since: Instant) -> Result<Permit<C>, PoolError> {
        let error = {
            let mut state = self.shared.state.lock();
            state.line.leave(self.number);
            PoolError::WaitTimeout {
                waited: since.elapsed(),
                active: state.active,
                waiting: state.line.len(),
            }
        };
        if let Ok(permit) = self.granted.try_recv() {
            return Ok(permit);
        }
        self.shared.state.lock().counts.timeouts += 1;
        Err(error)
    }
}

impl<C: Connector> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        self.shared.state.lock().line.leave(self.number);
    }
}
