//! `GET /v1/events`: what happens in all sources, as server-sent events. A reader that is too slow loses
//! the oldest and is told how many; nothing waits for it.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, SelectAll, Stream, StreamExt};
use mainstay_engine::event::{Event, EventStream, Received};
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::assembly::Served;
use crate::http::app::App;
use crate::http::body::Params;
use crate::http::caller::Caller;
use crate::problem::Problem;

/// A comment after so long without an event, so that proxies in between keep the connection.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EventParams {
    /// Only this source.
    source: Option<String>,
    /// With an event for each call that ends.
    calls: bool,
}

type Part = Pin<Box<dyn Stream<Item = (Arc<str>, Received)> + Send>>;

/// One reader.
struct Reading {
    app: Arc<App>,
    params: EventParams,
    /// By address, since a source that was exchanged keeps its name.
    followed: HashSet<usize>,
    parts: SelectAll<Part>,
    changes: watch::Receiver<u64>,
    stopping: CancellationToken,
}

pub(super) async fn events(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(params): Params<EventParams>,
) -> Result<Response, Problem> {
    caller.holder.check_scope(params.source.as_deref())?;
    if let Some(name) = &params.source {
        // A message service has events as well.
        if app.services().get(name).is_none() {
            app.source(name)?;
        }
    }
    let mut reading = Reading {
        params,
        followed: HashSet::new(),
        parts: SelectAll::new(),
        changes: app.changes(),
        stopping: app.stopping().clone(),
        app,
    };
    reading.follow_new();
    // At once, so that a reader knows that it misses nothing from here on.
    let hello = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(
        b": listening\n\n",
    ))]);
    let texts = stream::unfold(reading, |mut reading| async move {
        let text = reading.next().await?;
        Some((Ok(Bytes::from(text)), reading))
    });
    let mut response = Response::new(Body::from_stream(hello.chain(texts)));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

impl Reading {
    /// Subscribes to sources that are not followed yet.
    fn follow_new(&mut self) {
        self.follow_services();
        let sources = self.app.sources();
        let wanted = |served: &&Arc<Served>| {
            let only = self.params.source.as_deref();
            only.is_none_or(|only| only == &**served.name())
        };
        for served in sources.iter().filter(wanted) {
            if self.followed.insert(Arc::as_ptr(served) as usize) {
                let source = served.proxy().source();
                let events = match self.params.calls {
                    true => source.events_with_calls(),
                    false => source.events(),
                };
                self.parts.push(part(Arc::clone(served.name()), events));
            }
        }
    }

    /// Subscribes to message services, each of which has a source of the engine behind it.
    fn follow_services(&mut self) {
        for (name, served) in self.app.services().iter() {
            let only = self.params.source.as_deref();
            let wanted = only.is_none_or(|only| only == name);
            if wanted && self.followed.insert(Arc::as_ptr(served) as usize) {
                let source = served.service().source();
                let events = match self.params.calls {
                    true => source.events_with_calls(),
                    false => source.events(),
                };
                self.parts.push(part(Arc::from(name.as_str()), events));
            }
        }
    }

    /// The next piece of text; `None`: the server ends.
    async fn next(&mut self) -> Option<String> {
        loop {
            let received = tokio::select! {
                biased;
                () = self.stopping.cancelled() => return None,
                changed = self.changes.changed() => {
                    changed.ok()?;
                    self.follow_new();
                    continue;
                }
                received = self.parts.next(), if !self.parts.is_empty() => received,
                () = tokio::time::sleep(SIGN_OF_LIFE) => return Some(": alive\n\n".to_owned()),
            };
            match received {
                Some((_, Received::Event(event))) => return Some(text(&event)),
                Some((source, Received::Lost(count))) => return Some(lost(&source, count)),
                None => {}
            }
        }
    }
}

fn part(source: Arc<str>, events: EventStream) -> Part {
    Box::pin(stream::unfold(
        (source, events),
        |(source, mut events)| async move {
            let received = events.next().await?;
            Some(((Arc::clone(&source), received), (source, events)))
        },
    ))
}

fn text(event: &Event) -> String {
    let data = serde_json::to_value(event).unwrap_or_default();
    let kind = data
        .get("event")
        .and_then(|kind| kind.as_str())
        .unwrap_or("event");
    format!(
        "id: {}/{}\nevent: {kind}\ndata: {data}\n\n",
        one_line(&event.source),
        event.number
    )
}

fn lost(source: &str, count: u64) -> String {
    let data = serde_json::json!({"source": source, "lost": count});
    format!("event: lost\ndata: {data}\n\n")
}

/// The name of a source as part of a line.
fn one_line(name: &str) -> String {
    name.replace(['\n', '\r', '\0'], " ")
}
