//! The only primary is restarted: callers pay for the time it is away and hardly more.

use std::time::Duration;

use mainstay::Preset;
use mainstay::policy::Settings;
use mainstay::tasks::Tasks;
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use tokio::time::{Instant, sleep};

use super::chronicle::{Chronicle, circuit_to, is_long};
use super::world::{self, Load};

/// What a restart costs beyond the time at which the server takes connections again.
const BEYOND_MAX: Duration = Duration::from_secs(2);

fn away() -> Duration {
    Duration::from_secs(if is_long() { 10 } else { 3 })
}

async fn server() -> PostgresServer {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    server
        .sql(
            "CREATE TABLE marks (id bigint NOT NULL);
             CREATE TABLE fixed (id bigint PRIMARY KEY, v text NOT NULL);
             INSERT INTO fixed VALUES (1, 'one')",
        )
        .await
        .unwrap();
    server
}

fn settings() -> Settings {
    let settings = Preset::Balanced.settings();
    assert_eq!(settings.circuit.open_for, Duration::from_secs(300));
    settings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_only_primary_costs_the_restart_and_not_the_time_of_the_circuit() {
    let server = server().await;
    let tasks = Tasks::new();
    let proxy = world::source(&[server.port()], settings(), &tasks, |_: &_| {});
    let chronicle = Chronicle::of(&proxy);
    world::wait_for_primary(&proxy).await;
    let load = Load::start(&proxy, 5, 5);
    sleep(Duration::from_millis(500)).await;

    let stopped = Instant::now();
    server.stop_fast().await.unwrap();
    sleep(away().saturating_sub(stopped.elapsed())).await;
    server.start_again().await.unwrap();
    let back = Instant::now();
    let opened = |event: &_| circuit_to(event, "a", "open");
    let closed = |event: &_| circuit_to(event, "a", "closed");
    assert!(
        !chronicle.moments(opened).is_empty(),
        "the story needs an open circuit: {}",
        chronicle.text()
    );
    let closed = chronicle
        .wait("the circuit closes", back, BEYOND_MAX, closed)
        .await;
    sleep(BEYOND_MAX.saturating_sub(back.elapsed())).await;

    let books = load.stop().await;
    let resumed = books
        .first_after(back)
        .expect("writes are back within two seconds");
    println!(
        "the server was away for {:?}; writes were back {:?} later, the circuit was closed {:?} later",
        back - stopped,
        resumed - back,
        closed - back
    );
    assert!(resumed - back <= BEYOND_MAX);
    assert!(
        books
            .read_after(back)
            .is_some_and(|read| read - back <= BEYOND_MAX),
        "reads are back as well"
    );
    let stored = world::stored(&server).await;
    world::check_fates(&books, &stored);
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}
