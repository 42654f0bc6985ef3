//! Read your writes: a session's reads go only to endpoints that have replayed its last write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use mainstay_engine::Need;
use mainstay_engine::endpoint::{Fitness, Placed};
use mainstay_engine::event::Role;
use mainstay_engine::policy::ReadFrom;
use mainstay_engine::source::Snapshot;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::Member;
use super::probe::number;
use crate::database::Access;

/// Sessions remembered; one that is forgotten reads from the primary for a while.
const SESSIONS_MAX: usize = 100_000;
/// How long an unused session is remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(300);
/// How often replicas are asked while a read waits for one.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// A position that no replica can reach: the write's own could not be found out.
const UNREACHABLE: u64 = u64::MAX;

/// What an endpoint must have seen to serve a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Nothing in particular.
    Anything,
    /// This position, or the primary itself.
    Position(u64),
    /// The primary.
    Primary,
}

impl Wanted {
    pub(super) fn filters(self) -> bool {
        self != Wanted::Anything
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
            _ => super::need(read_from, access),
        }
    }

    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Wanted::Anything => None,
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
    first_seen: Instant,
    last_used: Mutex<Instant>,
    /// 0: it has written nothing that we know of.
    position: AtomicU64,
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

    fn session(&self, key: &Arc<str>, now: Instant) -> Arc<Session> {
        if let Some(session) = self.known.get(key) {
            let mut last_used = session.last_used.lock();
            let age = now.saturating_duration_since(*last_used);
            if age <= REMEMBERED_FOR {
                *last_used = now;
                drop(last_used);
                return session;
            }
        }
        let session = Arc::new(Session {
            first_seen: now,
            last_used: Mutex::new(now),
            position: AtomicU64::new(0),
        });
        self.known.insert(Arc::clone(key), Arc::clone(&session));
        session
    }

    /// Decides for one read; waits for a replica that is nearly there.
    pub(super) async fn wanted(
        &self,
        key: &Arc<str>,
        fresh_for: Duration,
        wait: Duration,
        snapshot: &Snapshot<Member>,
    ) -> Wanted {
        let now = Instant::now();
        let session = self.session(key, now);
        let position = session.position.load(Ordering::Acquire);
        let is_new = now.saturating_duration_since(session.first_seen) < fresh_for;
        match position {
            // A session that nobody here knows may have written through another instance.
            0 if is_new => Wanted::Primary,
            0 => Wanted::Anything,
            UNREACHABLE => Wanted::Primary,
            position => wait_for(position, wait, snapshot).await,
        }
    }

    /// Notes how far the primary had come when a session's write was acknowledged.
    pub(super) async fn note_write(&self, key: &Arc<str>, member: Option<Member>) {
        let session = self.session(key, Instant::now());
        let asked = match member {
            Some(member) => member.position().await.ok().flatten(),
            None => None,
        };
        let position = match asked {
            Some(position) => number(position).unwrap_or(0),
            None => UNREACHABLE,
        };
        session.position.store(position, Ordering::Release);
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
