//! How the engine's prober asks an SQL endpoint.

use std::future::Future;
use std::pin::Pin;

use mainstay_engine::Failure;
use mainstay_engine::prober::Probe;
use mainstay_engine::watchdog::Says;

use super::Member;
use crate::database::Position;

pub(super) struct Prober;

impl Probe<Member> for Prober {
    fn probe<'a>(
        &'a self,
        member: &'a Member,
    ) -> Pin<Box<dyn Future<Output = Result<Says, Failure>> + Send + 'a>> {
        Box::pin(async move {
            let probe = member
                .probe()
                .await
                .map_err(|error| error.failure().clone())?;
            Ok(Says {
                is_primary: probe.is_primary,
                position: probe.position.and_then(number),
                received: probe.received.and_then(number),
                system: probe.system,
                timeline: probe.timeline,
                lacks_sync_standby: probe.lacks_sync_standby,
                // A PostgreSQL server that is not in recovery replays nothing.
                stands_alone: probe.is_primary == Some(true)
                    && matches!(probe.position, Some(Position::Lsn(_))),
            })
        })
    }
}

/// A position as the engine compares it; endpoints of one store have none.
pub(super) fn number(position: Position) -> Option<u64> {
    match position {
        Position::Lsn(number) | Position::Gtid(number) => Some(number),
        Position::Shared => None,
    }
}
