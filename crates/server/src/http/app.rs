//! What all requests share, and the way of each through it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use mainstay_config::ServerSettings;
use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, CorrelationId};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::caller::Caller;
use super::keys::{self, Rates};
use super::openapi::openapi;
use super::tls::Tls;
use crate::assembly::{Served, ServedService, Services, Sources};
use crate::keyring::Keyring;
use crate::layers::Layers;
use crate::problem::Problem;
use crate::transactions::Transactions;

/// How often forgotten transactions are looked for.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// Everything that requests share.
pub(crate) struct App {
    layers: Layers,
    sources: ArcSwap<Sources>,
    services: Services,
    /// Rises with each exchange of a source.
    changed: watch::Sender<u64>,
    transactions: Transactions,
    chance: Chance,
    tasks: Tasks,
    stopping: CancellationToken,
    counts: Counts,
    rates: Rates,
    keyring: Keyring,
    /// `None`: plain HTTP.
    tls: Option<Arc<Tls>>,
    /// What `/openapi.json` gives.
    document: Bytes,
    started: Instant,
}

/// What the surface itself counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Answers by the first digit of their status, 1 to 5.
    answers: [AtomicU64; 5],
    panics: AtomicU64,
    refused_connections: AtomicU64,
    evicted_connections: AtomicU64,
}

impl Counts {
    pub(super) fn count_refused_connection(&self) {
        self.refused_connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_evicted_connection(&self) {
        self.evicted_connections.fetch_add(1, Ordering::Relaxed);
    }

    fn count_answer(&self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(count) = self.answers.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Answers by class: `("2xx", count)`.
    pub(super) fn answers(&self) -> [(&'static str, u64); 5] {
        const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        std::array::from_fn(|class| (CLASSES[class], self.answers[class].load(Ordering::Relaxed)))
    }

    /// Requests that panicked.
    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Connections that made room for another one.
    pub(super) fn evicted_connections(&self) -> u64 {
        self.evicted_connections.load(Ordering::Relaxed)
    }

    /// Connections over the limit.
    pub(super) fn refused_connections(&self) -> u64 {
        self.refused_connections.load(Ordering::Relaxed)
    }
}

impl App {
    pub(super) fn new(
        layers: Layers,
        keyring: Keyring,
        (sources, services): (Sources, Services),
        chance: Chance,
        tasks: Tasks,
    ) -> Self {
        App {
            keyring,
            layers,
            sources: ArcSwap::from_pointee(sources),
            services,
            changed: watch::Sender::new(0),
            transactions: Transactions::default(),
            chance,
            tasks,
            stopping: CancellationToken::new(),
            counts: Counts::default(),
            rates: Rates::default(),
            tls: None,
            document: openapi().to_string().into(),
            started: Instant::now(),
        }
    }

    /// With a certificate, or without.
    pub(super) fn with_tls(self, tls: Option<Arc<Tls>>) -> Self {
        App { tls, ..self }
    }

    /// The keys that were made over HTTP.
    pub(super) fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// Whether callers have keys.
    pub(super) fn asks_for_keys(&self) -> bool {
        !self.settings().keys.is_empty() || !self.keyring.keys().is_empty()
    }

    /// Forgets what a key has left: its rate, and transactions that another one of its name must not find.
    pub(super) fn forget_key(&self, id: &str) {
        self.rates.forget(id);
        self.transactions.end_of(id);
    }

    /// The encryption of the listener.
    pub(super) fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    pub(crate) fn layers(&self) -> &Layers {
        &self.layers
    }

    pub(crate) fn settings(&self) -> Arc<ServerSettings> {
        self.layers.server_settings()
    }

    pub(crate) fn sources(&self) -> Arc<Sources> {
        self.sources.load_full()
    }

    /// The message services.
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// The message service of that name.
    pub(super) fn service(&self, name: &str) -> Result<Arc<ServedService>, Problem> {
        if let Some(served) = self.services.get(name) {
            return Ok(Arc::clone(served));
        }
        let known: Vec<_> = self
            .services
            .iter()
            .map(|(name, _)| name.as_str())
            .take(20)
            .collect();
        Err(Problem::new(
            "unknown_service",
            format!("there is no message service {name:?}"),
            match known.is_empty() {
                true => "none is configured; write [services.NAME]".to_owned(),
                false => format!("services: {}", known.join(", ")),
            },
        ))
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Puts other sources in the place of the present ones.
    pub(super) fn exchange(&self, sources: Sources) {
        self.sources.store(Arc::new(sources));
        self.changed.send_modify(|version| *version += 1);
    }

    /// Tells of every exchange of sources.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The source of that name.
    pub(super) fn source(&self, name: &str) -> Result<Arc<Served>, Problem> {
        let sources = self.sources.load();
        if let Some(served) = sources.get(name) {
            return Ok(Arc::clone(served));
        }
        let known: Vec<&str> = sources
            .iter()
            .map(|served| &**served.name())
            .take(20)
            .collect();
        Err(Problem::new(
            "unknown_source",
            format!("there is no source {name:?}"),
            format!("sources: {}", known.join(", ")),
        ))
    }

    pub(crate) fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// Begins to end: no new connections, open ones finish their request.
    pub(super) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The description of every route, in JSON.
    pub(super) fn document(&self) -> Bytes {
        self.document.clone()
    }

    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ends transactions that nobody continues, until it is dropped.
    pub(super) async fn sweep_transactions(app: Arc<App>) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            app.transactions.sweep(Instant::now());
        }
    }

    /// The way of every request: who calls, the route's work, and one place where problems are written
    /// down. A panic ends this request alone.
    pub(super) async fn answer(&self, mut router: Router, mut request: Request<Body>) -> Response {
        let (id, trace) = Caller::id(request.headers(), &self.chance);
        let settings = self.settings();
        let demand = keys::demand(request.method(), request.uri().path());
        let made = self.keyring.keys();
        let headers = request.headers();
        let admitted = keys::admit(&settings.keys, &made, &self.rates, headers, demand);
        drop(settings);
        let read = |holder| Caller::read(request.headers(), id, holder);
        let response = match admitted.and_then(read) {
            Err(problem) => problem.into_response(),
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                let work = AssertUnwindSafe(router.call(request)).catch_unwind();
                match work.await {
                    Ok(Ok(response)) => response,
                    Ok(Err(never)) => match never {},
                    Err(_) => {
                        self.counts.panics.fetch_add(1, Ordering::Relaxed);
                        tracing::error!(correlation_id = %id, "a request panicked");
                        Problem::internal().into_response()
                    }
                }
            }
        };
        let mut response = self.finish(response, id);
        trace.write(response.headers_mut());
        response
    }

    /// The whole answer of a problem that is found before there is a request.
    pub(super) fn refuse_early(&self, problem: Problem) -> Vec<u8> {
        let id = CorrelationId::draw(&self.chance);
        let (status, bytes) = problem.alone(id);
        self.counts.count_answer(status);
        tracing::debug!(correlation_id = %id, status, "refused before there was a request");
        bytes
    }

    fn finish(&self, mut response: Response, id: CorrelationId) -> Response {
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            // What a route that does not take a method does take.
            let allow = response.headers_mut().remove(header::ALLOW);
            response = problem.render(id);
            if let Some(allow) = allow {
                response.headers_mut().insert(header::ALLOW, allow);
            }
        }
        self.counts.count_answer(response.status().as_u16());
        if let Ok(id) = HeaderValue::try_from(id.to_string()) {
            response.headers_mut().insert("x-correlation-id", id);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use mainstay_config::{Input, LoadOptions};

    use super::*;
    use crate::assembly::Assembly;

    async fn app(folder: &std::path::Path) -> App {
        let text = format!(
            "[server]\ndata_dir = '{0}'\n[sources.s]\ndriver = 'sqlite'\npath = '{0}/s.db'\n\
             [sources.s.endpoints.a]\n",
            folder.display()
        );
        let name = "test.toml".to_owned();
        let options = LoadOptions {
            files: vec![Input::Text { name, text }],
            ..LoadOptions::default()
        };
        let (layers, _) = Layers::load(options).await.unwrap();
        let (tasks, chance) = (Tasks::new(), Chance::seeded(1));
        let sources = Assembly::build(&layers.configuration(), &tasks, &chance).unwrap();
        let keyring = Keyring::read(folder).unwrap();
        App::new(
            layers,
            keyring,
            (sources, Services::default()),
            chance,
            tasks,
        )
    }

    #[tokio::test]
    async fn a_request_that_panics_is_answered_counted_and_the_next_one_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let app = app(folder.path()).await;
        let breaks = || async {
            std::panic::resume_unwind(Box::new("as told"));
            #[allow(unreachable_code, reason = "the type of the answer")]
            ""
        };
        let router = Router::new()
            .route("/break", get(breaks))
            .route("/fine", get(|| async { "" }));
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            app.answer(router.clone(), request).await
        };
        let broken = ask("/break").await;
        assert_eq!(broken.status(), 500);
        assert_eq!(broken.headers()["content-type"], "application/problem+json");
        assert!(broken.headers().contains_key("x-correlation-id"));
        assert_eq!(app.counts().panics(), 1);
        assert_eq!(ask("/fine").await.status(), 200);
        app.sources().close(Duration::ZERO).await;
    }
}
