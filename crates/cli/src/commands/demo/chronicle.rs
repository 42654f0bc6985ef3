//! What happened, in words.

use std::collections::BTreeMap;
use std::time::Duration;

use mainstay_engine::event::Observer;
use mainstay_engine::{Event, EventKind, Role};
use parking_lot::Mutex;
use tokio::time::Instant;

/// More lines nobody reads; what is left out is still counted.
const LINES_MAX: usize = 40;

/// Everything that happened since the start. An observer of the source.
#[derive(Debug)]
pub(super) struct Chronicle {
    started: Instant,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    lines: Vec<(Duration, String)>,
    counts: BTreeMap<&'static str, u64>,
    promoted: Option<String>,
    /// A failover of each pair is told once, until the primary changes.
    failovers: Vec<String>,
}

impl Chronicle {
    /// Nothing has happened.
    pub(super) fn new(started: Instant) -> Self {
        Chronicle {
            started,
            told: Mutex::default(),
        }
    }

    /// When it began.
    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// What the demo itself does.
    pub(super) fn note(&self, line: String) {
        let at = self.started.elapsed();
        self.told.lock().tell(at, line);
    }

    /// The lines so far with their moments.
    pub(super) fn lines(&self) -> Vec<(Duration, String)> {
        self.told.lock().lines.clone()
    }

    /// Who was promoted last.
    pub(super) fn promoted(&self) -> Option<String> {
        self.told.lock().promoted.clone()
    }

    /// Events by kind, in words.
    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        let told = self.told.lock();
        told.counts
            .iter()
            .map(|(kind, count)| (*kind, *count))
            .collect()
    }
}

impl Told {
    fn tell(&mut self, at: Duration, line: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push((at, line));
        }
    }
}

impl Observer for Chronicle {
    fn observe(&self, event: &Event) {
        let at = self.started.elapsed();
        let mut told = self.told.lock();
        let Some(kind) = kind(&event.kind) else {
            return;
        };
        *told.counts.entry(kind).or_default() += 1;
        match &event.kind {
            EventKind::RolePromoted { endpoint, .. } => {
                told.promoted = Some(endpoint.to_string());
                told.failovers.clear();
            }
            EventKind::Failover { from, .. } => {
                let from = from.to_string();
                if told.failovers.contains(&from) {
                    return;
                }
                told.failovers.push(from);
            }
            _ => {}
        }
        if let Some(line) = line(&event.kind) {
            told.tell(at, line);
        }
    }
}

/// What a kind of event is called when it is counted; `None`: it is not.
fn kind(event: &EventKind) -> Option<&'static str> {
    Some(match event {
        EventKind::Failover { .. } => "failovers",
        EventKind::Retry { .. } => "retries",
        EventKind::BudgetSpent { .. } => "retry budget spent",
        EventKind::Circuit { .. } => "circuit changes",
        EventKind::Down { .. } => "endpoints down",
        EventKind::Healthy { .. } => "endpoints healthy",
        EventKind::Recovered { .. } => "endpoints recovered",
        EventKind::RolePromoted { .. } => "promotions",
        EventKind::RoleDemoted { .. } => "demotions",
        EventKind::NoPrimary => "no primary",
        EventKind::LastResort { .. } => "last resorts",
        _ => return None,
    })
}

fn line(event: &EventKind) -> Option<String> {
    Some(match event {
        EventKind::Failover { from, reason } => {
            format!("a call goes on elsewhere after {from}: {reason}")
        }
        EventKind::Circuit {
            endpoint,
            to,
            reason,
            ..
        } => format!("the circuit of {endpoint} is {to}: {reason}").replace('_', " "),
        EventKind::Down { endpoint, reason } => format!("{endpoint} is down: {reason}"),
        EventKind::Healthy { endpoint } => format!("{endpoint} gets reads again"),
        EventKind::Recovered { endpoint } => format!("{endpoint} is back for good"),
        EventKind::RolePromoted {
            endpoint, reason, ..
        } => {
            format!("{endpoint} is promoted: {reason}")
        }
        EventKind::RoleDemoted {
            endpoint,
            from: Role::Primary,
            ..
        } => {
            format!("{endpoint} is primary no more")
        }
        EventKind::NoPrimary => "there is no primary: writes wait".to_owned(),
        _ => return None,
    })
}
