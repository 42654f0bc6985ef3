//! Brokers that refuse, are down, stand still, or give the name to another: the program says so and comes back.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::api::{Api, counted};
use super::peers::{Client, Line, Work, Worker};
use super::world::{Broker, Kind, PRIMARY, WITHIN, World};
use crate::program::Server;

const SETTINGS: &str = "[services.compute.timeouts]\nheartbeat_interval = \"1s\"\n";

fn broker(service: &Value) -> &Value {
    &service["brokers"][0]
}

/// Waits until the connection is in a state that is not up, and gives what `mainstay services` says of it.
async fn told(world: &World, server: &Server, state: &str) -> String {
    let is_so = |service: &Value| {
        broker(service)["state"] == state && broker(service)["reason"].is_string()
    };
    Api::new(server).until(state, WITHIN, is_so).await;
    let run = world.place.run(&["services", "--url", &server.url]);
    assert_eq!(run.code, 0, "{run:?}");
    run.out
}

/// Waits until the connection stands and a request is served.
async fn recovers(world: &World, server: &Server) {
    let is_up = |service: &Value| broker(service)["state"] == "up";
    Api::new(server).until("connected", WITHIN, is_up).await;
    let client = Client::start(&world.broker).await;
    let id = client.send_kept("add", &json!({"a": 1, "b": 2})).await;
    let reply = client.reply(&id).await;
    assert!(!reply.has_error, "{reply:?}");
}

async fn a_refused_login_is_told_and_mended(kind: Kind) {
    let world = World::new(kind).await;
    let _worker = Worker::start(&world.broker, PRIMARY, Work::default()).await;
    let secret = match &world.broker {
        Broker::Mqtt(_) => mainstay_testkit::mosquitto::PASSWORD,
        Broker::Amqp(_) => "guest",
    };
    let configuration = world.configuration(SETTINGS);
    let password = format!("password = \"{secret}\"");
    assert!(configuration.contains(&password));
    let configuration = configuration.replace(&password, "password = \"file:secret\"");
    world.place.write("secret", "wrong");
    world.place.write("mainstay.toml", &configuration);
    let server = world.place.serve(&["--config", "mainstay.toml"]);
    let said = told(&world, &server, "refused").await;
    println!("{said}");
    assert!(said.contains("refused"), "{said}");
    world.place.write("secret", secret);
    recovers(&world, &server).await;
}

async fn a_broker_that_is_down_is_told_and_waited_for(kind: Kind) {
    let world = World::new(kind).await;
    world.broker.stop().await;
    world
        .place
        .write("mainstay.toml", &world.configuration(SETTINGS));
    let server = world.place.serve(&["--config", "mainstay.toml"]);
    let said = told(&world, &server, "down").await;
    println!("{said}");
    assert!(said.contains("down"), "{said}");
    world.broker.start_again().await;
    let _worker = Worker::start(&world.broker, PRIMARY, Work::default()).await;
    recovers(&world, &server).await;
}

async fn a_broker_that_stands_still_is_waited_for(kind: Kind) {
    let world = World::new(kind).await;
    let _worker = Worker::start(&world.broker, PRIMARY, Work::default()).await;
    let server = world.serve(&world.configuration(SETTINGS)).await;
    let client = Client::start(&world.broker).await;
    let api = Api::new(&server);
    let mut sent = Vec::new();
    for _ in 0..50 {
        sent.push(client.send_kept("sleep", &json!(0.2)).await);
    }
    let is_open = |service: &Value| counted(service, "requests") >= 25;
    api.until("requests under way", WITHIN, is_open).await;
    world.broker.freeze();
    sleep(Duration::from_secs(10)).await;
    world.broker.thaw();
    let all = |ledger: &super::peers::Ledger| (ledger.replies.len() == sent.len()).then_some(());
    client.until("a reply to every request", WITHIN, all).await;
    recovers(&world, &server).await;
    let service = api.settled(WITHIN).await;
    assert_eq!(counted(&service, "requests"), counted(&service, "replies"));
    let ledger = client.ledger.lock().unwrap();
    let errors = ledger.all().filter(|it| it.has_error).count();
    let (same, others) = ledger.twice();
    println!(
        "{kind:?}: {} connections, {errors} errors of {}, {same} the same twice",
        broker(&service)["connections"],
        sent.len()
    );
    assert_eq!(others, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_the_mqtt_broker_refuses_is_told_and_mended() {
    a_refused_login_is_told_and_mended(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_the_amqp_broker_refuses_is_told_and_mended() {
    a_refused_login_is_told_and_mended(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mqtt_broker_that_is_down_at_the_start_is_told_and_waited_for() {
    a_broker_that_is_down_is_told_and_waited_for(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amqp_broker_that_is_down_at_the_start_is_told_and_waited_for() {
    a_broker_that_is_down_is_told_and_waited_for(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mqtt_broker_that_stands_still_for_ten_seconds_is_waited_for() {
    a_broker_that_stands_still_is_waited_for(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amqp_broker_that_stands_still_for_ten_seconds_is_waited_for() {
    a_broker_that_stands_still_is_waited_for(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_client_of_the_same_id_is_told_and_outlived() {
    let world = World::new(Kind::Mqtt).await;
    let _worker = Worker::start(&world.broker, PRIMARY, Work::default()).await;
    let server = world.serve(&world.configuration(SETTINGS)).await;
    let second = Line::open_as(
        &world.broker,
        "org.fac.sys.sub.compute-proxy",
        Duration::ZERO,
    );
    // That is all that mosquitto lets us know.
    let said = told(&world, &server, "down").await;
    println!("{said}");
    let hint = "another client may use the same client id";
    assert!(said.contains(hint), "{said}");
    drop(second);
    recovers(&world, &server).await;
}
