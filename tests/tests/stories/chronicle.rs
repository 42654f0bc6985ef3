//! What a source's observers saw, in order, for a story to look back on or to wait for.

use std::sync::Arc;
use std::time::Duration;

use mainstay::{DataProxy, Event, EventKind};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Events of one source from the moment it was begun.
#[derive(Clone, Default)]
pub(crate) struct Chronicle {
    pages: Arc<Pages>,
}

#[derive(Default)]
struct Pages {
    events: Mutex<Vec<(Instant, EventKind)>>,
    written: Notify,
}

impl Chronicle {
    /// Begins to write down what happens to a source; ends of calls are left out.
    pub(crate) fn of(proxy: &DataProxy) -> Self {
        let chronicle = Chronicle::default();
        let pages = Arc::clone(&chronicle.pages);
        let observer = move |event: &Event| {
            if !matches!(event.kind, EventKind::CallEnded { .. }) {
                pages
                    .events
                    .lock()
                    .push((Instant::now(), event.kind.clone()));
                pages.written.notify_waiters();
            }
        };
        proxy.source().observe(Arc::new(observer));
        chronicle
    }

    /// Moments of the events that fit.
    pub(crate) fn moments(&self, fits: impl Fn(&EventKind) -> bool) -> Vec<Instant> {
        let events = self.pages.events.lock();
        let fitting = events.iter().filter(|(_, kind)| fits(kind));
        fitting.map(|(when, _)| *when).collect()
    }

    /// Waits for an event that fits and came after `moment`, and says when it came.
    pub(crate) async fn wait(
        &self,
        what: &str,
        moment: Instant,
        limit: Duration,
        fits: impl Fn(&EventKind) -> bool,
    ) -> Instant {
        let search = async {
            loop {
                let written = self.pages.written.notified();
                tokio::pin!(written);
                written.as_mut().enable();
                let found = self.moments(&fits).into_iter().find(|when| *when > moment);
                if let Some(when) = found {
                    return when;
                }
                written.await;
            }
        };
        match tokio::time::timeout(limit, search).await {
            Ok(when) => when,
            Err(_) => panic!("not within {limit:?}: {what}; {}", self.text()),
        }
    }

    /// Everything, for a failing assertion.
    pub(crate) fn text(&self) -> String {
        let events = self.pages.events.lock();
        let lines: Vec<String> = events
            .iter()
            .map(|(when, kind)| format!("{:?} ago: {kind:?}", when.elapsed()))
            .collect();
        lines.join("\n")
    }
}

/// Whether a circuit went to this state.
pub(crate) fn circuit_to(event: &EventKind, name: &str, state: &str) -> bool {
    matches!(event, EventKind::Circuit { endpoint, to, .. }
        if endpoint.as_str() == name && *to == state)
}

/// Whether an endpoint left for failing its health checks.
pub(crate) fn is_down(event: &EventKind, name: &str) -> bool {
    matches!(event, EventKind::Down { endpoint, .. } if endpoint.as_str() == name)
}

/// Whether an endpoint gets reads again.
pub(crate) fn is_healthy(event: &EventKind, name: &str) -> bool {
    matches!(event, EventKind::Healthy { endpoint } if endpoint.as_str() == name)
}

/// Whether an endpoint became primary.
pub(crate) fn is_promoted(event: &EventKind, name: &str) -> bool {
    matches!(event, EventKind::RolePromoted { endpoint, .. } if endpoint.as_str() == name)
}

/// Whether the long forms of the stories are asked for (`MAINSTAY_LONG=1`).
pub(crate) fn is_long() -> bool {
    std::env::var("MAINSTAY_LONG").is_ok_and(|value| value == "1")
}
