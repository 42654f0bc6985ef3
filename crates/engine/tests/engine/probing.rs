//! What health checks bring back, and how soon, on a paused clock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use mainstay_engine::policy::Settings;
use mainstay_engine::prober::Probe;
use mainstay_engine::watchdog::{Promotion, Says};
use mainstay_engine::{
    Attempt, Category, EndpointSpec, Failure, Operation, Policy, Preset, Role, Source,
};
use tokio::time::{Instant, sleep};

use crate::classify;

/// A server that is there or not.
#[derive(Clone)]
struct Server {
    up: Arc<AtomicBool>,
    checks: Arc<AtomicU32>,
}

impl Server {
    fn new() -> Self {
        Server {
            up: Arc::new(AtomicBool::new(true)),
            checks: Arc::default(),
        }
    }

    fn answer(&self) -> Result<(), Failure> {
        match self.up.load(Ordering::SeqCst) {
            true => Ok(()),
            false => Err(Failure::new(
                Category::Transient,
                "connection refused: password=hunter2",
            )),
        }
    }
}

struct Ask;

impl Probe<Server> for Ask {
    fn probe<'a>(
        &'a self,
        server: &'a Server,
    ) -> Pin<Box<dyn Future<Output = Result<Says, Failure>> + Send + 'a>> {
        server.checks.fetch_add(1, Ordering::SeqCst);
        let says = Says {
            is_primary: Some(true),
            ..Says::default()
        };
        let answer = server.answer().map(|()| says);
        Box::pin(async move { answer })
    }
}

async fn write(source: &Source<Server>) -> bool {
    let work = |attempt: Attempt<Server>| async move { attempt.member.answer() };
    let operation = Operation::write("insert");
    source.call(&operation, &classify, work).await.is_ok()
}

fn source(server: &Server, settings: Settings) -> Source<Server> {
    let spec = EndpointSpec::new("a", server.clone()).role(Role::Replica);
    let source = Source::builder("orders", Policy::new(settings).unwrap())
        .endpoint(spec)
        .build()
        .unwrap();
    source.watch(Arc::new(Ask), Promotion::Follow);
    source
}

/// How long writes fail after the server is back, when it was away for so long.
async fn cost(away: Duration) -> Duration {
    let server = Server::new();
    let source = source(&server, Preset::Balanced.settings());
    sleep(Duration::from_secs(12)).await;
    assert!(write(&source).await);
    server.up.store(false, Ordering::SeqCst);
    let gone = Instant::now();
    // At once, before the checks find out.
    let failed = futures_util::future::join_all((0..6).map(|_| write(&source))).await;
    assert_eq!(failed, [false; 6]);
    while gone.elapsed() < away {
        assert!(!write(&source).await);
        sleep(Duration::from_millis(20)).await;
    }
    let opened = source.status()[0].stats.circuit_opened;
    assert_eq!(opened, 1, "the circuit opened");
    server.up.store(true, Ordering::SeqCst);
    let back = Instant::now();
    // Two trials close the circuit.
    while !(write(&source).await && write(&source).await) {
        sleep(Duration::from_millis(5)).await;
        assert!(back.elapsed() < Duration::from_secs(30));
    }
    assert_eq!(source.status()[0].circuit, "closed");
    back.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_back_is_used_again_after_two_quick_checks() {
    for seconds in [3, 10, 30, 50] {
        let cost = cost(Duration::from_secs(seconds)).await;
        assert!(cost < Duration::from_secs(1), "{seconds} s away: {cost:?}");
    }
    // After a minute the checks are as rare as usual, and the second still comes soon.
    let cost = cost(Duration::from_secs(100)).await;
    assert!(cost < Duration::from_millis(5_600), "{cost:?}");
}

#[tokio::test(start_paused = true)]
async fn quick_checks_end_even_if_the_circuit_stays_open() {
    let server = Server::new();
    let mut settings = Preset::Balanced.settings();
    settings.circuit.failures = 1;
    let source = source(&server, settings);
    server.up.store(false, Ordering::SeqCst);
    sleep(Duration::from_secs(12)).await;
    // A back end that asks for patience keeps the circuit open whatever the checks say.
    let mut failure = Failure::new(Category::Saturation, "come back later");
    failure.retry_after = Some(Duration::from_secs(300));
    let id = source.snapshot().endpoints[0].endpoint.id.clone();
    source.blame(&id, &failure);
    server.up.store(true, Ordering::SeqCst);
    sleep(Duration::from_secs(10)).await;
    let before = server.checks.load(Ordering::SeqCst);
    sleep(Duration::from_secs(50)).await;
    let checks = server.checks.load(Ordering::SeqCst) - before;
    assert_eq!(source.status()[0].circuit, "open");
    assert!((9..=11).contains(&checks), "{checks} checks in 50 s");
}

/// Reads until `name` has answered, and says how long that took.
async fn until_read_from(source: &Source<Server>, name: &str) -> Duration {
    let began = Instant::now();
    let operation = Operation::read("find");
    let work = |attempt: Attempt<Server>| async move {
        sleep(Duration::from_millis(1)).await;
        attempt
            .member
            .answer()
            .map(|()| attempt.endpoint.to_string())
    };
    while source.call(&operation, &classify, work).await.unwrap() != name {
        assert!(began.elapsed() < Duration::from_secs(300));
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_failed_often_at_once_gets_reads_again_when_it_is_healthy() {
    for failures in [6, 50] {
        let (a, b) = (Server::new(), Server::new());
        let source = source(&a, Preset::Balanced.settings());
        let spec = EndpointSpec::new("b", b.clone()).role(Role::Replica);
        source.add_endpoint(spec).unwrap();
        sleep(Duration::from_secs(6)).await;
        for name in ["a", "b", "a", "b"] {
            until_read_from(&source, name).await;
        }
        b.up.store(false, Ordering::SeqCst);
        let work = |attempt: Attempt<Server>| async move {
            // All of them are under way when the server goes.
            sleep(Duration::from_millis(500)).await;
            attempt.member.answer()
        };
        let operation = Operation::read("find");
        let calls = (0..failures * 2).map(|_| source.call(&operation, &classify, work));
        let answered = futures_util::future::join_all(calls).await;
        assert!(answered.iter().all(Result::is_ok));
        assert_eq!(source.status()[1].circuit, "open");
        sleep(Duration::from_secs(12)).await;
        assert_eq!(source.status()[1].health, "down");
        b.up.store(true, Ordering::SeqCst);
        while source.status()[1].health != "up" {
            sleep(Duration::from_millis(100)).await;
        }
        let taken = until_read_from(&source, "b").await;
        assert!(
            taken < Duration::from_secs(1),
            "{failures} failures: {taken:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_good_check_makes_an_unknown_endpoint_healthy_whatever_the_thresholds() {
    for (healthy_after, up_after) in [(2, 3), (2, 2), (1, 1), (3, 2)] {
        let server = Server::new();
        let mut settings = Preset::Balanced.settings();
        settings.health.healthy_after = healthy_after;
        settings.health.up_after = up_after;
        let source = source(&server, settings);
        assert_eq!(source.status()[0].health, "unknown");
        sleep(Duration::from_secs(1)).await;
        assert_eq!(source.status()[0].health, "up");
        server.up.store(false, Ordering::SeqCst);
        sleep(Duration::from_secs(12)).await;
        assert_eq!(source.status()[0].health, "down");
        server.up.store(true, Ordering::SeqCst);
        sleep(Duration::from_secs(12)).await;
        let health = source.status()[0].health;
        assert_eq!(health, "up", "{healthy_after} {up_after}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_down_tells_why_without_secrets_until_a_check_is_good() {
    let server = Server::new();
    server.up.store(false, Ordering::SeqCst);
    let source = source(&server, Preset::Balanced.settings());
    let status = || source.status().remove(0);
    while status().health != "down" {
        sleep(Duration::from_millis(100)).await;
    }
    let why = status().check_error.unwrap();
    assert_eq!(&*why, "connection refused: password=***");
    server.up.store(true, Ordering::SeqCst);
    while status().health != "up" {
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(status().check_error, None);
}
