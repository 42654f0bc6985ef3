//! What a source says about itself where it stands behind another source's endpoint: whether it works, and
//! how far it has come.

use futures_util::future::join_all;
use mainstay_engine::endpoint::{Fitness, Placed};
use mainstay_engine::event::Role;

use super::probe::number;
use super::{DataProxy, Member};
use crate::database::{Position, Probe};
use crate::error::{Code, SqlError};

impl DataProxy {
    /// Up while one of its endpoints is, with the position that a session would find here.
    pub(super) async fn probe_members(&self) -> Result<Probe, SqlError> {
        let snapshot = self.source().snapshot();
        let is_up = |placed: &Placed<Member>| placed.endpoint.fitness() != Fitness::Down;
        if !snapshot.endpoints.iter().any(is_up) {
            return Err(SqlError::caller(
                Code::NoEndpoint,
                "every endpoint of the source behind this endpoint is down",
                "see that source's status",
            ));
        }
        // A busy pool must not look like a source that is down: then the position is not known.
        let limit = snapshot.policy.health.timeout / 2;
        let asked = tokio::time::timeout(limit, self.ask_position()).await;
        Ok(Probe {
            is_primary: snapshot.has_roles().then(|| snapshot.primary().is_some()),
            position: asked.ok().and_then(Result::ok).flatten(),
            ..Probe::default()
        })
    }

    /// How far the source has come: its primary or only member; without one the foremost of its
    /// replicas, for a read that must have seen so much goes there. Several equal members have no common
    /// position, unless they share one store.
    pub(super) async fn ask_position(&self) -> Result<Option<Position>, SqlError> {
        let snapshot = self.source().snapshot();
        if let Some(primary) = snapshot.primary() {
            return primary.member.position().await;
        }
        let of_role = |role: Role| {
            let placed = snapshot.endpoints.iter();
            placed.filter(move |placed| placed.role == role)
        };
        let mut members = of_role(Role::Member);
        if let Some(first) = members.next() {
            let position = first.member.position().await?;
            let is_common = members.next().is_none() || position == Some(Position::Shared);
            return Ok(position.filter(|_| is_common));
        }
        let replicas = of_role(Role::Replica);
        let replicas = replicas.filter(|placed| placed.endpoint.fitness() != Fitness::Down);
        let asked = join_all(replicas.map(|placed| async move {
            let position = placed.member.position().await.ok().flatten();
            if let Some(number) = position.and_then(number) {
                placed.endpoint.note_position(number);
            }
            position
        }));
        let known = asked.await.into_iter().flatten();
        Ok(known.max_by_key(|position| number(*position)))
    }
}
