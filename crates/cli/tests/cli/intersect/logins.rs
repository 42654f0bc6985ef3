//! Brokers that refuse the login or are not there: found by `check --connect` before anything runs.

use super::world::{Broker, Kind, World};

/// Checks a configuration with the brokers asked. Gives code and text.
fn checked(world: &World, configuration: &str) -> (i32, String) {
    world.place.write("mainstay.toml", configuration);
    let run = world.place.run(&["check", "mainstay.toml", "--connect"]);
    (run.code, run.out)
}

async fn a_broker_is_asked(kind: Kind) {
    let world = World::new(kind).await;
    let configuration = world.configuration("");
    let (code, told) = checked(&world, &configuration);
    assert_eq!(code, 0, "{told}");
    let password = match world.broker {
        Broker::Mqtt(_) => mainstay_testkit::mosquitto::PASSWORD,
        Broker::Amqp(_) => "guest",
    };
    let wrong = format!("password = \"{password}\"");
    assert!(configuration.contains(&wrong));
    let (code, told) = checked(
        &world,
        &configuration.replace(&wrong, "password = \"another\""),
    );
    assert_eq!(code, 2, "{told}");
    assert!(
        told.contains("refuses us") && told.contains("check user, password"),
        "{told}"
    );
    assert!(
        told.contains("mainstay.toml:") && told.contains("services.compute.brokers.main"),
        "{told}"
    );
    let port = format!("port = {}", world.broker.port());
    let (code, told) = checked(&world, &configuration.replace(&port, "port = 1"));
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("cannot be reached"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_mqtt_broker_that_refuses_or_is_away_is_found_by_check() {
    a_broker_is_asked(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amqp_broker_that_refuses_or_is_away_is_found_by_check() {
    a_broker_is_asked(Kind::Amqp).await;
}
