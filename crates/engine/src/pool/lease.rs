//! A lent connection and the ways in which it comes back.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::time::Instant;

use super::state::{Idle, Origin};
use super::{Connector, Mode, Shared};

/// What happened to the connection so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Clean,
    Dirty,
    Broken,
}

/// What is done with a connection at the end of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Keep,
    Close,
    Reset,
    CleanUp,
}

/// A place in use. Dropping it gives the place to the next waiter.
pub(super) struct Permit<C: Connector> {
    shared: Arc<Shared<C>>,
    /// Not so for a connection outside the pool, and once the place was given back.
    counted: bool,
}

impl<C: Connector> Permit<C> {
    pub(super) fn counted(shared: &Arc<Shared<C>>) -> Self {
        Permit {
            shared: shared.clone(),
            counted: true,
        }
    }

    pub(super) fn uncounted(shared: &Arc<Shared<C>>) -> Self {
        Permit {
            shared: shared.clone(),
            counted: false,
        }
    }

    /// Puts the connection back and the place with it, in one step.
    fn put_back(&mut self, connection: C::Connection, origin: Origin) {
        if !self.counted {
            return;
        }
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        if !state.keeps() {
            // Closed first: the server never sees more connections than places.
            drop(state);
            drop(connection);
            return;
        }
        let surplus = state.keep(Idle {
            connection,
            origin,
            since: now,
        });
        let next = state.release();
        drop(state);
        self.counted = false;
        drop(surplus);
        if let Some(next) = next {
            self.shared.grant(next);
        }
    }
}

impl<C: Connector> Drop for Permit<C> {
    fn drop(&mut self) {
        if self.counted {
            self.shared.release();
        }
    }
}

/// A connection on loan. It derefs to the connection.
///
/// Dropping it, or [`Lease::give_back`], returns the connection according to its marks:
///
/// - clean: kept for the next caller;
/// - [dirty](Lease::mark_dirty): reset in the background at once (a session may hold locks, so it
///   does not wait for its next user), else closed;
/// - [broken](Lease::mark_broken), or dropped by a panic: closed;
/// - [active](Lease::set_active): cleaned up in the background, at most `pool.cleanups_max` at once
///   and each within `pool.cleanup_max`, else closed.
///
/// Its place in the pool, and the `hold` given at checkout, are freed only after that. Outside a
/// runtime nothing can be cleaned up, so that dirty and active ones are closed there.
pub struct Lease<C: Connector, H: Send + 'static = ()> {
    /// `None` only once the lease has ended.
    connection: Option<C::Connection>,
    origin: Origin,
    mark: Mark,
    active: bool,
    permit: Option<Permit<C>>,
    hold: Option<H>,
}

impl<C: Connector, H: Send + 'static> Lease<C, H> {
    pub(super) fn new(
        connection: C::Connection,
        origin: Origin,
        permit: Permit<C>,
        hold: H,
    ) -> Self {
        Lease {
            connection: Some(connection),
            origin,
            mark: Mark::Clean,
            active: false,
            permit: Some(permit),
            hold: Some(hold),
        }
    }

    /// What it was opened for.
    pub fn mode(&self) -> Mode {
        self.origin.mode
    }

    /// When it was opened.
    pub fn opened(&self) -> Instant {
        self.origin.opened
    }

    /// Connections opened between two breaks are of one generation: what breaks one of them most
    /// likely breaks all, so their failures weigh once.
    pub fn generation(&self) -> u64 {
        self.origin.generation
    }

    /// The session was changed in a way that the next caller must not see. Never undone.
    pub fn mark_dirty(&mut self) {
        if self.mark == Mark::Clean {
            self.mark = Mark::Dirty;
        }
    }

    /// The connection is unusable, or in a state that nobody knows. It will be closed, and so are idle
    /// ones of its generation and older.
    pub fn mark_broken(&mut self) {
        self.mark = Mark::Broken;
    }

    /// Says that a statement is under way: `true` before its first byte is sent, `false` once its end
    /// was read.
    pub fn set_active(&mut self, active: bool) {
        self.active = active;
    }

    /// Whether a statement is under way.
    pub fn is_active(&self) -> bool {
        self.active
    }

    /// Ends the lease now. The same as dropping it.
    pub fn give_back(self) {}

    fn fate(&self) -> Fate {
        if self.mark == Mark::Broken || std::thread::panicking() {
            Fate::Close
        } else if self.active {
            Fate::CleanUp
        } else if self.permit.as_ref().is_none_or(|permit| !permit.counted) {
            Fate::Close
        } else if self.mark == Mark::Dirty {
            Fate::Reset
        } else {
            Fate::Keep
        }
    }
}

impl<C: Connector, H: Send + 'static> Deref for Lease<C, H> {
    type Target = C::Connection;

    fn deref(&self) -> &C::Connection {
        self.connection
            .as_ref()
            .expect("a lease has its connection until it is dropped")
    }
}

impl<C: Connector, H: Send + 'static> DerefMut for Lease<C, H> {
    fn deref_mut(&mut self) -> &mut C::Connection {
        self.connection
            .as_mut()
            .expect("a lease has its connection until it is dropped")
    }
}

impl<C: Connector, H: Send + 'static> Drop for Lease<C, H> {
    fn drop(&mut self) {
        let fate = self.fate();
        let (Some(connection), Some(mut permit)) = (self.connection.take(), self.permit.take())
        else {
            return;
        };
        if fate == Fate::Keep {
            permit.put_back(connection, self.origin);
            return;
        }
        let broken = self.mark == Mark::Broken;
        let ending = Ending {
            connection: Some(connection),
            origin: self.origin,
            dirty: self.mark == Mark::Dirty,
            cleaning: false,
            permit,
            _hold: self.hold.take(),
        };
        if broken {
            ending.permit.shared.retire(self.origin.generation);
        }
        if fate != Fate::Close {
            ending.restore(fate == Fate::CleanUp);
        }
    }
}

/// A connection on its way back. Dropped at any moment it closes the connection first and frees the
/// place and the hold after that, in the order of the fields.
struct Ending<C: Connector, H: Send + 'static> {
    connection: Option<C::Connection>,
    origin: Origin,
    dirty: bool,
    /// Counted among the clean-ups.
    cleaning: bool,
    permit: Permit<C>,
    _hold: Option<H>,
}

impl<C: Connector, H: Send + 'static> Ending<C, H> {
    /// Restores the connection in a tracked task and puts it back; closes it if that cannot be begun.
    fn restore(mut self, clean_up: bool) {
        let shared = self.permit.shared.clone();
        let limit = {
            let mut state = shared.state.lock();
            if clean_up {
                if state.cleaning >= state.settings.cleanups_max {
                    return;
                }
                state.cleaning += 1;
                state.counts.cleanups += 1;
                self.cleaning = true;
            }
            state.settings.cleanup_max
        };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        shared
            .tasks
            .spawn_bounded(limit, async move { self.run(clean_up).await });
    }

    async fn run(mut self, clean_up: bool) {
        let shared = self.permit.shared.clone();
        let Some(connection) = self.connection.as_mut() else {
            return;
        };
        if clean_up && !shared.connector.clean_up(connection).await {
            return;
        }
        let pooled = self.permit.counted;
        if pooled && self.dirty && !shared.connector.reset(connection).await {
            return;
        }
        if let Some(connection) = self.connection.take() {
            self.permit.put_back(connection, self.origin);
        }
    }
}

impl<C: Connector, H: Send + 'static> Drop for Ending<C, H> {
    fn drop(&mut self) {
        drop(self.connection.take());
        if self.cleaning {
            self.permit.shared.state.lock().cleaning -= 1;
        }
    }
}
