//! Endpoints that get no work keep no idle connections: drained ones, and those that were taken out.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_engine::event::{EventKind, EventStream, Received};
use mainstay_engine::source::WeakSource;
use mainstay_engine::{EndpointId, Source};

use super::Member;

/// Starts to follow a source's changes, until its tasks are shut down or it is gone.
pub(super) fn follow(source: &Source<Member>) {
    let mut following = Following {
        source: source.downgrade(),
        members: HashMap::new(),
    };
    let events = source.events();
    following.catch_up(source);
    source.tasks().spawn(following.run(events));
}

struct Following {
    source: WeakSource<Member>,
    /// What stands behind each endpoint, and whether it rests.
    members: HashMap<EndpointId, (Member, bool)>,
}

impl Following {
    async fn run(mut self, mut events: EventStream) {
        while let Some(received) = events.next().await {
            let Some(source) = self.source.upgrade() else {
                return;
            };
            if concerns(&received) {
                self.catch_up(&source);
            }
        }
    }

    /// Compares with the source as it is now, so that an event that was lost does no harm.
    fn catch_up(&mut self, source: &Source<Member>) {
        let snapshot = source.snapshot();
        let is_there = |id: &EndpointId, member: &Member| {
            let placed = snapshot.endpoint(id.as_str());
            placed.is_some_and(|placed| Arc::ptr_eq(&placed.member, member))
        };
        self.members.retain(|id, (member, _)| {
            let stays = is_there(id, member);
            if !stays {
                member.rest(true);
            }
            stays
        });
        for placed in &snapshot.endpoints {
            let resting = placed.endpoint.is_draining();
            let id = placed.endpoint.id.clone();
            let known = self.members.get(&id).map(|(_, resting)| *resting);
            if known.unwrap_or(false) != resting {
                placed.member.rest(resting);
            }
            let member = Arc::clone(&placed.member);
            self.members.insert(id, (member, resting));
        }
    }
}

fn concerns(received: &Received) -> bool {
    match received {
        Received::Lost(_) => true,
        Received::Event(event) => matches!(
            event.kind,
            EventKind::Drained { .. }
                | EventKind::Undrained { .. }
                | EventKind::Added { .. }
                | EventKind::Removed { .. }
        ),
    }
}
