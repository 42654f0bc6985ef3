//! Read your writes: a session's reads go only to endpoints that have replayed its last write.

mod written;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mainstay_engine::endpoint::{Fitness, Placed};
use mainstay_engine::event::Role;
use mainstay_engine::policy::ReadFrom;
use mainstay_engine::source::Snapshot;
use mainstay_engine::{Need, Sent};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::Member;
use super::probe::number;
use crate::database::Access;
use written::Written;

/// Sessions remembered; one that is forgotten reads from the primary for a while.
const SESSIONS_MAX: usize = 100_000;
/// How long an unused session is remembered. A write whose end is unknown is taken to go on at its server
/// for as long: whoever comes back later is unknown here anyway.
const REMEMBERED_FOR: Duration = Duration::from_secs(300);
/// How often replicas are asked while a read waits for one.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// What an endpoint must have seen to serve a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Nothing in particular; nobody has found out more.
    Anything,
    /// This position, or the primary itself. 0: the session has written nothing.
    Position(u64),
    /// The primary.
    Primary,
}

impl Wanted {
    pub(super) fn filters(self) -> bool {
        !matches!(self, Wanted::Anything | Wanted::Position(0))
    }

    /// What a source behind the endpoint need not find out by itself.
    pub(super) fn seen(self) -> Option<u64> {
        match self {
            Wanted::Position(position) => Some(position),
            Wanted::Anything | Wanted::Primary => None,
        }
    }

    pub(super) fn admits(self, placed: &Placed<Member>) -> bool {
        match self {
            Wanted::Anything => true,
            Wanted::Primary => is_source_of_truth(placed),
            Wanted::Position(position) => {
                is_source_of_truth(placed) || placed.endpoint.position() >= position
            }
        }
    }

    pub(super) fn need(self, read_from: Option<ReadFrom>, access: Access) -> Option<Need> {
        match self {
            Wanted::Primary => Some(Need::Read(ReadFrom::Primary)),
            _ => super::route::need(read_from, access),
        }
    }

    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Wanted::Anything | Wanted::Position(0) => None,
            Wanted::Position(_) => Some("has replayed the session's last write"),
            Wanted::Primary => {
                Some("no replica is known to have replayed the session's last write")
            }
        }
    }
}

fn is_source_of_truth(placed: &Placed<Member>) -> bool {
    matches!(placed.role, Role::Primary | Role::Member)
}

struct Session {
    state: Mutex<State>,
}

struct State {
    first_seen: Instant,
    last_used: Instant,
    written: Written,
}

impl State {
    fn new(now: Instant) -> Self {
        State {
            first_seen: now,
            last_used: now,
            written: Written::default(),
        }
    }
}

/// The sessions of one source, bounded in number and age.
pub(super) struct Sessions {
    known: Cache<Arc<str>, Arc<Session>>,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Sessions {
            known: Cache::new(SESSIONS_MAX),
        }
    }

    /// The one session of a key, however many calls ask for it at once; a forgotten one begins anew.
    fn session(&self, key: &Arc<str>, now: Instant) -> Arc<Session> {
        let new = || {
            let state = Mutex::new(State::new(now));
            Ok::<_, std::convert::Infallible>(Arc::new(Session { state }))
        };
        let Ok(session) = self.known.get_or_insert_with(key, new);
        {
            let mut state = session.state.lock();
            let age = now.saturating_duration_since(state.last_used);
            if age > REMEMBERED_FOR {
                *state = State::new(now);
            }
            state.last_used = now;
        }
        session
    }

    /// Decides for one read; waits for a replica that is nearly there. `seen`: what a source around this
    /// one has found out.
    pub(super) async fn wanted(
        &self,
        key: &Arc<str>,
        seen: Option<u64>,
        fresh_for: Duration,
        wait: Duration,
        snapshot: &Snapshot<Member>,
    ) -> Wanted {
        let now = Instant::now();
        let session = self.session(key, now);
        let (first_seen, mut written) = {
            let state = session.state.lock();
            (state.first_seen, state.written)
        };
        if written.may_be_covered(now) {
            // A write's position could not be found out at its end: now it can.
            let primary = snapshot.primary().map(|placed| &placed.member);
            let _ = tokio::time::timeout(wait, session.cover(primary)).await;
            written = session.state.lock().written;
        }
        let is_new = now.saturating_duration_since(first_seen) < fresh_for;
        match written.position().map(|own| own.max(seen.unwrap_or(0))) {
            None => Wanted::Primary,
            // A session that nobody knows may have written through another instance.
            Some(0) if is_new && seen.is_none() => Wanted::Primary,
            Some(0) => Wanted::Position(0),
            Some(position) => wait_for(position, wait, snapshot).await,
        }
    }

    /// A write of a session begins.
    pub(super) fn begin_write(&self, key: &Arc<str>) -> Writing {
        Writing(Some(self.session(key, Instant::now())))
    }
}

impl Session {
    /// Asks for a position that covers all that was acknowledged until now.
    async fn cover(&self, member: Option<&Member>) {
        let asked_at = Instant::now();
        let asked = match member {
            Some(member) => member.position().await,
            None => return self.leave_open(asked_at),
        };
        match asked {
            Ok(Some(position)) => {
                let position = number(position).unwrap_or(0);
                self.state.lock().written.cover(position, asked_at);
            }
            // Asked again by the next read.
            Err(_) => self.leave_open(asked_at),
            // A database that knows no positions: asking again would not help.
            Ok(None) => self.leave_open(asked_at + REMEMBERED_FOR),
        }
    }

    fn leave_open(&self, covered_from: Instant) {
        self.state.lock().written.leave_open(covered_from);
    }
}

/// A write of a session that is under way; nothing, where nobody keeps count. Dropped without being told
/// its end, it may have had an effect: until that can be known the session reads from the primary.
pub(super) struct Writing(Option<Arc<Session>>);

impl Writing {
    /// Of a call that needs no count.
    pub(super) fn uncounted() -> Self {
        Writing(None)
    }

    pub(super) fn is_counted(&self) -> bool {
        self.0.is_some()
    }

    /// It was acknowledged by this member, which is asked how far it is for at most `wait`: what was written
    /// is written, however long that takes. Without an answer the session's next read asks again.
    pub(super) async fn acknowledged(mut self, member: Option<&Member>, wait: Duration) {
        if let Some(session) = &self.0 {
            let asked_at = Instant::now();
            let covering = tokio::time::timeout(wait, session.cover(member));
            if covering.await.is_err() {
                session.leave_open(asked_at);
            }
        }
        self.0 = None;
    }

    /// It failed, with this proof.
    pub(super) fn failed(mut self, sent: Sent) {
        if sent.is_proven_harmless() {
            self.0 = None;
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(session) = &self.0 {
            session.leave_open(Instant::now() + REMEMBERED_FOR);
        }
    }
}
async fn wait_for(position: u64, wait: Duration, snapshot: &Snapshot<Member>) -> Wanted {
    let replicas: Vec<&Placed<Member>> = snapshot
        .endpoints
        .iter()
        .filter(|placed| {
            placed.role == Role::Replica
                && !placed.endpoint.is_draining()
                && placed.endpoint.fitness() != Fitness::Down
        })
        .collect();
    if replicas.is_empty() {
        return Wanted::Primary;
    }
    let arrived = || {
        replicas
            .iter()
            .any(|placed| placed.endpoint.position() >= position)
    };
    if arrived() {
        return Wanted::Position(position);
    }
    let asking = async {
        loop {
            join_all(replicas.iter().map(|placed| ask(placed))).await;
            if arrived() {
                return;
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    match tokio::time::timeout(wait, asking).await {
        Ok(()) => Wanted::Position(position),
        Err(_) => Wanted::Primary,
    }
}

async fn ask(placed: &Placed<Member>) {
    if let Ok(Some(position)) = placed.member.position().await
        && let Some(position) = number(position)
    {
        placed.endpoint.note_position(position);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn first_calls_of_a_session_at_once_get_the_same_session() {
        const THREADS: usize = 4;
        for round in 0..500 {
            let (sessions, barrier) = (Sessions::new(), Barrier::new(THREADS));
            let key: Arc<str> = Arc::from(format!("s{round}"));
            let now = Instant::now();
            let found: Vec<Arc<Session>> = std::thread::scope(|scope| {
                let ask = || {
                    barrier.wait();
                    sessions.session(&key, now)
                };
                let threads = [(); THREADS].map(|()| scope.spawn(ask));
                threads.map(|thread| thread.join().unwrap()).into()
            });
            assert!(found.iter().all(|it| Arc::ptr_eq(it, &found[0])), "{round}");
        }
    }

    #[test]
    fn a_session_that_was_not_used_for_long_begins_anew() {
        let sessions = Sessions::new();
        let key: Arc<str> = Arc::from("s");
        let began = Instant::now();
        let session = sessions.session(&key, began);
        session.state.lock().written.cover(7, began);
        let soon = began + REMEMBERED_FOR;
        assert_eq!(sessions.session(&key, soon).state.lock().first_seen, began);
        let late = soon + REMEMBERED_FOR + Duration::from_millis(1);
        let again = sessions.session(&key, late);
        let state = again.state.lock();
        assert_eq!(
            (state.first_seen, state.written.position()),
            (late, Some(0))
        );
    }
}
