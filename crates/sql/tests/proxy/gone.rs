//! What is left of a source that is closed, or that nobody holds any more.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, EndpointSpec, Policy, Preset, Role};
use mainstay_sql::{DataProxy, Database, Dialect, Options, Plain, Verbs};
use mainstay_testkit::scripted::ScriptedDriver;

/// Longer than a sweep of a pool and a round of health checks.
const A_WHILE: Duration = Duration::from_secs(12);

/// A source with two endpoints of one driver whose health is checked.
fn source(driver: &ScriptedDriver, tasks: &Tasks) -> DataProxy {
    let policy = Policy::new(Preset::Balanced.settings()).unwrap();
    let member = || -> Arc<dyn Database> {
        let (driver, chance) = (Arc::new(driver.clone()), Chance::seeded(1));
        Arc::new(Plain::new(driver, &policy, tasks.clone(), chance))
    };
    DataProxy::builder("s", Arc::clone(&policy))
        .tasks(tasks.clone())
        .endpoint(EndpointSpec::new("a", member()).role(Role::Primary))
        .endpoint(EndpointSpec::new("b", member()).role(Role::Replica))
        .build()
        .unwrap()
}

async fn pause() {
    tokio::time::sleep(A_WHILE).await;
}

#[tokio::test(start_paused = true)]
async fn twenty_sources_that_came_and_were_closed_leave_no_task_and_no_connection() {
    let (driver, tasks) = (ScriptedDriver::new(Dialect::Postgres), Tasks::new());
    let stays = source(&driver, &tasks);
    pause().await;
    let before = (tasks.running(), driver.sessions().len());
    for _ in 0..20 {
        let comes = source(&driver, &tasks);
        pause().await;
        let read = comes.query("SELECT 1", vec![], Options::default());
        read.await.unwrap();
        // A copy that somebody forgot keeps nothing going.
        comes.clone().close(Duration::from_secs(1)).await;
        pause().await;
        assert_eq!((tasks.running(), driver.sessions().len()), before);
    }
    drop(stays);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_made_and_dropped_unused_leaves_no_task_and_no_connection() {
    let (driver, tasks) = (ScriptedDriver::new(Dialect::Postgres), Tasks::new());
    drop(source(&driver, &tasks));
    pause().await;
    assert_eq!((tasks.running(), driver.sessions().len()), (0, 0));
    // Dropped after its health was checked.
    let checked = source(&driver, &tasks);
    pause().await;
    assert!(!driver.sessions().is_empty());
    drop(checked);
    pause().await;
    assert_eq!((tasks.running(), driver.sessions().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_closed_endpoint_opens_no_connection_to_be_checked() {
    let (driver, tasks) = (ScriptedDriver::new(Dialect::Postgres), Tasks::new());
    let proxy = source(&driver, &tasks);
    let member = Arc::clone(&proxy.source().snapshot().endpoints[0].member);
    proxy.close(Duration::ZERO).await;
    member.probe().await.unwrap_err();
    assert!(driver.sessions().is_empty());
}
