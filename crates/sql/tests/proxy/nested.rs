//! Sessions read their own writes where sources stand behind sources.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, EndpointSpec, Policy, Preset, Role};
use mainstay_sql::{Code, DataProxy, Database, Dialect, Options, Plain, Position, Verbs};
use mainstay_testkit::scripted::ScriptedDriver;

fn policy() -> Arc<Policy> {
    let mut settings = Preset::Balanced.settings();
    settings.health.enabled = false;
    settings.route.lag_max = None;
    Policy::new(settings).unwrap()
}

fn source(name: &str, members: &[(&str, Arc<dyn Database>, Role)]) -> DataProxy {
    let mut builder = DataProxy::builder(name, policy()).chance(Chance::seeded(2));
    for (id, member, role) in members {
        builder = builder.endpoint(EndpointSpec::new(*id, Arc::clone(member)).role(*role));
    }
    builder.build().unwrap()
}

fn plain(driver: &ScriptedDriver) -> Arc<dyn Database> {
    let driver = Arc::new(driver.clone());
    Arc::new(Plain::new(
        driver,
        &policy(),
        Tasks::new(),
        Chance::seeded(1),
    ))
}

fn at(driver: &ScriptedDriver, position: u64) {
    driver.set_position(Some(Position::Lsn(position)));
}

fn session() -> Options {
    Options {
        session: Some(Arc::from("s")),
        ..Options::default()
    }
}

/// Where twenty reads of the session went.
async fn read_from(proxy: &DataProxy) -> Vec<String> {
    let mut endpoints = Vec::new();
    for _ in 0..20 {
        let read = proxy.query("SELECT 1", vec![], session()).await.unwrap();
        endpoints.push(read.meta.endpoint.unwrap().to_string());
    }
    endpoints.sort();
    endpoints.dedup();
    endpoints
}

async fn write(proxy: &DataProxy) {
    let written = proxy.execute("UPDATE t SET a = 1", vec![], session()).await;
    written.unwrap();
}

struct World {
    outer: DataProxy,
    east: ScriptedDriver,
    west: [ScriptedDriver; 2],
}

/// `east`, the primary, has one database; `west` has two replicas of it.
async fn world() -> World {
    let east = ScriptedDriver::new(Dialect::Postgres);
    let west = [0, 1].map(|_| ScriptedDriver::new(Dialect::Postgres));
    for driver in [&east, &west[0], &west[1]] {
        at(driver, 100);
    }
    let far = [("b", &west[0]), ("c", &west[1])];
    let far = far.map(|(id, driver)| (id, plain(driver), Role::Replica));
    let sites = [
        ("east", source("east", &[("a", plain(&east), Role::Member)])),
        ("west", source("west", &far)),
    ];
    let [first, second] = sites.map(|(id, site)| (id, Arc::new(site) as Arc<dyn Database>));
    let outer = source(
        "outer",
        &[
            (first.0, first.1, Role::Primary),
            (second.0, second.1, Role::Replica),
        ],
    );
    read_from(&outer).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    World { outer, east, west }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_written_nothing_reads_anywhere() {
    let world = world().await;
    assert_eq!(
        read_from(&world.outer).await,
        ["east/a", "west/b", "west/c"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_through_a_source_has_a_position_that_another_source_is_measured_by() {
    let world = world().await;
    at(&world.east, 200);
    write(&world.outer).await;
    assert_eq!(read_from(&world.outer).await, ["east/a"]);
    // Of a source with several replicas only those serve the session that have come so far.
    at(&world.west[1], 200);
    assert_eq!(read_from(&world.outer).await, ["east/a", "west/c"]);
}

#[tokio::test(start_paused = true)]
async fn a_lone_source_behind_an_endpoint_keeps_the_sessions_itself() {
    let drivers = [0, 1].map(|_| ScriptedDriver::new(Dialect::Postgres));
    for driver in &drivers {
        at(driver, 100);
    }
    let inner = source(
        "inner",
        &[
            ("a", plain(&drivers[0]), Role::Primary),
            ("b", plain(&drivers[1]), Role::Replica),
        ],
    );
    let outer = source("outer", &[("i", Arc::new(inner), Role::Member)]);
    read_from(&outer).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(read_from(&outer).await, ["i/a", "i/b"]);
    at(&drivers[0], 200);
    write(&outer).await;
    assert_eq!(read_from(&outer).await, ["i/a"]);
    at(&drivers[1], 200);
    assert!(read_from(&outer).await.contains(&"i/b".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_source_says_how_far_it_has_come() {
    let world = world().await;
    let far = [("b", &world.west[0]), ("c", &world.west[1])];
    let far = far.map(|(id, driver)| (id, plain(driver), Role::Replica));
    let replicas = source("r", &far);
    at(&world.west[1], 300);
    let position = replicas.position().await.unwrap();
    assert_eq!(position, Some(Position::Lsn(300)));
    let probe = replicas.probe().await.unwrap();
    assert_eq!(probe.position, Some(Position::Lsn(300)));
    // Two that may both be written to have nothing in common.
    let far = far.map(|(id, member, _)| (id, member, Role::Member));
    assert_eq!(source("m", &far).position().await.unwrap(), None);
}

#[test]
fn endpoints_of_several_kinds_are_refused() {
    let members = [Dialect::Postgres, Dialect::MySql].map(|it| plain(&ScriptedDriver::new(it)));
    let mut builder = DataProxy::builder("s", policy());
    for (id, member) in ["a", "b"].into_iter().zip(members) {
        builder = builder.endpoint(EndpointSpec::new(id, member));
    }
    let refused = builder.build().unwrap_err();
    assert_eq!(refused.code(), Code::BadRequest, "{refused}");
    assert!(refused.to_string().contains("several kinds"), "{refused}");
}
